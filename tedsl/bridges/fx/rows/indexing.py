"""Rows of the table for indexing: by arrays and masks, and writing or adding where they point."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.bridges.fx.rows.arrays import Row, apply, broadcast, copied, dtype_of, fresh
from tedsl.bridges.fx.rows.promotion import in_dtype
from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.compute import compute
from tedsl.lang.creation import arange, full
from tedsl.lang.dtypes import DType
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array
from tedsl.mutation.items import accumulate_at


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


def _index(x: Array, indices: Sequence[Any]) -> Any:
    return x[_key(indices)]


def _index_put_in_place(x: Array, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Array:
    key = _key(indices)
    if not accumulate:
        x[key] = values
    elif any(isinstance(i, Array) and i.storage.dtype.is_bool for i in key):  # names no element twice
        added = fresh(full(x.shape, 0, x.storage.dtype))
        added[key] = values
        x.assign(apply(Fn.ADD, x, added))
    else:
        accumulate_at(x, key, values, "add")
    return x


def _index_put(x: Array, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Array:
    return _index_put_in_place(copied(x), indices, values, accumulate)


def _along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """The index that takes x[.., index[..], ..] along `dim`, other axes as they are, for all points of `index`."""
    places: list[Any] = []
    for d, n in enumerate(index.shape):
        shape = tuple(n if k == d else 1 for k in range(index.ndim))
        places.append(index if d == dim % x.ndim else fresh(arange(n).reshape(shape)))
    return tuple(places)


def _gather(x: Array, dim: int, index: Array) -> Array:
    return fresh(_gathered(_vector(x), dim, _vector(index)).reshape(index.shape))


def _gathered(x: Array, dim: int, index: Array) -> Tensor:
    source, place = x.value, index.value

    def element(*at: Any) -> Any:
        return source[tuple(place[at] if d == dim % x.ndim else a for d, a in enumerate(at))]

    found: Tensor = compute(tuple(index.shape), element, name="gather")
    return found


def _index_select(x: Array, dim: int, index: Array) -> Array:
    source, place, own = x.value, index.value, dim % x.ndim

    def element(*at: Any) -> Any:
        return source[tuple(place[a] if d == own else a for d, a in enumerate(at))]

    shape = (*x.shape[:own], index.size, *x.shape[own + 1 :])
    return fresh(compute(shape, element, name="index_select"))


def _index_add(x: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1) -> Array:
    made: Array = copied(x).index_add_(dim, index, source, alpha=alpha)
    return made


def _scatter_add(x: Array, dim: int, index: Array, source: Any) -> Array:
    made = copied(x)
    accumulate_at(made, _along(x, dim, index), _cut(source, index), "add")
    return made


def _scatter(x: Array, dim: int, index: Array, source: Any, *, reduce: str | None = None) -> Array:
    made, at, value = copied(x), _along(x, dim, index), in_dtype(_cut(source, index), dtype_of(x))
    if reduce is None:
        made[at] = value
    else:
        accumulate_at(made, at, value, {"add": "add", "multiply": "mul"}[reduce])
    return made


KINDS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _identity(kind: str, dtype: DType) -> float:
    """What combining leaves as it is."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if kind == "max" else limits.max)


def _scatter_reduce(
    x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    """Elements combined with those of `source` that name them; without `include_self` only the latter count there."""
    at, kind = _along(x, dim, index), KINDS[reduce]
    counts = fresh(full(x.shape, 0, "int64"))
    accumulate_at(counts, at, 1, "add")
    is_named = apply(Fn.GT, counts, 0)
    made = copied(x) if include_self else apply(Fn.SELECT, is_named, _identity(kind, x.storage.dtype), x)
    accumulate_at(made, at, _cut(source, index), kind)
    if reduce != "mean":
        return made
    total = apply(Fn.CAST, apply(Fn.MAXIMUM, counts if not include_self else apply(Fn.ADD, counts, 1), 1), made.dtype)
    return apply(Fn.DIV if made.storage.dtype.is_float else Fn.FLOORDIV, made, total)


def _index_reduce(x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True) -> Array:
    shape = [1] * x.ndim
    shape[dim] = index.size
    wide = fresh(broadcast_to(index.value.reshape(tuple(shape)), tuple(source.shape)))
    return _scatter_reduce(x, dim, wide, source, reduce, include_self=include_self)


def _index_copy(x: Array, dim: int, index: Array, source: Any) -> Array:
    """x with some of its slices along `dim` replaced."""
    made = copied(x)
    made[_key([*[None] * (dim % x.ndim), index])] = in_dtype(source, dtype_of(x))
    return made


def _put(x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    flat = fresh(x.value.reshape((x.size,)))
    _index_put_in_place(flat, [_flat(index)], _flat(source), accumulate)
    return fresh(flat.value.reshape(tuple(x.shape)))


def _broadcast(*arrays: Array) -> list[Array]:
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return [a if a.shape == shape else fresh(broadcast(a, shape)) for a in arrays]


def _masked_select(x: Array, mask: Array) -> Any:
    wide, where = map(_vector, _broadcast(x, mask))
    return wide[where]


def _masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    """The elements under the mask, in order, replaced by those of `source`."""
    wide, where = _broadcast(x, mask)
    flat, given = _flat(where).value, _flat(source).value
    places = flat.astype("int32").cumsum(0) - 1

    def element(k: Any) -> Any:
        return fn.select(flat[k], given[fn.clip(fn.cast(places[k], "int32"), 0, source.size - 1)], 0)

    taken = fresh(compute((wide.size,), element, name="taken").reshape(wide.shape))
    return apply(Fn.SELECT, where, taken, wide)


def _cut(source: Any, index: Array) -> Any:
    return source[tuple(slice(n) for n in index.shape)] if isinstance(source, Array) else source


def _flat(x: Array) -> Array:
    return fresh(x.value.reshape((x.size,)))


def _vector(x: Any) -> Any:
    """A scalar as a vector of one element."""
    return _flat(x) if isinstance(x, Array) and not x.ndim else x


def _of_vectors(row: Row) -> Row:
    """The row, scalars as vectors of one element."""

    @functools.wraps(row)
    def run(x: Array, dim: int, index: Array, *args: Any, **options: Any) -> Array:
        made: Array = row(_vector(x), dim, _vector(index), *map(_vector, args), **options)
        return made if x.ndim else fresh(made.value.reshape(()))

    return run


INDEXING: dict[str, Row] = {
    "index_select": _of_vectors(_index_select), "index_add": _of_vectors(_index_add),
    "index_reduce": _of_vectors(_index_reduce), "index_copy": _of_vectors(_index_copy),
    "index_fill": _of_vectors(_index_copy), "scatter": _of_vectors(_scatter),
    "scatter_add": _of_vectors(_scatter_add), "scatter_reduce": _of_vectors(_scatter_reduce),
    "index": _index, "_unsafe_index": _index, "index_put_": _index_put_in_place, "index_put": _index_put,
    "_unsafe_index_put": _index_put, "gather": _gather, "masked_select": _masked_select,
    "masked_scatter": _masked_scatter, "put": _put,
}  # fmt: skip
