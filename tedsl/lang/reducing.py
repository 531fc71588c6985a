"""Reductions of whole tensors over axes: `x.sum(0)`, `x.mean(keepdims=True)`, `x.argmax()`, and running sums.

As in NumPy, integers and bools are added up in 64 bits unless `dtype=` says otherwise, and `where=` chooses elements.
"""

from __future__ import annotations

from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.compute import check_states, compute_tensors
from tedsl.lang.dtypes import BOTTOM, FLOAT32, INT32, INT64, UINT64, DType, as_dtype, divide_type
from tedsl.lang.elements import as_tensor, fresh_axes, normal_axis, product, reduce_axes_of, removed_axes
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.reducers import BUILTIN, COMBINE, reduce_expr
from tedsl.lang.reshaping import ravel
from tedsl.lang.scan import scan
from tedsl.lang.shaping import diagonal
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables, takes_variables_only

__all__ = ["cumprod", "cumsum", "mean", "reduction", "trace", "widened_float"]

_ONE = Const(1, INT32)


_ADDED = ("sum", "prod")
_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_ADDED, ("dtype", "initial", "where")), **dict.fromkeys(("max", "min"), ("initial", "where")),
    **dict.fromkeys(("any", "all"), ("where",)),
}  # fmt: skip


def reduction(kind: str) -> Any:
    """The whole-tensor form of a builtin reducer."""

    @takes_variables_only
    def reduce(x: Any, axis: Any = None, keepdims: bool = False, **options: Any) -> Tensor:
        given = {name: value for name, value in options.items() if value is not None}
        _check_options(kind, given)
        return _reduced(as_tensor(x, f"te.{kind}"), kind, axis, keepdims, **given)

    reduce.__name__ = reduce.__qualname__ = kind
    reduce.__doc__ = f"`{kind}` over an axis, several, or all."
    return reduce


def _check_options(kind: str, options: dict[str, Any]) -> None:
    known = _OPTIONS.get(kind, ())
    for name in options:
        if name not in known:
            takes = ", ".join(f"{option}=" for option in ("axis", "keepdims", *known))
            raise TypeError(f"te.{kind} at {user_location()}: found {name}=, expected {takes} only")


def _reduced(
    x: Tensor, kind: str, axis: Any, keepdims: bool, dtype: Any = None, where: Any = None, initial: Any = None
) -> Tensor:
    what = f"te.{kind}"
    over = removed_axes(axis, x.ndim, what)
    axes, inner, at = _places(x, over, keepdims)
    value = _operand(kind, Read(x, at), dtype)
    check_states((value,), what)
    condition = _condition(where, x, at, what)
    if inner:
        body = reduce_expr(BUILTIN[kind], (value,), inner, condition, what)[0]
    elif kind in ("argmax", "argmin"):
        body = Const(0, INT32)
    else:  # over no axes: a copy
        body = value if condition is None else fn.select(condition, value, BUILTIN[kind].identity_of(value.dtype))
    if initial is not None:
        body = COMBINE[kind](fn.convert(fn.as_expr(initial), body.dtype), body)
    return compute_tensors(axes, (body,), f"{x.name}_{kind}")[0]


def _condition(where: Any, x: Tensor, at: tuple[Any, ...], what: str) -> Expr | None:
    """The element of a mask that broadcasts to `x`."""
    if where is None or where is True:
        return None
    mask = as_tensor(where, what)
    if not mask.dtype.is_bool:
        raise TypeError(f"{what} at {user_location()}: where= takes bools, found {mask!r}; compare, as in x > 0")
    return Read(mask if mask.ndim == x.ndim and mask.shape == x.shape else broadcast_to(mask, x.extents), at)


def added_in(dtype: DType) -> DType:
    """What numbers of a dtype are added up in: integers in 64 bits, with the sign that they have."""
    if dtype.is_float or dtype is BOTTOM:
        return dtype
    return UINT64 if dtype.kind == "u" else INT64


def widened_float(dtype: DType) -> DType:
    """What numbers of a dtype are added up in, where the result has the dtype: float32 for 16-bit floats."""
    return FLOAT32 if dtype.is_float and dtype.bits == 16 else dtype


