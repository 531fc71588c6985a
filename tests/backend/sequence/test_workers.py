"""Kernels compiled by several processes: the same results, and nothing lost with a process that dies."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tedsl.backend.compiling import disk_cache
from tedsl.backend.sequence import workers
from tests.processes import run_script

PROGRAM = """
    import os, sys, threading, numpy as np, tedsl as te
    from schedules.default import assuming
    from tedsl.backend.compiling import variant_source
    from tedsl.backend.sequence import workers
    assumption = assuming({{"kernels": 2}})
    assumption.__enter__()
    workers.LEAST = 2
    workers.available_cpus = lambda: 3
    assert threading.active_count() == 1 and workers.may_compile_apart(4)
    here, compiled, compile_object = os.getpid(), [], variant_source.compile_object
    x = te.placeholder((40, 40), name="x")
    h, made = x, []
    for k in range(4):
        h = te.compute((40, 40), lambda i, j, h=h, k=k: te.sum(lambda l: h[i, l] * te.tanh(h[l, j] * (k + 1.0)) / 40))
        made.append(h)
    def built():
        kern = te.build([x], made)
        array = np.linspace(-1, 1, 1600, dtype="f4").reshape(40, 40)
        for found, want in zip(kern(array), te.interpret(made, {{x: array}})):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
        assert len(kern.core.plan.kernels) == 4 and kern.stats.compile_ms > 0
    {then}
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        print("no process is left")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEDSL_CACHE", "on")
    monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / disk_cache.FOLDER


def run(*lines: str) -> str:
    printed = run_script(PROGRAM.format(then="\n    ".join(lines)), timeout=120)
    assert "no process is left" in printed
    return printed


def compiled_by() -> str:
    """What a build prints that tells of each kernel whether this process compiled it."""
    return run(
        "def noting(*a):",
        "    os.write(1, f'compiled by {os.getpid() == here}\\n'.encode())",
        "    return compile_object(*a)",
        "variant_source.compile_object = noting",
        "built()",
    )


def test_all_processes_compile_and_the_results_are_right(folder: Path) -> None:
    printed = compiled_by()
    assert printed.count("compiled by") == 4
    assert "compiled by False" in printed
    assert len(list(folder.glob("*.kernel"))) == 4


@pytest.mark.share(2)
@pytest.mark.parametrize("why", ["off", "no folder"])
def test_where_nothing_is_kept_code_is_passed_on(
    why: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a folder that is gone afterwards."""
    (tmp_path / "between").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "between"))
    if why == "off":
        monkeypatch.setenv("TEDSL_CACHE", "off")
    else:
        (tmp_path / "taken").write_text("")
        monkeypatch.setenv("TEDSL_CACHE_DIR", str(tmp_path / "taken"))
    printed = compiled_by()
    assert printed.count("compiled by") == 4  # none of them twice
    assert "compiled by False" in printed
    assert not list(folder.glob("*"))
    assert not list((tmp_path / "between").iterdir())


def test_a_process_that_dies_leaves_its_kernels_to_this_one() -> None:
    run(
        "def dying(*a):",
        "    return compile_object(*a) if os.getpid() == here else os._exit(1)",
        "variant_source.compile_object = dying",
        "built()",
    )


def test_what_fails_everywhere_is_told_here() -> None:
    printed = run(
        "def failing(*a):",
        "    raise OSError('no compiler')",
        "variant_source.compile_object = failing",
        "try:",
        "    built()",
        "except OSError as error:",
        "    print(error)",
    )
    assert "no compiler" in printed


def test_where_a_fork_is_not_safe_threads_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "available_cpus", lambda: 2)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    monkeypatch.setattr(workers.sys, "platform", "linux")
    monkeypatch.setattr(workers, "_OBJECTING", ())
    assert workers.may_compile_apart(workers.LEAST)
    assert not workers.may_compile_apart(workers.LEAST - 1)
    assert workers.may_compile_apart(2, workers.LONG)
    assert not workers.may_compile_apart(2, workers.LONG / 2)
    changes: list[tuple[Any, str, Any]] = [
        (threading, "active_count", lambda: 2), (workers.sys, "platform", "darwin"), (workers, "_OBJECTING", ("sys",)),
        (workers, "available_cpus", lambda: 1), (workers, "loads_objects", lambda: False),
    ]  # fmt: skip
    for where, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            assert not workers.may_compile_apart(workers.LEAST)
