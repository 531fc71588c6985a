"""The derivative of a reduction by its values, where the reduction stands inside the body of a scan.

Elsewhere a max has a stage for its winner and a product becomes a scan (`autodiff.stages`, `autodiff.folds`). Inside a
recurrence they are expressions, whose values are those of the finished steps, so that normal form makes stages of them.
"""

from __future__ import annotations

from tedsl.lang import functions as fn
from tedsl.lang.errors import GradientError
from tedsl.lang.expr import Axis, Const, Expr, Reduce
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.traverse import substitute_all

__all__ = ["flat_position", "through_reduction", "with_fresh_axes"]


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


def through_reduction(node: Reduce, g: Expr) -> Expr:
    """What the value at one point of the reduction's axes receives (or passes on) of `g`, for that point in use."""
    kind = node.reducer.kind
    if kind == "sum":
        return g
    again = with_fresh_axes(node)
    here = flat_position(node.axes)
    if kind in ("max", "min"):
        winner = Reduce(BUILTIN[f"arg{kind}"], again.values, again.axes, again.where)
        return fn.select_node(here == winner, g, Const(0.0, g.dtype))
    if kind == "prod":
        others = fn.select(flat_position(again.axes) == here, 1.0, again.values[0])
        return g * Reduce(node.reducer, (others,), again.axes, again.where)  # type: ignore[no-any-return]
    raise GradientError(
        f"the derivative of a reducer of one's own under the recurrence of a scan is not known: `{node}`; "
        "use override= to give it"
    )
