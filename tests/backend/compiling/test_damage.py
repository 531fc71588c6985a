"""Kept files that are not what was kept: every single change ends in the right result, and nothing waits or breaks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.records import record_of, seal, typed, unsealed, with_seal
from tedsl.backend.compiling import disk_cache, memory_cache
from tedsl.backend.host import files
from tedsl.backend.host.targets import parse_target
from tedsl.backend.scheduling import tuned_choices
from tedsl.backend.sequence.saved_form import recall_cut
from tests.backend.sequence.networks import N, layers, small
from tests.changes import DEEP, changes
from tests.processes import run_script


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    begin()
    return tmp_path / "cache"


def begin() -> None:
    """As in a new process."""
    for known in (memory_cache._known, memory_cache._parts, memory_cache._recent):
        known.clear()


def one_kernel(factor: float = 2.0) -> None:
    """A program whose outputs have one shape and type, an index that is checked, and a number passed by value."""
    x, index = te.placeholder((te.var("n"), 4), name="x"), te.placeholder((4,), "int32", name="index")
    n, m = x.shape
    y = te.compute((n, m), lambda i, j: x[i, index[j]] * factor, name="y")
    z = te.compute((n, m), lambda i, j: x[i, index[j]] + n, name="z")
    a, k = np.arange(12, dtype="f4").reshape(3, 4), np.array([1, 0, 3, 2], "i4")
    found, more = te.build([x, index], [y, z])(a, k)
    np.testing.assert_array_equal(found, factor * a[:, k])
    np.testing.assert_array_equal(more, a[:, k] + 3)
    begin()


def many_kernels(factor: float = 1.0) -> None:
    """A program that is cut into several kernels, as it has many operations."""
    x, weights, results = layers(26)
    last = te.compute((N, N), lambda i, j: results[-1][i, j] * factor, name="last")
    arrays = [small(N, N) for _ in range(27)]
    outputs = [results[0], last]
    found = te.build([x, *weights], outputs)(*arrays)
    expected = te.interpret(outputs, dict(zip([x, *weights], arrays, strict=True)))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    begin()


def tuned() -> te.Tensor:
    x = te.placeholder((64,), name="x")
    return te.compute((64,), lambda i: x[i] * 2, name="tuned")


def header_of(payload: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(payload[:4], "little")
    return json.loads(payload[4 : 4 + size]), payload[4 + size :]


def with_header(header: bytes, image: bytes) -> bytes:
    return len(header).to_bytes(4, "little") + header + image


def only(folder: Path, pattern: str) -> tuple[Path, bytes]:
    (path,) = folder.rglob(pattern)
    payload = files.read(path)
    assert payload is not None
    return path, payload


def test_every_change_of_a_kernels_header_is_noticed(folder: Path) -> None:
    one_kernel()
    path, payload = only(folder, "*.kernel")
    whole, (header, image) = disk_cache.recall(path.stem), header_of(payload)
    assert whole is not None
    tried = 0
    for changed in changes(header):
        files.write(path, with_header(json.dumps(changed).encode(), image))
        found = disk_cache.recall(path.stem)
        assert found is None or replace(found, title=whole.title) == whole, changed  # the title is for people
        tried += 1
    assert tried > 300
    for text in (DEEP, b"", b"nonsense", b'{"a":' * 50_000, "\ud800".encode("utf-16", "surrogatepass")):
        files.write(path, with_header(text, image))
        assert disk_cache.recall(path.stem) is None


def test_every_byte_of_a_kernel_is_noticed(folder: Path) -> None:
    one_kernel()
    path, payload = only(folder, "*.kernel")
    whole = disk_cache.recall(path.stem)
    for k in range(0, len(payload), max(1, len(payload) // 500)):
        files.write(path, payload[:k] + bytes([payload[k] ^ (1 << k % 8)]) + payload[k + 1 :])
        found = disk_cache.recall(path.stem)
        assert found is None or replace(found, title=whole.title) == whole  # type: ignore[union-attr]
    for k in (0, 3, 4, 100, len(payload) // 2, len(payload) - 1):
        files.write(path, payload[:k])
        assert disk_cache.recall(path.stem) is None


def test_a_description_that_the_code_was_not_made_for_is_not_believed(folder: Path) -> None:
    """As somebody would keep it who knows how, with another value in one field."""
    one_kernel()
    path, _ = only(folder, "*.kernel")
    whole = disk_cache.recall(path.stem)
    assert whole is not None
    other = {
        "entry": "te_other_argv", "target": "x86-64-linux-cuda", "sizes": (), "zero": not whole.zero,
        "order": whole.order[::-1], "checks": not whole.checks, "careful": not whole.careful, "shapes": ((3, 4),),
        "finite": (0,),
    }  # fmt: skip
    assert set(other) == {f.name for f in fields(disk_cache.Kept)} - {"image", "title"}
    for name, value in other.items():
        disk_cache.keep(path.stem, replace(whole, **{name: value}))
        assert disk_cache.recall(path.stem) is None, name
        one_kernel()
        again = disk_cache.recall(path.stem)
        assert again is not None
        assert replace(again, image=whole.image) == whole  # Halide counts what it names


def test_every_change_of_a_planned_program_is_noticed(folder: Path) -> None:
    many_kernels()
    path, payload = only(folder, "*.program")
    whole, tried = recall_cut(path.stem), 0
    assert whole is not None
    assert whole.steps
    for changed in changes(json.loads(payload)):
        files.write(path, json.dumps(changed).encode())
        assert recall_cut(path.stem) is None, changed
        tried += 1
    assert tried > 1000
    for text in (DEEP, b"", b"{", b"\xff"):
        files.write(path, text)
        assert recall_cut(path.stem) is None


def test_a_planned_program_that_is_sealed_again_has_the_types_it_must_have(folder: Path) -> None:
    """What fits the program is believed then; all else is scheduled again, and nothing breaks."""
    many_kernels()
    path, payload = only(folder, "*.program")
    data = unsealed(payload)
    for changed in changes(data)[::3]:
        if isinstance(changed, dict):
            files.write(path, json.dumps(with_seal(changed)).encode())
            found = recall_cut(path.stem)
            assert found is None or all(type(n) is int and n >= 0 for s in found.steps for n in (*s.inputs, *s.outputs))


def test_every_change_of_a_tuned_schedule_is_noticed(folder: Path) -> None:
    target, choices = parse_target("host"), {"tuned:vectors": 2, "cores": 1}
    assert tuned_choices.remember([tuned()], target, choices, {"seconds": 1.0, "tried": 3})
    (path,) = folder.rglob("*.json")
    tried = 0
    for changed in changes(json.loads(path.read_bytes())):
        path.write_bytes(json.dumps(changed).encode())
        assert tuned_choices.recall([tuned()], target) is None, changed
        tried += 1
    assert tried > 400
    for text in (DEEP, b"", b"\xff\xfe", b"[]"):
        path.write_bytes(text)
        assert tuned_choices.recall([tuned()], target) is None
    with pytest.warns(UserWarning, match="nothing is remembered for tuned"):
        kern = te.build([(y := tuned()).op.inputs[0]], y, schedule="tuned")
    np.testing.assert_array_equal(kern(np.ones(64, "f4")), np.full(64, 2, "f4"))
    assert tuned_choices.remember([tuned()], target, choices, {})
    assert tuned_choices.recall([tuned()], target) == choices


@pytest.mark.parametrize(("pattern", "program"), [("*.kernel", one_kernel), ("*.program", many_kernels)])
def test_two_entries_that_were_swapped_are_made_again(folder: Path, pattern: str, program: Callable[..., None]) -> None:
    program()
    first = set(folder.rglob(pattern))
    program(3.0)
    (other,) = set(folder.rglob(pattern)) - first
    (one,) = first
    whole, more = one.read_bytes(), other.read_bytes()
    one.write_bytes(more)
    other.write_bytes(whole)
    program()
    program(3.0)
    assert files.read(one) is not None
    assert files.read(other) is not None


def test_objects_of_other_names_are_built_again(folder: Path) -> None:
    for name in ("one", "two"):
        assert files.fetch(name, name.encode) == name.encode()
    objects = folder / "objects"
    (objects / "two").write_bytes((objects / "one").read_bytes())
    assert files.fetch("two", b"built".lower) == b"built"


def test_a_sample_of_changes_ends_in_the_right_result(folder: Path) -> None:
    for pattern, program in (("*.kernel", one_kernel), ("*.program", many_kernels)):
        program()
        path = next(iter(folder.rglob(pattern)))
        payload = files.read(path) or b""
        header, image = header_of(payload) if pattern == "*.kernel" else (json.loads(payload), b"")
        listed = changes(header)
        for changed in listed[:: len(listed) // 10]:
            text = json.dumps(changed).encode()
            files.write(path, with_header(text, image) if image else text)
            program()


KINDS = """
    import os, shutil, tempfile, numpy as np
    from pathlib import Path
    import tedsl as te
    from tedsl.backend.compiling import memory_cache
    from tedsl.backend.host import files
    files.MOST_BYTES = 1 << 20  # of which an object of the runtime has a sixth
    folder = Path(os.environ["TEDSL_CACHE_DIR"])

    def program():
        x = te.placeholder((16,), name="x")
        y = te.compute((16,), lambda i: x[i] * 3, name="y")
        assert (te.build([x], y, schedule={schedule!r})(np.ones(16, "f4")) == 3).all()
        memory_cache._known.clear(), memory_cache._recent.clear()

    def large(path):
        path.write_bytes(b"")
        os.truncate(path, 1 << 40)

    def folder_with_a_file(path):
        path.mkdir()
        (path / "file").write_bytes(b"x")

    program()
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    assert paths
    for path in paths:
        whole = path.read_bytes()
        for make in (
            os.mkfifo, lambda p: p.symlink_to("/dev/zero"), lambda p: p.symlink_to("/nowhere"), large,
            lambda p: p.symlink_to(p.name), folder_with_a_file,
            lambda p: p.symlink_to(tempfile.mkstemp(dir=folder)[1]),
        ):
            path.unlink()
            make(path)
            program()
            found = files.read(path)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
            path.write_bytes(whole)
    print("ok")
