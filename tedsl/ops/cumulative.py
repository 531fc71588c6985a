"""Running sums, products, maxima and their like along an axis, each a scan of one step per element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tedsl.ops import language as te
from tedsl.ops.arguments import axis_of, check_float, replaced, wide_of
from tedsl.ops.op import op

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"]


@op
def cumsum(x: te.Tensor, axis: int) -> te.Tensor:
    """y[t] = x[0] + ... + x[t]. As torch.cumsum."""
    return te.cumsum(x, axis_of(x, axis, "cumsum"))


@op
def cumprod(x: te.Tensor, axis: int) -> te.Tensor:
    """y[t] = x[0] * ... * x[t]. As torch.cumprod."""
    return te.cumprod(x, axis_of(x, axis, "cumprod"))


@op
def cummax(x: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor]:
    """The greatest of x[0], ..., x[t] and its place (int32), the last of equals; NaN stays. As torch.cummax."""
    return _running(x, axis, "cummax", lambda here, best: here >= best)


@op
def cummin(x: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor]:
    """The least of x[0], ..., x[t] and its place (int32), the last of equals; NaN stays. As torch.cummin."""
    return _running(x, axis, "cummin", lambda here, best: here <= best)


def _running(x: te.Tensor, axis: Any, what: str, wins: Callable[[Any, Any], Any]) -> tuple[te.Tensor, te.Tensor]:
    dim = axis_of(x, axis, what)

    def body(value: te.Tensor, place: te.Tensor, *i: Any) -> Any:
        before = replaced(i, dim, i[dim] - 1)
        taken = wins(x[i], value[before])
        if x.dtype.is_float:
            taken = taken | te.isnan(x[i])
        first, here = i[dim] == 0, te.cast(i[dim], "int32")
        return (
            te.select(first, x[i], te.select(taken, x[i], value[before])),
            te.select(first, here, te.select(taken, here, place[before])),
        )

    return te.scan(x.shape, body, axis=dim, dtype=(x.dtype, "int32"), name=(what, f"{what}_place"))  # type: ignore[no-any-return]


@op
def logcumsumexp(x: te.Tensor, axis: int) -> te.Tensor:
    """y[t] = log(exp(x[0]) + ... + exp(x[t])), without overflow. As torch.logcumsumexp."""
    check_float(x, "logcumsumexp", "x")
    dim, wide = axis_of(x, axis, "logcumsumexp"), wide_of(x)

    def body(y: te.Tensor, *i: Any) -> Any:
        before = y[replaced(i, dim, i[dim] - 1)]
        return te.select(i[dim] == 0, wide[i], te.logaddexp(before, wide[i]))

    return te.cast(te.scan(x.shape, body, axis=dim, dtype=wide.dtype, name="logcumsumexp"), x.dtype)  # type: ignore[no-any-return]
