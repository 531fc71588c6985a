"""Whether an access leaves its bounds anywhere, and how far: what the checks of indices ask of data.

All elements are looked at, in the order of memory and as vectors, for one bit; only where it is set they are looked at
once more for the least and greatest index outside. Indices are often as large as what is looked up, so pieces of them
go to several threads, and the outermost loop goes backwards: what was seen last is in the cache when a kernel begins.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import halide as hl

from tedsl.analysis.checks import ReadCheck
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import Context, Place
from tedsl.backend.scalars.types import Expr as Halide, const
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import integer_bounds
from tedsl.lang.expr import TRUE, Axis, Const, Expr
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Operation, Scan, Tensor
from tedsl.lang.traverse import free_axes, reads_of

__all__ = ["HIGHEST", "LOWEST", "IndexFlags", "expressions_of", "loops_of"]

LANES = 16
TASKS, POINTS = 16, 1 << 16  # pieces of a loop for threads, from so many points on
# What is found saturates here: Halide's simplifier moves constants around, and overflows on the very last integers.
LOWEST, HIGHEST = -(1 << 30), 1 << 30


def expressions_of(check: ReadCheck) -> tuple[Expr, ...]:
    """All that decides whether the access is in bounds."""
    return check.index, check.guard, check.lower, check.upper


def loops_of(check: ReadCheck) -> list[Axis]:
    """The loops around an access, with those of the reductions in its scan."""
    op = check.op
    reduction = getattr(op, "reduction", None)
    loops = [*getattr(op, "axes", ()), *(reduction.axes if reduction is not None else ())]
    return [*loops, *(a for a in free_axes(expressions_of(check)) if a not in set(loops))]


@dataclass(frozen=True, eq=False)
class IndexFlags:
    """The functions that look at one access. The last axis is walked in steps of a vector.

    At its end elements are looked at again, and where the last piece is longer than what is left, the first one is:
    neither changes what is found.
    """

    ctx: Context
    check: ReadCheck

    @cached_property
    def axes(self) -> list[Axis]:
        """The loops that the access depends on, the one along the vectors last."""
        used = set(free_axes(expressions_of(self.check)))
        return _long_last(_in_memory_order(self.check, [a for a in loops_of(self.check) if a in used]))

    @cached_property
    def kind(self) -> hl.Type:
        return hl.UInt(max(32, self.check.index.dtype.bits))

    def any_outside(self) -> tuple[Halide, list[hl.Func]]:
        """Whether an index leaves its bounds: bits by lane and task, the highest of which says so, then all of them."""
        name, (_, tasks, _) = identifier(self.check.op.name), self._cut
        lane, task = hl.Var("lane"), hl.Var("task")
        lanes, found = numbered_func(f"lanes_{name}"), numbered_func(f"any_{name}")
        lanes[lane, task] = hl.cast(self.kind, 0)
        lanes[lane, task] = hl.Expr(lanes[lane, task]) | self._flag(self._walked(lane, task))
        lanes.bound(lane, 0, LANES).bound(task, 0, tasks).vectorize(lane)
        lanes.update(0).vectorize(lane)
        if tasks > 1:
            lanes.update(0).parallel(task)
        every = hl.RDom([(0, LANES), (0, tasks)], "lane")
        found[()] = hl.cast(self.kind, 0)
        found[()] = hl.Expr(found[()]) | hl.Expr(lanes[every[0], every[1]])
        return (hl.Expr(found[()]) >> (self.kind.bits() - 1)) != 0, [lanes, found]

    def extremes(self, wanted: Halide) -> tuple[Halide, Halide, hl.Func]:
        """The least and greatest index outside, looked for where it is wanted."""
        worst = numbered_func(f"worst_{identifier(self.check.op.name)}")
        nothing = (hl.i32(HIGHEST), hl.i32(LOWEST))
        worst[()] = hl.Tuple(nothing)
        steps = [(self.ctx.extent(a.begin), self.ctx.extent(_extent(a))) for a in self.axes]
        domain = hl.RDom(steps[::-1] or [(0, 1)], "r")
        domain.where(wanted)
        scope = self._scope({a: hl.Expr(domain[d]) for d, a in enumerate(self.axes[::-1])})
        outside = self._outside(scope)
        found = _saturated(scope.value(self.check.index), self.check.index.dtype)
        worst[()] = hl.Tuple([
            hl.min(hl.Expr(worst[()][0]), hl.select(outside, found, nothing[0])),
            hl.max(hl.Expr(worst[()][1]), hl.select(outside, found, nothing[1])),
        ])  # fmt: skip
        return hl.Expr(worst[()][0]), hl.Expr(worst[()][1]), worst

    @cached_property
    def _steps(self) -> tuple[list[int | None], int]:
        """The iterations of the loops over vectors, innermost first, and the number of that over blocks of lanes."""
        counts = [_known(a) for a in self.axes[::-1]] or [1]
        inner = len(list(itertools.takewhile(_is_short, self.axes[-2::-1])))  # so that what it needs is read once
        last = counts.pop(0)
        counts.insert(inner, None if last is None else -(-last // LANES))
        return counts, inner

    @cached_property
    def _cut(self) -> tuple[int, int, int]:
        """The loop that is cut into pieces, how many there are and how long they are.

        It is the outermost one that all threads have work in, else the longest.
        """
        counts, _ = self._steps
        place, piece = len(counts) - 1, 0
        if all(counts) and LANES * math.prod(n or 0 for n in counts) >= POINTS:
            place = max(range(len(counts)), key=lambda d: (min(counts[d] or 0, TASKS), d))
            piece = -(-(counts[place] or 0) // TASKS)
        return (place, -(-(counts[place] or 0) // piece), piece) if piece else (place, 1, 0)

    def _walked(self, lane: hl.Var, task: hl.Var) -> Scalars:
        """The scope of the loops over vectors, of which those in one piece belong to a task."""
        axes, extent = self.axes, self.ctx.extent
        others = axes[:-1][::-1]
        _, inner = self._steps
        place, _, piece = self._cut
        blocks = (extent(_extent(axes[-1])) + LANES - 1) / LANES if axes else hl.i32(1)
        steps = [(extent(a.begin), extent(_extent(a))) for a in others]
        steps.insert(inner, (hl.i32(0), blocks))
        begin, count = steps[place]
        steps[place] = (hl.i32(0), hl.i32(piece) if piece else count)
        domain = hl.RDom(steps, "r")
        places = [hl.Expr(domain[d]) for d in range(len(steps))]
        places[place] = begin + hl.max(count - 1 - (task * piece + places[place]), 0)
        block = places.pop(inner)
        loops = dict(zip(others, places, strict=True))
        if axes:
            loops[axes[-1]] = extent(axes[-1].begin) + self._lanes(block * LANES, lane)
        return self._scope(loops)

    def _lanes(self, begin: Halide, lane: hl.Var) -> Halide:
        """The places of a vector along the last axis; the last vector ends with the axis, where that is as long."""
        axis = self.axes[-1]
        known, last = _known(axis), self.ctx.extent(_extent(axis)) - 1
        if known is None or known < LANES:
            return hl.min(hl.likely(begin + lane), last)
        return (begin if known % LANES == 0 else hl.min(begin, hl.i32(known - LANES))) + lane

    def _scope(self, loops: Mapping[Axis, Halide]) -> Scalars:
        return self.ctx.scalars(loops, _reading_scans(self.ctx, self.check.op))

    def _flag(self, scope: Scalars) -> Halide:
        """A number whose highest bit is set where an index leaves its bounds.

        From 0 to a greatest index that is the case where it, or what is left up to there, is negative. The arithmetic
        is that of unsigned numbers, which wraps.
        """
        check = self.check
        zero = isinstance(check.lower, Const) and check.lower.value == 0
        if zero and check.site.step is None and check.guard is TRUE and not self._filled:
            place = hl.cast(self.kind, scope.value(check.index))
            return place | (hl.cast(self.kind, scope.extent(check.upper)) - place)
        highest = hl.cast(self.kind, 1) << (self.kind.bits() - 1)
        return hl.select(self._outside(scope), highest, hl.cast(self.kind, 0))

    @cached_property
    def _filled(self) -> list[Halide]:
        """That loops which the access does not depend on have iterations at all."""
        unused = [_extent(a) for a in loops_of(self.check) if a not in set(self.axes)]
        return [self.ctx.extent(e) > 0 for e in unused if not (isinstance(e, Const) and e.value > 0)]

    def _outside(self, scope: Scalars) -> Halide:
        """Whether an index leaves its bounds.

        Compared as unsigned numbers, of which negative ones are the largest: of signed ones Halide's simplifier turns
        `n - 1 < i` into `n < i + 1`, which wraps.
        """
        check = self.check
        lower, upper = scope.extent(check.lower), scope.extent(check.upper)
        least, most = (hl.cast(self.kind, hl.max(bound, 0)) for bound in (lower, upper))
        place = hl.cast(self.kind, scope.value(check.index))
        outside = (place < least) | (upper < 0) | (place > most)
        for some in self._filled:
            outside = outside & some
        return outside if check.guard is TRUE else outside & scope.value(check.guard)


def _in_memory_order(check: ReadCheck, axes: list[Axis]) -> list[Axis]:
    """Loops as the dimensions of what is read follow each other."""
    places: dict[Axis, int] = {}
    read = max(reads_of(expressions_of(check)), key=lambda r: len(r.indices), default=None)
    for place, index in enumerate(read.indices if read is not None else ()):
        for axis in free_axes(index):
            places.setdefault(axis, place)
    return sorted(axes, key=lambda a: places.get(a, -1))


def _long_last(axes: Sequence[Axis]) -> list[Axis]:
    """The axes, in an order whose last one fills the lanes, if one does: the last of those."""
    extents = {a: _extent(a) for a in axes}
    long = [a for a, e in extents.items() if not isinstance(e, Const) or e.value >= LANES]
    return [*(a for a in axes if a is not long[-1]), long[-1]] if long else [*axes]


def _is_short(axis: Axis) -> bool:
    known = _known(axis)
    return known is not None and known < LANES


def _known(axis: Axis) -> int | None:
    return int(axis.extent.value) if isinstance(axis.extent, Const) else None


def _extent(axis: Axis) -> Expr:
    assert axis.extent is not None
    return axis.extent


def _reading_scans(ctx: Context, op: Operation) -> Callable[[Tensor, Place], Halide]:
    """Reads in which the states of a scan stand for its results: the same values, once all steps are done."""
    states = {id(s): k for k, s in enumerate(op.states)} if isinstance(op, Scan) else {}

    def read(tensor: Tensor, indices: Place) -> Halide:
        position = states.get(id(tensor))
        return ctx.read(tensor, indices) if position is None else ctx.stages[op].read(position, indices[::-1])

    return read


def _saturated(index: Halide, dtype: str) -> Halide:
    low, high = integer_bounds(dtype)  # type: ignore[arg-type]
    if low < LOWEST:
        index = hl.max(index, const(LOWEST, dtype))
    if high > HIGHEST:
        index = hl.min(index, const(HIGHEST, dtype))
    return hl.cast(hl.Int(32), index)