"""


@pytest.mark.skipif(os.name != "posix", reason="pipes and links are made otherwise here")
def test_what_is_no_plain_file_is_not_read(folder: Path) -> None:
    assert run_script(KINDS.format(schedule=None), timeout=120) == "ok\n"


def test_folders_among_the_files_are_in_nobodys_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_kernel()
    path, _ = only(folder, "*.kernel")
    (path.parent / "folder.kernel").mkdir()
    (path.parent / "folder.program").mkdir()
    for size in ("0", "inf", "0.001"):
        monkeypatch.setenv("TEDSL_CACHE_MB", size)
        one_kernel()
        one_kernel(4.0)
    assert "damaged" in [entry.title for entry in disk_cache.entries()]
    disk_cache.forget_all()
    assert [p.name for p in path.parent.iterdir() if p.is_file()] == []


def test_values_of_other_types_are_refused() -> None:
    values = {"name": "x", "bytes": 3, "used": 1.5}

    @dataclass
    class Kind:
        name: str
        bytes: int
        used: float

    assert record_of(Kind, values) == Kind("x", 3, 1.5)
    for wrong in ({"name": 1}, {"bytes": True}, {"bytes": 3.0}, {"used": 1}, {"more": 1}):
        with pytest.raises(ValueError, match="expected"):
            record_of(Kind, {**values, **wrong})
    assert typed(tuple[int, ...], [1, 2]) == (1, 2)
    assert typed(tuple[tuple[int, ...] | None, ...], [[1], None]) == ((1,), None)
    for hint, value in ((tuple[int, str], [1]), (tuple[int, ...], "12"), (int, True), (str, None), (bool, 1)):
        with pytest.raises(ValueError, match="expected"):
            typed(hint, value)
    assert seal([1, (2, 3)]) == seal([1, [2, 3]]) != seal([1, [2, 4]])
