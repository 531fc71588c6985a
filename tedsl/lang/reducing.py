"""Reductions of whole tensors over axes: `x.sum(0)`, `x.mean(keepdims=True)`, `x.argmax()`, and running sums."""

from __future__ import annotations

from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.compute import check_states, compute_tensors
from tedsl.lang.dtypes import FLOAT32, FLOAT64, INT32
from tedsl.lang.elements import as_tensor, fresh_axes, normal_axis, product, reduce_axes_of, removed_axes
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.keywords import numpy_keywords
from tedsl.lang.reducers import BUILTIN, reduce_expr
from tedsl.lang.reshaping import ravel
from tedsl.lang.scan import scan
from tedsl.lang.shaping import diagonal
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["cumprod", "cumsum", "mean", "reduction", "trace"]

_ONE = Const(1, INT32)


def reduction(kind: str) -> Any:
    """The whole-tensor form of a builtin reducer."""

    @numpy_keywords
    @takes_variables
    def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
        return _reduced(as_tensor(x, f"te.{kind}"), kind, axis, keepdims)

    reduce.__name__ = reduce.__qualname__ = kind
    reduce.__doc__ = f"`{kind}` over an axis, several, or all."
    return reduce


def _reduced(x: Tensor, kind: str, axis: Any, keepdims: bool) -> Tensor:
    over = removed_axes(axis, x.ndim, f"te.{kind}")
    axes, inner, element = _element(x, over, keepdims)
    value = _operand(kind, element)
    check_states((value,), f"te.{kind}")
    if inner:
        body = reduce_expr(BUILTIN[kind], (value,), inner, None, f"te.{kind}")[0]
    else:  # over no axes: a copy
        body = Const(0, INT32) if kind in ("argmax", "argmin") else value
    return compute_tensors(axes, (body,), f"{x.name}_{kind}")[0]


def _element(x: Tensor, over: tuple[int, ...], keepdims: bool) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Expr]:
    """Axes of the result, axes of the reduction, and the element of `x` at both."""
    gone = sorted(over)
    kept = [d for d in range(x.ndim) if d not in set(over)]
    shape = tuple(_ONE if d in set(over) else e for d, e in enumerate(x.extents) if keepdims or d not in set(over))
    axes = fresh_axes(shape)
    inner = reduce_axes_of(tuple(x.extents[d] for d in gone))
    at = dict(enumerate(axes)) if keepdims else dict(zip(kept, axes, strict=True))
    at.update(zip(gone, inner, strict=True))
    return axes, inner, Read(x, tuple(at[d] for d in range(x.ndim)))


def _operand(kind: str, value: Expr) -> Expr:
    """Sums of bools count; any and all take any number that is not 0 as true."""
    if kind in ("sum", "prod") and value.dtype.is_bool:
        return fn.convert(value, INT32)
    if kind in ("any", "all") and not value.dtype.is_bool:
        return value != 0
    return value


@numpy_keywords
@takes_variables
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean over an axis, several, or all; integers give float64, 16-bit floats are summed in float32."""
    source = as_tensor(x, "te.mean")
    over = removed_axes(axis, source.ndim, "te.mean")
    result = source.dtype if source.dtype.is_float else FLOAT64
    work = FLOAT32 if result.bits == 16 else result
    count = fn.convert(product(source.extents[d] for d in over), work)
    axes, inner, element = _element(source, over, keepdims)
    value = fn.convert(element, work)
    check_states((value,), "te.mean")
    total = reduce_expr(BUILTIN["sum"], (value,), inner, None, "te.mean")[0] if inner else value
    return compute_tensors(axes, (fn.convert(total / count, result),), f"{source.name}_mean")[0]


@takes_variables
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of a diagonal."""
    return _reduced(diagonal(x, offset, axis1, axis2), "sum", -1, False)


def _running(x: Any, axis: Any, name: str, combine: Any) -> Tensor:
    source = as_tensor(x, f"te.{name}")
    if axis is None:
        source, axis = ravel(source), 0
    dim = normal_axis(axis, source.ndim, f"te.{name}")
    dtype = INT32 if source.dtype.is_bool else source.dtype

    def body(y: Tensor, *i: Axis) -> Any:
        here = fn.convert(Read(source, i), dtype)
        earlier = Read(y, tuple(a - 1 if d == dim else a for d, a in enumerate(i)))
        return fn.select(i[dim] == 0, here, combine(earlier, here))

    result: Tensor = scan(source.extents, body, axis=dim, dtype=dtype, name=f"{source.name}_{name}")
    return result


@takes_variables
def cumsum(x: Any, axis: Any = None) -> Tensor:
    """The sums of all elements up to each one along `axis` (of the flattened tensor when None)."""
    return _running(x, axis, "cumsum", lambda a, b: a + b)


@takes_variables
def cumprod(x: Any, axis: Any = None) -> Tensor:
    """The products of all elements up to each one along `axis` (of the flattened tensor when None)."""
    return _running(x, axis, "cumprod", lambda a, b: a * b)
