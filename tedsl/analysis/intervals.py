"""Whether integer arithmetic may wrap: asked where an expression is read as one of unbounded integers."""

from __future__ import annotations

from tedsl.lang.expr import Axis, Expr, Read, Var
from tedsl.lang.intervals import Known, leaves, range_of
from tedsl.lang.traverse import topological

__all__ = ["may_wrap", "wraps_early"]

FEW = 16


def may_wrap(expr: Expr, known: Known) -> bool:
    """Whether integer arithmetic below a node might leave its dtype."""
    range_of(expr, known)
    return any(leaves(node, known) for node in topological(expr))


def wraps_early(expr: Expr) -> bool:
    """Whether an expression might leave its dtype though no size is above 16 and all that is read is 0.

    That it may wrap for larger ones says nothing: an array of which the index `i*n + j` wraps cannot be held.
    """
    known: Known = {}
    stack = [expr]
    while stack:
        for node in topological(stack.pop()):
            if isinstance(node, Var):
                known[node] = 0, FEW
            elif isinstance(node, Read):
                known[node] = 0, 0
            elif isinstance(node, Axis):
                stack += [e for e in (node.begin, node.extent) if e is not None and e not in known]
    order = topological(expr)
    for node in order:
        range_of(node, known)
    return any(leaves(node, known) for node in order)
