"""Statistics in one pass, by reducers of tuples, and the rest of what is asked of samples."""

from __future__ import annotations

from typing import Any

from tedsl.ops import language as te
from tedsl.ops.arguments import axis_of, check_float, check_rank, loops, refuse, size_of, wide_of
from tedsl.ops.op import op

__all__ = ["covariance", "streaming_logsumexp", "var_mean", "welford"]


def _along(x: te.Tensor, axis: Any, what: str) -> tuple[int, Any, tuple[Any, ...]]:
    """The axis, a reduce axis for it, and the shape without it."""
    check_float(x, what, "x")
    dim = axis_of(x, axis, what)
    (k,) = loops(x.shape[dim], name="k")
    return dim, k, (*x.shape[:dim], *x.shape[dim + 1 :])


def _at(i: tuple[Any, ...], dim: int, k: Any) -> tuple[Any, ...]:
    return (*i[:dim], k, *i[dim:])


@op
def welford(x: te.Tensor, axis: int = -1, correction: float = 1.0) -> tuple[te.Tensor, te.Tensor]:
    """The variance and mean of x along an axis in one pass, by a reducer of (count, mean, sum of squared deviations).

    As torch.var_mean, in the form of Welford (1962) and Chan et al. (1979): large sums are never subtracted.
    """
    dim, k, shape = _along(x, axis, "welford")

    def combine(a: Any, b: Any) -> Any:
        count = a[0] + b[0]
        part = te.select(count > 0.0, b[0] / count, b[0])
        apart = b[1] - a[1]
        return count, a[1] + apart * part, a[2] + b[2] + apart * apart * a[0] * part

    moments = te.reducer(combine, (0.0, 0.0, 0.0))
    wide = wide_of(x)
    one, zero = te.const(1.0, wide.dtype), te.const(0.0, wide.dtype)
    names = ("count", "mean", "squares")
    count, mean, squares = te.compute(shape, lambda *i: moments((one, wide[_at(i, dim, k)], zero), axis=k), name=names)
    variance = te.compute(shape, lambda *i: squares[i] / (count[i] - correction), name="variance")
    return te.cast(variance, x.dtype), te.cast(mean, x.dtype)


@op
def var_mean(x: te.Tensor, axis: int = -1, correction: float = 1.0) -> tuple[te.Tensor, te.Tensor]:
    """The variance and mean of x along an axis in two passes. As torch.var_mean."""
    dim, k, shape = _along(x, axis, "var_mean")
    wide = wide_of(x)
    mean = wide.mean(dim)
    count = size_of(x, (dim,))

    def variance(*i: Any) -> Any:
        d = wide[_at(i, dim, k)] - mean[i]
        return te.sum(d * d, axis=k) / (count - correction)

    return te.cast(te.compute(shape, variance, name="variance"), x.dtype), te.cast(mean, x.dtype)


@op
def streaming_logsumexp(x: te.Tensor, axis: int = -1) -> te.Tensor:
    """log(sum of exp(x)) along an axis, in one pass by a reducer of (greatest so far, sum). As torch.logsumexp."""
    dim, k, shape = _along(x, axis, "streaming_logsumexp")

    def combine(a: Any, b: Any) -> Any:
        top = te.maximum(a[0], b[0])
        left, right = (shrunk(c[0], top) for c in (a, b))
        return top, a[1] * left + b[1] * right

    online = te.reducer(combine, (float("-inf"), 0.0))
    wide = wide_of(x)
    one = te.const(1.0, wide.dtype)
    top, total = te.compute(shape, lambda *i: online((wide[_at(i, dim, k)], one), axis=k), name=("top", "total"))
    found = te.compute(shape, lambda *i: top[i] + te.log(total[i]), name="streaming_logsumexp")
    return te.cast(found, x.dtype)  # type: ignore[no-any-return]


def shrunk(score: Any, top: Any) -> Any:
    """exp(score - top), which is 1 where both are one infinity; smooth elsewhere, so that ties have derivatives."""
    return te.select((score == top) & te.isinf(top), 1.0, te.exp(score - top))


@op
def covariance(x: te.Tensor, correction: float = 1.0) -> te.Tensor:
    """c[i, j] = sum over n of (x[i, n] - mean x[i]) (x[j, n] - mean x[j]) / (samples - correction). As torch.cov."""
    check_rank(x, 2, "covariance", "x", "(variables, samples)")
    check_float(x, "covariance", "x")
    if isinstance(x.shape[1], int) and x.shape[1] <= correction:
        raise refuse("covariance", f"x: expected more than {correction} samples, found {x!r}")
    mean = x.mean(1)
    centered = te.compute(x.shape, lambda i, n: x[i, n] - mean[i], name="centered")
    product = te.matmul(centered, te.transpose(centered))
    return te.compute(product.shape, lambda i, j: product[i, j] / (size_of(x, (1,)) - correction), name="covariance")  # type: ignore[no-any-return]
