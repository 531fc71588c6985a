"""Reductions inside a step of a scan: their accumulators, and the turns that they take.

Each reduction runs innermost; its accumulators are components of the function. What one needs of another has an earlier
turn. A turn runs the iterations that its conditions leave (`spans`). Where all lanes of a vector would sum the same,
each may take terms of its own: as many at a time, and the lanes are added once the turn is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import halide as hl

from tedsl.analysis.terms import product_of
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.reductions import Accumulator, accumulator, combined
from tedsl.backend.lowering.spans import ALL, Ends, iterations_of
from tedsl.backend.lowering.stages import Context
from tedsl.backend.scalars.intrinsics import EMIT
from tedsl.backend.scalars.types import TYPES, Expr as Halide
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Reduce
from tedsl.lang.extents import number
from tedsl.lang.polynomials import Affine
from tedsl.lang.traverse import substitute_all, topological

__all__ = [
    "Inner", "Turn", "accumulated", "added_lanes", "extent_of", "inner_reductions", "product_of_extents", "promised",
    "reductions", "results_of", "turn_of",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Inner:
    """One reduction inside a step: its accumulator, the components that hold it, and its turn."""

    reduce: Reduce  # component 0
    kept: Accumulator
    slots: tuple[int, ...]  # of the components of the function
    turn: int
    across: tuple[Axis, ...] = ()  # loops over places that all have one value: it is computed at the first of them


def reductions(roots: Sequence[Expr]) -> list[Reduce]:
    return [node for node in topological(roots) if isinstance(node, Reduce)]


def whole_of(reduce: Reduce) -> Reduce:
    """The first component, which stands for all of one reduction."""
    return Reduce(reduce.reducer, reduce.values, reduce.axes, reduce.where, 0)


def promised(value: Halide, extent: Halide) -> Halide:
    """A loop that has only so many of its iterations, as Halide is told."""
    return hl.unsafe_promise_clamped(value, 0, hl.max(extent - 1, 0))


def extent_of(axis: Axis) -> Expr:
    assert axis.extent is not None
    return axis.extent


def inner_reductions(ctx: Context, bodies: tuple[Expr, ...], types: list[Any], free: set[int]) -> list[Inner]:
    """Every reduction of the bodies once, in turns: after those that it contains, with those of the same iterations.

    Accumulators lie in `free` components of their types, else in new ones.
    """
    found: dict[Reduce, Inner] = {}
    level: dict[Reduce, int] = {}
    for reduce in reductions(bodies):
        whole = whole_of(reduce)
        if whole in found:
            continue
        level[whole] = max((level[whole_of(r)] + 1 for r in reductions(reduce.children)), default=0)
        kept = accumulator(ctx, whole)
        slots = []
        for dtype in kept.dtypes:
            slot = next((k for k in sorted(free) if types[k] == TYPES[dtype]), len(types))
            free.discard(slot)
            if slot == len(types):
                types.append(TYPES[dtype])
            slots.append(slot)
        found[whole] = Inner(whole, kept, tuple(slots), 0)
    loops: dict[tuple[Expr, ...], tuple[Axis, ...]] = {}
    walks = {r: (level[r], *_walk(r, loops)) for r in found}
    together = sorted(dict.fromkeys(walks.values()), key=lambda walk: walk[0])
    turn = {walk: k for k, walk in enumerate(together)}
    return [replace(inner, turn=turn[walks[r]]) for r, inner in found.items()]


def _walk(reduce: Reduce, loops: dict[tuple[Expr, ...], tuple[Axis, ...]]) -> tuple[tuple[Axis, ...], Expr]:
    """Which iterations a reduction runs: its loops, named as those of others, and what leaves some of them out."""
    shape = tuple(end for a in reduce.axes for end in (a.begin, extent_of(a)))
    axes = loops.setdefault(shape, reduce.axes)
    condition = _condition(reduce)
    if iterations_of(condition, reduce.axes[0], frozenset(reduce.axes), _anywhere).are_all:
        return axes, TRUE
    (named,) = substitute_all((condition,), dict(zip(reduce.axes, axes, strict=True)))
    return axes, named


def _anywhere(form: Affine, *, largest: bool) -> Halide:
    return hl.i32(0)


def _points(ctx: Context, reduce: Reduce, lanes: int) -> Halide:
    """How many iterations there are, each of so many terms along the last axis."""
    *outer, last = [extent_of(a) for a in reduce.axes]
    return product_of_extents(ctx, [*outer, last if lanes == 1 else Const(_blocks(reduce, lanes), INT32)])


def _blocks(reduce: Reduce, lanes: int) -> int:
    return -(-(number(extent_of(reduce.axes[-1])) or 0) // lanes)


def product_of_extents(ctx: Context, extents: Sequence[Expr]) -> Halide:
    total: Halide = hl.i32(1)
    for extent in extents:
        total = total * ctx.extent(extent)
    return total


@dataclass(frozen=True, eq=False)
class Turn:
    """Reductions that run together: the first of their iterations that counts (None: the first one), how many run.

    Before them, their accumulators begin: so many times, 0 where all are computed somewhere else. `counts`: whether
    all of these iterations count for all members. `lanes`: so many terms along the last axis are one iteration.
    """

    members: tuple[Inner, ...]
    first: Halide | None
    length: Halide
    begin: Halide
    counts: bool
    lanes: int = 1

    def ordinal(self, tick: Halide) -> Halide:
        """Which iteration one is that runs."""
        return tick if self.first is None else self.first + tick


def turn_of(
    ctx: Context, members: Sequence[Inner], ends: Ends, firsts: Sequence[Halide | None], *, singly: bool, lanes: int
) -> Turn:
    """The iterations that one of the members may count; none where all members are computed somewhere else, which
    `firsts` says. `singly`: the ends are those of a single element. `lanes`: as many may sum terms of their own.
    """
    axes = members[0].reduce.axes
    length = product_of_extents(ctx, [extent_of(a) for a in axes])
    span, counts = ALL, singly
    for k, member in enumerate(members):
        own = iterations_of(_condition(member.reduce), member.reduce.axes[0], frozenset(member.reduce.axes), ends)
        span = own if k == 0 else span.either(own)
        counts = counts and own.are_exact and _condition(member.reduce) is _condition(members[0].reduce)
    first: Halide | None = None
    if not all(_is_by_lanes(m.reduce, lanes) for m in members) or not (span.low is None and span.high is None):
        lanes = 1
    if lanes > 1:
        length = _points(ctx, members[0].reduce, lanes)
    if not (span.low is None and span.high is None):
        count, begin = ctx.extent(extent_of(axes[0])), ctx.extent(axes[0].begin)
        start = hl.i32(0) if span.low is None else hl.max(hl.min(span.low - begin, count - 1), 0)
        stop = count if span.high is None else hl.min(span.high - begin, count)
        rest = product_of_extents(ctx, [extent_of(a) for a in axes[1:]])
        first = None if span.low is None else start * rest
        length = hl.max((stop - start) * rest, 0)
        if span.low is not None:
            length = hl.select(span.low - begin < count, length, 0)
    length = length if span.holds is None else hl.select(span.holds, length, 0)
    here: Halide | None = firsts[0]
    for other in firsts[1:]:
        here = None if here is None or other is None else here | other
    if here is None:
        return Turn(tuple(members), first, length, hl.i32(1), counts, lanes)
    begin = hl.select(here, hl.i32(1), hl.i32(0))
    return Turn(tuple(members), first, hl.select(here, length, 0), begin, counts, lanes)


def _is_by_lanes(reduce: Reduce, lanes: int) -> bool:
    """Whether so many lanes can each add a part of the terms: a sum of floats that has as many along its last axis."""
    plain = reduce.reducer.kind == "sum" and not reduce.reducer.is_custom and reduce.dtype.is_float
    return plain and 1 < lanes <= (number(extent_of(reduce.axes[-1])) or 0)


def _condition(reduce: Reduce) -> Expr:
    """Where a term counts: `where=`, and what guards a product."""
    product = product_of(reduce.values[0]) if reduce.reducer.kind == "sum" else None
    return reduce.where if product is None else fn.logical_and(reduce.where, product.condition)


def accumulated(
    ctx: Context,
    scope: Scalars,
    member: Inner,
    turn: Turn,
    tick: Halide,
    held: Sequence[Halide],
    mark: Callable[[Scalars, Expr], None],
    lane: Halide,
    *,
    anywhere: bool,
) -> list[Halide]:
    """The accumulators of a reduction after one more of its points; `mark` sees its terms before they are lowered.

    `lane`: of the vector, where each takes terms of its own. `anywhere`: terms may be added in any order.
    """
    reduce, kept = member.reduce, member.kept
    points = _points(ctx, reduce, turn.lanes)
    counted = all(number(extent_of(a)) for a in reduce.axes)
    reached = turn.ordinal(tick)
    ordinal = promised(reached, points) if counted else hl.max(hl.min(reached, points - 1), 0)
    again: Halide | None = None  # whether a term was one of the block before
    if turn.lanes > 1:
        last = reduce.axes[-1]
        count, blocks = number(extent_of(last)) or 0, _blocks(reduce, turn.lanes)
        ordinal, block = ordinal / blocks, ordinal % blocks
        start = block * turn.lanes
        if count % turn.lanes:
            begin = hl.min(start, count - turn.lanes)
            start, again = begin, begin + lane < block * turn.lanes
        scope.bind_loop(last, ctx.extent(last.begin) + promised(start + lane, hl.i32(count)))
    for axis, value in _decoded(ctx, reduce.axes[: -1 if turn.lanes > 1 else None], ordinal).items():
        scope.bind_loop(axis, value)
    for term in reduce.values:
        mark(scope, term)
    terms, (holds, *_) = combined(ctx, scope, reduce, reduce.where, anywhere=anywhere)
    step = kept.step(held, terms, ordinal)
    taken = None if counted else reached < points
    if holds is not TRUE and not turn.counts:
        condition = scope.value(holds)
        taken = condition if taken is None else taken & condition
    if again is not None:
        taken = ~again if taken is None else taken & ~again
    return list(step) if taken is None else [hl.select(taken, s, b) for s, b in zip(step, held, strict=True)]


def results_of(member: Inner, held: Sequence[Halide]) -> dict[Expr, Halide]:
    """What a reduction is, by its components, once its turn is over."""
    reduce = member.reduce
    count = len(reduce.values) if reduce.reducer.is_custom else 1
    whole = {k: Reduce(reduce.reducer, reduce.values, reduce.axes, reduce.where, k) for k in range(count)}
    return {component: member.kept.result(k, held) for k, component in whole.items()}


def added_lanes(member: Inner, lanes: Sequence[Sequence[Halide]]) -> list[Halide]:
    """The accumulators of a sum of which each lane has added a part."""
    (dtype,) = member.kept.dtypes
    parts = [held for (held,) in lanes]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [EMIT["add"](a, b, dtype=dtype) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts


def _decoded(ctx: Context, axes: Sequence[Axis], ordinal: Halide) -> dict[Axis, Halide]:
    """The values of axes at a position in their order."""
    found: dict[Axis, Halide] = {}
    rest = ordinal
    for axis in axes[::-1]:
        begin = ctx.extent(axis.begin)
        if axis is axes[0]:
            found[axis] = begin + rest
        else:
            extent = ctx.extent(extent_of(axis))
            found[axis] = begin + rest % extent
            rest = rest / extent
    return found
