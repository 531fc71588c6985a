"""Sums of adjoint summands: over the readers of a tensor, and over the reads of one consumer."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from autodiff.rules.joining import joined_products
from autodiff.turning.cotangent import fresh_axes
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import Const, Expr, Read
from tedsl.lang.tensor import Compute, Operation, Scatter, Tensor
from tedsl.lang.traverse import substitute_all

__all__ = ["total", "written_out", "zeros"]


# Tensors that a stage of a long sum adds: for a hundred arrays there is code to compile that unpacks each.
AT_ONCE = 8


def total(parts: Sequence[Tensor], name: str) -> Tensor:
    """The sum of tensors of one shape; of many, some at a time and in the same order, by stages that are alike."""
    first, rest = parts[0], list(parts[1:])
    while len(rest) > AT_ONCE:
        first, rest = _added([first, *rest[:AT_ONCE]], f"{name}_sofar"), rest[AT_ONCE:]
    return _added([first, *rest], name) if rest else first


def _added(parts: Sequence[Tensor], name: str) -> Tensor:
    axes = fresh_axes(parts[0].extents)
    value: Expr = Read(parts[0], axes)
    for part in parts[1:]:
        value = value + Read(part, axes)
    return compute_tensors(axes, (value,), name)[0]


def written_out(parts: Sequence[Tensor], name: str) -> Tensor:
    """The sum of what several reads of one consumer send back.

    rewrites   n pointwise tensors and their sum, n + 1 passes   ->   one pass, in which they share what is common
               n scatters and their sum   ->   scatters of which each continues the one before
               sums of products by one factor   ->   one sum
    """
    parts = joined_products(parts)
    if len(parts) == 1:
        return parts[0]
    start = _pointwise_sum([p for p in parts if not _is_sum_by_scatter(p)], name)
    for part in parts:
        if _is_sum_by_scatter(part):
            start = part if start is None else _continued(part.op, start)
    assert start is not None
    return start


def _is_sum_by_scatter(part: Tensor) -> bool:
    return isinstance(part.op, Scatter) and part.op.kind == "add" and part.op.init is None


def _continued(op: Operation, start: Tensor) -> Tensor:
    """A scatter that adds to `start`."""
    assert isinstance(op, Scatter)
    return Scatter(
        name=op.name, where=op.where, shape=op.shape, axes=op.axes, index=op.index, value=op.value, guard=op.guard,
        kind=op.kind, init=start,
    ).output()  # fmt: skip


def _pointwise_sum(parts: Sequence[Tensor], name: str) -> Tensor | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    axes = fresh_axes(parts[0].extents)
    terms: list[Expr] = []
    for part in parts:
        term: Expr = Read(part, axes)
        if isinstance(part.op, Compute) and part.op.reduction is None:
            (term,) = substitute_all((part.op.bodies[part.index],), dict(zip(part.op.axes, axes, strict=True)))
        terms.append(term)
    return compute_tensors(axes, (reduce(operator.add, terms),), name)[0]


def zeros(shape: Iterable[Any], like: Tensor, name: str) -> Tensor:
    """A zero tensor of `like`'s dtype."""
    return compute_tensors(fresh_axes(tuple(shape)), (Const(0.0, like.dtype),), name)[0]
