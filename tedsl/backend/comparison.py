"""`s.compare(other, feeds)`: two schedules of one program side by side: time, results, loops.

Both are timed by turns, so that what else the machine does falls on both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from schedules.schedule import Schedule
from tedsl.analysis.arrays.feeds import as_feeds
from tedsl.analysis.pointwise import Array
from tedsl.backend.build import build
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.compiling.samples import inputs_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import user_location
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Constant

__all__ = ["Comparison", "ResultDifference", "compare_schedules"]

ROUNDS = 7
SHARE = 0.01  # seconds of one timing


@dataclass(frozen=True)
class ResultDifference:
    """One output under both schedules: how many elements differ, by how much at most, and the first that does."""

    name: str
    elements: int
    differing: int
    largest: float
    first: tuple[int, ...] | None

    def __str__(self) -> str:
        if not self.differing:
            return f"{self.name}: the same bits"
        where = f"[{', '.join(map(str, self.first))}]" if self.first else ""
        return (
            f"{self.name}: {self.differing} of {self.elements} elements differ, by {self.largest:.3g} at most; "
            f"the first is {self.name}{where}"
        )


@dataclass(frozen=True)
class Comparison(Rich):
    """What `s.compare(other, feeds)` found: seconds of the shortest call by each, results, and the loops that differ.

    `turns` are the other's time divided by ours in each turn.
    """

    seconds: float
    other_seconds: float
    turns: tuple[float, ...]
    results: tuple[ResultDifference, ...]
    loops: str

    @property
    def ratio(self) -> float:
        """The other's time divided by ours: above 1 where ours is faster."""
        return self.other_seconds / self.seconds

    @property
    def is_same(self) -> bool:
        """Whether both gave the same bits."""
        return not any(r.differing for r in self.results)

    def __str__(self) -> str:
        faster, slower = ("this one", "the other") if self.ratio >= 1 else ("the other", "this one")
        lines = [
            f"{_time(self.seconds)} a call, the other {_time(self.other_seconds)}: "
            f"{faster} is {max(self.ratio, 1 / self.ratio):.2f} times as fast as {slower}{self._doubt}",
            *map(str, self.results),
            f"loops, the other's with -:\n{self.loops}" if self.loops else "the loops are the same",
        ]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def _doubt(self) -> str:
        """That not all turns said so, if they did not: something else ran on the machine."""
        inverse = self.ratio < 1
        turns = sorted(1 / t if inverse else t for t in self.turns)
        return f", but {turns[0]:.2f} to {turns[-1]:.2f} times in single turns" if turns[0] < 1 else ""


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def compare_schedules(mine: Schedule, other: Schedule, feeds: Mapping[Any, Any], **options: Any) -> Comparison:
    """Both schedules built, run on the same arrays and timed by turns; `options` are those of `te.build`."""
    sizes = options.pop("sizes", None)
    outputs, what = list(mine.outputs), f"s.compare at {user_location()}"
    needed = [t for t in inputs_of(outputs) if not isinstance(t.op, Constant)]
    if not isinstance(feeds, Mapping):
        told = ", ".join(f"{t.name!r}: array" for t in needed)
        raise TypeError(f"{what}: feeds maps inputs to arrays, {{{told}}}, found {type(feeds).__name__}")
    given = as_feeds(feeds, outputs, what)
    missing = [t.name for t in needed if t not in given]
    if missing:
        raise ValueError(
            f"{what}: expected an array for every input, found none for {', '.join(missing)}; give "
            f"feeds={{{missing[0]!r}: array}}"
        )
    inputs, arrays = list(given), list(given.values())
    kernels = [build(inputs, outputs, schedule=s, **options) for s in (mine, other)]
    results = [[np.array(a) for a in kernel(*arrays, sizes=sizes)] for kernel in kernels]
    pairs = [(_timed(kernels[0], arrays, sizes), _timed(kernels[1], arrays, sizes)) for _ in range(ROUNDS)]
    return Comparison(
        min(a for a, _ in pairs),
        min(b for _, b in pairs),
        tuple(b / a for a, b in pairs),
        tuple(_difference(t.name, a, b) for t, a, b in zip(outputs, *results, strict=True)),
        mine.diff(other),
    )


def _timed(kernel: Kernel, arrays: list[Any], sizes: Any) -> float:
    """The shortest of a few calls; a long one is called once."""
    times: list[float] = []
    while not times or (sum(times) < SHARE and len(times) < 200):
        begin = time.perf_counter()
        kernel(*arrays, sizes=sizes)
        times.append(time.perf_counter() - begin)
    return min(times)


def _difference(name: str, mine: Array, other: Array) -> ResultDifference:
    """Elements differ by value; NaN is NaN, whatever its bits."""
    a, b = (x.astype(np.float64) if x.dtype.kind == "V" or x.dtype.itemsize == 2 else x for x in (mine, other))
    unlike = (a != b) & ~((a != a) & (b != b))
    places = np.argwhere(unlike)
    largest = float(np.max(np.abs(np.subtract(a[unlike], b[unlike], dtype=np.float64)), initial=0.0))
    first = tuple(map(int, places[0])) if len(places) else None
    return ResultDifference(name, int(a.size), len(places), largest, first)
