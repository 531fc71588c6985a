"""Kernels kept on disk: found by what they depend on, rebuilt when damaged, never in the way."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.__main__ import main
from tedsl.backend.compiling import disk_cache, variant_source
from tedsl.backend.compiling.memory_cache import clear_cache
from tedsl.commands import cache
from tests.processes import ROOT, run_script

A = np.arange(12, dtype="float32").reshape(3, 4)
X = te.placeholder((te.var("n"), 4), name="x")
PROBLEMS = ["off", "open to others", "a file", "full"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    clear_cache()
    return tmp_path / "cache" / disk_cache.FOLDER


def doubled(name: str = "y", factor: float = 2.0) -> te.Tensor:
    return te.compute(X.shape, lambda i, j: X[i, j] * factor, name=name)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kernel"))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process; to compile anything is an error."""
    clear_cache()
    monkeypatch.setattr(variant_source, "compile_object", lambda *a: pytest.fail("this was compiled again"))


def test_a_program_built_again_is_not_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    te.build([X], doubled())(A)
    assert len(files(folder)) == 1
    forget(monkeypatch)
    kern = te.build([X], doubled())
    np.testing.assert_array_equal(kern(A), 2 * A)
    np.testing.assert_array_equal(kern(np.ones((7, 4), "f4")), np.full((7, 4), 2, "f4"))
    assert "for i" in kern.loop_nest()
    assert "produce y" in kern.source("stmt")
    assert (kern.stats.temporaries, kern.stats.peak_bytes) == (0, 2 * 7 * 4 * 4)


@pytest.mark.parametrize("value", ["/tmp/kernels", "of", "2"])
def test_what_the_cache_is_told_is_no_word_of_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE", value)
    told = rf"TEDSL_CACHE: 'off' or 'on' was expected, found '{value}'; a folder is TEDSL_CACHE_DIR={value}"
    with pytest.raises(ValueError, match=told):
        te.build([X], doubled())(A)


