"""Nests in files: what is read is what was written; what is no nest, and damaged files, are refused in words."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tedsl as te
from tedsl.ops import optim

SUFFIXES = [".npz", ".safetensors"]


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return tmp_path / f"model{request.param}"


def same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            same(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted):
            same(f, w)
    elif isinstance(wanted, np.ndarray):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)
    else:
        assert found == wanted


@dataclasses.dataclass
class Layer:
    w: Any
    name: str
    size: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = self.w.size


class Pair(NamedTuple):
    first: Any
    second: Any


def test_records_are_dicts_of_their_fields_and_records_again(path: Path) -> None:
    nest = [Layer(np.arange(6.0), "a"), Pair(Layer(np.ones((2, 2), "float32"), "b"), {"n": 3}), (np.zeros(2),)]
    te.save(path, nest)
    same(te.load(path)[1], {"first": {"w": np.ones((2, 2), "float32"), "name": "b"}, "second": {"n": 3}})
    like = [Layer(np.ones(1), ""), Pair(Layer(np.ones(1), ""), {"n": 0}), (0.0,)]
    layer, pair, row = te.load(path, like=like)
    assert (layer.name, layer.size, pair.first.size, pair.second) == ("a", 6, 4, {"n": 3})
    assert isinstance(row, tuple)
    same(row[0], np.zeros(2))
    for other in ([like[0]], [*like[:2], {0: 1, 1: 2}], [*like[:2], Layer(row[0], "")]):
        with pytest.raises(ValueError, match=r"te.load of .* at .*: expected .* as in like=, found"):
            te.load(path, like=other)


def test_a_training_of_records_goes_on_from_a_file(path: Path) -> None:
    step = optim.train_step(lambda layer, x: ((layer.w * x) ** 2).sum(), optimizer=optim.Adam(0.1))
    state = step.start(Layer(np.ones(3), "a"))
    _, state = step(state, np.ones(3))
    te.save(path, state)
    again = step(te.load(path, like=state), np.ones(3))
    assert again[0] == step(state, np.ones(3))[0]
    assert isinstance(again[1].params, Layer)


def test_what_is_read_is_what_was_written(path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    nest = {
        "layers": [
            {"w": np.arange(6.0).reshape(2, 3), "b": np.zeros((), "float16")},
            (np.arange(3, dtype="int8"), None),
        ],
        "layers.0.w": np.ones((0, 2), "bool"),
        "half": np.arange(4).astype(ml_dtypes.bfloat16),
        7: np.arange(10)[::-2],
        "file": np.ones(1),
        "allow_pickle": np.ones(2),
        "text": "conv, 3x3",
        "lr": 1e-3,
        "deep": {"": {"": np.ones(1, "uint64")}},
    }
    te.save(path, nest)
    same(te.load(path), nest)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_training_goes_on_where_it_was_left(path: Path) -> None:
    step = optim.train_step(lambda p, x: ((p["w"] - x) * (p["w"] - x)).mean(), optim.Adam(0.1))
    state, x = step.start({"w": np.zeros(3, "float32")}), np.arange(3, dtype="float32")
    for _ in range(3):
        _, state = step(state, x)
    te.save(path, state)
    again: Any = te.load(path)
    assert isinstance(again, dict)
    for _ in range(3):
        (_, state), (_, again) = step(state, x), step(again, x)
    np.testing.assert_array_equal(state.params["w"], again.params["w"])
    assert again.steps == 6


def test_a_step_over_tensors_goes_on_from_a_file(path: Path) -> None:
    w, x = te.placeholder((3,), name="w"), te.placeholder((3,), name="x")
    step = optim.train_step(((w - x) * (w - x)).mean(), [w], [x], optim.Adam(0.1))
    array, state = np.arange(3, dtype="float32"), step.start([np.zeros(3)])
    for _ in range(3):
        _, state = step(state, array)
    te.save(path, state)
    _, wanted = step(state, array)
    kept = wanted.copy()
    _, again = step(te.load(path), array)
    np.testing.assert_array_equal(again.params[0], kept.params[0])
    assert again.steps == kept.steps == 4


def test_files_of_others_are_dicts_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "theirs.npz", a=np.arange(3), b=np.ones(2))
    same(te.load(tmp_path / "theirs.npz"), {"a": np.arange(3), "b": np.ones(2)})


def test_damaged_files_are_told_in_words(path: Path) -> None:
    te.save(path, {"a": np.arange(10.0), "b": [1, 2]})
    whole = path.read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2], whole[:80] + b"\xff\xff" + whole[82:-1]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"te.load at .*model.* is damaged, or holds more than arrays"):
            te.load(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        te.load(path)


def test_objects_are_not_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "theirs.npz", a=np.array([{}], object))
    with pytest.raises(ValueError, match="holds more than arrays, and nothing in it is run"):
        te.load(tmp_path / "theirs.npz")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a path that ends in .npz or .safetensors, found 'model.pt'"):
        te.save("model.pt", {})
    with pytest.raises(ValueError, match=r"ends in .npz or .safetensors"):
        te.load("model.pt")
    with pytest.raises(TypeError, match=r"a.0 is object .*expected an array, a number or text"):
        te.save(tmp_path / "x.npz", {"a": [object()]})
    with pytest.raises(TypeError, match="keys of dicts must be strings or integers"):
        te.save(tmp_path / "x.npz", {(1, 2): 3})
    assert list(tmp_path.iterdir()) == []
    for text in ("[", '{"array": "b"}', '{"list": 3}', "{}", "3", '{"other": 1}'):
        np.savez(tmp_path / "bad.npz", a=np.ones(1), __nest__=np.array(text))
        with pytest.raises(ValueError, match="is damaged"):
            te.load(tmp_path / "bad.npz")


def test_a_tensor_of_a_program_has_nothing_to_save(tmp_path: Path) -> None:
    for value in (te.ones((3,)), te.ones((3,))[0], te.var("n")):
        with pytest.raises(TypeError, match=r"a is a tensor of a program, .* te.evaluate\(x, feeds\) computes them"):
            te.save(tmp_path / "w.npz", {"a": value})


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"te.save at .*: there is no folder '.*missing'; os.makedirs"
    ) as caught:
        te.save(tmp_path / "missing" / "w.npz", {"a": np.ones(3)})
    assert ".w.npz" not in str(caught.value)


def test_arrays_of_frameworks_come_back_as_those_of_numpy(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"w": torch.ones(3)}
    te.save(tmp_path / "w.npz", state)
    assert type(te.load(tmp_path / "w.npz", like=state)["w"]) is np.ndarray


def test_bfloat16_of_torch_is_kept(path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = optim.State({"w": torch.ones(3, dtype=torch.bfloat16, requires_grad=True)}, (), 3)
    te.save(path, made)
    found = te.load(path, like=made)
    assert (found.params["w"].dtype.name, found.steps) == ("bfloat16", 3)
    np.testing.assert_array_equal(found.params["w"].astype("float32"), np.ones(3))


def test_what_has_no_memory_to_write_is_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"te\.save at .*: a\.0: .*layout torch\.sparse_coo on cpu; give x\.to_dense"):
        te.save(tmp_path / "w.npz", {"a": [torch.eye(3).to_sparse()]})
