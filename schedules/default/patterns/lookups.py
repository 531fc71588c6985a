"""Reads of a table at computed places, for all of a short axis at once: bilateral grids, embeddings, colour tables.

out[c, i, j] = f(table[c, z(i, j), ..])     16 gathers' worth of loads for each c
rows[j, c] = f(packed[place[j], c])         a load of a vector for each j
out[c, i, j] = rows[j, c]                   turned back, 64 points at a time
"""

from __future__ import annotations

import math
from dataclasses import replace

from schedules.default.patterns.rows import Rows, has_rows, looks_up, shared_along, whole
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.directives import (
    BoundExtent,
    ComputeAt,
    ComputeRoot,
    Definition,
    Directive,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from schedules.machine import Machine
from tedsl.analysis.checks import checked_as
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import reads_of, substitute

__all__ = ["plan_lookup"]

PIECE = 64  # points whose rows are computed at a time
MOST, MOST_IN_ROWS = 64, 128  # elements of a row of a table that is copied; of one that has such rows


def plan_lookup(rw: Rewriting, original: Operation, op: Compute, machine: Machine) -> bool:
    """Rewrite a stage that looks up rows of a small table; False where it is none."""
    found = _found(rw, op, machine)
    if found is None:
        return False
    lane, value = found
    width = machine.vector_bytes // op.bodies[0].dtype.itemsize
    run = op.axes[-1]
    points = [a for a in op.axes if a is not lane]
    count = number(lane.extent) or 1
    tables = [r for r in reads_of([value]) if looks_up(r, lane) is not None]
    lanes = count if all(has_rows(r, lane) for r in tables) else whole(count, width)
    vector = Axis(lane.name, Const(lanes, INT32))
    along: Expr = fn.minimum(vector, count - 1) if lanes > count else vector
    rows = Rows(rw, op.name, vector, points, run, width, along)
    (value,), _ = rows.of([substitute(value, {lane: along})])
    tile = _tile(rw, op, [*points, vector], value)
    body: Expr = Read(tile, (*points, lane))
    reduce = op.reduction
    if reduce is not None:
        body = Reduce(reduce.reducer, (body,), reduce.axes, TRUE, 0)
    made = replace(op, name=rw.name(op.name), bodies=(body,), _outputs={})
    rw.add(made, original)
    assert isinstance(made, Compute)
    piece = f"{loop_names(made)[run]}_o"
    # Rows shorter than a vector, just written, would be loaded by vectors that reach across several, and shuffled.
    rw.directives += _loops(made, lane, run, width // 2 if lanes < width else width, machine)
    rw.directives += rows.directives(made, piece)
    rw.directives += _tile_loops(tile.op, made, piece, width)
    rw.planned |= {made.name, tile.op.name}
    return True


def _found(rw: Rewriting, op: Compute, machine: Machine) -> tuple[Axis, Expr] | None:
    """The axis of the rows that are looked up, and an element's value, where turning the rows is worth it."""
    reduce = op.reduction
    if len(op.bodies) != 1 or not op.axes or op.bodies[0].dtype.itemsize not in (4, 8):
        return None
    if reduce is not None and not _is_simple(op.bodies[0]):
        return None
    candidates = op.axes[:-1] if reduce is None else reduce.axes
    sizes = [number(a.extent) for a in op.axes]
    if (sizes[-1] or 0) < machine.least.lookup_points or not all(sizes):
        return None
    if any(number(a.begin) != 0 for a in (*op.axes, *candidates)):
        return None
    width = machine.vector_bytes // op.bodies[0].dtype.itemsize
    for lane in candidates:
        count = number(lane.extent) or 0
        if not machine.least.lookup_row <= count <= MOST_IN_ROWS:
            continue
        (value,) = shared_along(rw, [op.bodies[0] if reduce is None else reduce.values[0]], lane)
        reads = [r for r in reads_of([value]) if looks_up(r, lane) is not None]
        if reads and all(has_rows(r, lane) for r in reads):
            return lane, value
        points = math.prod(s or 0 for a, s in zip(op.axes, sizes, strict=True) if a is not lane)
        is_short = count <= MOST and whole(count, width) <= 2 * count
        if reads and is_short and all(_is_small(r.tensor, lane, points, machine) for r in reads):
            return lane, value
    return None


def _is_simple(body: Expr) -> bool:
    """Whether a reduction is one over a single axis without conditions, whose terms may be written down first."""
    return (
        isinstance(body, Reduce)
        and len(body.axes) == len(body.values) == 1
        and body.where is TRUE
        and body.reducer.kind in COMBINE
    )


def _is_small(table: Tensor, lane: Axis, points: int, machine: Machine) -> bool:
    """Whether a copy of a table costs little beside the reads, and stays in the cache."""
    extents = [number(e) for e in table.extents]
    if not all(extents) or table.dtype.itemsize != 4:
        return False
    size = math.prod(e or 1 for e in extents)
    return size * table.dtype.itemsize <= machine.l2 // 2 and size * 2 <= points * (number(lane.extent) or 1)


def _tile(rw: Rewriting, op: Compute, axes: list[Axis], value: Expr) -> Tensor:
    fresh = tuple(Axis(a.name, a.extent) for a in axes)
    body = substitute(value, dict(zip(axes, fresh, strict=True)))
    tile = rw.compute(f"{op.name}_rows", fresh, body)
    checked_as(tile.op, [op])
    return tile


def _tile_loops(tile: Operation, consumer: Compute, loop: str, width: int) -> list[Directive]:
    """Point after point, its row as vectors."""
    assert isinstance(tile, Compute)
    names, lane = loop_names(tile), tile.axes[-1]
    name, lanes = names[lane], number(lane.extent) or 1
    vector = min(width, lanes)
    tail = "shift" if lanes % vector else ""
    return [
        ComputeAt(stage=tile.name, consumer=consumer.name, loop=loop),
        BoundExtent(stage=tile.name, axis=name, extent=lanes),
        Split(
            stage=tile.name, loop=name, outer=f"{name}_o", inner=f"{name}_v", factor=vector, exact=not tail, tail=tail
        ),
        Vectorize(stage=tile.name, loop=f"{name}_v"),
        Unroll(stage=tile.name, loop=f"{name}_o"),
    ]


def _loops(op: Compute, lane: Axis, run: Axis, width: int, machine: Machine) -> list[Directive]:
    """Pieces of the points; in each, vectors along the points for one element of the rows after the other."""
    names = loop_names(op)
    name, column = names[run], names[lane]
    outer = [names[a] for a in op.axes if a is not run and a is not lane]
    say: list[Directive] = [ComputeRoot(stage=op.name)]
    definitions: tuple[Definition, ...] = ("body",) if op.reduction is None else ("body", "init")
    for definition in definitions:
        loops = [f"{name}_o", f"{name}_w", *([column] if definition == "body" else []), f"{name}_v"]
        say += [
            Split(stage=op.name, definition=definition, loop=name, outer=f"{name}_o", inner=f"{name}_i", factor=PIECE),
            Split(
                stage=op.name, definition=definition, loop=f"{name}_i", outer=f"{name}_w", inner=f"{name}_v",
                factor=width, exact=True,
            ),
            Vectorize(stage=op.name, definition=definition, loop=f"{name}_v"),
            Reorder(stage=op.name, definition=definition, loops=(*outer, *loops)),
        ]  # fmt: skip
    if not outer:
        return say
    fusing, (task,) = fused(op.name, outer, "f")
    say += fusing
    points = math.prod(number(a.extent) or 0 for a in op.axes if a is not lane)
    if machine.cores > 1 and points >= machine.least.lookup_threads:
        say.append(Parallel(stage=op.name, loop=task))
    return say
