"""Where the time of a build goes: each thread has a clock, which runs for the innermost phase that it is in."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

__all__ = ["PHASES", "Spent", "added", "counting", "phase"]

# What `kern.stats.phases` tells; "elsewhere" is what other processes took that compiled kernels beside this one.
PHASES = ("schedule", "lower", "Halide", "LLVM", "load", "elsewhere")
Spent = Mapping[str, float]  # milliseconds by phase


class _Clock(threading.local):
    """Of one thread: what it counts for, if anybody asked, and the seconds of phases inside the present one."""

    spent: dict[str, float] | None = None
    inside: float = 0.0


_clock = _Clock()


@contextmanager
def counting() -> Iterator[dict[str, float]]:
    """The milliseconds of the phases that this thread goes through in the block, by their names."""
    before, spent = _clock.spent, dict[str, float]()
    _clock.spent = spent
    try:
        yield spent
    finally:
        _clock.spent = before


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The block belongs to a phase, but for what is a phase of its own inside."""
    spent = _clock.spent
    if spent is None:
        yield
        return
    begin, outer = perf_counter(), _clock.inside
    _clock.inside = 0.0
    try:
        yield
    finally:
        gone = perf_counter() - begin
        spent[name] = spent.get(name, 0.0) + (gone - _clock.inside) * 1e3
        _clock.inside = outer + gone


def added(parts: Iterable[Spent]) -> dict[str, float]:
    """The sums, in the order of phases."""
    listed = list(parts)
    found = {name: sum(p.get(name, 0.0) for p in listed) for name in PHASES}
    return {name: ms for name, ms in found.items() if ms}
