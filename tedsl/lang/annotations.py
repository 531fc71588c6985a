"""What type checkers are told of functions that take elements, tensors and plain numbers alike.

An element is an expression, a number, or a 0-rank tensor. Where the argument is a tensor so is the result; that a
0-rank one beside an expression gives an expression is not told, as types know no ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union, cast, overload

from tedsl.lang.keywords import own_arguments

if TYPE_CHECKING:
    from tedsl.lang.expr import Axis, Expr
    from tedsl.lang.operators import Operators
    from tedsl.lang.tensor import Tensor

    S = TypeVar("S", covariant=True)
    Element = Operators[Any] | float
    # Checkers choose by the number of arguments, so that those of a lambda are axes.
    OfAxes = Union[  # noqa: UP007 - generic aliases are not written with a bar
        Callable[[], S], Callable[[Axis], S], Callable[[Axis, Axis], S], Callable[[Axis, Axis, Axis], S],
        Callable[[Axis, Axis, Axis, Axis], S], Callable[[Axis, Axis, Axis, Axis, Axis], S],
        Callable[[Axis, Axis, Axis, Axis, Axis, Axis], S], Callable[..., S],
    ]  # fmt: skip

__all__ = ["as_reduction", "as_summation", "of_one", "of_pair"]


class Unary(Protocol):
    """A function of one value."""

    @overload
    def __call__(self, x: Expr | float) -> Expr: ...
    @overload
    def __call__(self, x: Tensor) -> Tensor: ...


class Pair(Protocol):
    """A function of two values."""

    @overload
    def __call__(self, a: Expr | float, b: Expr | float) -> Expr: ...
    @overload
    def __call__(self, a: Tensor, b: Any) -> Tensor: ...
    @overload
    def __call__(self, a: Any, b: Tensor) -> Tensor: ...


class Reduction(Protocol):
    """`te.sum` and its like."""

    @overload
    def __call__(
        self, value: Expr | float | OfAxes[Element], axis: Any = None, where: Any = None, keepdims: bool = False
    ) -> Expr: ...
    @overload
    def __call__(self, value: Tensor, axis: Any = None, where: None = None, keepdims: bool = False) -> Tensor: ...


class Summation(Protocol):
    """`te.sum` and `te.prod`."""

    @overload
    def __call__(
        self,
        value: Expr | float | OfAxes[Element],
        axis: Any = None,
        where: Any = None,
        keepdims: bool = False,
        dtype: Any = None,
    ) -> Expr: ...
    @overload
    def __call__(
        self, value: Tensor, axis: Any = None, where: None = None, keepdims: bool = False, dtype: Any = None
    ) -> Tensor: ...


def of_one(function: Callable[[Any], Any]) -> Unary:
    """The function, with its types; it says how it is called."""
    return cast("Unary", own_arguments()(function))


def of_pair(function: Callable[[Any, Any], Any]) -> Pair:
    """The function, with its types; it says how it is called."""
    return cast("Pair", own_arguments()(function))


def as_summation(function: Callable[..., Any]) -> Summation:
    """The function itself, with its types."""
    return cast("Summation", function)


def as_reduction(function: Callable[..., Any]) -> Reduction:
    """The function itself, with its types."""
    return cast("Reduction", function)
