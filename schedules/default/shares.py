"""How much of a loop of unknown length is a task for a thread, as text made of sizes."""

from __future__ import annotations

from schedules.cases import position_text
from schedules.loops import Nest
from tedsl.analysis.sizes import vars_of
from tedsl.lang import functions as fn
from tedsl.lang.expr import Expr
from tedsl.lang.extents import number

__all__ = ["share_of"]


def share_of(nest: Nest, loop: str, tasks: int, least: int) -> str:
    """So many iterations that there are `tasks` of them at most, each of `least` points; nothing for a known length."""
    extent = nest.level(loop).extent
    inside = [v.extent for v in nest.levels[nest.position(loop) + 1 :]]
    names = dict.fromkeys(v for e in (extent, *inside) for v in vars_of(e))
    sizes = {v.name: v for v in names}
    if number(extent) is not None or len(sizes) < len(names):
        return ""
    points: Expr = fn.as_expr(max(1, least))
    for size in inside:  # one after another: their product may be more than an integer holds
        known = number(size)
        points = points // (fn.maximum(size, 1) if known is None else max(1, known))
    return position_text(fn.maximum((extent + (tasks - 1)) // tasks, points), sizes)
