"""Reads that a window's first iterations make outside of what is there.

    for each row y, and for some before the first one:         so many that the window on b is full at the first one
        c[y] = a[y + 5]                                  ->        c[y] = a[clip(y + 5, 0, rows - 1)]
        b[y + 26] = a[y + 26] + a[y + 30]
        out[y] = b[y + 3] + b[y + 26] + c[y]                       left out before the first row

Halide fills a window by iterations before the first one. What is computed at the same loop beside the window is
computed in them too, unless its name comes later in the alphabet, and what both read is needed for all of them. Rows
before the first one are of no use, but arrays do not have them, and stages at the root were not asked for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from schedules.placing.places import Placement, around
from schedules.plan import Plan
from tedsl.analysis.affine import affine_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.intervals import range_of
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, stages_of

__all__ = ["held_reads"]


def held_reads(plan: Plan, places: Mapping[str, Placement]) -> dict[Read, tuple[int, ...]]:
    """Reads of what is not computed at a window's loop, by stages that are: the dimensions that move with it."""
    stages = plan.program.stages
    inside = {stages[name] for name, place in places.items() if place.kind == "at"}
    moving = _moving(plan, places)
    if len(inside) < 2 or not moving or not _goes_beyond(plan, places, moving):
        return {}
    inlined = {stages[name] for name, place in places.items() if place.kind == "inline"}
    found: dict[Read, tuple[int, ...]] = {}
    for op in reversed(list(stages.values())):  # users before inputs
        along = moving.get(op, frozenset())
        for read in op.reads if along else ():
            dims = tuple(d for d, index in enumerate(read.indices) if not along.isdisjoint(free_axes(index)))
            source = read.tensor.op
            if isinstance(source, Compute) and source in inside | inlined:
                moving[source] = moving.get(source, frozenset()) | {source.axes[d] for d in dims}
                if source in inlined and op in inside:
                    inside.add(source)
            elif op in inside:
                found[read] = dims
    return found


def _moving(plan: Plan, places: Mapping[str, Placement]) -> dict[Operation, frozenset[Axis]]:
    """The axes that windows move along, of the stages whose loops these are."""
    found: dict[Operation, frozenset[Axis]] = {}
    for place in places.values():
        if place.kind != "at" or place.store is None:
            continue
        loops = around(plan, places, place.consumer, place.loop)
        names = [(consumer, level.name) for consumer, level in loops]
        for consumer, level in loops[names.index(place.store) + 1 if place.store in names else 0 :]:
            op = plan.program.stages[consumer]
            found[op] = found.get(op, frozenset()) | {a for a in level.origin if isinstance(a, Axis)}
    return found


@dataclass(frozen=True)
class _Need:
    """What one reader needs of a stage, as rows beside that of the loop.

    `low`, `high`: in each iteration. `first`: of what is of use in the first one. `before`: the iterations before that.
    """

    low: int
    high: int
    first: int
    before: int

    def through(self, offsets: tuple[int, int]) -> _Need:
        low, high = offsets
        return _Need(self.low + low, self.high + high, self.first + low, self.before)


class _Unknown(Exception):
    """A read that does not move row by row."""


def _goes_beyond(plan: Plan, places: Mapping[str, Placement], moving: Mapping[Operation, frozenset[Axis]]) -> bool:
    """Whether rows before the first one may be computed, or nobody can tell."""
    if len(moving) > 1 or any(len(axes) > 1 for axes in moving.values()):
        return True
    ((root, axes),) = moving.items()
    try:
        return _Rows(plan, places, root, *axes).go_beyond()
    except _Unknown:
        return True


class _Rows:
    """The rows of each stage that is computed at one loop, of the axis of its root."""

    def __init__(self, plan: Plan, places: Mapping[str, Placement], root: Operation, axis: Axis) -> None:
        self.stages, self.places = list(plan.program.stages.values()), places
        self.axis = {root: axis}
        self.needs: dict[Operation, list[_Need]] = {root: [_Need(0, 0, 0, 0)]}

    def go_beyond(self) -> bool:
        """Whether rows before the first one of use are needed by some reader, or begun for another stage."""
        began: dict[Operation, int] = {}
        for op in reversed(self.stages):  # users before inputs
            needs = self.needs.get(op, [])
            if needs and self.places[op.name].kind == "at":
                whole = _joined(needs)
                if whole.low - whole.before < whole.first:
                    return True
                if self.places[op.name].store is not None:  # each iteration adds the last row
                    whole = _Need(whole.high, whole.high, whole.first, whole.high - whole.first)
                needs, began[op] = [whole], whole.before
            self._ask(op, needs)
        pairs = itertools.combinations(began, 2)  # users before inputs
        return any(began[a] != began[b] and b not in stages_of(a.outputs) for a, b in pairs)

    def _ask(self, op: Operation, needs: Sequence[_Need]) -> None:
        """What a stage needs of those that it reads."""
        for read in op.reads if needs else ():
            source = read.tensor.op
            if source not in self.stages or self.places[source.name].kind not in ("at", "inline"):
                continue
            moved = [(k, r) for k, index in enumerate(read.indices) if (r := self._offsets(op, index)) is not None]
            if len(moved) != 1 or not isinstance(source, Compute):
                raise _Unknown
            ((dim, offsets),) = moved
            if self.axis.setdefault(source, source.axes[dim]) is not source.axes[dim]:
                raise _Unknown
            self.needs.setdefault(source, []).extend(n.through(offsets) for n in needs)

    def _offsets(self, op: Operation, index: Expr) -> tuple[int, int] | None:
        """How far an index is from the row of a stage; None where it does not move with it."""
        axis = self.axis[op]
        if all(a is not axis for a in free_axes(index)):
            return None
        form = affine_of(index)
        factor = None if form is None else form.coefficient(axis)
        if form is None or factor is None or not factor.is_constant or factor.constant != 1:
            raise _Unknown
        return range_of(form.without(axis).to_expr())


def _joined(needs: Sequence[_Need]) -> _Need:
    lows, highs, firsts, counts = zip(*((n.low, n.high, n.first, n.before) for n in needs), strict=True)
    return _Need(min(lows), max(highs), min(firsts), max(counts))
