"""Sums of which each element has a part of the axis, as long as data say: loops one in another, without vectors.

Lanes would wait for the longest of their parts, or of a part that is short most lanes would have nothing.
"""

from __future__ import annotations

from dataclasses import replace

from schedules.default.rewriting import Rewriting
from schedules.directives import ComputeRoot
from tedsl.analysis.consecutive import parts_in
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes

__all__ = ["has_own_parts", "plan_own_parts"]


def has_own_parts(where: Expr, place: Axis) -> bool:
    """Whether what a condition leaves of an axis differs from place to place."""
    return any(place in set(free_axes(begin)) for begin in parts_in(where))


def plan_own_parts(rw: Rewriting, original: Operation, op: Compute) -> bool:
    """Loops of a sum; False where not each element along memory has a part of its own."""
    if op.reduction is None or not op.axes or not has_own_parts(op.reduction.where, op.axes[-1]):
        return False
    made = rw.add(replace(op, name=rw.name(op.name), names=None, _outputs={}), original)
    rw.directives.append(ComputeRoot(stage=made.name))
    rw.planned.add(made.name)
    return True
