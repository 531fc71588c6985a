"""Rows of the table for views: what NumPy does to the stand-in of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.bridges.fx.rows.arrays import Row, copied, fresh
from tedsl.mutation.array import Array
from tedsl.mutation.selected import Selected


def _view(x: Array, shape: Any) -> Array:
    if isinstance(x, Selected) and list(shape) in ([], [-1]):  # PyTorch drops the axis of one element to assign it
        return x
    return x.view_of(np.reshape(x.ghost, tuple(shape), copy=False))


def _reshape(x: Array, shape: Any) -> Array:
    try:
        return _view(x, shape)
    except ValueError:
        return fresh(x.value.reshape(tuple(shape)))


def _slice(x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    key = (*[slice(None)] * (dim % x.ndim), slice(start, end, step))
    return x.view_of(x.ghost[key])


def _select(x: Array, dim: int, index: int) -> Array:
    key: Any = (*[slice(None)] * (dim % x.ndim), index, ...)
    return x.view_of(np.asarray(x.ghost[key]))


def _squeeze(x: Array, dims: Any = None) -> Array:
    wanted = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = tuple(d % x.ndim for d in wanted if x.ndim and x.shape[d] == 1)
    return x.view_of(np.squeeze(x.ghost, gone))


def _expand(x: Array, shape: Sequence[int]) -> Array:
    extra = len(shape) - x.ndim
    wanted = tuple(x.shape[d - extra] if n == -1 else n for d, n in enumerate(shape))
    return x.view_of(np.broadcast_to(x.ghost, wanted))


def _as_strided(x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None) -> Array:
    memory: Any = x.storage.memory
    start = x.layout.offset if storage_offset is None else storage_offset
    flat = np.lib.stride_tricks.as_strided(memory, (memory.size,), (1,))
    return x.view_of(np.lib.stride_tricks.as_strided(flat[start:], tuple(size), tuple(stride)))


def _split(x: Array, sizes: Any, dim: int = 0) -> list[Array]:
    n = x.shape[dim]
    listed = [min(sizes, n - k) for k in range(0, max(n, 1), sizes)] if isinstance(sizes, int) else list(sizes)
    begins = np.cumsum([0, *listed]).tolist()
    return [_slice(x, dim, a, a + n) for a, n in zip(begins, listed, strict=False)]


def _whole(x: Array) -> Array:
    return x.view_of(x.ghost)


VIEWS: dict[str, Row] = {
    "view": _view, "_unsafe_view": _reshape, "reshape": _reshape, "_reshape_alias": _reshape,
    "permute": lambda x, dims: x.view_of(np.transpose(x.ghost, [d % x.ndim for d in dims])),
    "transpose": lambda x, a, b: x.view_of(np.swapaxes(x.ghost, a, b)) if x.ndim else x, "t": lambda x: x.T,
    "slice": _slice, "select": _select, "squeeze": _squeeze, "expand": _expand, "as_strided": _as_strided,
    "unsqueeze": lambda x, dim: x.view_of(np.expand_dims(x.ghost, dim)), "alias": _whole, "detach": Array.detached,
    "split": _split, "split_with_sizes": _split,
    "unbind": lambda x, dim=0: [_select(x, dim, k) for k in range(x.shape[dim])],
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.view_of(np.diagonal(x.ghost, offset, dim1, dim2)),
}  # fmt: skip


def _written(x: Array, source: Any, view: Row, *place: Any) -> Array:
    """x with a view of it replaced."""
    made = copied(x)
    view(made, *place).assign(source)
    return made


WRITTEN_VIEWS: dict[str, Row] = {
    "slice_scatter": lambda x, source, dim=0, start=None, end=None, step=1: _written(
        x, source, _slice, dim, start, end, step
    ),
    "select_scatter": lambda x, source, dim, index: _written(x, source, _select, dim, index),
    "as_strided_scatter": lambda x, source, size, stride, offset=None: _written(
        x, source, _as_strided, size, stride, offset
    ),
    "diagonal_scatter": lambda x, source, offset=0, dim1=0, dim2=1: _written(
        x, source, VIEWS["diagonal"], offset, dim1, dim2
    ),
}  # fmt: skip
