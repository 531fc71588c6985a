"""Rows of `tedsl.bridges.fx_rows` for indexing: by arrays and masks, and writing or adding where they point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.bridges.fx_rows import ROWS, Row, apply, copied, fresh
from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.compute import compute
from tedsl.lang.creation import full
from tedsl.lang.dtypes import DType
from tedsl.lang.operators import Fn
from tedsl.mutation.array import Array
from tedsl.mutation.items import accumulate_at


def _key(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


def _index(x: Array, indices: Sequence[Any]) -> Any:
    return x[_key(indices)]


def _index_put_in_place(x: Array, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Array:
    if accumulate:
        accumulate_at(x, _key(indices), values, "add")
    else:
        x[_key(indices)] = values
    return x


def _along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """The index that takes x[.., index[..], ..] along `dim`, other axes as they are, for all points of `index`."""
    places: list[Any] = []
    for d, n in enumerate(index.shape):
        shape = tuple(n if k == d else 1 for k in range(index.ndim))
        places.append(index if d == dim % x.ndim else ROWS["arange"](n).reshape(shape))
    return tuple(places)


def _gather(x: Array, dim: int, index: Array, **_: Any) -> Array:
    if not x.ndim:
        return copied(x)
    source, place = x.value, index.value

    def element(*at: Any) -> Any:
        return source[tuple(fn.cast(place[at], "int32") if d == dim % x.ndim else a for d, a in enumerate(at))]

    return fresh(compute(tuple(index.shape), element, name="gather"))


def _scatter_add(x: Array, dim: int, index: Array, source: Any) -> Array:
    made = copied(x)
    accumulate_at(made, _along(x, dim, index), _cut(source, index), "add")
    return made


def _scatter(x: Array, dim: int, index: Array, source: Any, *, reduce: str | None = None) -> Array:
    made = copied(x)
    if reduce is None:
        made[_along(x, dim, index)] = _cut(source, index)
    else:
        accumulate_at(made, _along(x, dim, index), _cut(source, index), {"add": "add", "multiply": "mul"}[reduce])
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
    shape = [1] * max(1, x.ndim)
    shape[dim] = index.size
    wide = fresh(broadcast_to(index.value.reshape(tuple(shape)), tuple(source.shape)))
    return _scatter_reduce(x, dim, wide, source, "amax" if reduce == "amax" else reduce, include_self=include_self)


def _index_copy(x: Array, dim: int, index: Array, source: Any) -> Array:
    """x with some of its slices along `dim` replaced."""
    made = copied(x)
    if x.ndim:
        made[_key([*[None] * (dim % x.ndim), ROWS["reshape"](index, (-1,))])] = source
    elif index.size:
        made.assign(source.value.reshape(()) if isinstance(source, Array) else source)
    return made


def _put(x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    flat = fresh(x.value.reshape((x.size,)))
    _index_put_in_place(flat, [ROWS["reshape"](index, (-1,))], ROWS["reshape"](source, (-1,)), accumulate)
    return fresh(flat.value.reshape(tuple(x.shape)))


def _masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    """The elements under the mask, in order, replaced by those of `source`."""
    wide = fresh(broadcast_to(mask.value, tuple(x.shape)))
    flat, given = wide.value.reshape((x.size,)), source.value.reshape((source.size,))
    places = flat.astype("int32").cumsum(0) - 1

    def element(k: Any) -> Any:
        return fn.select(flat[k], given[fn.clip(fn.cast(places[k], "int32"), 0, source.size - 1)], 0)

    taken = fresh(compute((x.size,), element, name="taken").reshape(tuple(x.shape)))
    return apply(Fn.SELECT, wide, taken, x)


def _cut(source: Any, index: Array) -> Any:
    return source[tuple(slice(n) for n in index.shape)] if isinstance(source, Array) else source


def _of_vectors(row: Row) -> Row:
    """The row, scalars as vectors of one element."""

    def run(x: Array, dim: int, index: Array, source: Any, *args: Any, **options: Any) -> Array:
        if x.ndim:
            made: Array = row(x, dim, index, source, *args, **options)
            return made
        flat = [fresh(a.value.reshape((a.size,))) if isinstance(a, Array) else a for a in (x, index, source)]
        return fresh(row(flat[0], 0, *flat[1:], *args, **options).value.reshape(()))

    return run


def _written(view: str) -> Any:
    """x with a view of it replaced: slice_scatter, select_scatter."""

    def row(x: Array, source: Any, *place: Any, **named: Any) -> Array:
        made = copied(x)
        ROWS[view](made, *place, **named).assign(source)
        return made

    return row


ROWS.update({
    "index": _index, "_unsafe_index": _index, "index_put_": _index_put_in_place, "gather": _gather,
    "index_put": lambda x, *args: _index_put_in_place(copied(x), *args),
    "_unsafe_index_put": lambda x, *args: _index_put_in_place(copied(x), *args),
    "index_select": lambda x, dim, index: x[_key([*[None] * (dim % max(1, x.ndim)), index])],
    "masked_select": lambda x, mask: x[mask], "masked_scatter": _masked_scatter, "put": _put,
    "scatter": _of_vectors(_scatter), "scatter_add": _of_vectors(_scatter_add),
    "scatter_reduce": _of_vectors(_scatter_reduce), "index_reduce": _of_vectors(_index_reduce),
    "index_copy": _index_copy, "index_fill": _index_copy,
    "index_add_": lambda x, dim, index, source, alpha=1: x.index_add_(dim, index, source, alpha=alpha),
    "index_add": lambda x, dim, index, source, alpha=1: copied(x).index_add_(dim, index, source, alpha=alpha),
    "slice_scatter": _written("slice"), "select_scatter": _written("select"),
    "as_strided_scatter": _written("as_strided"), "diagonal_scatter": _written("diagonal"),
})  # fmt: skip
