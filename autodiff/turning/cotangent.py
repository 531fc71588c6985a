"""What flows into a stage: the adjoint of one of its outputs, as something that can be read at an index.

A stored tensor is the usual case. The implicit ones (1, the identity of a Jacobian, a value at the last step only)
fold into the expressions that use them instead of being formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import DType
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read
from tedsl.lang.tensor import Shape, Tensor
from tedsl.lang.traverse import substitute_all

__all__ = ["Cotangent", "Identity", "LastStep", "One", "Sparse", "Stored", "Support", "common_support", "fresh_axes"]


def fresh_axes(shape: Shape, names: str = "ijklmn") -> tuple[Axis, ...]:
    """New data axes over a shape."""
    return tuple(Axis(names[d] if d < len(names) else f"i{d}", extent) for d, extent in enumerate(shape))


class Cotangent(Protocol):
    """An adjoint: its value at an index, valid where the condition holds and 0 elsewhere.

    Where `reached` does not hold it is 0 too, and is stored as such.
    """

    def at(self, prefix: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, Expr]: ...

    def reached(self, index: tuple[Expr, ...]) -> Expr: ...

    def tensor(self, name: str) -> Tensor: ...


@dataclass(frozen=True)
class Stored:
    """An adjoint held in a tensor of shape prefix + output shape."""

    held: Tensor
    where: Callable[[tuple[Expr, ...]], Expr] | None = None

    def reached(self, index: tuple[Expr, ...]) -> Expr:
        return TRUE if self.where is None else self.where(index)

    def at(self, prefix: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        return Read(self.held, (*prefix, *index)), TRUE

    def tensor(self, name: str) -> Tensor:
        return self.held


@dataclass(frozen=True)
class One:
    """The adjoint of a scalar with respect to itself."""

    dtype: DType

    def reached(self, index: tuple[Expr, ...]) -> Expr:
        return TRUE

    def at(self, prefix: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        return Const(1.0, self.dtype), TRUE

    def tensor(self, name: str) -> Tensor:
        return compute_tensors((), (Const(1.0, self.dtype),), name)[0]


@dataclass(frozen=True)
class Identity:
    """The adjoint of a tensor with respect to itself: 1 where the prefix equals the index."""

    shape: Shape
    dtype: DType

    def reached(self, index: tuple[Expr, ...]) -> Expr:
        return TRUE

    def at(self, prefix: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        same: Expr = TRUE
        for p, i in zip(prefix, index, strict=True):
            same = fn.logical_and(same, p == i)
        return Const(1.0, self.dtype), same

    def tensor(self, name: str) -> Tensor:
        axes = fresh_axes((*self.shape, *self.shape))
        value, same = self.at(axes[: len(self.shape)], axes[len(self.shape) :])
        return compute_tensors(axes, (fn.select(same, value, 0.0),), name)[0]


Support = tuple[tuple[Axis, ...], Expr, Expr]
"""Axes, and over them: where an adjoint can be other than 0, and what it is there."""


def common_support(supports: Sequence[Support | None]) -> Support | None:
    """That of a sum, where all summands have the same."""
    found: Support | None = None
    for support in supports:
        if support is None:
            return None
        if found is None:
            found = support
            continue
        axes, member, value = found
        other, also = substitute_all(support[1:], dict(zip(support[0], axes, strict=True)))
        if other is not member:
            return None
        found = axes, member, value + also
    return found


@dataclass(frozen=True)
class Sparse:
    """An adjoint that is 0 but where `member` holds, where it is `value`: both over `axes`, prefix and index.

    `stored` is the same with all its zeros, for those who want a tensor.
    """

    stored: Stored
    axes: tuple[Axis, ...]
    member: Expr
    value: Expr

    def reached(self, index: tuple[Expr, ...]) -> Expr:
        return self.stored.reached(index)

    def at(self, prefix: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        place: dict[Expr, Expr] = dict(zip(self.axes, (*prefix, *index), strict=True))
        value, member = substitute_all((self.value, self.member), place)
        return value, member

    def tensor(self, name: str) -> Tensor:
        return self.stored.held


@dataclass(frozen=True)
class LastStep:
    """An adjoint that enters a scan at step `last` of dimension `dim` only."""

    inner: Cotangent
    dim: int
    last: Expr

    def reached(self, index: tuple[Expr, ...]) -> Expr:
        return TRUE

    def at(self, prefix: tuple[Expr, ...], index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        others = (*index[: self.dim], *index[self.dim + 1 :])
        value, condition = self.inner.at(prefix, others)
        return value, fn.logical_and(index[self.dim] == self.last, condition)

    def tensor(self, name: str) -> Tensor:
        raise NotImplementedError("an adjoint at the last step is only ever read")
