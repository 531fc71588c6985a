"""`te.profile()`: how long each kernel takes, what it moves, and how near that is to what the machine can do.

Inside the context every call of compiled code is timed, also those of other threads; outside it costs one look at an
empty list. The machine's own speeds are measured when a table is first asked for: copies of arrays far larger than the
caches, and NumPy's product of matrices.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.analysis.work import flops_of
from tedsl.backend.host.threads import get_num_threads
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var
from tedsl.lang.keywords import own_arguments
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["RECORDING", "Event", "Peaks", "Profile", "ProfileRow", "machine_speeds", "profile", "recorded"]

RECORDING: list[Profile] = []  # the contexts that are open
COPIED, PRODUCT = 1 << 26, 1024  # bytes of a copy, rows of a matrix
SHORT = 2e-5  # seconds of a call, within which it takes as long to record it
BEYOND = 2  # times the speeds measured, which a machine that has other things to do as well may exceed


@dataclass(frozen=True, eq=False)
class Event:
    """One call: its kernel, when it began and how long it took in nanoseconds, bytes of its arrays, and who called."""

    kernel: str
    begin: int
    duration: int
    bytes: int
    thread: int
    inputs: tuple[Tensor, ...] = field(repr=False)
    outputs: tuple[Tensor, ...] = field(repr=False)
    sizes: Mapping[Var, int] = field(repr=False)
    program: object = field(repr=False)  # what was compiled: kernels of one name are told apart by it


@dataclass(frozen=True)
class Peaks:
    """Bytes and operations in a second."""

    bandwidth: float
    flops: float


@dataclass(frozen=True)
class ProfileRow:
    """The calls of one kernel: seconds, bytes and operations of all of them; `roofline` is the share of the speed that
    the machine allows for so many bytes and operations (above 1 where arrays lie in the caches, or where operations
    that the program has are not made). Different kernels of one name are numbered."""

    kernel: str
    calls: int
    seconds: float
    share: float
    bytes: int
    flops: int
    roofline: float


class Profile(Rich):
    """What was recorded: `events` in order, `rows()` by kernel, `save(path)` a trace for Chrome or Perfetto."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def rows(self) -> list[ProfileRow]:
        """One row for each kernel, the one that took longest first."""
        grouped: dict[object, list[Event]] = {}
        for event in list(self.events):
            grouped.setdefault(event.program, []).append(event)
        total = sum(event.duration for event in self.events) or 1
        names = [events[0].kernel for events in grouped.values()]
        numbered = [f"{n}_{names[:k].count(n)}" if names.count(n) > 1 else n for k, n in enumerate(names)]
        made = [_row(name, events, total) for name, events in zip(numbered, grouped.values(), strict=True)]
        return sorted(made, key=lambda row: -row.seconds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calls as a trace of events, which chrome://tracing and ui.perfetto.dev show."""
        events = [
            {
                "name": e.kernel, "cat": "kernel", "ph": "X", "ts": e.begin / 1e3, "dur": e.duration / 1e3,
                "pid": os.getpid(), "tid": e.thread, "args": {"bytes": e.bytes, "flops": _flops(e)},
            }
            for e in self.events
        ]  # fmt: skip
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)

    def __repr__(self) -> str:
        """The rows as a table."""
        head = ("kernel", "calls", "ms", "share", "MB", "GB/s", "GFLOP/s", "roofline")
        lines = [head, *map(cells, self.rows())]
        widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        )


def cells(row: ProfileRow) -> tuple[str, ...]:
    """A row as text; a rate far beyond that of the machine's memory, or of its arithmetic, is none.

    Nor is that of calls so short that what is measured is how they are recorded.
    """
    machine = machine_speeds()
    moving, computing = row.bytes / row.seconds, row.flops / row.seconds
    is_cached, is_spared = moving > BEYOND * machine.bandwidth, computing > BEYOND * machine.flops
    rates = (
        "-" if is_cached else f"{moving / 1e9:.2f}",
        "-" if is_spared else f"{computing / 1e9:.2f}",
        "cached" if moving > machine.bandwidth else "-" if is_spared else f"{row.roofline:.0%}",
    )  # fmt: skip
    if row.seconds < SHORT * row.calls:
        rates = "-", "-", "short"
    return (
        row.kernel,
        str(row.calls),
        f"{row.seconds * 1e3:.3f}",
        f"{row.share:.1%}",
        f"{row.bytes / 1e6:.2f}",
        *rates,
    )


def _row(kernel: str, events: Sequence[Event], total: int) -> ProfileRow:
    machine = machine_speeds()
    seconds = max(1, sum(e.duration for e in events)) / 1e9
    moved, flops = sum(e.bytes for e in events), sum(map(_flops, events))
    least = max(moved / machine.bandwidth, flops / machine.flops)
    return ProfileRow(kernel, len(events), seconds, seconds * 1e9 / total, moved, flops, least / seconds)


def _flops(event: Event) -> int:
    return _operations(event.inputs, event.outputs, tuple(event.sizes.items()))


@functools.lru_cache(maxsize=1024)
def _operations(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], sizes: tuple[tuple[Var, int], ...]) -> int:
    return sum(flops_of(op, dict(sizes)) for op in operations_between(inputs, outputs))


@own_arguments()
@contextmanager
def profile() -> Iterator[Profile]:
    """Every call of a kernel inside is timed: `with te.profile() as p: kernel(x)`, then `print(p)`, `p.save(path)`."""
    found = Profile()
    RECORDING.append(found)
    try:
        yield found
    finally:
        RECORDING[:] = [open_one for open_one in RECORDING if open_one is not found]


def recorded(
    program: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], sizes: Mapping[Var, int],
    run: Callable[[Sequence[Array]], None], arrays: Sequence[Array],
) -> None:  # fmt: skip
    """Run the code of a program (a `Compilation`, which stands above) on arrays, and record how long it took."""
    begin = time.perf_counter_ns()
    run(arrays)
    duration = time.perf_counter_ns() - begin
    moved = sum(array.nbytes for array in arrays)
    event = Event(program.name, begin, duration, moved, threading.get_ident(), inputs, outputs, sizes, program)
    for found in tuple(RECORDING):
        found.events.append(event)


@functools.cache
def machine_speeds() -> Peaks:
    """What this machine reaches with as many threads as kernels have."""
    from concurrent.futures import ThreadPoolExecutor  # slow to load, and seldom needed

    threads = get_num_threads()
    parts = [(np.ones(COPIED // threads, np.uint8), np.empty(COPIED // threads, np.uint8)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        copying = _best(lambda: list(pool.map(lambda pair: np.copyto(pair[1], pair[0]), parts)))
    a = np.ones((PRODUCT, PRODUCT), np.float32)
    b = np.empty_like(a)
    multiplying = _best(lambda: np.matmul(a, a, out=b))
    return Peaks(2 * sum(x.nbytes for x, _ in parts) / copying, 2 * PRODUCT**3 / multiplying)


def _best(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)
