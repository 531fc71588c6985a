"""The first step of a scan, in loops of its own.

There a state begins with other values, read elsewhere. A choice between the two by the step is one for a whole vector,
but both are loaded for it, at every step. Halide would cut such a loop in two, though not where the last vector has a
mask (`scheduling.partition`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Expr, Fn, Reduce
from tedsl.lang.extents import number
from tedsl.lang.folding import select_node
from tedsl.lang.tensor import Scan
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all

__all__ = ["bodies_at", "told_by_the_first_step"]

K = TypeVar("K")
LEAST = 3  # steps

_HOLDS = {
    Fn.EQ: lambda gap: gap == 0, Fn.NE: lambda gap: gap != 0, Fn.LT: lambda gap: gap < 0,
    Fn.LE: lambda gap: gap <= 0, Fn.GT: lambda gap: gap > 0, Fn.GE: lambda gap: gap >= 0,
}  # fmt: skip


def told_by_the_first_step(op: Scan) -> dict[Expr, bool]:
    """The conditions by which bodies choose between earlier steps and something else that hold at the first step alone,
    or at all others; and whether it is the first.
    """
    step, steps = op.steps[0], number(op.steps[0].extent) or 0
    if steps < LEAST or any(isinstance(n, Reduce) for n in op.nodes):
        return {}
    first, further = (steps - 1, (steps - 2, 0)) if op.reverse else (0, (1, steps - 1))
    own, found = set(map(id, op.states)), dict[Expr, bool]()

    def recurs(e: Expr) -> bool:
        return any(id(r.tensor) in own for r in reads_of((e,)))

    for node in op.nodes:
        if isinstance(node, Apply) and node.fn is Fn.SELECT and recurs(node.args[1]) != recurs(node.args[2]):
            there, *others = (_holds(node.args[0], step, at) for at in (first, *further))
            if there is not None and others == [not there] * len(others):
                found[node.args[0]] = there
    return found


def _holds(condition: Expr, step: Axis, at: int) -> bool | None:
    """Whether a comparison of the step with a number holds at one; None for any other condition."""
    if not isinstance(condition, Apply) or condition.fn not in _HOLDS or set(free_axes(condition)) != {step}:
        return None
    if not all(a.dtype.is_integer for a in condition.args):
        return None
    gap = affine_of(condition.args[0] - condition.args[1])
    if gap is None or not set(gap.terms) <= {(step,)}:
        return None
    return bool(_HOLDS[condition.fn](gap.terms.get((step,), 0) * at + gap.constant))


def bodies_at(bodies: Mapping[K, Expr], told: Mapping[Expr, bool], *, first: bool) -> dict[K, Expr]:
    """The bodies as they are at the first step, or at any other one."""

    def rule(node: Expr) -> Expr:
        if node in told:
            return TRUE if told[node] == first else FALSE
        return select_node(*node.args) if isinstance(node, Apply) and node.fn is Fn.SELECT else node

    return dict(zip(bodies, rebuild_all(tuple(bodies.values()), rule), strict=True))
