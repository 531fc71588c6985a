"""Kernels of their own for shapes that recur, of functions that have one kernel for all shapes.

With numbers for extents a kernel may be several times as fast. It is built once the calls of a shape have taken as long
as a build takes: the build then costs no more than what was spent anyway. Another process builds it while calls go on,
and leaves it on the disk, from where it is loaded in milliseconds. Where no other process may be begun there is none.

Results keep their bits, whenever that kernel is ready: it is taken only if it surely combines the terms of each sum in
the same order, and has given the same bits on the arrays of a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from schedules import Schedule
from schedules.written.order import combines_alike
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling.disk_cache import passing_folder, passing_through
from tedsl.backend.sequence.workers import JobBeside, may_fork
from tedsl.lang.foreign import array_of
from tedsl.lang.locks import freed_in_children
from tedsl.ops.homes import ARRAYS
from tedsl.ops.shapes import Spec

if TYPE_CHECKING:
    from tedsl.ops.routines import Routine, TracedRoutine

__all__ = ["MOST_OWN", "Recurrence"]

LEAST_SECONDS = 0.1  # that a build takes; kernels found on the disk do not tell
MOST_OWN = 8  # kernels that are asked for, of one function
_BETWEEN = 0.01  # seconds between two looks at whether a kernel is ready
_READY = "ready"

Quick = Callable[[tuple[Any, ...], Any], Any]

_turn = freed_in_children(threading.Lock())  # one kernel at a time is built beside the calls of a process
_building: list[JobBeside] = []


class Recurrence:
    """The calls of one shape of a routine that has symbols for extents, until it has a kernel of its own, or has none.

    `told`: why there is none. A call is timed only where its number says that it may be the one to decide by.
    """

    def __init__(self, routine: Routine, specs: tuple[Spec, ...], traced: TracedRoutine) -> None:
        self.routine, self.specs, self.traced = routine, specs, traced
        self.is_settled, self.told = False, ""
        self._calls, self._left, self._least = 0, 2, float("inf")  # the first call may have waited for the compiler
        self._price: float | None = None  # of a build, in seconds
        self._job: JobBeside | None = None
        self._folder: Any = None

    def timed(self, call: Callable[[], Any], arrays: Sequence[Any]) -> Any:
        """The result of a call that was not prepared."""
        self._left -= 1
        if self._left > 0 or self.is_settled:
            self._calls += 1
            return call()
        begin = perf_counter()
        result = call()
        self._look(perf_counter() - begin, 1, arrays)
        return result

    def watched(self, quick: Quick) -> Quick:
        """A prepared call that counts; once all is settled it asks to be prepared anew."""
        planned = left = max(1, self._left)

        def call(args: tuple[Any, ...], out: Any) -> Any:
            nonlocal planned, left
            left -= 1
            if left > 0:
                return quick(args, out)
            if self.is_settled:
                return NotImplemented
            begin = perf_counter()
            result = quick(args, out)
            if result is not NotImplemented:
                self._look(perf_counter() - begin, planned, args)
                planned = left = self._left
            return result

        return call

    def _look(self, seconds: float, calls: int, args: Sequence[Any]) -> None:
        """After so many more calls, of which the last took so long: what is to be done, and when to look again."""
        if not _turn.acquire(blocking=False):
            self._left = 1
            return
        try:
            self._calls += calls
            self._least = min(self._least, seconds)
            if self._price is None:
                self._price = price_of(self.traced)
            missing = self._price - self._calls * self._least
            self._left = max(1, int((missing if missing > 0 else _BETWEEN) / max(self._least, 1e-7)))
            if self._job is not None:
                self._ask(self._job)
            elif missing <= 0 and not any(job.result() is None for job in _building):
                given = (a for a in args if type(a) in ARRAYS)
                self._begin([a if isinstance(a, np.ndarray) else array_of(a) for a in given])
        finally:
            _turn.release()

    def _begin(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        asked = sum(r is not self and (r.is_settled or r._job is not None) for r in self.routine.recurrences.values())
        if asked >= MOST_OWN:
            self.settle(f"there are {MOST_OWN} already, or were tried")
            return
        if not may_fork():
            self.settle("no other process may be begun to build it, beside threads of Python or JAX")
            return
        self._folder = passing_folder()
        self._job = JobBeside(lambda: self._built(arrays))
        _building[:] = [self._job]

    def _built(self, arrays: list[np.ndarray[Any, Any]]) -> str:
        """In the other process: the kernel compiled, called, and left on the disk; or why it cannot be taken."""
        with passing_through(self._folder and self._folder.name):
            own = self.routine.exact(self.specs)
            before, now = (traced.kernel(*arrays) for traced in (self.traced, own))
            same = all(a.tobytes() == b.tobytes() for a, b in zip(before, now, strict=True))
            written = Schedule(list(own.outputs)).stages
            alike = same and combines_alike(_plan_of(self.traced), _plan_of(own), written)
        return _READY if alike else "it would combine the terms of sums in another order, and so change bits"

    def _ask(self, job: JobBeside) -> None:
        """Take the kernel, if it is there."""
        found = job.result()
        if found is None:
            return
        if found == _READY:
            with passing_through(self._folder and self._folder.name):
                own = self.routine.exact(self.specs)
                own.kernel  # noqa: B018 - loads it
            self.routine.own[self.specs] = own
        self.settle("" if found == _READY else found or "it could not be built")

    def settle(self, told: str) -> None:
        """There is nothing more to find out: it has its kernel, or there is none, as is told."""
        self.is_settled, self.told, self._left = True, told, 1
        self._job = self._folder = None


def price_of(traced: TracedRoutine) -> float:
    """How many seconds a build for a shape takes, about: as many as that for all shapes took."""
    return max(LEAST_SECONDS, traced.kernel.stats.compile_ms / 1e3)


def _plan_of(traced: TracedRoutine) -> Any:
    """The complete plan by which a routine's kernel was made."""
    kernel: Kernel = traced.kernel
    program = kernel.core.program
    given = traced.schedule("host")
    schedule = Schedule(list(traced.outputs)) if given is None else given.copy()
    return schedule.auto(machine=program.planner.machine(program.target).to_json()).plan
