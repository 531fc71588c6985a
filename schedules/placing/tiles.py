"""Tiles of a scan's steps: vectors, and rows that are written out, inside the loops over the terms of its sums.

Those loops are no loops of a plan: they lie inside all that it speaks of. Split and written out in Halide's way, each
row would have loops over terms of its own; a tile of rows has one, in which what all rows read alike is read once. So
lowering makes the tiles, where the loops of a plan end in them.
"""

from __future__ import annotations

from schedules.directives import Reorder, Split, Unroll, Vectorize
from schedules.loops import Level, nest_of
from schedules.plan import Plan
from tedsl.analysis.iteration import is_stepped
from tedsl.lang.expr import Axis, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Scan

__all__ = ["tiles_of"]

Tiles = tuple[dict[Axis, int], tuple[Axis, ...]]
NONE: Tiles = {}, ()


def tiles_of(plan: Plan, stage: str) -> Tiles:
    """How many places along which axes a tile has, the vectors first, and the axes beside that of the steps, the
    outermost first; nothing where the loops of a stage do not end in tiles.
    """
    op = plan.program.stages[stage]
    if not isinstance(op, Scan) or op.parts or not is_stepped(op) or plan.cases(stage):
        return NONE
    said = [step.directive for step in plan.loops.get((stage, "body"), ())]
    is_plain = all(isinstance(d, (Split, Reorder, Unroll, Vectorize)) for d in said)
    if not is_plain or not any(isinstance(n, Reduce) for n in op.nodes):
        return NONE
    levels = [v for v in plan.nest(stage, "body").levels if v.carried == "within"]
    inner: list[Level] = []
    for kind in ("vectorized", "unrolled"):
        inner += [levels.pop()] if levels and levels[-1].kind == kind else []
    order = tuple(a for v in levels for a in v.origin if isinstance(a, Axis))
    others = {a for d, a in enumerate(op.axes) if d not in op.dims}
    if any(v.kind != "serial" or len(v.origin) > 1 for v in levels) or len(order) != len(others):
        return NONE
    whole = {v.name: a for v in nest_of(stage, op, "body").levels for a in v.origin if isinstance(a, Axis)}
    splits = {d.inner: d for d in said if isinstance(d, Split) and d.step and d.loop in whole and not d.tail}
    tiles = {whole[splits[v.name].loop]: splits[v.name].step or 1 for v in inner if v.name in splits}
    fits = all((number(axis.extent) or 0) >= count for axis, count in tiles.items())
    return (tiles, order) if len(tiles) == len(inner) > 0 and set(order) == others and fits else NONE
