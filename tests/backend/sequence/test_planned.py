"""Programs of many kernels found on the disk: never scheduled again, never taken for another, rebuilt when damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.records import with_seal
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling import disk_cache, memory_cache, variant_source
from tedsl.backend.host import files
from tedsl.backend.scheduling import planner
from tedsl.backend.sequence.saved_form import recall_cut
from tedsl.backend.sequence.steps import Steps
from tests.backend.compiling.test_kept import PROBLEMS, spoiled
from tests.backend.sequence.networks import N, check_an_infinite_weight, convolutions, dense, layers, same, small
from tests.processes import run_script


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_everywhere: None) -> Path:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    begin()
    return tmp_path / "cache" / disk_cache.FOLDER


def built(count: int = 3, **options: Any) -> tuple[Kernel, list[te.Tensor], list[te.Tensor]]:
    x, weights, results = layers(count)
    return te.build([x, *weights], results, **options), [x, *weights], results


def cuts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.program"))


def begin() -> None:
    """As in a new process."""
    for known in (memory_cache._known, memory_cache._parts, memory_cache._recent):
        known.clear()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process; to schedule or to compile anything is an error."""
    begin()
    monkeypatch.setattr(variant_source, "compile_object", lambda *a: pytest.fail("this was compiled again"))
    monkeypatch.setattr(planner, "completed", lambda *a, **k: pytest.fail("this was scheduled again"))


def is_found(kern: Kernel) -> bool:
    """Whether it runs what another process compiled."""
    return isinstance(kern.core, Steps) and kern.core.is_found


def check(kern: Kernel, inputs: list[te.Tensor], outputs: list[te.Tensor]) -> None:
    same(kern, inputs, outputs, *(small(N, N) for _ in inputs))


def test_a_program_built_again_is_not_scheduled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _, _ = built()
    assert not is_found(first)
    assert len(cuts(folder)) == 1
    told = repr(first.program), first.loop_nest()
    arrays = [small(N, N) for _ in range(4)]
    expected = first(*arrays)
    used = first.stats
    with monkeypatch.context() as patch:
        forget(patch)
        kern, inputs, outputs = built()
        assert is_found(kern)
        for found, want in zip(kern(*arrays), expected, strict=True):
            np.testing.assert_array_equal(found, want)
        assert (kern.stats.bytes, kern.stats.peak_bytes) == (used.bytes, used.peak_bytes)
        check(kern, inputs, outputs)
    assert (repr(kern.program), kern.loop_nest()) == told
    assert "produce layer0" in kern.source("stmt")


def test_what_a_program_depends_on_makes_another_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kern, _, _ = built()
    x, weights, results = layers(3)
    other = te.compute((N, N), lambda i, j: results[2][i, j] * 3.0, name="layer3")
    for count, make in enumerate(
        [
            lambda: built(4), lambda: built(name="other"), lambda: te.build([*weights, x], results),
            lambda: te.build([x, *weights], results[::-1]), lambda: te.build([x, *weights], other),
        ], 2,
    ):  # fmt: skip
        make()
        assert len(cuts(folder)) == count
    monkeypatch.setattr(disk_cache, "_versions", lambda: ("another version",))
    begin()
    kern, inputs, outputs = built()
    assert not is_found(kern)
    check(kern, inputs, outputs)


def test_what_is_damaged_is_made_again(folder: Path) -> None:
    kern, _, _ = built()
    (path,) = cuts(folder)
    whole, payload = path.read_bytes(), files.read(path)
    assert payload is not None
    data = json.loads(payload)
    wrong: list[Any] = [
        data | {"tedsl_program": 0}, data | {"steps": [[0, [0, 99], [4]], *data["steps"][1:]]}, [],
        data | {"results": []},
        data | {"steps": [[0, [1, 0, 0], [4]], *data["steps"][1:]]}, data | {"steps": data["steps"][::-1]},
        data | {"tensors": data["tensors"][::-1]}, data | {"kernels": [["", "", [], 0, False]]}, {"tedsl_program": 1},
    ]  # fmt: skip
    sealed = [with_seal({k: v for k, v in w.items() if k != "seal"}) for w in wrong if isinstance(w, dict)]
    for damage in (b"", whole[:100], whole[:-1] + b"!", *wrong, *sealed):
        if isinstance(damage, bytes):
            path.write_bytes(damage)
        else:
            files.write(path, json.dumps(damage).encode())
        begin()
        kern, inputs, outputs = built()
        assert not is_found(kern)
        assert files.read(path) == payload
    check(kern, inputs, outputs)


def test_a_kernel_that_is_gone_is_compiled_again(folder: Path) -> None:
    kern, _, _ = built()
    for path in folder.glob("*.kernel"):
        path.unlink()
    begin()
    kern, inputs, outputs = built()
    assert is_found(kern)
    assert len(list(folder.glob("*.kernel"))) == 1
    check(kern, inputs, outputs)


def test_a_program_that_is_not_worth_cutting_is_known_to_be_one_kernel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = te.placeholder((N,), name="x")
    y = te.compute((N,), lambda i: te.exp(te.compute((N,), lambda k: x[k] + 1.0)[i]), name="y")
    assert te.build([x], y).core.single is not None
    assert [recall_cut(path.stem).steps for path in cuts(folder)] == [()]  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        forget(patch)
        kern = te.build([x], y)
    np.testing.assert_allclose(kern(np.zeros(N, "f4")), np.full(N, np.e), rtol=1e-6)


def test_symbolic_sizes_and_python_functions_are_not_kept(folder: Path) -> None:
    x, weights, results = layers(2, te.var("n"))
    te.build([x, *weights], results)
    y, others, again = layers(2)
    z = te.extern(np.tanh, (N, N), "float32", [again[-1]], name="z")
    te.build([y, *others], te.compute((N, N), dense(z, others[0]), name="after"))
    assert not cuts(folder)


