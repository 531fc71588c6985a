"""Borders of rows that are cut off: loops of their own for the few elements that conditions single out at the ends.

    y[i, j] = select(j > 0, x[i, j - 1], 0) + x[i, j] + select(j < n - 1, x[i, j + 1], 0)
    ->   j = 0;   y[i, j] = x[i, j - 1] + x[i, j] + x[i, j + 1] for j in [1, n - 1);   j = n - 1

Halide cuts a loop where conditions change, too, unless its last vector is masked and conditions are many: then it mixes
up what is there twice. The whole row would then choose at every element, from what is loaded at places held inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set as AbstractSet

from schedules.default.patterns.breaks import MOST_NODES, changes_of
from schedules.machine import Machine
from schedules.pieces import pieces_of, written_out
from tedsl.analysis.affine import affine_of
from tedsl.analysis.points import is_data_free
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["row_borders"]

FEW = 2  # vectors that are no row
MANY = 6  # choices along a row, from which on it pays
SHARE = 8  # of a row that its border is at most


def row_borders(op: Compute, inlined: AbstractSet[Operation], row: Axis, width: int, machine: Machine) -> list[Expr]:
    """The positions along the row at which its borders end and begin; none where Halide cuts it, or nothing is saved.

    `width`: lanes of a vector along the row.
    """
    extent, count = number(row.extent), math.prod(number(a.extent) or 0 for a in op.axes)
    if extent is None or extent % width == 0 or extent < FEW * width or count < machine.least.row_borders:
        return []
    bodies = written_out(op, inlined)
    if bodies is None or _dear(bodies, row) < MANY:
        return []
    positions = [number(p) for p in changes_of(bodies, row, op.axes)]
    begin = number(row.begin) or 0
    first = max([p - begin for p in positions if p is not None and p - begin < extent // 2], default=0)
    last = min([p - begin for p in positions if p is not None and p - begin >= extent // 2], default=extent)
    if max(first, extent - last) * SHARE > extent:
        return []
    at: list[Expr] = [Const(begin + p, row.dtype) for p in (first, last) if 0 < p < extent]
    pieces = pieces_of(op.axes, bodies, {row: at})
    middle = pieces[1 if first else 0]
    if _choices(middle.bodies, row) or sum(len(topological(p.bodies)) for p in pieces) > MOST_NODES:
        return []
    return at


def _dear(bodies: Sequence[Expr], row: Axis) -> int:
    """How much the ends of a row cost all along it: choices, and reads that run backwards."""
    return len(_choices(bodies, row)) + sum(_runs_back(read, row) for read in reads_of(bodies))


def _runs_back(read: Read, row: Axis) -> bool:
    forms = [affine_of(index) for index in read.indices[-1:]]
    factors = [form.coefficient(row) for form in forms if form is not None]
    return any(f is not None and f.is_constant and f.constant < 0 for f in factors)


def _choices(bodies: Sequence[Expr], row: Axis) -> list[Expr]:
    """The choices by conditions on the place in a row."""
    return [
        node
        for node in topological(bodies)
        if isinstance(node, Apply) and node.fn is Fn.SELECT and is_data_free(node.args[:1])
        and row in set(free_axes(node.args[0]))
    ]  # fmt: skip
