"""Where the axes of a stage are as the loops of another one go on, which reads it: what a part of these loops needs.

y[n, c, i] reads m[n, c // 16]          n of m is beside n, its second axis has one place for 16 of c
m[n, g] sums x[n, 16 g + r, i] over r   16 places for one of g, so 16 for 16 of c
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tedsl.analysis.affine import affine_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn
from tedsl.lang.intervals import range_of
from tedsl.lang.traverse import free_axes, reads_of, substitute

__all__ = ["FREE", "Position", "Positions", "followed", "joined", "place_of"]


@dataclass(frozen=True)
class Position:
    """Where an index is as the root's loops go on: index // each is axis // by; no axis: anywhere.

    `others`: loops of the root that move it in another way.
    """

    axis: Axis | None = None
    by: int = 1
    each: int = 1
    others: frozenset[Axis] = frozenset()

    @property
    def moves(self) -> frozenset[Axis]:
        """The loops of the root that move it."""
        return self.others if self.axis is None else self.others | {self.axis}


FREE = Position()
Positions = tuple[Position, ...]  # of the axes of a stage


def followed(places: Positions) -> frozenset[Axis]:
    """The loops of the root each of which moves one axis of a stage, from one part to the next."""
    moves = Counter(a for p in places for a in p.moves)
    return frozenset(p.axis for p in places if p.axis is not None and moves[p.axis] == 1)


def joined(sites: Sequence[Positions]) -> Positions:
    """Where the axes of a stage are, by all reads of it."""
    found = sites[0]
    for places in sites[1:]:
        found = tuple(_both(a, b) for a, b in zip(found, places, strict=True))
    return found


def _both(a: Position, b: Position) -> Position:
    """What two places are together: the same, or equally many for as many of the root's."""
    by = math.lcm(a.by, b.by)
    each = a.each * (by // a.by)
    if a.axis is b.axis and each == b.each * (by // b.by):
        return Position(a.axis, by, each, a.others | b.others)
    return Position(others=a.moves | b.moves)


def place_of(index: Expr, at: Mapping[Axis, Position]) -> Position:
    """Where an index is, of axes that are there; loops of a reduction are none of them."""
    moved = {a: at[a] for a in free_axes(index) if a in at and at[a].moves}
    places = (at if reads_of((index,)) else moved).values()
    unknown = Position(others=frozenset().union(*(p.moves for p in places)))
    if reads_of((index,)) or len(moved) != 1:
        return unknown
    ((axis, place),) = moved.items()
    if index is axis:
        return place
    if isinstance(index, Apply) and index.fn is Fn.FLOORDIV and index.args[0] is axis:
        divisor = index.args[1]
        return _divided(place, int(divisor.value)) or unknown if isinstance(divisor, Const) else unknown
    form = affine_of(index)
    times = None if form is None else form.coefficient(axis)
    low, high = range_of(substitute(index, {axis: Const(0, axis.dtype)}))
    if times is None or not times.is_constant or low < 0 or high >= times.constant:
        return unknown
    return replace(place, each=place.each * times.constant)


def _divided(place: Position, by: int) -> Position | None:
    """The place of a quotient of an index."""
    if by > 0 and by % place.each == 0:
        return replace(place, by=place.by * (by // place.each), each=1)
    return replace(place, each=place.each // by) if by > 0 and place.each % by == 0 else None
