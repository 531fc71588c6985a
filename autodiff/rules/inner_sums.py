"""The values of sums that stand inside the body of a scan, as stages of their own.

In reverse every step is done, so the products of a step with the states before it are one product over all steps. What
a step sends back to each of its reads asks for them, and each use would else sum them up again.
"""

from __future__ import annotations

import math

from autodiff.rules.carrying import on_outputs
from tedsl.lang.expr import TRUE, Axis, Expr, Reduce
from tedsl.lang.extents import number
from tedsl.lang.guards import guards_of
from tedsl.lang.lift import lifted
from tedsl.lang.phases import cases_of
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import asked_inside, free_axes, topological

__all__ = ["sums_done"]

FEWEST = 16  # terms of a sum that is worth a tensor
MANY = 16  # iterations of an axis whose extent is no number


def sums_done(op: Scan) -> dict[Expr, Expr]:
    """The sums in the bodies by what reads their values, each over the axes that it hangs on."""
    if not op.parts:
        return _stored(op, op.bodies, TRUE)
    found: dict[Expr, Expr] = {}
    for _, inside, bodies in cases_of(op):
        found |= _stored(op, tuple(bodies.values()), inside)
    return found


def _stored(op: Scan, bodies: tuple[Expr, ...], inside: Expr) -> dict[Expr, Expr]:
    sums = [n for n in topological(bodies) if isinstance(n, Reduce) and _is_long(n, op)]
    if not sums:
        return {}
    moved = on_outputs(op, (*bodies, *sums))
    guards = {n: asked_inside(inside, g) for n, g in guards_of(moved[: len(bodies)]).items()}
    return dict(zip(sums, lifted(moved[len(bodies) :], guards, op.axes, op.name), strict=True))


def _is_long(node: Reduce, op: Scan) -> bool:
    """Whether a sum, or an extreme, has many terms, and one value at each point of the scan."""
    return (
        node.reducer.kind in ("sum", "max", "min")
        and node.dtype.is_float
        and math.prod(_length(a) for a in node.axes) >= FEWEST
        and set(free_axes(node)) <= set(op.axes)
    )


def _length(axis: Axis) -> int:
    return MANY if axis.extent is None else number(axis.extent) or MANY