@pytest.mark.parametrize("size", ["-1", "nan", "many"])
def test_how_much_is_kept_is_a_number(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEDSL_CACHE_MB", size)
    with pytest.raises(ValueError, match=f"TEDSL_CACHE_MB: a number of megabytes was expected, found '{size}'"):
        te.build([X], doubled())(A)


def test_everything_a_kernel_depends_on_makes_another_one(folder: Path) -> None:
    s = te.Schedule(y := doubled())
    s[y].vectorize("j", 4)
    variants: list[Any] = [
        ([X], doubled(), {}), ([X], doubled("z"), {}), ([X], doubled(factor=3.0), {}), ([X], y, {"schedule": s}),
        ([X], doubled(), {"name": "other"}), ([X], [doubled(), doubled("w")], {}), ([X], doubled(), {"target": "cuda"}),
    ]  # fmt: skip
    for count, (inputs, outputs, options) in enumerate(variants, 1):
        te.build(inputs, outputs, **options)
        assert len(files(folder)) == count
    kern = te.build([X], doubled())
    kern(A[:, ::2].repeat(2, 1)[:, ::-1])  # another stride
    out = np.zeros_like(A)
    kern(A, out=out, mode="add")
    assert len(files(folder)) == len(variants) + 2


def test_a_directive_less_is_another_kernel(folder: Path) -> None:
    y = te.compute(X.shape, lambda i, j: te.exp(X[i, j]), name="y")
    for factor in (2, 4):
        s = te.Schedule(y)
        s[y].split("i", factor)
        te.build([X], y, schedule=s)
    assert len(files(folder)) == 2


def test_an_error_of_a_kept_kernel_names_the_line_of_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    index = te.placeholder((4,), "int32", name="index")

    def picked() -> te.Tensor:
        return te.compute((4,), lambda i: X[index[i], i], name="picked")

    te.build([X, index], picked())
    forget(monkeypatch)
    kern = te.build([X, index], picked())
    np.testing.assert_array_equal(kern(A, np.array([0, 1, 2, 0], "int32")), [0, 5, 10, 3])
    with pytest.raises(IndexError, match=r"test_kept.py:\d+"):
        kern(A, np.array([0, 1, 3, 0], "int32"))


def test_sizes_of_a_kept_kernel_are_those_of_the_program_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> tuple[te.Tensor, te.Tensor]:
        n, m = te.var("n"), te.var("m")
        x = te.placeholder((m, n), name="x")
        return x, te.compute((n, m), lambda i, j: x[j, i] + n * 10 - m, name="y")

    x, y = program()
    te.build([x], y)
    forget(monkeypatch)
    x, y = program()
    np.testing.assert_array_equal(te.build([x], y)(A), A.T + 40 - 3)


def test_what_is_damaged_is_built_again(folder: Path) -> None:
    te.build([X], doubled())
    (path,) = files(folder)
    whole = path.read_bytes()
    for damage in (b"", whole[:100], whole[:-1] + b"!", b"\0" * len(whole)):
        path.write_bytes(damage)
        clear_cache()
        np.testing.assert_array_equal(te.build([X], doubled())(A), 2 * A)
        assert disk_cache.recall(path.stem) is not None


def spoiled(problem: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[Any]:
    """Let nothing be kept in `folder`, for one of PROBLEMS; what is told of it in the block, once."""
    if problem == "off":
        monkeypatch.setenv("TEDSL_CACHE", "off")
    elif problem == "open to others":
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    elif problem == "a file":
        folder.parent.write_text("")
    else:
        monkeypatch.setattr("tempfile.mkstemp", lambda **k: (_ for _ in ()).throw(OSError(28, "No space left")))
    is_told = problem in ("open to others", "a file")
    return pytest.warns(UserWarning, match="TEDSL_CACHE_DIR=.*cache: ") if is_told else nullcontext()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_without_a_place_nothing_is_kept(problem: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with spoiled(problem, folder, monkeypatch):
        np.testing.assert_array_equal(te.build([X], doubled())(A), 2 * A)
    assert not folder.is_dir() or not files(folder)


def test_the_kernels_used_longest_ago_make_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    te.build([X], doubled())
    (first,) = files(folder)
    monkeypatch.setenv("TEDSL_CACHE_MB", str(2.5 * first.stat().st_size / 2**20))
    for factor in (3.0, 4.0):
        time.sleep(0.02)
        te.build([X], doubled(factor=factor))
    assert len(files(folder)) == 2
    assert not first.exists()


def test_files_are_counted_after_a_share_of_what_may_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them take 30 to 170 ms to count, as long as a kernel to compile."""
    counted: list[Path] = []
    monkeypatch.setattr(disk_cache, "_make_room", counted.append)
    for k in range(300):
        disk_cache.write(f"{k:064x}", "kernel", bytes(1 << 14))
    assert len(counted) < 5  # 4.7 MB of 1024
    monkeypatch.setenv("TEDSL_CACHE_MB", "64")
    for k in range(300):
        disk_cache.write(f"{k:064x}", "kernel", bytes(1 << 14))
    assert 1 < len(counted) < 30
    disk_cache.write("0" * 64, "kernel", bytes(1 << 20))
    assert counted[-1] == folder


def test_the_command_lists_and_clears(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    te.build([X], doubled())
    assert main(["cache"]) == 0
    listed = capsys.readouterr().out
    assert "1 kernel, " in listed
    assert str(folder) in listed
    assert "y: y" in listed
    monkeypatch.setattr(cache, "FIRST", 1)
    te.build([X], doubled(factor=3.0))
    assert main(["cache", "list"]) == 0
    assert capsys.readouterr().out.endswith("y: y\n  and 1 others, which `tedsl cache list --all` lists\n")
    assert main(["cache", "list", "--all"]) == 0
    assert capsys.readouterr().out.count("y: y") == 2
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "2 kernels removed\n"
    assert not files(folder)


SCRIPT = """
    import numpy as np, tedsl as te
    x = te.placeholder((te.var("n"), 4), name="x")
    y = te.compute(x.shape, lambda i, j: te.exp(x[i, j]) + {number}, name="y")
    kern = te.build([x], y)
    found = kern(np.ones((3, 4), "f4"))
    assert np.allclose(found, np.e + {number}), found
    print(kern.stats.compile_ms)
"""


def test_another_process_loads_what_one_compiled(folder: Path) -> None:
    run_script(SCRIPT.format(number=1))
    (path,) = files(folder)
    before = path.read_bytes()
    run_script(SCRIPT.format(number=1))
    assert [p.read_bytes() for p in files(folder)] == [before]


NURSERY = """
import os
import random
import signal
import sys
import time

import numpy as np

import tedsl as te
from tedsl.backend import build
from tedsl.backend.compiling import disk_cache
from tedsl.backend.compiling.memory_cache import clear_cache


def built(number):
    x = te.placeholder((te.var("n"), 4), name="x")
    y = te.compute(x.shape, lambda i, j: te.exp(x[i, j]) + number, name="y")
    found = te.build([x], y)(np.ones((3, 4), "f4"))
    assert np.allclose(found, np.e + number), (number, found)


def builder(seed):
    draw = random.Random(seed)
    while True:
        for number in draw.sample(range(5), 5):
            clear_cache()  # what this process holds in memory
            built(number)
        disk_cache.forget_all()


def born(seed):
    child = os.fork()
    if child:
        return child
    try:
        builder(seed)
    finally:
        os._exit(1)


draw = random.Random(int(sys.argv[1]))
alive = [born(seed) for seed in range(3)]
for kill in range(200):
    time.sleep(draw.uniform(0.0, float(sys.argv[2])))
    victim = alive.pop(draw.randrange(len(alive)))
    assert os.waitpid(victim, os.WNOHANG) == (0, 0), "a builder ended by itself"
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    alive.append(born(kill + 3))
for child in alive:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
for number in range(5):
    built(number)
print("killed 200")
"""


@pytest.mark.long
def test_processes_killed_at_any_moment_leave_no_wrong_kernel(folder: Path) -> None:
    """Three processes at a time build, run and remove the same five kernels; 200 of them are killed meanwhile."""
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, "0", "0.4"], cwd=ROOT, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "killed 200\n"
    assert done.stderr == ""
    for number in range(5):
        run_script(SCRIPT.format(number=number))
    assert all(entry.title == "y: y" for entry in disk_cache.entries())
