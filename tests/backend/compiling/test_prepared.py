"""Kernels in a file for other machines' caches, and a cache that many users share."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tedsl as te
from tedsl.__main__ import main
from tedsl.backend.compiling import disk_cache, prepared, variant_source
from tedsl.backend.compiling.memory_cache import clear_cache
from tests.processes import ROOT

A = np.arange(12, dtype="float32").reshape(3, 4)
X = te.placeholder((te.var("n"), 4), name="x")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.delenv("TEDSL_CACHE_SHARED", raising=False)
    return use(tmp_path / "cache", monkeypatch)


def use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, as of another machine."""
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(folder))
    clear_cache()
    return folder


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variant_source, "compile_object", lambda *a: pytest.fail("this was compiled again"))


def build() -> te.Kernel:
    return te.build([X], te.compute(X.shape, lambda i, j: X[i, j] * 2, name="y"))


def test_a_cache_is_packed_and_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "kernels.zip")
    build()(A)
    assert main(["cache", "pack", file]) == 0
    assert capsys.readouterr().out.startswith("1 kernel, ")
    use(tmp_path / "other", monkeypatch)
    assert main(["cache", "unpack", file]) == 0
    assert main(["cache", "unpack", file]) == 0
    assert capsys.readouterr().out == "1 kernel, 1 of them new\n1 kernel, 0 of them new\n"
    forbid(monkeypatch)
    np.testing.assert_array_equal(build()(A), 2 * A)


def test_keys_hang_on_what_is_in_the_sources_and_not_on_their_times(folder: Path, tmp_path: Path) -> None:
    for part in ("tedsl", "schedules"):
        shutil.copytree(ROOT / part, tmp_path / "installed" / part, ignore=shutil.ignore_patterns("__pycache__"))
    there = tmp_path / "installed"
    digest = disk_cache._digest_of_sources(ROOT)
    assert disk_cache._digest_of_sources(there) == digest
    source = there / "tedsl" / "lang" / "expr.py"
    os.utime(source, (1, 1))
    assert disk_cache._digest_of_sources(there) == digest
    source.write_text(source.read_text() + "\n")
    assert disk_cache._digest_of_sources(there) != digest


def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for many users, with one kernel; the cache of our own is empty again."""
    build()(A)
    prepared.pack(tmp_path / "kernels.zip")
    assert main(["cache", "unpack", str(tmp_path / "kernels.zip"), "--into", str(tmp_path / "shared")]) == 0
    use(tmp_path / "own", monkeypatch)
    monkeypatch.setenv("TEDSL_CACHE_SHARED", str(tmp_path / "shared"))
    return tmp_path / "shared"


def test_a_shared_cache_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = shared(tmp_path, monkeypatch)
    before = sorted(there.rglob("*"))
    with monkeypatch.context() as patch:
        forbid(patch)
        np.testing.assert_array_equal(build()(A), 2 * A)
    te.build([X], te.compute(X.shape, lambda i, j: X[i, j] * 3, name="z"))(A)  # kept in the cache of our own
    assert sorted(there.rglob("*")) == before
    assert [entry.title for entry in disk_cache.entries()] == ["z: z"]


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of files are POSIX's")
@pytest.mark.parametrize("problem", ["written by others", "of another user", "nowhere"])
def test_a_shared_cache_that_others_can_write_is_not(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = shared(tmp_path, monkeypatch)
    if problem == "written by others":
        there.chmod(0o777)
    elif problem == "of another user":
        owner = (there / disk_cache.FOLDER).stat().st_uid
        monkeypatch.setattr("tedsl.backend.host.files._is_trusted", lambda found: owner != found.st_uid)
    else:
        shutil.rmtree(there)
    key = "0" * 40
    assert disk_cache.read(key, "kernel") is None
    made: list[object] = []
    real = variant_source.compile_object
    monkeypatch.setattr(variant_source, "compile_object", lambda *a: made.append(a) or real(*a))
    np.testing.assert_array_equal(build()(A), 2 * A)
    assert made


def rewritten(file: Path, change: object) -> None:
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, stored in change(contents).items():  # type: ignore[operator]
            archive.writestr(name, stored)


CHANGES = {
    "a name outside": lambda c: {"../../evil.kernel": next(iter(c.values()))},
    "a name of another kind": lambda c: {f"{disk_cache.FOLDER}/a.py": b"print()"},
    "a kernel under another name": lambda c: {
        f"{disk_cache.FOLDER}/{'0' * 40}.kernel": next(v for n, v in c.items() if n.endswith("kernel"))
    },
    "a changed byte": lambda c: {n: bytes([v[0] ^ 1]) + v[1:] for n, v in c.items()},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_not_packed_is_refused_before_anything_is_written(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kernels.zip"
    build()(A)
    prepared.pack(file)
    rewritten(file, CHANGES[change])
    other = use(tmp_path / "other", monkeypatch)
    assert main(["cache", "unpack", str(file)]) == 1
    assert f"{file}: " in (said := capsys.readouterr().err)
    assert "pack it again" in said
    assert not list(other.rglob("*.kernel"))


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_files_that_are_none_are_told(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kernels.zip"
    if content is not None:
        file.write_bytes(content)
    assert main(["cache", "unpack", str(file)]) == 1
    assert str(file) in capsys.readouterr().err
