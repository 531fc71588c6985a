"""Stages with threads of their own: which there are, what the printed schedule says, and that every call ends.

Kernels with such stages are called in processes of their own, with a limit: one that never ended would take the suite
along.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from autodiff.strategies import programs
from schedules.placing.ahead import is_asked_ahead, why_in_turn
from tedsl.backend.host.loaders import loads_objects
from tests.processes import run_script
from tests.schedules.drawing import AHEAD_VERBS, VERBS, Drawing

COUNT, CALLS = (1000, 20) if os.environ.get("TEDSL_LONG") else (20, 5)
SECONDS = 60 + 2 * COUNT
AHEAD = "computed ahead by a thread of its own"


@pytest.mark.share(2)
@pytest.mark.parametrize("first", [0, 10_000])
def test_drawn_schedules_end_with_the_same_results(first: int) -> None:
    text = f"from tests.schedules.ahead_programs import main\nmain({first}, {COUNT}, {CALLS})"
    said = run_script(text, timeout=SECONDS)
    built, ahead = map(int, re.findall(r"\d+", said.splitlines()[-1]))
    assert built >= COUNT // 2
    assert ahead >= COUNT // 40


PROGRAM = """
import numpy as np
import tedsl as te

x = te.placeholder((64, 48), name="x")
T = te.compute((64, 48), lambda i, j: te.exp(x[i, j]), name="T")
U = te.compute((64, 48), lambda i, j: T[i, j] + T[i, 47 - j], name="U")
s = te.Schedule(U)
s[T].compute_at(U, "i").hoist_storage().async_()
a = np.random.default_rng(0).standard_normal((64, 48)).astype("float32")
kernel, plain = te.build(x, U, schedule=s), te.build(x, U, schedule=s.without("async_"))
"""
CALLED = PROGRAM + "np.testing.assert_array_equal(kernel(a), plain(a))\n"


def test_the_producer_and_the_reader_are_two_tasks() -> None:
    said = run_script(CALLED + "print(kernel.source('llvm').count('call i32 @halide_do_parallel_tasks'))")
    assert (int(said) > 0) == loads_objects()


def test_many_threads_may_call_it_at_once_while_their_number_changes() -> None:
    run_script(
        CALLED
        + "from concurrent.futures import ThreadPoolExecutor\n"
        + "with ThreadPoolExecutor(4) as pool:\n"
        + "    found = [pool.submit(kernel, a) for _ in range(200)]\n"
        + "    for count in (1, 4, 2, 1):\n"
        + "        te.set_num_threads(count)\n"
        + "    for each in found:\n"
        + "        np.testing.assert_array_equal(each.result(), plain(a))\n",
    )


def test_a_forked_process_can_call_it() -> None:
    run_script(
        CALLED
        + "import os\n"
        + "child = os.fork()\n"
        + "if child == 0:\n"
        + "    os._exit(0 if np.array_equal(kernel(a), plain(a)) else 1)\n"
        + "assert os.waitpid(child, 0)[1] == 0\n",
    )


FAILING = """
import numpy as np
import tedsl as te

x, at = te.placeholder((64, 48), name="x"), te.placeholder((48,), "int32", name="at")
T = te.compute((64, 48), lambda i, j: x[i, j] * 2, name="T")
U = te.compute((64, 48), lambda i, j: T[i, 47 - j] + x[i, at[j]], name="U")
s = te.Schedule(U)
s[T].compute_at(U, "i").hoist_storage().async_()
kernel = te.build([x, at], U, schedule=s)
a, places = np.ones((64, 48), "float32"), np.arange(48, dtype="int32")
assert (kernel(a, places) == 3).all()
places[5] = 48
try:
    kernel(a, places)
except IndexError as error:
    assert "at[j]" in str(error)
else:
    raise AssertionError("an index out of bounds")
