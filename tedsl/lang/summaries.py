"""What NumPy tells of whole tensors beside sums and extremes: sums without NaN, averages, products of vectors."""

from __future__ import annotations

from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.axes import reduce_axis
from tedsl.lang.broadcast import broadcast_to, where
from tedsl.lang.contraction import dot, tensordot
from tedsl.lang.dtypes import INT32
from tedsl.lang.elementary import isclose
from tedsl.lang.elements import as_floats, as_tensor, as_tensors, normal_axis, removed_axes, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Const, Expr
from tedsl.lang.extents import simplify_extent
from tedsl.lang.indexing import getitem, slice_axis
from tedsl.lang.joining import stack
from tedsl.lang.reducers import sum as sum_over
from tedsl.lang.reducing import mean, reduction
from tedsl.lang.reshaping import expand_dims, ravel, reshape
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables

__all__ = [
    "allclose", "average", "convolve", "count_nonzero", "cross", "inner", "nanmax", "nanmean",
    "nanmin", "nansum", "polyval", "ptp", "trapezoid", "vdot",
]  # fmt: skip

_sum, _max, _min, _all = (reduction(kind) for kind in ("sum", "max", "min", "all"))


# Reductions


@takes_variables
def count_nonzero(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0, int32."""
    source = as_tensor(x, "te.count_nonzero")
    return _sum(source if source.dtype.is_bool else source != 0, axis, keepdims, dtype=INT32)  # type: ignore[no-any-return]


@takes_variables
def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element minus the least one."""
    source = as_tensor(x, "te.ptp")
    return _max(source, axis, keepdims) - _min(source, axis, keepdims)  # type: ignore[no-any-return]


@takes_variables
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether all elements are close, as te.isclose says."""
    return _all(as_tensor(isclose(a, b, rtol, atol, equal_nan), "te.allclose"))  # type: ignore[no-any-return]


@takes_variables
def average(x: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Tensor:
    """The mean, weighted: `weights` has the shape of x, or is a vector along the one axis."""
    source = as_tensor(x, "te.average")
    if weights is None:
        return mean(source, axis, keepdims)
    _, given = as_tensors((source, weights), "te.average")
    if given.ndim == 1 != source.ndim:
        over = removed_axes(axis, source.ndim, "te.average")
        if axis is None or len(over) != 1:
            raise TypeError(f"te.average at {user_location()}: a vector of weights needs one axis, found {axis!r}")
        given = reshape(given, tuple(given.shape[0] if d == over[0] else 1 for d in range(source.ndim)))
    given = broadcast_to(as_floats(given, "te.average"), source.shape)
    return _sum(as_floats(source, "te.average") * given, axis, keepdims) / _sum(given, axis, keepdims)  # type: ignore[no-any-return]


def _without_nan(x: Any, instead: float, what: str) -> Tensor:
    source = as_tensor(x, what)
    return where(fn.isnan(source), instead, source) if source.dtype.is_float else source


@takes_variables
def nansum(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The sum of what is not NaN."""
    return _sum(_without_nan(x, 0.0, "te.nansum"), axis, keepdims)  # type: ignore[no-any-return]


@takes_variables
def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The mean of what is not NaN; NaN where there is nothing else."""
    source = as_floats(x, "te.nanmean")
    count: Tensor = _sum(fn.logical_not(fn.isnan(source)), axis, keepdims, dtype=INT32)
    return nansum(source, axis, keepdims) / count.astype(source.dtype)


def _extreme(x: Any, axis: Any, keepdims: bool, reduce: Any, neutral: float, what: str) -> Tensor:
    source = as_tensor(x, what)
    found: Tensor = reduce(_without_nan(source, neutral, what), axis, keepdims)
    if not source.dtype.is_float:
        return found
    result: Tensor = where(_all(fn.isnan(source), axis, keepdims), float("nan"), found)
    return result


@takes_variables
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element that is not NaN; NaN where there is nothing else."""
    return _extreme(x, axis, keepdims, _max, float("-inf"), "te.nanmax")


@takes_variables
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The least element that is not NaN; NaN where there is nothing else."""
    return _extreme(x, axis, keepdims, _min, float("inf"), "te.nanmin")


# Products, and sums over neighbors


@takes_variables
def inner(a: Any, b: Any) -> Tensor:
    """The sum of products over the last axes; with a scalar, the product."""
    left, right = as_tensors((a, b), "te.inner")
    if not left.ndim or not right.ndim:
        return left * right
    return tensordot(left, right, ([-1], [-1]))


@takes_variables
def vdot(a: Any, b: Any) -> Tensor:
    """The sum of products of all elements."""
    return dot(*map(ravel, as_tensors((a, b), "te.vdot")))


@takes_variables
def cross(a: Any, b: Any, axis: int = -1) -> Tensor:
    """The vector product of vectors of three elements along `axis`."""
    left, right = as_tensors((a, b), "te.cross")
    dims = [normal_axis(axis, t.ndim, "te.cross") for t in (left, right)]
    for t, d in zip((left, right), dims, strict=True):
        if t.shape[d] != 3:
            raise ValueError(f"te.cross at {user_location()}: expected 3 elements along axis {d}, found {t!r}")

    def part(t: Tensor, d: int, k: int) -> Tensor:
        return getitem(t, (*(slice(None),) * d, k))

    (x, y, z), (u, v, w) = ([part(t, d, k) for k in range(3)] for t, d in zip((left, right), dims, strict=True))
    return stack([y * w - z * v, z * u - x * w, x * v - y * u], axis)


@takes_variables
def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """The convolution of two vectors: "full", "same" (of the length of the longer) or "valid"."""
    left, right = as_tensors((a, v), "te.convolve")
    if mode not in ("full", "same", "valid") or left.ndim != 1 or right.ndim != 1:
        raise ValueError(
            f"te.convolve at {user_location()}: expected two vectors and the mode 'full', 'same' or 'valid', found "
            f"{left!r}, {right!r} and {mode!r:.40}"
        )
    m, n = left.extents[0], right.extents[0]
    if isinstance(m, Const) and isinstance(n, Const) and m.value < n.value:
        left, right, m, n = right, left, n, m
    begin: Expr = {"full": Const(0, INT32), "same": (n - 1) // 2, "valid": n - 1}[mode]
    length = {"full": m + n - 1, "same": m, "valid": m - n + 1}[mode]

    def element(i: Any) -> Any:
        k = reduce_axis(n, name="k")
        place = i + begin - k
        inside = None if mode == "valid" else (place >= 0) & (place < m)  # a border of zeros makes NaN of infinity
        return sum_over(left.at(place, mode="zero") * right[k], axis=k, where=inside)

    return tensor_of((simplify_extent(length),), element, "convolve")


@takes_variables
def polyval(p: Any, x: Any) -> Tensor:
    """The polynomial with the coefficients `p`, that of the highest power first, at x."""
    coefficients, place = as_tensors((p, x), "te.polyval")
    count = coefficients.extents[0]
    if not isinstance(count, Const):
        raise ValueError(f"te.polyval at {user_location()}: expected a known number of coefficients, found `{count}`")
    result: Any = place * 0
    for k in range(int(count.value)):
        result = result * place + getitem(coefficients, (k,))
    return result  # type: ignore[no-any-return]


@takes_variables
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral along `axis` by trapezoids, at places `x`, or ones that are `dx` apart."""
    source = as_floats(y, "te.trapezoid")
    dim = normal_axis(axis, source.ndim, "te.trapezoid")
    sums = slice_axis(source, dim, 1, None) + slice_axis(source, dim, None, -1)
    if x is None:
        return _sum(sums, dim) * (dx / 2)  # type: ignore[no-any-return]
    _, at = as_tensors((source, x), "te.trapezoid")
    along = 0 if at.ndim == 1 else normal_axis(axis, at.ndim, "te.trapezoid")
    steps = slice_axis(at, along, 1, None) - slice_axis(at, along, None, -1)
    for _ in range(source.ndim - 1 - dim if at.ndim == 1 else 0):
        steps = expand_dims(steps, steps.ndim)
    return _sum(sums * steps / 2, dim)  # type: ignore[no-any-return]
