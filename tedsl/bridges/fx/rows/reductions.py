"""Rows of the table for reductions, products of matrices and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.bridges.fx.rows.arrays import (
    Row,
    apply,
    as_kind,
    copied,
    dtype_of,
    fresh,
    in_single,
    kind_of,
    single,
    value_of,
)
from tedsl.lang.creation import full
from tedsl.lang.operators import Fn
from tedsl.mutation.array import Array
from tedsl.mutation.selected import Selected


def _dims(x: Array, dims: Any) -> Any:
    if dims is None or x.ndim == 0 or (isinstance(dims, (list, tuple)) and not dims):
        return None
    return dims if isinstance(dims, int) else tuple(dims)


def _counted(x: Any, dtype: Any) -> Any:
    """What sums and products are taken of: in the dtype that was asked for, else integers in 64 bits."""
    if dtype is not None:
        return in_single(as_kind(x, kind_of(dtype)))
    return x if dtype_of(x).is_float else as_kind(x, kind_of("int64"))


def _total(name: str) -> Row:
    def row(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
        return _reduced(_counted(x, dtype), name, dims, keepdim)

    return single(row)


def _reduction(name: str) -> Row:
    return lambda x, dims=None, keepdim=False: _reduced(x, name, dims, keepdim)


def _reduced(x: Any, name: str, dims: Any, keepdim: bool) -> Array:
    found = getattr(x, name)(_dims(x, dims), keepdim)
    if isinstance(found, Selected):
        raise NotImplementedError(f"{name} over axes {dims} of x[mask] leaves its length, which depends on values")
    return fresh(value_of(found))


_mean = _total("mean")


def _extreme(best: str, place: str) -> Row:
    def row(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return fresh(value_of(getattr(x, best)()))
        if not x.ndim:
            return copied(x), fresh(full((), 0, "int64"))
        places = getattr(x.value, place)(dim).astype("int64")
        shape = [1 if d == dim % x.ndim else n for d, n in enumerate(x.shape)]
        return (
            fresh(value_of(getattr(x, best)(dim, keepdim))),
            fresh(places.reshape(tuple(shape)) if keepdim else places),
        )

    return row


def _argument(name: str) -> Row:
    def row(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        found = getattr(x.value, name)() if dim is None else getattr(x.value, name)(dim)
        if keepdim:
            found = found.reshape(tuple(1 if dim is None or d == dim % x.ndim else n for d, n in enumerate(x.shape)))
        return fresh(found.astype("int64"))

    return row


def _var(x: Array, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Array:
    axes = _dims(x, dims)
    mean = x.value.mean(axes, True)
    d = x.value - mean
    count = x.size // max(1, int(np.prod(mean.shape, dtype=int)))
    below = count - (1 if correction is None else correction)
    return fresh((d * d).sum(axes, keepdim) / (below if below > 0 else float("nan") if below == 0 else 0.0))


def _var_mean(x: Array, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Array, Array]:
    return _var(x, dims, correction=correction, keepdim=keepdim), _mean(x, dims, keepdim)


def _product(a: Array, b: Array) -> Array:
    return fresh(a.value @ b.value)


def _plus_product(c: Any, a: Array, b: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """beta c + alpha a @ b."""
    return _scaled_sum(_product(a, b), c, beta, alpha)


def _plus_products(c: Any, a: Array, b: Array, *, beta: Any = 1, alpha: Any = 1) -> Array:
    """beta c + alpha times the sum of a[i] @ b[i]."""
    return _scaled_sum(fresh((a.value @ b.value).sum(0)), c, beta, alpha)


def _scaled_sum(product: Array, c: Any, beta: Any, alpha: Any) -> Array:
    """beta c + alpha product: integers have integer factors, and with beta 0 what is in c does not count."""
    if not dtype_of(product).is_float:
        beta, alpha = int(beta), int(alpha)
    scaled = product if alpha == 1 else apply(Fn.MUL, product, alpha)
    if beta == 0:
        return scaled
    return apply(Fn.ADD, scaled, c if beta == 1 else apply(Fn.MUL, c, beta))


def _running(name: str) -> Row:
    def row(x: Array, dim: int, *, dtype: Any = None) -> Array:
        source = _counted(x, dtype)
        return fresh(getattr(source.value, name)(dim)) if x.ndim else copied(source)

    return single(row)


REDUCTIONS: dict[str, Row] = {
    "sum": _total("sum"), "prod": _total("prod"), "mean": _mean,
    "any": _reduction("any"), "all": _reduction("all"), "amax": _reduction("amax"), "amin": _reduction("amin"),
    "max": _extreme("amax", "argmax"), "min": _extreme("amin", "argmin"), "argmax": _argument("argmax"),
    "argmin": _argument("argmin"), "var": single(_var), "var_mean": single(_var_mean),
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), single(_product)),
    **dict.fromkeys(("addmm", "baddbmm"), single(_plus_product)), "addbmm": single(_plus_products),
    **{name: _running(name) for name in ("cumsum", "cumprod")},
}  # fmt: skip