assert (kernel(a, np.zeros(48, "int32")) == 3).all()
"""


def test_a_call_that_fails_ends() -> None:
    run_script(FAILING)


@pytest.mark.skipif(not loads_objects(), reason="libraries are exported where objects are loaded")
def test_an_exported_library_computes_it_in_turn(tmp_path: Path) -> None:
    run_script(
        CALLED
        + f"files = kernel.export({str(tmp_path)!r} + '/a')\n"
        + f"alike = plain.export({str(tmp_path)!r} + '/b')\n"
        + "tasks = [file.read_bytes().count(b'halide_do_parallel_tasks') for file in (files[1], alike[1])]\n"
        + "assert tasks[0] == tasks[1], tasks\n"
        + "import importlib, sys\n"
        + "sys.path.insert(0, str(files[0].parent))\n"
        + "module = files[-1].stem\n"
        + "function = getattr(importlib.import_module(module), module)\n"
        + "np.testing.assert_array_equal(function(a), plain(a))\n",
        timeout=120,
    )


def test_through_the_jit_it_is_computed_in_turn() -> None:
    text = CALLED.replace("assert_array_equal(kernel(a), plain(a))", "assert_allclose(kernel(a), plain(a))")
    run_script("import os\nos.environ['TEDSL_LOADER'] = 'jit'\n" + text, timeout=120)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_schedule_says_whether(data: st.DataObject) -> None:
    program = data.draw(programs(stages=3))
    drawing = Drawing(data.draw(st.integers(0, 2**32 - 1)), [program.outputs[-1]])
    drawing.verbs = (*VERBS, *AHEAD_VERBS * 4)
    for _ in range(random.Random(0).randint(3, 14)):
        drawing.step()
    plan = drawing.schedule.plan
    text = str(drawing.schedule)
    for name in drawing.schedule.stages:
        if is_asked_ahead(plan, name):
            reason = why_in_turn(plan, name)
            assert (f"computed in turn ({reason})" if reason else AHEAD) in text


def chain() -> tuple[te.Schedule, te.Tensor, te.Tensor, te.Tensor]:
    x = te.placeholder((12, 18), name="x")
    S = te.compute((12, 18), lambda i, j: x[i, j] + 1, name="S")
    T = te.compute((12, 18), lambda i, j: S[i, j] * 2, name="T")
    U = te.compute((12, 18), lambda i, j: T[i, j] - 1, name="U")
    s = te.Schedule(U)
    s[S].compute_inline()
    s[T].compute_at(U, "i").hoist_storage().async_()
    return s, S, T, U


def in_root(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[T].compute_root()


def nothing_hoisted(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[T].hoist_storage(U, "i")


def two_loops(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[T].compute_at(U, "j")


def parallel(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[U].parallel("i")


def rest(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[U].vectorize("j", 4)


def folded(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[T].bound("j", 0, 18)


def fused(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s[T].compute_at(U, s[U].fuse("i", "j"))


def one_iteration(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    outer, _ = s[U].split("i", 12)
    s[T].compute_at(U, outer)


def of_another_stage(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s["S"].compute_root()


def in_company(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s["S"].compute_at(U, "i")


def chained(s: te.Schedule, T: te.Tensor, U: te.Tensor) -> None:
    s["S"].compute_at(T, "i").hoist_storage(U, "i").async_()


@pytest.mark.parametrize(
    ("change", "stage", "reason"),
    [
        (in_root, "T", "it is not computed inside a loop"),
        (nothing_hoisted, "T", "exactly one loop is to lie between its memory and its computation, found none"),
        (two_loops, "T", "exactly one loop is to lie between its memory and its computation, found i, j"),
        (parallel, "T", "U's loop i is parallel"),
        (rest, "T", "a split of U has a rest"),
        (folded, "T", "bound was said of it"),
        (fused, "T", "U's loop ij is made of a fused one"),
        (one_iteration, "T", "U's loop io has one iteration"),
        (of_another_stage, "T", "T reads S, which is no input"),
        (in_company, "T", "T reads S, which is no input"),
        (chained, "S", "its memory lies outside of the loops of T"),
    ],
)
def test_what_is_not_known_to_end_is_computed_in_turn(
    change: Callable[[te.Schedule, te.Tensor, te.Tensor], None], stage: str, reason: str
) -> None:
    s, _, T, U = chain()
    assert f"T: what U needs here, allocated at the root, {AHEAD}" in str(s)
    change(s, T, U)
    assert f"computed in turn ({reason})" in str(s)
    assert why_in_turn(s.plan, stage) == reason


def test_what_store_at_keeps_for_later_iterations_is_computed_once_in_turn() -> None:
    x = te.placeholder((14, 18), name="x")
    T = te.compute((14, 18), lambda i, j: x[i, j] * 2, name="T")
    apart = te.compute((12, 18), lambda i, j: T[i, j] + T[i, 17 - j], name="apart")
    shared = te.compute((12, 18), lambda i, j: T[i, j] + T[i + 2, j], name="shared")
    for reader, reason in (
        (apart, ""),
        (shared, "iterations share elements, which are computed once; hoist_storage computes them afresh"),
    ):
        s = te.Schedule(reader)
        s[T].compute_at(reader, "i").store_root().async_()
        assert why_in_turn(s.plan, "T") == reason


def test_it_is_saved_written_and_taken_back(tmp_path: Path) -> None:
    s, *_, U = chain()
    s.save(tmp_path / "s.json")
    assert te.Schedule.load(tmp_path / "s.json", U).directives == s.directives
    scope = {"U": U}
    exec(s.code(), scope)
    assert scope["s"].directives == s.directives  # type: ignore[attr-defined]
    assert "async_()" in s.code()
    assert AHEAD not in str(s.without("async_"))


def test_an_output_has_no_thread_of_its_own() -> None:
    s, *_, U = chain()
    with pytest.raises(te.ScheduleError, match=r"U'\]\.async_\(\), at .*test_ahead.*: U is an output; nobody waits"):
        s[U].async_()