def _places(
    x: Tensor, over: tuple[int, ...], keepdims: bool
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Axis, ...]]:
    """Axes of the result, axes of the reduction, and the place in `x` of an element at both."""
    gone = sorted(over)
    kept = [d for d in range(x.ndim) if d not in set(over)]
    shape = tuple(_ONE if d in set(over) else e for d, e in enumerate(x.extents) if keepdims or d not in set(over))
    axes = fresh_axes(shape)
    inner = reduce_axes_of(tuple(x.extents[d] for d in gone))
    at = dict(enumerate(axes)) if keepdims else dict(zip(kept, axes, strict=True))
    at.update(zip(gone, inner, strict=True))
    return axes, inner, tuple(at[d] for d in range(x.ndim))


def _operand(kind: str, value: Expr, dtype: Any) -> Expr:
    """What is added up in the dtype of the result; any and all take any number that is not 0 as true."""
    if kind in _ADDED:
        return fn.convert(value, added_in(value.dtype) if dtype is None else as_dtype(dtype))
    if kind in ("any", "all") and not value.dtype.is_bool:
        return value != 0
    return value


@takes_variables
def mean(x: Any, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, where: Any = None) -> Tensor:
    """The mean over an axis, several, or all; integers give float64, 16-bit floats are summed in float32."""
    source = as_tensor(x, "te.mean")
    over = removed_axes(axis, source.ndim, "te.mean")
    result = as_dtype(dtype) if dtype is not None else divide_type(source.dtype)
    if not (result.is_float or result is BOTTOM):
        raise TypeError(f"te.mean at {user_location()}: dtype= takes a dtype of floats, found {result}")
    work = widened_float(result)
    axes, inner, at = _places(source, over, keepdims)
    value = fn.convert(Read(source, at), work)
    check_states((value,), "te.mean")
    condition = _condition(where, source, at, "te.mean")
    total = _total(value, inner, condition, "te.mean")
    if condition is None:
        count = fn.convert(product(source.extents[d] for d in over), work)
    else:
        count = _total(fn.convert(condition, work), inner, None, "te.mean")
    return compute_tensors(axes, (fn.convert(total / count, result),), f"{source.name}_mean")[0]


def _total(value: Expr, axes: tuple[Axis, ...], condition: Expr | None, what: str) -> Expr:
    """A sum over axes, or the one term where there are none."""
    if axes:
        return reduce_expr(BUILTIN["sum"], (value,), axes, condition, what)[0]
    return value if condition is None else fn.select(condition, value, fn.const(0, value.dtype))


@takes_variables
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of a diagonal."""
    return _reduced(diagonal(x, offset, axis1, axis2), "sum", -1, False)


def _running(x: Any, axis: Any, name: str, combine: Any, dtype: Any) -> Tensor:
    source = as_tensor(x, f"te.{name}")
    if axis is None:
        source, axis = ravel(source), 0
    dim = normal_axis(axis, source.ndim, f"te.{name}")
    found = added_in(source.dtype) if dtype is None else as_dtype(dtype)
    work = widened_float(found)

    def body(y: Tensor, *i: Axis) -> Any:
        here = fn.convert(Read(source, i), work)
        earlier = Read(y, tuple(a - 1 if d == dim else a for d, a in enumerate(i)))
        return fn.select(i[dim] == 0, here, combine(earlier, here))

    result: Tensor = fn.cast(scan(source.extents, body, axis=dim, dtype=work, name=f"{source.name}_{name}"), found)
    return result


@takes_variables
def cumsum(x: Any, axis: Any = None, *, dtype: Any = None) -> Tensor:
    """The sums of all elements up to each one along `axis` (of the flattened tensor when None)."""
    return _running(x, axis, "cumsum", lambda a, b: a + b, dtype)


@takes_variables
def cumprod(x: Any, axis: Any = None, *, dtype: Any = None) -> Tensor:
    """The products of all elements up to each one along `axis` (of the flattened tensor when None)."""
    return _running(x, axis, "cumprod", lambda a, b: a * b, dtype)
