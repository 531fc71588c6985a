"""Sums over parts of an axis that follow one another, whose ends are data: `begins[e] <= q < begins[e + 1]`.

All of them together go through the axis once.
"""

from __future__ import annotations

from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import Apply, Axis, Expr, Fn
from tedsl.lang.operators import MIRRORED
from tedsl.lang.traverse import asked_parts, reads_of, replaced

__all__ = ["parts_in"]


def parts_in(condition: Expr) -> list[Expr]:
    """Where the parts of axes begin that a condition asks for."""
    asked = [found for c in asked_parts(condition) if (found := _end(c))]
    return [
        begin
        for fn, axis, begin in asked
        for other, along, end in asked
        if fn is Fn.GE and other is Fn.LT and axis is along and _is_next(begin, end)
    ]


def _end(condition: Expr) -> tuple[Fn, Axis, Expr] | None:
    """How an axis is compared with what data say."""
    if not isinstance(condition, Apply) or condition.fn not in MIRRORED:
        return None
    axis, end = condition.args
    if isinstance(axis, Axis):
        return condition.fn, axis, end
    return (MIRRORED[condition.fn], end, axis) if isinstance(end, Axis) else None


def _is_next(begin: Expr, end: Expr) -> bool:
    """Whether the second says of the place behind it what the first says of one."""
    first, last = reads_of((begin,)), reads_of((end,))
    if len(first) != 1 or len(last) != 1 or len(first[0].indices) != 1 or first[0].tensor is not last[0].tensor:
        return False
    step = affine_of(last[0].indices[0] - first[0].indices[0])
    return step is not None and step.is_constant and step.constant == 1 and replaced(begin, {first[0]: last[0]}) is end
