"""Threads of the pool between loops: each on a processor of its own, bound to none, awake for a moment."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tedsl.backend.host.pool import LOOK_NS, Waiting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are told where they run on Linux only")

_PAR_FOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_DO_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_YIELD = ctypes.CFUNCTYPE(ctypes.c_int)


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """The processors of this thread, which it has again afterwards."""
    found = os.sched_getaffinity(0)
    yield found
    os.sched_setaffinity(0, found)


def processor() -> int:
    return int(ctypes.CDLL(None).sched_getcpu())


def looped(body: Callable[[Callable[[Callable[[], Any]], int]], Any]) -> int:
    """Run `body` as the pool of a loop; it gets what runs a Python function as a task of the loop."""
    waiting = Waiting()

    def pool(context: Any, task: Any, first: int, count: int, closure: Any) -> int:
        def run(function: Callable[[], Any]) -> int:
            functions.append(function)
            return int(do_task(context, task, first, closure))

        body(run)
        return 7

    functions: list[Callable[[], Any]] = []
    made = _TASK(lambda context, number, closure: functions.pop()() or 0)

    kept = _PAR_FOR(pool)
    hooks = waiting.hooks(ctypes.cast(kept, ctypes.c_void_p).value or 0)
    do_task = _DO_TASK(hooks["halide_set_custom_do_task"])
    return int(_PAR_FOR(hooks["halide_set_custom_do_par_for"])(None, ctypes.cast(made, ctypes.c_void_p), 0, 2, None))


def numbers_of(first: int, count: int, threads: int, alone: int) -> list[int]:
    """Which tasks run, in which order: two threads in turns, after `alone` tasks of one."""
    waiting, allowed = Waiting(), sorted(os.sched_getaffinity(0))
    waiting.share_among(threads)
    found: list[tuple[int, int]] = []
    made = _TASK(lambda context, number, closure: found.append((number, closure)) or 0)  # type: ignore[func-returns-value]

    def pool(context: Any, task: Any, first: int, count: int, closure: Any) -> int:
        for k in range(count):
            os.sched_setaffinity(0, {allowed[0 if k < alone else k % 2]})
            do_task(context, task, first, closure)
        return 0

    kept = _PAR_FOR(pool)
    hooks = waiting.hooks(ctypes.cast(kept, ctypes.c_void_p).value or 0)
    do_task = _DO_TASK(hooks["halide_set_custom_do_task"])
    _PAR_FOR(hooks["halide_set_custom_do_par_for"])(None, ctypes.cast(made, ctypes.c_void_p), first, count, 5)
    os.sched_setaffinity(0, allowed)
    assert {closure for _, closure in found} == {5}
    return [number for number, _ in found]


def begun_beside(run: Callable[[Callable[[], Any]], int], processors: set[int]) -> tuple[int, set[int]]:
    """Where another thread that began on our processor runs its task, and where it may run then."""
    here, found = processor(), []
    os.sched_setaffinity(0, {here})

    def work() -> None:
        os.sched_setaffinity(0, {here})
        os.sched_setaffinity(0, processors)
        run(lambda: found.append((processor(), os.sched_getaffinity(0))))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0][0] - here, found[0][1]


def test_a_thread_in_anothers_place_moves(allowed: set[int]) -> None:
    if len(allowed) < 2:
        pytest.skip("there is one processor")
    apart = 0
    for _ in range(8):
        os.sched_setaffinity(0, allowed)
        seen: list[tuple[int, set[int]]] = []
        assert looped(lambda run, seen=seen: seen.append(begun_beside(run, allowed))) == 7  # type: ignore[misc]
        [(distance, may_run)] = seen
        assert may_run == allowed
        apart += distance != 0
    assert apart >= 7  # the system may move a thread as well


def test_where_there_is_no_other_place_it_stays(allowed: set[int]) -> None:
    here = {processor()}
    seen: list[tuple[int, set[int]]] = []
    looped(lambda run: seen.append(begun_beside(run, here)))
    assert seen == [(0, here)]


def test_the_code_of_a_task_is_passed_on() -> None:
    codes: list[int] = []
    looped(lambda run: codes.extend((run(lambda: 0), run(lambda: -3))))
    assert codes == [0, -3]


def test_each_processor_has_a_block_of_the_tasks(allowed: set[int]) -> None:
    if len(allowed) < 2:
        pytest.skip("there is one processor")
    assert numbers_of(10, 6, threads=2, alone=0) == [10, 13, 11, 14, 12, 15]
    assert numbers_of(0, 6, threads=2, alone=5) == [0, 1, 2, 3, 4, 5]
    assert numbers_of(0, 5, threads=1, alone=0) == [0, 1, 2, 3, 4]


def test_every_task_runs_once(allowed: set[int]) -> None:
    for count in (1, 2, 3, 7, 100):
        for threads in (1, 2, 3, 64, 1000):
            for alone in (count, count // 3):
                assert sorted(numbers_of(-3, count, threads, min(alone, count) if len(allowed) > 1 else count)) == list(
                    range(-3, count - 3)
                )


def test_a_look_lasts_until_something_happens() -> None:
    waiting = Waiting()
    look = _YIELD(waiting.imports["sched_yield"])
    look()
    begin = time.perf_counter_ns()
    for _ in range(40):
        look()
    assert time.perf_counter_ns() - begin > 40 * LOOK_NS


def test_without_the_system_calls_nothing_is_put_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    waiting = Waiting()
    assert waiting.imports == waiting.hooks(0) == {}
