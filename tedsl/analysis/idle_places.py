"""Dimensions of stages along which all elements are the same: a reader need not know where along them it reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["axes_used", "idle_places"]


def idle_places(operations: Iterable[Operation]) -> dict[Tensor, frozenset[int]]:
    """Of pointwise operations, each after those that it reads; tensors with none are left out."""
    known: dict[Tensor, frozenset[int]] = {}
    for op in operations:
        if not isinstance(op, Compute) or op.reduction is not None:
            continue
        for tensor, body in zip(op.outputs, op.bodies, strict=True):
            used = axes_used((body,), lambda read: known.get(read.tensor, ()))
            idle = frozenset(d for d, axis in enumerate(op.axes) if axis not in used)
            if idle:
                known[tensor] = idle
    return known


def axes_used(roots: Sequence[Expr], skipped: Callable[[Read], Container[int]]) -> set[Axis]:
    """The axes that values depend on, but for the dimensions of reads that are skipped."""
    needed = set(roots)
    for node in reversed(topological(roots)):
        if node in needed:
            out = skipped(node) if isinstance(node, Read) else ()
            needed.update(c for d, c in enumerate(node.children) if d not in out)
    return {n for n in needed if isinstance(n, Axis)}
