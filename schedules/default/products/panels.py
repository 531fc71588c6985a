"""A contraction as packed panels, a tile of sums in registers, and a copy of that tile to its place.

columns[jo, k, lane]    what a vector of columns needs, step after step, side by side
rows[..]                a table without guards, where the rows are not read well from where they are
tile[i, j]              the sums, over whole tiles: the panels reach past the end, so that no inner loop has a rest
out[i, j] = tile[i, j]  which leaves out what lies past the end

`panel_stages` makes these stages; `tile_loops`, `tile_sums` and `table_loops` say how they are computed. A long sum is
cut into blocks before (`sum_blocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schedules.default.copies import guarded
from schedules.default.products.contraction import Contraction, contraction_of
from schedules.default.products.panel_stages import Panels, panels_of
from schedules.default.products.sum_blocks import cut, schedule_total, sum_blocks
from schedules.default.products.table_loops import schedule_table
from schedules.default.products.tile_loops import tile_loops
from schedules.default.products.tile_sums import schedule_sums
from schedules.default.products.triangles import tiled_whole
from schedules.default.rewriting import Rewriting, loop_names
from schedules.directives import BoundExtent
from schedules.machine import Machine
from schedules.sizes import typical_sizes
from tedsl.lang.expr import TRUE, Axis, Expr, Read, Reduce
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, substitute, substitute_all

__all__ = ["plan_contraction"]


def plan_contraction(rw: Rewriting, original: Operation, op: Compute, machine: Machine, *, plain: bool) -> bool:
    """Rewrite `op` and schedule what comes of it; False where it is no contraction."""
    found = contraction_of(op, machine.least)
    if found is None or (plain and found.guarded):
        return False
    blocks = sum_blocks(found, machine)
    whole = not found.outer and rw.program.names.get(original) in rw.program.final
    name = f"{op.name}_whole" if found.outer else op.name  # of which a part counts
    if blocks is None:
        result = _planned(rw, found, op, name, machine, whole=whole)
    else:
        result = _planned_by_blocks(rw, found, blocks, name, machine, whole=whole)
    if found.outer:
        result = rw.compute(op.name, op.axes, guarded(Read(result, op.axes), found.outer))
    rw.new[original.outputs[0]] = result
    return True


def _planned(
    rw: Rewriting, found: Contraction, asked: Compute, name: str, machine: Machine, *, whole: bool
) -> Tensor:  # fmt: skip
    """The result, whose stages are `name` and others, with all their directives; `whole`: all of it is computed."""
    bounded = () if whole or not (found.conditions or found.outer) else tiled_whole(found)
    panels = panels_of(rw, found, asked, name, machine, whole=whole or bool(bounded))
    _schedule(panels)
    said = {d.axis for d in rw.directives if isinstance(d, BoundExtent) and d.stage == name}
    rw.directives += [BoundExtent(stage=name, axis=a, extent=n) for a, n in bounded if a not in said]
    rw.finite += panels.finite
    return panels.out


def _planned_by_blocks(
    rw: Rewriting, found: Contraction, cuts: Sequence[tuple[Axis, int]], name: str, machine: Machine, *, whole: bool
) -> Tensor:  # fmt: skip
    """partial[block, ..] over the terms of a block, then the sum over the blocks in order."""
    op = found.op
    by_blocks, blocks = _by_blocks(found, cuts)
    held = _planned(rw, by_blocks, op, by_blocks.op.name, machine, whole=whole)
    order = _lane_last(found)
    fresh = {a: Axis(loop_names(op)[a], a.extent) for a in order}
    sums = tuple(Axis(f"{a.name}_block", a.extent, is_reduce=True) for a in blocks)
    assert op.reduction is not None
    total = rw.compute(
        f"{name}_total",
        [fresh[a] for a in order],
        Reduce(op.reduction.reducer, (Read(held, (*sums, *(fresh[a] for a in order))),), sums, TRUE, 0),
    )
    copied = rw.compute(name, op.axes, Read(total, tuple(order)))
    schedule_total(rw, total.op, machine)
    return copied


def _by_blocks(found: Contraction, cuts: Sequence[tuple[Axis, int]]) -> tuple[Contraction, Sequence[Axis]]:
    """The sums over each block, and the axes over the blocks, which come first."""
    op, reduce = found.op, found.op.reduction
    assert reduce is not None
    outer, inner, mapping, conditions = cut(cuts)
    sums = (*inner, *(a for a in found.sums if a not in mapping))
    rows, columns = (guarded(substitute(f, mapping), conditions) for f in (found.rows, found.columns))
    body: Expr = Reduce(reduce.reducer, (found.term(rows, columns),), sums, TRUE, 0)
    partial = Compute(name=f"{op.name}_partial", axes=(*outer, *_lane_last(found)), bodies=(body,), where=op.where)
    again = replace(
        found, op=partial, rows=rows, columns=columns, batch=tuple(outer), sums=sums, sizes=typical_sizes(partial),
        conditions=tuple(substitute_all(found.conditions, mapping)),
    )  # fmt: skip
    return again, outer


def _lane_last(found: Contraction) -> list[Axis]:
    return [*(a for a in found.op.axes if a is not found.lane), found.lane]


def _schedule(p: Panels) -> None:
    """Directives for all stages: the result carries the loops, and says where the others are computed."""
    found, rw = p.found, p.rw
    loops = tile_loops(p)
    rw.directives += loops.directives
    schedule_sums(p, loops.tile_loop)
    # What is checked is looked at before anything else is computed, as a whole.
    columns_at = None if found.finite_columns else loops.columns_at
    schedule_table(p, p.columns_table, p.columns, columns_at, rows_cut=loops.rows_cut)
    if p.rows_table is not None:
        assert p.row_copy is not None
        shared = found.batch and not set(found.batch).intersection(free_axes(found.rows))
        again = p.row_copy.lane is not None and loops.repeats_rows
        rows_at = None if shared or again or found.finite_rows or found.window else loops.rows_at
        schedule_table(p, p.rows_table, p.row_copy, rows_at, rows_cut=loops.rows_cut)
    rw.planned.update(stage.name for stage in rw.stages[-4 if p.rows_table is not None else -3 :])
