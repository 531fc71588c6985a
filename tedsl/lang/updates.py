"""`x.at[...].set(v)`: the tensor with some of its elements replaced, in the words of JAX; tensors are values.

Slices and single places become a selection, `select(i is among them, new, x[i])`, whose gradient is one too. Places
that are data are combined by a scatter. Where they are set, the scatter finds which of them is the last to name each
element, in the order of memory as in NumPy, and the elements are selected by that: the gradient follows the winners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import reduce_axis
from tedsl.lang.broadcast import broadcast_to, element_at, where
from tedsl.lang.dtypes import INT32, INT64
from tedsl.lang.elements import as_tensor, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.indexing import Places, Slice, of_numpy, parsed
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables_only

__all__ = ["updated"]

Reader = Callable[[tuple[Expr, ...]], Expr]


def _same(new: Any) -> Any:
    return new


# What a method makes of an element and the value, how a scatter combines, and what it combines with.
_WAYS: dict[str, tuple[Callable[[Any, Any], Any], str, Callable[[Any], Any]]] = {
    "set": (lambda old, new: new, "", _same),
    "add": (lambda old, new: old + new, "add", _same),
    "subtract": (lambda old, new: old - new, "add", lambda new: -new),
    "multiply": (lambda old, new: old * new, "mul", _same),
    "divide": (lambda old, new: old / new, "mul", lambda new: 1 / new),
    "max": (fn.maximum, "max", _same),
    "min": (fn.minimum, "min", _same),
}


@takes_variables_only
def updated(x: Tensor, items: tuple[Any, ...], way: str, value: Any) -> Tensor:
    """`x` with `value` at the places that `items` name, as `way` puts it there."""
    what = f"{x.name}.at[...].{way}"
    if way == "divide" and not x.dtype.is_float:
        raise TypeError(f"{what} at {user_location()}: a quotient is a float, {x!r} is not; write x.astype first")
    combine = _WAYS[way][0]
    new = _value(x, value, what)
    if (mask := _mask(x, items)) is not None:
        return as_tensor(where(mask, combine(x, new), x), what)
    places = Places(parsed(x, items))
    read = _reader(new, tuple(places.shape), what)
    if any(isinstance(n, Const) and n.value == 0 for n in places.shared):
        return x  # no place is named
    if places.picks:
        return _scattered(x, places, way, read)

    def element(*axes: Axis) -> Expr:
        inside: list[Expr] = []
        at = _positions(places, axes, inside)
        old = Read(x, axes)
        changed = fn.as_expr(combine(old, read(at)))
        return fn.as_expr(fn.select(reduce(fn.logical_and, inside), changed, old)) if inside else changed

    return tensor_of(x.extents, element, f"{x.name}_{way}")


def _positions(places: Places, axes: tuple[Axis, ...], inside: list[Expr]) -> tuple[Expr, ...]:
    """Where on the slices these axes are, if the conditions hold that are added to `inside`."""
    at: list[Expr] = []
    rest = iter(axes)
    for d in places.dims:
        if d is None:
            at.append(Const(0, INT32))
        elif isinstance(d, Slice):
            at.append(_position(d, next(rest), inside))
        elif isinstance(d, Tensor):
            next(rest)
        else:
            inside.append(fn.as_expr(next(rest) == d))
    return tuple(at)


def _position(d: Slice, axis: Axis, inside: list[Expr]) -> Expr:
    begins_at_zero = isinstance(d.begin, Const) and d.begin.value == 0 and d.step > 0
    away = axis if begins_at_zero else d.begin - axis if d.step < 0 else axis - d.begin
    stride = abs(d.step)
    if not begins_at_zero:
        inside.append(fn.as_expr(away >= 0))
    if stride > 1 or d.extent is not axis.extent:
        inside.append(fn.as_expr(away < d.extent * stride))
    if stride == 1:
        return away
    inside.append(fn.as_expr(away % stride == 0))
    return away // stride


def _scattered(x: Tensor, places: Places, way: str, read: Reader) -> Tensor:
    """Where places are data, and one may be named twice."""
    if way == "set":
        return _last(x, places, read)
    _, kind, combined = _WAYS[way]
    axes = tuple(reduce_axis(n, name=f"r{d}") for d, n in enumerate(places.shape))
    return scatter(x.extents, axes, places.at(axes), combined(read(axes)), kind, init=x)


def _last(x: Tensor, places: Places, read: Reader) -> Tensor:
    """Each element as the last of the places that name it has it, else as it was."""
    sources = [d for d in places.dims if d is not None]
    index = [d for d in sources if isinstance(d, Tensor)]
    own = tuple(reduce_axis(n, name=f"r{d}") for d, n in enumerate(places.shared))
    shape = tuple(n for n, d in zip(x.extents, sources, strict=True) if isinstance(d, Tensor))
    number = _raveled(own, places.shared)
    writer = scatter(shape, own, tuple(element_at(d, own) for d in index), number, "max", name=f"{x.name}_writer")

    def element(*axes: Axis) -> Expr:
        last = Read(writer, tuple(axis for axis, d in zip(axes, sources, strict=True) if isinstance(d, Tensor)))
        inside = [fn.as_expr(last >= 0)]
        free = _positions(places, axes, inside)
        at = places.joined(_unraveled(last, places.shared), free)
        return fn.as_expr(fn.select(reduce(fn.logical_and, inside), read(at), Read(x, axes)))

    return tensor_of(x.extents, element, f"{x.name}_set")


def _raveled(axes: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The number of a place in the order of memory; 64 bits, unless 32 are known to hold it."""
    is_small = all(isinstance(n, Const) for n in shape) and prod(n.value for n in shape if isinstance(n, Const)) < 2**31
    number: Expr = Const(0, INT32 if is_small else INT64)
    for axis, extent in zip(axes, shape, strict=True):
        number = number * extent + axis
    return number


