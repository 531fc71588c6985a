"""Summands of adjoints that are 0 at every element: those of parts that are put together, of which nobody reads some.

The adjoint of `te.stack([a, b, c])[::2]` is 0 where `b` was put. Without that sum the steps of a loop in Python of
which some are looked at have the same adjoints, and are compiled once.
"""

from __future__ import annotations

from tedsl.lang.expr import Apply, Const, Expr, Fn, Read
from tedsl.lang.folding import folded, select_node
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import rebuild_all, substitute_all

__all__ = ["is_nothing"]


def is_nothing(summand: Tensor) -> bool:
    """Whether a pointwise stage is 0 because what it reads is, at the numbers that it reads it at."""
    op = summand.op
    return isinstance(op, Compute) and op.reduction is None and all(map(_is_zero, rebuild_all(op.bodies, _known)))


def _known(node: Expr) -> Expr:
    """A node with its conditions on numbers decided; 0 instead of a read of a stage that is 0 there by its own."""
    if not isinstance(node, Read) or not any(isinstance(i, Const) for i in node.indices):
        return _decided(node)
    op = node.tensor.op
    if not isinstance(op, Compute) or op.reduction is not None:
        return node
    there = substitute_all((op.bodies[node.tensor.index],), dict(zip(op.axes, node.indices, strict=True)))
    (value,) = rebuild_all(there, _decided)
    return value if _is_zero(value) else node


def _decided(node: Expr) -> Expr:
    if not isinstance(node, Apply):
        return node
    return select_node(*node.args) if node.fn is Fn.SELECT else folded(node.fn, node.args, node.dtype)


def _is_zero(node: Expr) -> bool:
    return isinstance(node, Const) and node.value == 0
