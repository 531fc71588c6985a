"""Tensors from nothing, or next to it: zeros, ones, full, arange, eye, one_hot.

Integers are int32, floats float32 unless a dtype is given.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_extent, as_shape
from tedsl.lang.dtypes import FLOAT32, as_dtype, promote
from tedsl.lang.elements import as_tensor, scalar_operand, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr, Read
from tedsl.lang.keywords import own_arguments
from tedsl.lang.nodes import operand
from tedsl.lang.shaping import as_int
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables, titled
from tedsl.lang.weak import kind_of

__all__ = ["arange", "eye", "full", "full_like", "linspace", "one_hot", "ones", "ones_like", "zeros", "zeros_like"]


@own_arguments()
def full(shape: Any, value: Any, dtype: object = None, name: str | None = None) -> Tensor:
    """A tensor with one value everywhere."""
    return _filled(shape, value, dtype, titled(name, "full", "te.full").of_one("te.full"), "te.full")


def _filled(shape: Any, value: Any, dtype: object, name: str, what: str) -> Tensor:
    scalar_operand(value, what)
    element = fn.as_expr(value) if dtype is None else fn.convert(value, dtype)
    return tensor_of(as_shape(shape, what), lambda *axes: element, name)


@takes_variables
def zeros(shape: Any, dtype: object = FLOAT32) -> Tensor:
    """A tensor of zeros."""
    return _filled(shape, 0, dtype, "zeros", "te.zeros")


@takes_variables
def ones(shape: Any, dtype: object = FLOAT32) -> Tensor:
    """A tensor of ones."""
    return _filled(shape, 1, dtype, "ones", "te.ones")


@takes_variables
def one_hot(index: Any, num_classes: int, dtype: object = FLOAT32) -> Tensor:
    """y[..., c] = 1 where c == index[...], else 0; all 0 where index is no class. As jax.nn.one_hot."""
    source = as_tensor(index, "te.one_hot")
    if not source.dtype.is_integer:
        raise TypeError(f"te.one_hot at {user_location()}: expected integers, found {source!r}; use te.cast")
    shape, kind = as_shape((*source.extents, num_classes), "te.one_hot"), as_dtype(dtype)
    return tensor_of(shape, lambda *axes: fn.cast(Read(source, axes[:-1]) == axes[-1], kind), "one_hot")


@takes_variables
def full_like(x: Any, value: Any, dtype: object = None) -> Tensor:
    """One value everywhere, in the shape (and, unless given, the dtype) of `x`."""
    model = as_tensor(x, "te.full_like")
    return full(model.extents, value, dtype or model.dtype)


@takes_variables
def zeros_like(x: Any, dtype: object = None) -> Tensor:
    """Zeros in the shape and dtype of `x`."""
    model = as_tensor(x, "te.zeros_like")
    return zeros(model.extents, dtype or model.dtype)


@takes_variables
def ones_like(x: Any, dtype: object = None) -> Tensor:
    """Ones in the shape and dtype of `x`."""
    model = as_tensor(x, "te.ones_like")
    return ones(model.extents, dtype or model.dtype)


@takes_variables
def eye(n: Any, m: Any = None, k: int = 0, dtype: object = FLOAT32) -> Tensor:
    """Ones on diagonal `k` of an n x m matrix (square when m is not given)."""
    if isinstance(m, (str, type)):
        raise TypeError(f"te.eye at {user_location()}: m is the number of columns, found {m!r}; write dtype={m!r}")
    kind, offset = as_dtype(dtype), as_int(k, "te.eye")
    shape = as_shape((n, n if m is None else m), "te.eye")
    return tensor_of(shape, lambda i, j: fn.convert(fn.select(j == i + offset, 1, 0), kind), "eye")


@takes_variables
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: object = None) -> Tensor:
    """start, start + step, ... below stop (from 0 when only one bound is given)."""
    what = "te.arange"
    if stop is None:
        start, stop = 0, start
    values = (start, stop, step)
    for v in values:
        if not isinstance(v, (int, float, np.number, Expr)):
            raise TypeError(f"{what} at {user_location()}: expected numbers, found {type(v).__name__} ({v!r:.40})")
    if isinstance(step, Expr) or step == 0:
        raise ValueError(f"{what} at {user_location()}: the step must be a number other than 0, found {step}")
    if any(isinstance(v, Expr) for v in values):
        width = as_int(abs(step), f"{what}, step")
        span = stop - start if step > 0 else start - stop
        extent: Any = (span + (width - 1)) // width
    else:
        extent = max(0, math.ceil((stop - start) / step))
    element = FLOAT32 if dtype is None and any(isinstance(v, float) for v in values) else dtype
    kind = as_dtype("int32" if element is None else element)

    def value(i: Any) -> Any:
        if kind.is_integer:
            return fn.convert(i * step + start, kind)
        return fn.convert(i, kind) * fn.convert(step, kind) + fn.convert(start, kind)

    return tensor_of((as_extent(extent, what),), value, "arange")


@takes_variables
def linspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: object = None) -> Tensor:
    """`num` places at equal distances from start to stop, which is the last one (left out unless `endpoint`).

    It has the dtype of the bounds where these are floats; float32 where they are Python's numbers, or integers.
    """
    what = "te.linspace"
    extent = as_extent(num, what)
    bounds = [scalar_operand(bound, what) for bound in (start, stop)]
    met = promote([kind_of(operand(bound)) for bound in bounds])
    kind = as_dtype(dtype) if dtype is not None else met if met.is_float else FLOAT32
    gaps = extent - 1 if endpoint else extent
    gaps = fn.maximum(gaps, 1)

    def place(i: Any) -> Any:
        share = fn.cast(i, "float64") / fn.cast(gaps, "float64")
        value = fn.cast(start, "float64") * (1.0 - share) + fn.cast(stop, "float64") * share
        return fn.cast(fn.floor(value) if kind.is_integer else value, kind)

    return tensor_of((extent,), place, "linspace")
