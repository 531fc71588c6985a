"""Variances, norms and softmax of whole tensors, along an axis, several, or all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to, where as chosen_of
from tedsl.lang.dtypes import DType, divide_type
from tedsl.lang.elements import as_tensor, product, removed_axes, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.reducing import mean, reduction, widened_float
from tedsl.lang.reshaping import squeeze
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["log_softmax", "logsumexp", "norm", "softmax", "std", "variance"]

_sum, _max, _min = reduction("sum"), reduction("max"), reduction("min")


def _widened(x: Any, what: str) -> tuple[Tensor, DType]:
    """`x` in the floats that sums are made in, and the dtype of the result: of integers float64, as in NumPy."""
    source = as_tensor(x, what)
    result = divide_type(source.dtype)
    return fn.cast(source, widened_float(result)), result


def _variance(
    x: Any, axis: Any, ddof: float, keepdims: bool, chosen: Any, what: str, root: Callable[[Any], Any] | None = None
) -> Tensor:
    """The variance, or a root of it, which is taken before a result of 16 bits is made."""
    source, result = _widened(x, what)
    if isinstance(ddof, bool) or not isinstance(ddof, (int, float)):
        raise TypeError(f"{what} at {user_location()}: ddof is a number, found {ddof!r:.40}")
    centered = source - mean(source, axis, True, where=chosen)
    square = _sum(centered * centered, axis, keepdims, where=chosen)
    if chosen is None:
        count = product(source.extents[d] for d in removed_axes(axis, source.ndim, what))
        divisor = tensor_of((), lambda: fn.maximum(fn.convert(count, source.dtype) - ddof, 0.0), "divisor")
    else:
        each = broadcast_to(as_tensor(chosen, what), source.extents)
        divisor = fn.maximum(_sum(fn.cast(each, source.dtype), axis, keepdims) - ddof, 0.0)
    found = square / divisor
    return fn.cast(found if root is None else _root(found, root), result)  # type: ignore[no-any-return]


@takes_variables
def variance(x: Any, axis: Any = None, keepdims: bool = False, *, ddof: float = 0, where: Any = None) -> Tensor:
    """The mean square of the distances from the mean; `ddof` is taken from the count that they are divided by."""
    return _variance(x, axis, ddof, keepdims, where, "var")


variance.__name__ = "var"  # as a method; te.var makes a symbol


@takes_variables
def std(x: Any, axis: Any = None, keepdims: bool = False, *, ddof: float = 0, where: Any = None) -> Tensor:
    """The square root of `x.var`, with its arguments and gradient 0 at 0."""
    return _variance(x, axis, ddof, keepdims, where, "te.std", fn.sqrt)


@takes_variables
def norm(x: Any, ord: float | None = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The square root of the sum of squares, with gradient 0 at 0; along one axis `ord` may be any order, inf or -inf.

    As np.linalg.norm, without its norms of matrices.
    """
    source, result = _widened(x, "norm")
    over = removed_axes(axis, source.ndim, "norm")
    if ord is not None and len(over) != 1:
        raise ValueError(
            f"norm at {user_location()}: ord={ord!r:.40} needs one axis, found {len(over)} of {source!r}; give axis="
        )
    if ord is not None and (isinstance(ord, bool) or not isinstance(ord, (int, float))):
        raise TypeError(f"norm at {user_location()}: ord is a number, inf or -inf, found {ord!r:.40}")
    return fn.cast(_of_order(source, ord, over, keepdims), result)  # type: ignore[no-any-return]


def _of_order(x: Tensor, order: float | None, over: tuple[int, ...], keepdims: bool) -> Any:
    if order is None or order == 2:
        return _root(_sum(x * x, over, keepdims), fn.sqrt)
    if order == float("inf"):
        return _max(fn.abs(x), over, keepdims)
    if order == float("-inf"):
        return _min(fn.abs(x), over, keepdims)
    if order == 0:
        return fn.cast(_sum(x != 0, over, keepdims), x.dtype)
    if order == 1:
        return _sum(fn.abs(x), over, keepdims)
    total = _sum(fn.pow(fn.abs(x), float(order)), over, keepdims)
    return _root(total, lambda t: fn.pow(t, 1.0 / order)) if order > 0 else fn.pow(total, 1.0 / order)


def _root(total: Tensor, function: Callable[[Any], Any]) -> Any:
    """A root of what is 0 or more, whose slope at 0, where it has none, is 0."""
    return chosen_of(total > 0, function(total), total)


def _floats(x: Any, what: str) -> Tensor:
    source = as_tensor(x, what)
    if not source.dtype.is_float:
        raise TypeError(f"{what} at {user_location()}: expected floats, found {source!r}; use te.cast")
    return source


@takes_variables
def softmax(x: Any, axis: Any = -1) -> Tensor:
    """exp(x) / sum of exp(x) along an axis or several, without overflow."""
    source = _floats(x, "softmax")
    e = fn.exp(source - _max(source, axis, True))
    return e / _sum(e, axis, True)  # type: ignore[no-any-return]


@takes_variables
def log_softmax(x: Any, axis: Any = -1) -> Tensor:
    """The logarithm of `softmax`, without overflow: x - logsumexp(x)."""
    source = _floats(x, "log_softmax")
    shifted = source - _max(source, axis, True)
    return shifted - fn.log(_sum(fn.exp(shifted), axis, True))  # type: ignore[no-any-return]


@takes_variables
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """log(sum of exp(x)) over an axis, several, or all (None), without overflow; -inf where every element is."""
    source = _floats(x, "logsumexp")
    top = _max(source, axis, True)
    start = chosen_of(fn.isinf(top), 0.0, top)
    total = start + fn.log(_sum(fn.exp(source - start), axis, True))
    return total if keepdims else squeeze(total, removed_axes(axis, source.ndim, "logsumexp"))
