"""How many elements of a stage every iteration around it computes, in numbers, as Halide bounds what readers read.

All iterations are looked at together: the ends of an interval are arrays with an axis for each loop around the stage,
the outermost one last, so that what does not depend on a loop stays short. What these do not tell, as of a size that
is no number, or a place that is data, is None.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from schedules.directives import Fuse, Split
from schedules.loops import nest_of
from schedules.placing.placement import placed
from schedules.placing.places import around
from schedules.plan import Plan
from schedules.written.intervals import MOST, Ends, Interval, fits, held_by_guard, hull, interval_of, of, turns
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes

__all__ = ["Boxes", "Count"]

Loops = tuple[tuple[str, str], ...]  # stages and their loops, outermost first
MOST_LOOPS = 24  # around a stage; NumPy's arrays have at most 32 axes


@dataclass(frozen=True)
class Count:
    """The least and the greatest extent of one iteration, along each axis; the elements of all iterations together.

    Along axes that are not `exact` nothing is more than that, and all of it may be less.
    """

    extents: tuple[tuple[int, int] | None, ...]
    total: float | None
    exact: tuple[bool, ...]


@dataclass(frozen=True)
class _Part:
    """Intervals in the iterations that all of `there` hold in; of those that are not `exact` some may need less."""

    intervals: tuple[Interval | None, ...]
    there: tuple[Ends, ...]
    exact: tuple[bool, ...]


def _unknown(count: int, there: tuple[Ends, ...] = ()) -> _Part:
    return _Part((None,) * count, there, (False,) * count)


class Boxes:
    """The boxes of a plan, of whose stages those that nobody spoke of are inlined where they are read inside a loop."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.places = plan, placed(plan, checked=False)
        self._left = set(plan.program.stages) - plan.spoken() - plan.program.final
        self._boxes: dict[tuple[str, Loops], _Part] = {}
        self._spans: dict[tuple[str, Loops], _Part] = {}
        self._runs: dict[tuple[str, str], Ends] = {}  # whether there are so many iterations of a loop

    def count(self, stage: str) -> Count:
        """What is computed of a stage at the loop where it is computed."""
        loops = self._around(stage)
        ndim = self._ndim(stage)
        nothing = Count((None,) * ndim, None, (False,) * ndim)
        if len(loops) > MOST_LOOPS:
            return nothing
        box = self._box(stage, loops)
        if any(loop not in self._runs for loop in loops):
            return nothing
        runs = [*(self._runs[loop] for loop in loops), *box.there]
        partial = [r for r in runs if not np.all(r)]
        widths = [None if b is None else b[1] - b[0] + 1 for b in box.intervals]
        extents = tuple(None if w is None else _extremes(w, partial) for w in widths)
        total = _total([*widths, *runs], len(loops)) if None not in box.intervals else None
        return Count(extents, total, box.exact)

    def _around(self, stage: str) -> Loops:
        place = self.places[stage]
        return tuple((c, v.name) for c, v in around(self.plan, self.places, place.consumer, place.loop))

    def _box(self, stage: str, loops: Loops) -> _Part:
        """What is needed of a stage along each axis, where `loops` stand at one iteration each."""
        if (stage, loops) not in self._boxes:
            self._boxes[stage, loops] = self._needed(stage, loops)
        return self._boxes[stage, loops]

    def _needed(self, stage: str, loops: Loops) -> _Part:
        whole = [number(e) for e in self.plan.program.stages[stage].output().extents]
        if stage in self.plan.stores or self.plan.bounds(stage):  # of which earlier iterations computed a part
            return _unknown(len(whole))
        parts = list(self._reads(stage, loops))
        there = tuple(a for a in parts[0].there if all(any(a is b for b in p.there) for p in parts))
        is_all = all(len(p.there) == len(there) for p in parts)  # else more iterations are counted than there are
        hulls = (hull([p.intervals[k] for p in parts], n) for k, n in enumerate(whole))
        return _Part(tuple(hulls), there, tuple(is_all and all(e) for e in zip(*(p.exact for p in parts), strict=True)))

    def _reads(self, stage: str, loops: Loops) -> Iterator[_Part]:
        """For each read of a stage the interval of each index."""
        source = self.plan.program.stages[stage]
        for name in self.plan.program.readers[stage]:
            reader = self.plan.program.stages[name]
            if not isinstance(reader, Compute):
                yield _unknown(source.output().ndim)
                continue
            guards = {read: guard for read, guard in reader.read_guards.items() if read.tensor.op is source}
            axes = _axes(reader)
            for way in self._ways(name, loops):
                loose = {a for a, is_exact in zip(axes, way.exact, strict=True) if not is_exact}
                for read, guard in guards.items():
                    spans = dict(zip(axes, way.intervals, strict=True))
                    is_all = held_by_guard(spans, guard)
                    found = tuple(interval_of(index, spans) for index in read.indices)
                    exact = (is_all and not turns(i) and loose.isdisjoint(free_axes(i)) for i in read.indices)
                    yield _Part(found, way.there, tuple(exact))

    def _ways(self, reader: str, loops: Loops) -> Iterator[_Part]:
        """The spans of a reader's axes; of one that is inline, for each of its own readers."""
        if self.places[reader].kind != "inline" and reader not in self._left:
            if (reader, loops) not in self._spans:
                self._spans[reader, loops] = self._spanned(reader, loops)
            yield self._spans[reader, loops]
        else:
            op = self.plan.program.stages[reader]
            assert isinstance(op, Compute)
            terms = tuple(map(_term, _axes(op)[len(op.axes) :]))
            for read in self._reads(reader, loops):
                yield _Part((*read.intervals, *terms), read.there, (*read.exact, *(True for _ in terms)))

    def _ndim(self, stage: str) -> int:
        return self.plan.program.stages[stage].output().ndim

    def _spanned(self, stage: str, loops: Loops) -> _Part:
        """The spans of the axes of a stage with loops, some of which stand at one iteration."""
        op = self.plan.program.stages[stage]
        assert isinstance(op, Compute)
        axes = _axes(op)
        if self.places[stage].kind == "at":
            outer = self._around(stage)
            box = self._box(stage, outer if loops[: len(outer)] == outer else loops)
        else:
            whole = tuple(_all_of(e) for e in op.output().extents)
            box = _Part(whole, (), (True,) * len(whole))
        if self.plan.cases(stage) or self.plan.bounds(stage):
            return _unknown(len(axes), box.there)
        terms = tuple(map(_term, axes[len(op.axes) :]))
        intervals, is_there = self._through_loops(
            stage, op, dict(zip(axes, (*box.intervals, *terms), strict=True)), loops
        )
        exact = (*box.exact, *(True for _ in terms))
        return _Part(tuple(intervals[a] for a in axes), (*box.there, *is_there), exact)

    def _through_loops(
        self, stage: str, op: Compute, axes: Mapping[Axis, Interval | None], loops: Loops
    ) -> tuple[Mapping[Axis, Interval | None], list[Ends]]:
        """What the loops of a stage make of the intervals of its axes, and which iterations are not beyond an end."""
        levels = {v.name: a for v in nest_of(stage, op, "body").levels for a in v.origin if isinstance(a, Axis)}
        sizes = {name: None if (e := axes[a]) is None else e[1] - e[0] + 1 for name, a in levels.items()}
        made: list[tuple[Split | Fuse, Ends | None]] = []  # a loop may keep its name when it is split
        for d in (s.directive for s in self.plan.loops.get((stage, "body"), ())):
            if isinstance(d, Split):
                made.append((d, n := sizes.pop(d.loop)))
                sizes[d.outer], sizes[d.inner] = (
                    None if n is None or d.step is None else -(-n // d.step),
                    None if d.step is None else of(d.step),
                )
            elif isinstance(d, Fuse):
                n, m = sizes.pop(d.outer), sizes.pop(d.inner)
                made.append((d, m))
                sizes[d.fused] = None if n is None or m is None else n * m
        values = {v.name: self._value(stage, v.name, sizes[v.name], loops) for v in self.plan.nest(stage).levels}
        there: list[Ends] = []
        for d, size in reversed(made):
            if isinstance(d, Fuse):
                values[d.outer], values[d.inner] = _parted(values[d.fused], size)
                continue
            value = values[d.loop] = _joined(values[d.outer], values[d.inner], size, d)
            if value is not None and not np.all(begins := value[0] <= value[1]):
                there.append(begins)
        found = {a: _moved(axes[a], values[name]) for name, a in levels.items()}
        return found, there

    def _value(self, stage: str, loop: str, size: Ends | None, loops: Loops) -> Interval | None:
        """The iterations of a loop: each one of its own where the loop is among `loops`, else all."""
        if size is None or not 0 < np.max(size, initial=0) <= MOST:
            return None
        if (stage, loop) not in loops:
            return of(0), size - 1
        each = np.arange(int(np.max(size))).reshape((-1,) + (1,) * loops.index((stage, loop)))
        self._runs[stage, loop] = each < size
        return each, each


def _axes(op: Compute) -> tuple[Axis, ...]:
    return op.axes if op.reduction is None else (*op.axes, *op.reduction.axes)


def _term(axis: Axis) -> Interval | None:
    """All of a reduce axis."""
    begin, extent = number(axis.begin), number(axis.extent)
    return None if begin is None or extent is None else (of(begin), of(begin + extent - 1))


def _all_of(extent: Expr) -> Interval | None:
    n = number(extent)
    return None if n is None else (of(0), of(n - 1))


def _moved(axis: Interval | None, iterations: Interval | None) -> Interval | None:
    """The part of an axis that iterations go through, which count from its beginning."""
    if axis is None or iterations is None or not fits(*axis, *iterations):
        return None
    return axis[0] + iterations[0], axis[0] + iterations[1]


def _joined(outer: Interval | None, inner: Interval | None, size: Ends | None, d: Split) -> Interval | None:
    """The iterations of a loop that was split; none where all are beyond its end."""
    if outer is None or inner is None or size is None or d.step is None or not fits(*outer, *inner, size):
        return None
    begins = [o * d.step for o in outer]
    if d.tail == "shift":
        begins = [np.minimum(b, np.maximum(size - d.step, 0)) for b in begins]
    return begins[0] + inner[0], np.minimum(begins[1] + inner[1], size - 1)


def _parted(fused: Interval | None, size: Ends | None) -> tuple[Interval | None, Interval | None]:
    """The iterations of two loops that were fused."""
    if fused is None or size is None:
        return None, None
    is_one = fused[0] == fused[1]
    inner = np.where(is_one, fused[0] % size, 0), np.where(is_one, fused[0] % size, size - 1)
    return (fused[0] // size, fused[1] // size), inner


def _is_of_a_loop(run: Ends, widths: Ends) -> bool:
    """Whether two arrays depend on one loop."""
    return any(a > 1 and b > 1 for a, b in zip(np.shape(run)[::-1], np.shape(widths)[::-1], strict=False))


def _extremes(widths: Ends, partial: Sequence[Ends]) -> tuple[int, int]:
    """The least and the greatest width of the iterations that there are."""
    own = [r for r in partial if _is_of_a_loop(r, widths) and fits(r, widths)]
    widths, *runs = np.broadcast_arrays(widths, *own)
    if not runs or not fits(widths, *runs):
        return int(widths.min()), int(widths.max())
    there = widths[np.logical_and.reduce(runs)]
    return (int(there.min()), int(there.max())) if there.size else (0, 0)


def _total(factors: Sequence[Ends], depth: int) -> float:
    """The sum of a product over all iterations; loops without a factor in common are summed apart."""
    operands, texts = [], []
    for factor in factors:
        array = np.asarray(factor, "float64")
        letters = string.ascii_letters[depth - array.ndim : depth]
        texts.append("".join(x for x, n in zip(letters, array.shape, strict=True) if n > 1))
        operands.append(array.squeeze())
    return float(np.einsum(f"{','.join(texts)}->", *operands, optimize=True))
