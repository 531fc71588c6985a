"""Dimensions of stages along which all elements are the same: a reader need not know where along them it reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.tensor import Compute, Operation, Tensor

__all__ = ["axes_used", "idle_places"]


def idle_places(operations: Iterable[Operation]) -> dict[Tensor, frozenset[int]]:
    """Of pointwise operations, each after those that it reads; tensors with none are left out."""
    known: dict[Tensor, frozenset[int]] = {}
    for op in operations:
        if not isinstance(op, Compute) or op.reduction is not None:
            continue
        for tensor, body in zip(op.outputs, op.bodies, strict=True):
            used = axes_used((body,), lambda read: _left(read, known.get(read.tensor, ())))
            idle = frozenset(d for d, axis in enumerate(op.axes) if axis not in used)
            if idle:
                known[tensor] = idle
    return known


def axes_used(roots: Sequence[Expr], places: Callable[[Read], Iterable[Expr]]) -> set[Axis]:
    """The axes that values depend on; `places`: of a read, those that matter."""
    used: set[Axis] = set()
    seen, stack = set(roots), list(roots)
    while stack:
        node = stack.pop()
        if isinstance(node, Axis):
            used.add(node)
        found = [c for c in (places(node) if isinstance(node, Read) else node.children) if c not in seen]
        seen.update(found)
        stack.extend(found)
    return used


def _left(read: Read, skipped: Container[int]) -> Iterable[Expr]:
    return (place for dim, place in enumerate(read.indices) if dim not in skipped)
