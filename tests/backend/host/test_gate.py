"""The gate before the pool: loops pass, wait while it is taken, and never wait for each other."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tedsl.backend.host.gate import Gate

_LOOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_TASKS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_PART = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int] * 2, *[ctypes.c_void_p] * 2)


class Pool:
    """A pool of Python functions behind a gate: `run(body)` is a loop, `task(body)` one task of a loop."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.body = threading.local()
        self.seen: list[tuple[int, ...]] = []
        self._kept = _LOOP(self._loop), _TASKS(self._tasks), _TASK(self._task), _PART(self._part)
        names = ("do_par_for", "do_parallel_tasks", "do_task", "do_loop_task")
        addresses = {n: ctypes.cast(f, ctypes.c_void_p).value or 0 for n, f in zip(names, self._kept, strict=True)}
        found = self.gate.before(addresses)
        self.loop, self.tasks, self.do_task, self.do_part = (
            kind(found[name]) for kind, name in zip((_LOOP, _TASKS, _TASK, _PART), names, strict=True)
        )

    def _loop(self, context: Any, task: Any, first: int, count: int, closure: Any) -> int:
        self.seen.append((context, task, first, count, closure))
        self.body.now()
        return 7

    def _tasks(self, context: Any, count: int, tasks: Any, parent: Any) -> int:
        self.seen.append((context, count, tasks, parent))
        self.body.now()
        return 8

    def _task(self, context: Any, task: Any, number: int, closure: Any) -> int:
        self.seen.append((context, task, number, closure))
        self.body.now()
        return 9

    def _part(self, context: Any, task: Any, first: int, count: int, closure: Any, parent: Any) -> int:
        self.seen.append((context, task, first, count, closure, parent))
        self.body.now()
        return 10

    def run(self, body: Callable[[], object]) -> int:
        self.body.now = body
        return int(self.loop(1, 2, 3, 4, 5))

    def task(self, body: Callable[[], object]) -> int:
        self.body.now = body
        return int(self.do_task(1, 2, 3, 4))


def begun(body: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def test_arguments_and_codes_pass_and_loops_are_counted() -> None:
    pool, counts = Pool(), list[int]()
    pool.body.now = lambda: counts.append(pool.gate.inside)
    assert (pool.loop(1, 2, 3, 4, 5), pool.tasks(1, 2, 3, 4)) == (7, 8)
    assert (pool.do_task(1, 2, 3, 4), pool.do_part(1, 2, 3, 4, 5, 6)) == (9, 10)
    assert pool.seen == [(1, 2, 3, 4, 5), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6)]
    assert counts == [1, 1, 0, 0]
    assert pool.gate.inside == 0


def test_what_takes_the_pool_waits_for_the_loops_in_it_and_new_ones_wait_for_it() -> None:
    pool, events = Pool(), list[str]()
    first, go = threading.Event(), threading.Event()
    running = begun(lambda: pool.run(lambda: (first.set(), go.wait(), events.append("first"))))
    first.wait()
    threads = list[threading.Thread]()
    threading.Timer(0.05, go.set).start()
    with pool.gate.taken() as is_empty:
        assert is_empty
        threads.append(begun(lambda: pool.run(lambda: events.append("second"))))
        time.sleep(0.05)
        events.append("taken")
    for thread in (running, *threads):
        thread.join(10)
    assert events == ["first", "taken", "second"]


@pytest.mark.parametrize("where", ["in the loop's own thread", "in a thread of the pool"])
def test_a_loop_within_a_loop_does_not_wait(where: str) -> None:
    pool, events = Pool(), list[str]()

    def inner() -> None:
        while not pool.gate._closed.value:  # until somebody waits for this very loop
            time.sleep(0.001)
        pool.run(lambda: events.append("inner"))

    def outer() -> None:
        if where == "in the loop's own thread":
            inner()
        else:
            begun(lambda: pool.task(inner)).join(10)

    first = threading.Event()
    running = begun(lambda: pool.run(lambda: (first.set(), outer())))
    first.wait()
    with pool.gate.taken() as is_empty:
        assert is_empty
        events.append("taken")
    running.join(10)
    assert events == ["inner", "taken"]


def test_beside_a_long_loop_others_pass_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tedsl.backend.host.gate._PERIOD_S", 0.2)
    pool, go, first = Pool(), threading.Event(), threading.Event()
    running = begun(lambda: pool.run(lambda: (first.set(), go.wait())))
    first.wait()
    passed = list[float]()

    def change() -> None:
        with pool.gate.taken(10):
            pass

    changer = begun(change)
    for _ in range(4):
        begin = time.monotonic()
        pool.run(lambda: None)
        passed.append(time.monotonic() - begin)
        time.sleep(0.05)
    assert changer.is_alive()
    assert min(passed) < 0.05
    go.set()
    changer.join(10)
    running.join(10)
    assert not changer.is_alive()


def test_patience_ends_and_an_interrupt_leaves_the_gate_open() -> None:
    pool, go, first = Pool(), threading.Event(), threading.Event()
    running = begun(lambda: pool.run(lambda: (first.set(), go.wait())))
    first.wait()
    with pool.gate.taken(0.02) as is_empty:
        assert not is_empty
    assert pool.run(lambda: None) == 7
    with pytest.raises(KeyboardInterrupt), pool.gate.taken(0.02):
        raise KeyboardInterrupt
    go.set()
    running.join(10)
    with pytest.raises(KeyboardInterrupt), pool.gate.taken():
        raise KeyboardInterrupt
    assert pool.run(lambda: None) == 7
    assert pool.gate.inside == 0


def test_a_child_has_nobody_inside() -> None:
    pool = Pool()
    pool.gate._inside.value, pool.gate._closed.value = 3, 1
    pool.gate.reopen()
    assert pool.run(lambda: None) == 7
    with pool.gate.taken(0.0) as is_empty:
        assert is_empty
