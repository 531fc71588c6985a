"""What every whole-tensor operation needs: a tensor from a function of its axes, and arguments brought to one form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.captured import free_name
from tedsl.lang.compute import check_states, compute, compute_tensors
from tedsl.lang.constants import constants_of_lists, is_constant_like
from tedsl.lang.dtypes import INT32, INT64, DType, divide_type, promote
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.foreign import has_elements
from tedsl.lang.names import few_elements
from tedsl.lang.step import axes_outside
from tedsl.lang.tensor import Shape, Tensor
from tedsl.lang.traverse import topological

__all__ = [
    "as_floats", "as_tensor", "as_tensors", "fresh_axes", "is_one", "is_zero", "normal_axes", "normal_axis", "product",
    "reduce_axes_of", "removed_axes", "same_shape", "scalar_operand", "shape_text", "tensor_of", "whole",
]  # fmt: skip

_LETTERS = "ijklmn"


def fresh_axes(shape: Shape) -> tuple[Axis, ...]:
    """One data axis per extent: i, j, k, ... (i0, i1, ... beyond six)."""
    if len(shape) <= len(_LETTERS):
        return tuple(map(Axis, _LETTERS, shape))
    return tuple(Axis(f"i{d}", extent) for d, extent in enumerate(shape))


def reduce_axes_of(shape: Shape) -> tuple[Axis, ...]:
    """One reduce axis per extent: r, or r0, r1, ..."""
    names = ["r"] if len(shape) == 1 else [f"r{d}" for d in range(len(shape))]
    return tuple(Axis(name, extent, is_reduce=True) for name, extent in zip(names, shape, strict=True))


def tensor_of(shape: Shape, element: Callable[..., Expr], name: str) -> Tensor:
    """The tensor whose element at (i, j, ...) is `element(i, j, ...)`."""
    axes = fresh_axes(shape)
    body = fn.as_expr(element(*axes))
    check_states((body,), name)
    return compute_tensors(axes, (body,), name)[0]


def whole(leaf: Any, name: str) -> Any:
    """An element of a tensor, or what is made of elements without an axis, as a tensor of rank 0; all else as it is."""
    is_value = isinstance(leaf, Expr) and not axes_outside(leaf) and any(isinstance(e, Read) for e in topological(leaf))
    return compute((), lambda: leaf, name=name) if is_value else leaf


def as_tensor(value: Any, what: str) -> Tensor:
    """A tensor argument; a scalar becomes a 0-rank tensor, an array or a list a constant."""
    if isinstance(value, Tensor):
        return value
    if is_constant_like(value):
        tensor: Tensor = constants_of_lists([value], what)[0]
        return tensor
    if not (isinstance(value, (Expr, bool, int, float)) or has_elements(value)):
        told = ""
        if callable(value):
            told = "; a function of axes makes one by te.compute(shape, f)"
            told = "; the mean of elements is te.sum(f) / their number" if what == "te.mean" else told
        found = f"{type(value).__name__} ({value!r:.60})" if not told else "a function"
        raise TypeError(f"{what} at {user_location()}: expected a tensor, found {found}{told}")
    if isinstance(value, Expr) and (axes := axes_outside(value)):
        raise TypeError(
            f"{what} at {user_location()}: expected a tensor, found the element `{value}` at axis {axes[0].name!r}; "
            "write what it is an element of as a te.compute of its own, with one axis more for several such elements; "
            f"{few_elements(str(value), free_name())}"
        )
    scalar = scalar_operand(value, what)
    return tensor_of((), lambda: fn.as_expr(scalar), "scalar")


def as_tensors(values: Iterable[Any], what: str) -> list[Tensor]:
    """Several tensor arguments; Python's numbers take the dtype of what they meet, alone or in lists."""
    found = constants_of_lists(list(values), what)
    met = [v.dtype for v in found if isinstance(v, (Tensor, Expr))]
    return [as_tensor(_typed(v, met), what) for v in found]


def _typed(value: Any, met: Sequence[DType]) -> Any:
    if not met or isinstance(value, np.generic) or not isinstance(value, (bool, int, float)):
        return value
    return fn.convert(value, promote([*met, type(value)]))


def as_floats(value: Any, what: str) -> Tensor:
    """The same in floats: integers become float64, as in NumPy."""
    source = as_tensor(value, what)
    dtype = divide_type(source.dtype)
    return source if dtype is source.dtype else tensor_of(
        source.extents, lambda *axes: fn.convert(Read(source, axes), dtype), f"{source.name}_{dtype}"
    )  # fmt: skip


def scalar_operand(value: Any, what: str) -> Any:
    """A scalar that meets whole tensors: it may not use the axes of a compute."""
    if isinstance(value, Expr) and (axes := axes_outside(value)):
        raise TypeError(
            f"{what} at {user_location()}: a whole tensor meets the scalar `{value}`, which uses axis "
            f"{axes[0].name!r}; inside te.compute read an element of the tensor, e.g. A[i, j]"
        )
    return value


# Functions that mean two values in other languages.
_OF_TWO = {"te.max": "te.maximum", "te.min": "te.minimum", "te.all": "te.logical_and", "te.any": "te.logical_or"}


def normal_axis(axis: Any, ndim: int, what: str) -> int:
    """An axis number from 0 to ndim - 1; negative ones count from the end."""
    if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)):
        told = f"; of two values it is {_OF_TWO[what]}(a, b)" if what in _OF_TWO else ""
        raise TypeError(f"{what} at {user_location()}: axis must be an integer, found {axis!r:.40}{told}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{what} at {user_location()}: axis {axis} does not exist in a tensor of {ndim} dimensions")
    return int(axis) % ndim


def normal_axes(axis: Any, ndim: int, what: str) -> tuple[int, ...]:
    """Several axes, in the order given; None stands for all."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(normal_axis(a, ndim, what) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ValueError(f"{what} at {user_location()}: an axis is given twice in {axis}")
    return axes


def removed_axes(axis: Any, ndim: int, what: str) -> tuple[int, ...]:
    """The axes that a reduction or a squeeze takes away; a scalar has none, and 0 and -1 name none, as in NumPy."""
    if ndim == 0 and isinstance(axis, (int, np.integer)) and not isinstance(axis, bool) and axis in (0, -1):
        return ()
    return normal_axes(axis, ndim, what)


def is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


def is_zero(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 0


def same_shape(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_extent(x, y) for x, y in zip(a, b, strict=True))


def product(extents: Iterable[Expr]) -> Expr:
    """The number of elements (in 64 bits where the known extents alone do not fit in 32)."""
    number = 1
    symbols: list[Expr] = []
    for extent in extents:
        if isinstance(extent, Const):
            number *= int(extent.value)
        else:
            symbols.append(extent)
    dtype = INT32 if abs(number) < 2**31 else INT64
    if not symbols or not number:
        return Const(number, dtype)
    total = symbols[0]
    for symbol in symbols[1:]:
        total = total * symbol
    total = total * Const(number, dtype)
    return simplify_extent(total) if dtype is INT32 else total


def shape_text(shape: Shape) -> str:
    """A shape as Python prints a tuple."""
    inner = ", ".join(map(str, (e.value if isinstance(e, Const) else e for e in shape)))
    return f"({inner},)" if len(shape) == 1 else f"({inner})"
