"""The derivative of a reduction by its values, where the reduction stands inside the body of a scan.

Elsewhere a max has a stage for its winner and a product becomes a scan (`rules.stages`, `rules.folds`). Inside a
recurrence they are expressions, whose values are those of the finished steps, so that normal form makes stages of them;
for products and reducers of one's own `rules.inner_folds` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autodiff.rules.derivatives import times
from tedsl.lang import functions as fn
from tedsl.lang.expr import Axis, Const, Expr, Reduce
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.traverse import substitute_all

__all__ = ["Slopes", "flat_position", "through_reduction", "with_fresh_axes"]


def flat_position(axes: tuple[Axis, ...]) -> Expr:
    """The row-major position within a reduction's box, as argmax counts it."""
    position: Expr = fn.const(0, "int32")
    for axis in axes:
        position = position * axis.extent + (axis - axis.begin)
    return position


def with_fresh_axes(node: Reduce) -> Reduce:
    """The same reduction over axes of its own."""
    fresh: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in node.axes}
    moved = substitute_all(node.children, dict(fresh))
    return Reduce(node.reducer, moved[:-1], tuple(fresh.values()), moved[-1], node.index)


Slopes = Mapping[Reduce, "tuple[Expr | None, ...]"]


def through_reduction(
    node: Reduce, component: int, g: Expr, slopes: Slopes, stored: Mapping[Expr, Expr] = MappingProxyType({})
) -> Expr | None:
    """What one of the values at one point of the reduction's axes receives (or passes on) of `g`; None for nothing.

    Of a product or a reducer of one's own the slopes are stages, made before. `stored`: what to write for nodes below.
    """
    kind = node.reducer.kind
    if kind == "sum":
        return g
    if kind in ("max", "min"):
        values, where = tuple(stored.get(v, v) for v in node.values), stored.get(node.where, node.where)
        again = with_fresh_axes(Reduce(node.reducer, values, node.axes, where))
        winner = Reduce(BUILTIN[f"arg{kind}"], again.values, again.axes, again.where)
        return fn.select_node(flat_position(node.axes) == winner, g, Const(0.0, g.dtype))
    slope = slopes[node][component]
    return None if slope is None else times(g, slope)