def _unraveled(number: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The place of a number, within the shape whatever the number is."""
    at: list[Expr] = []
    for extent in reversed(shape):
        at.append(fn.as_expr(fn.clip(number % extent if len(shape) > 1 else number, 0, extent - 1)))
        number = number // extent
    return tuple(reversed(at))


def _mask(x: Tensor, items: tuple[Any, ...]) -> Any:
    """A mask over all of the tensor, where that is what stands between the brackets."""
    if len(items) != 1:
        return None
    mask = of_numpy(items[0], x)
    is_mask = isinstance(mask, Tensor) and mask.dtype.is_bool
    is_mask = is_mask or (isinstance(mask, np.ndarray) and mask.dtype.kind == "b")
    return mask if is_mask and mask.ndim == x.ndim > 0 else None


def _value(x: Tensor, value: Any, what: str) -> Tensor | Expr:
    """What is put there, of the dtype of the tensor, converted as an assignment of NumPy converts."""
    is_number = isinstance(value, (bool, int, float))
    new = value if is_number else as_tensor(value, what)
    found = np.dtype(type(value)) if is_number else new.dtype.numpy
    if not np.can_cast(found, x.dtype.numpy, "same_kind") and not (is_number and found.kind == "i"):
        raise TypeError(
            f"{what} at {user_location()}: expected {x.dtype} as {x!r} is, found {found}; write "
            f"value.astype({str(x.dtype)!r})"
        )
    return fn.convert(new, x.dtype) if is_number else new.astype(x.dtype)


def _reader(new: Tensor | Expr, shape: tuple[Expr, ...], what: str) -> Reader:
    """The element of a value at some of the places, as it is spread over all of them."""
    if isinstance(new, Expr):
        return lambda at: new
    if not new.ndim:
        return lambda at: Read(new, ())
    try:
        wide = broadcast_to(new, shape)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    return lambda at: Read(wide, at)
