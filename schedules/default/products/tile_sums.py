"""Directives for the sums of a tile: all of them in registers, term after term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from schedules.default.products.panel_stages import Panels
from schedules.default.rewriting import loop_names
from schedules.directives import BoundExtent, ComputeAt, Directive, Reorder, Split, Unroll, Vectorize
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute

__all__ = ["schedule_sums"]

LONG = 32  # terms of the innermost loop of the sum, from which on unrolling it pays
MANY = 1 << 25  # multiplications, from which on it does: others are not worth the time to build


def schedule_sums(p: Panels, at: str) -> None:
    """The sums of one tile at a loop of the result."""
    stage, op = p.sums.op.name, p.sums.op
    assert isinstance(op, Compute)
    assert op.reduction is not None
    names, lane = loop_names(op), p.names[p.found.lane]
    rows = [p.names[a] for a, _ in p.tile.rows]
    outer = [names[a] for a in op.axes if names[a] not in (lane, *rows)]
    sums = [names[a] for a in op.reduction.axes]
    p.rw.directives += [
        ComputeAt(stage=stage, consumer=p.out.op.name, loop=at),
        BoundExtent(stage=stage, axis=lane, extent=p.tile.lanes),
        *(BoundExtent(stage=stage, axis=p.names[axis], extent=height) for axis, height in p.tile.rows),
        *_in_registers(p, "init", rows, outer),
        *_in_registers(p, "body", rows, [*outer, *sums]),
        *_unrolled(p, sums[-1]),
    ]


def _in_registers(
    p: Panels, part: Literal["init", "body"], rows: Sequence[str], outer: Sequence[str]
) -> list[Directive]:  # fmt: skip
    """One definition with its rows and vectors side by side inside the other loops."""
    stage, lane = p.sums.op.name, p.names[p.found.lane]
    wide, vector = f"{lane}_w", f"{lane}_v"
    return [
        Split(stage=stage, definition=part, loop=lane, outer=wide, inner=vector, factor=p.tile.vector, exact=True),
        Vectorize(stage=stage, definition=part, loop=vector),
        Unroll(stage=stage, definition=part, loop=wide),
        *(Unroll(stage=stage, definition=part, loop=r) for r in rows),
        Reorder(stage=stage, definition=part, loops=(*outer, *reversed(rows), wide, vector)),
    ]


def _unrolled(p: Panels, loop: str) -> list[Directive]:
    """Several terms at once, where what is read of the rows lies side by side."""
    stage = p.sums.op.name
    work = p.found.points(p.found.op.axes) * p.found.terms
    unroll = p.machine.choose("unroll", 2 if work >= MANY else 1, p.found.op.name)
    many = number(p.found.sums[-1].extent) or 0
    streamed = p.row_copy is None or p.row_copy.lane is not None
    if not (unroll > 1 and many % unroll == 0 and many >= LONG and streamed):
        return []
    return [
        Split(stage=stage, loop=loop, outer=f"{loop}_o", inner=f"{loop}_u", factor=unroll, exact=True),
        Unroll(stage=stage, loop=f"{loop}_u"),
    ]
