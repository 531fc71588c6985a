"""Rows of the table for new arrays, and for what is written whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tedsl.bridges.fx.rows.arrays import Row, broadcast, dtype_of, fresh, kind_of
from tedsl.bridges.fx.rows.promotion import in_dtype
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute
from tedsl.lang.creation import full
from tedsl.lang.joining import concatenate
from tedsl.mutation.array import Array


def _default_kind(*numbers: Any) -> Any:
    """The dtype that PyTorch gives a new tensor of such numbers."""
    import torch

    if any(isinstance(n, float) for n in numbers):
        return kind_of(torch.get_default_dtype())
    return kind_of("bool" if all(isinstance(n, bool) for n in numbers) else "int64")


def _filled(shape: Any, value: Any, kind: Any) -> Array:
    if isinstance(value, Array):
        return fresh(broadcast(value, tuple(shape)).astype(kind))
    return fresh(full(tuple(shape), fn.const(in_dtype(value, kind), kind)))


def _full(shape: Any, value: Any, *, dtype: Any = None) -> Array:
    kind = kind_of(dtype) if dtype is not None else dtype_of(value) if isinstance(value, Array) else None
    return _filled(shape, value, kind or _default_kind(value))


def _filled_with(value: Any) -> Row:
    return lambda shape, *, dtype=None: _full(shape, value, dtype=dtype)


def _like(value: Any) -> Row:
    return lambda x, *, dtype=None: _full_like(x, value, dtype=dtype)


def _full_like(x: Array, value: Any, *, dtype: Any = None) -> Array:
    return _filled(x.shape, value, dtype_of(x) if dtype is None else kind_of(dtype))


def _new(value: Any) -> Row:
    return lambda x, shape, *, dtype=None: _new_full(x, shape, value, dtype=dtype)


def _new_full(x: Array, shape: Any, value: Any, *, dtype: Any = None) -> Array:
    return _filled(shape, value, dtype_of(x) if dtype is None else kind_of(dtype))


def _arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Array:
    """Numbers at even distances, computed in 64 bits."""
    begin, end = (0, start) if stop is None else (start, stop)
    kind = _default_kind(begin, end, step) if dtype is None else kind_of(dtype)
    wide = kind_of("float64" if kind.is_float else "int64")
    first, distance = (fn.const(in_dtype(number, wide), wide) for number in (begin, step))
    count = math.ceil((end - begin) / step) if kind.is_float else -((int(begin) - int(end)) // int(step))
    made = compute((max(0, count),), lambda i: fn.cast(first + fn.cast(i, wide) * distance, kind), name="arange")
    return fresh(made)


def _cat(arrays: Sequence[Array], dim: int = 0) -> Array:
    kept = [a for a in arrays if not (a.ndim == 1 and a.size == 0)] or list(arrays[:1])
    return fresh(concatenate([a.value for a in kept], dim))


def _assigned(x: Array, value: Any) -> Array:
    x.assign(in_dtype(value, dtype_of(x)))
    return x


CREATION: dict[str, Row] = {
    "full": _full, "zeros": _filled_with(0.0), "ones": _filled_with(1.0), "empty": _filled_with(0.0),
    "empty_strided": _filled_with(0.0), "scalar_tensor": lambda value, *, dtype=None: _full((), value, dtype=dtype),
    "full_like": _full_like, "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0),
    "new_full": _new_full, "new_zeros": _new(0), "new_ones": _new(1), "new_empty": _new(0),
    "new_empty_strided": _new(0), "arange": _arange, "cat": _cat, "copy_": _assigned, "fill_": _assigned,
    "zero_": lambda x: _assigned(x, 0), "fill": lambda x, value: _full_like(x, value),
    "lift_fresh": lambda x: x,
}  # fmt: skip
