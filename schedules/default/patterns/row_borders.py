"""Borders of rows that are cut off: loops of their own for the few elements that conditions single out at the ends.

    y[i, j] = select(j > 0, x[i, j - 1], 0) + x[i, j] + select(j < n - 1, x[i, j + 1], 0)
    ->   j = 0;   y[i, j] = x[i, j - 1] + x[i, j] + x[i, j + 1] for j in [1, n - 1);   j = n - 1

Halide cuts a loop where conditions change, too, unless its last vector is masked and conditions are many: then it mixes
up what is there twice. The whole row would then choose at every element, from what is loaded at places held inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set as AbstractSet

from schedules.default.patterns.breaks import MOST_NODES, crossed_along, line_along
from schedules.machine import Machine
from schedules.pieces import boxes, decided, in_order, pieces_of, written_out
from schedules.sizes import extent_of, typical
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import Facts
from tedsl.analysis.points import is_data_free
from tedsl.analysis.rounds import mirrored_part, pixel_of
from tedsl.analysis.sizes import evaluate_extent, vars_of
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import ZeroDivisorError
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["row_borders"]

FEW = 2  # vectors that are no row
MANY = 6  # choices along a row, from which on it pays
SOME = 2  # where its length is not known
LENGTHS = 1024, 4096  # for which a position is looked at
ROUNDS = 3  # of what a border decides, by which further places are known
SHARE = 8  # of a row that its border is at most


def row_borders(op: Compute, inlined: AbstractSet[Operation], row: Axis, width: int, machine: Machine) -> list[Expr]:
    """The positions along the row at which its borders end and begin; none where Halide cuts it, or nothing is saved.

    `width`: lanes of a vector along the row.
    """
    known, count = number(row.extent), math.prod(typical(a.extent) for a in op.axes)
    if known is not None and (known % width == 0 or known < FEW * width or count < machine.least.row_borders):
        return []
    bodies = written_out(op, inlined)
    if number(row.begin) != 0 or bodies is None or _dear(bodies, row) < (MANY if known is not None else SOME):
        return []
    at = _ends(bodies, row, op.axes)
    if not at or not in_order(row, at):
        return []
    pieces = pieces_of(op.axes, bodies, {row: at})
    place = next(k for k, axis in enumerate(op.axes) if axis is row)
    middle = max(pieces, key=lambda p: typical(p.loops[place].extent))
    is_done = _dear(middle.bodies, middle.loops[place]) == 0
    return at if is_done and sum(len(topological(p.bodies)) for p in pieces) <= MOST_NODES else []


def _ends(bodies: Sequence[Expr], row: Axis, axes: Sequence[Axis]) -> list[Expr]:
    """Where the first border of a row ends and the last one begins; none if they are long, or depend on its length."""
    extent, first, last, at, middle = extent_of(row), 0, 0, list[Expr](), row
    for _ in range(ROUNDS):
        others = [middle if a is row else a for a in axes]
        there = decided(bodies, {row: middle}, others)
        before = first, last
        for position in (*crossed_along(there, middle, others), *_turned_back(there, middle, others)):
            near = _near(position.to_expr(), extent)
            if near is None:
                return []
            first, last = max(first, near[0]), max(last, near[1])
        if max(first, last) * SHARE > typical(extent):
            return []
        if (first, last) == before:
            break
        begin = fn.minimum(first, extent) if first else Const(0, INT32)
        places = [begin, fn.maximum(extent - last, begin)] if last else [begin]
        at = [p for p in map(simplify_extent, places) if number(p) != 0]
        middle = boxes(row, at)[1 if first else 0]
    return at


def _near(position: Expr, extent: Expr) -> tuple[int, int] | None:
    """How far from the beginning of a row, or from its end, a position is in long rows; None where it is neither."""
    found = []
    for size in LENGTHS:
        sizes = dict.fromkeys((*vars_of(position), *vars_of(extent)), size)
        try:
            found.append((evaluate_extent(position, sizes), evaluate_extent(extent, sizes)))
        except ZeroDivisorError:
            return None
    (place, length), (other, longer) = found
    if all(not 0 < p < n for p, n in found):
        return 0, 0
    if place == other and 2 * place < length:
        return place, 0
    return (0, length - place) if length - place == longer - other else None


def _turned_back(bodies: Sequence[Expr], row: Axis, axes: Sequence[Axis]) -> Iterator[Affine]:
    """Where places reach the ends of a length that is not known, at which they are mirrored."""
    facts = Facts(axes)
    for read in reads_of(bodies):
        for index, extent in zip(read.indices, read.tensor.extents, strict=True):
            found = pixel_of(index, extent)
            pixel, length = (index, extent) if found is None else (found.pixel, found.pixels)
            straight = mirrored_part(pixel, length)
            place = None if straight is None else facts.form(straight)
            if place is not None:
                for end in (place, place - facts.form(length)):
                    line = line_along(end, row)
                    if line is not None and abs(line.factor) == 1:
                        yield line.rest * (-line.factor * line.each)


def _dear(bodies: Sequence[Expr], row: Axis) -> int:
    """How much the ends of a row cost all along it: choices, and reads that run backwards."""
    return len(_choices(bodies, row)) + sum(_runs_back(read, row) for read in reads_of(bodies))


def _runs_back(read: Read, row: Axis) -> bool:
    """Whether a read runs backwards along a row, or is held or mirrored somewhere in one whose length is not known."""
    index = read.indices[-1] if read.indices else row
    form = affine_of(index)
    if form is None:
        return number(row.extent) is None and row in set(free_axes(index)) and is_data_free((index,))
    factor = form.coefficient(row)
    return factor is not None and factor.is_constant and factor.constant < 0


def _choices(bodies: Sequence[Expr], row: Axis) -> list[Expr]:
    """The choices by conditions on the place in a row."""
    return [
        node
        for node in topological(bodies)
        if isinstance(node, Apply) and node.fn is Fn.SELECT and is_data_free(node.args[:1])
        and row in set(free_axes(node.args[0]))
    ]  # fmt: skip
