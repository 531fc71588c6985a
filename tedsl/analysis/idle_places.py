"""Dimensions of stages along which all elements are the same: a reader need not know where along them it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["idle_places"]


def idle_places(operations: Iterable[Operation]) -> dict[Tensor, frozenset[int]]:
    """Of pointwise operations, each after those that it reads; tensors with none are left out."""
    known: dict[Tensor, frozenset[int]] = {}
    for op in operations:
        if not isinstance(op, Compute) or op.reduction is not None:
            continue
        for tensor, body in zip(op.outputs, op.bodies, strict=True):
            used = _axes_used(body, known)
            idle = frozenset(d for d, axis in enumerate(op.axes) if axis not in used)
            if idle:
                known[tensor] = idle
    return known


def _axes_used(body: Expr, idle: Mapping[Tensor, frozenset[int]]) -> set[Axis]:
    """The axes that a value depends on."""
    needed = {body}
    for node in reversed(topological((body,))):
        if node in needed:
            skipped = idle.get(node.tensor, frozenset()) if isinstance(node, Read) else frozenset()
            needed.update(c for d, c in enumerate(node.children) if d not in skipped)
    return {n for n in needed if isinstance(n, Axis)}