@pytest.mark.parametrize("asked", ["alias", "donate"])
def test_updates_in_place_are_proven_once(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> Kernel:
        x, weights, results = layers(2)
        grads = te.differentiate((results[-1] * results[-1]).sum(), weights)
        updated = [
            te.compute((N, N), lambda i, j, w=w, g=g: w[i, j] - 0.1 * g[i, j], name=f"u{k}")
            for k, (w, g) in enumerate(zip(weights, grads, strict=True))
        ]
        places: Any = dict(zip(updated, weights, strict=True)) if asked == "alias" else [x, *weights]
        return te.build([x, *weights], updated, **{asked: places})

    arrays = [small(N, N) for _ in range(3)]
    expected = [a.copy() for a in program()(*[a.copy() for a in arrays])]
    forget(monkeypatch)
    kern = program()
    assert is_found(kern)
    places = [a.ctypes.data for a in arrays]
    for found, want in zip(kern(*arrays), expected, strict=True):
        assert found.ctypes.data in places
        np.testing.assert_array_equal(found, want)
    assert kern.stats.copies == []


def test_an_output_over_what_a_later_step_reads_is_refused_as_before() -> None:
    def program(**options: Any) -> Kernel:
        x, weights, results = layers(3)
        y = te.compute((N, N), lambda i, j: results[2][i, j] + te.exp(x[i, j]), name="y")
        return te.build([x, *weights], [results[0], y], alias={results[0]: x}, **options)

    program(on_hazard="copy")
    begin()
    with pytest.raises(te.AliasError, match=r"stage 'y' at .* reads x in a later step"):
        program()
    assert is_found(program(on_hazard="copy"))


def test_an_error_names_the_line_of_the_program_at_hand() -> None:
    def program() -> Kernel:
        h = [te.placeholder((8, 8), name="x")]
        tables = [te.placeholder((8,), "int32", name=f"index{k}") for k in range(2)]
        for number, t in enumerate(tables):
            body = lambda i, j, r=t, a=h[-1]: te.sum(lambda k: a[r[i], k] * a[j, k])  # noqa: E731
            h.append(te.compute((8, 8), body, name=f"h{number}"))
        return te.build([h[0], *tables], h[1:])

    program()
    begin()
    kern = program()
    assert is_found(kern)
    good, bad = np.arange(8, dtype="i4"), np.array([0, 1, 2, 3, 9, 5, 6, 7], "i4")
    out = [np.zeros((8, 8), "f4"), np.zeros((8, 8), "f4")]
    with pytest.raises(IndexError, match=r"compute 'h1' at .*test_planned.py.*index `index1\[i\]`.*it is 9"):
        kern(small(8, 8), good, bad, out=out)
    assert not out[0].any()
    assert not out[1].any()


def test_results_of_short_rows_are_found_as_they_were_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of its own has such rows as one row, a part of a program has them as it was cut."""

    def short() -> tuple[Kernel, list[te.Tensor], list[te.Tensor]]:
        x, w, b = te.placeholder((512, 8)), te.placeholder((8, 3)), te.placeholder((3,))
        error = te.tanh(x @ w + b) - 0.5
        loss = (error * error).mean()
        outputs = [loss, error * b, *te.differentiate(loss, [x, w, b])]
        return te.build([x, w, b], outputs), [x, w, b], outputs

    arrays = [small(512, 8), small(8, 3), small(3)]
    expected = short()[0](*arrays)
    forget(monkeypatch)
    kern, _, _ = short()
    assert is_found(kern)
    for found, want in zip(kern(*arrays), expected, strict=True):
        np.testing.assert_array_equal(found, want)


def test_numbers_that_are_not_finite() -> None:
    inputs, output = convolutions(2)
    te.build(inputs, output)
    begin()
    kern = te.build(inputs, output)
    assert is_found(kern)
    check_an_infinite_weight(kern, inputs, output)


def test_a_program_found_and_one_scheduled_share_kernels() -> None:
    built(3)
    begin()
    found, inputs, outputs = built(3)
    scheduled, more_inputs, more_outputs = built(4)
    assert is_found(found)
    assert not is_found(scheduled)
    check(found, inputs, outputs)
    check(scheduled, more_inputs, more_outputs)
    assert "4 calls of 1 kernel" in repr(scheduled.program)
    assert "3 calls of 1 kernel" in repr(found.program)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_without_a_place_nothing_is_kept(problem: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with spoiled(problem, folder, monkeypatch):
        for _ in range(2):
            kern, inputs, outputs = built(2)
            assert not is_found(kern)
            begin()
    check(kern, inputs, outputs)
    assert not folder.is_dir() or not cuts(folder)


SCRIPT = """
    import os, numpy as np, tedsl as te
    from schedules.default import assuming
    from tedsl.backend.scheduling import planner
    assumption = assuming({{"kernels": 2}})
    assumption.__enter__()
    x = te.placeholder((16, 16), name="x")
    h = x
    for k in range(4):
        h = te.compute((16, 16), lambda i, j, h=h: te.sum(lambda k: h[i, k] * te.tanh(h[k, j])), name=f"h{{k}}")
    loss = (h * h).sum()
    if {again}:
        planner.completed = None
    kern = te.build([x], [loss, te.differentiate(loss, x)])
    assert kern.core.is_found == {again}, kern.core
    found, slope = kern(np.full((16, 16), 0.1, "f4"))
    print(float(found), float(slope.sum()))
"""


def test_processes_with_other_hash_seeds_find_one_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        printed = run_script(SCRIPT.format(again=seed == "2"))
        seen.append((printed, *(path.read_bytes() for path in cuts(folder))))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 2
