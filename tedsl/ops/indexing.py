"""Reads and sums at places that are data: embeddings, gathers, scatters, segments, and the place of the greatest."""

from __future__ import annotations

from typing import Any

from tedsl.analysis.messages import meant
from tedsl.lang.extents import same_extent
from tedsl.ops import language as te
from tedsl.ops.arguments import (
    axis_of,
    check_extent,
    check_integer,
    check_rank,
    check_same_shape,
    loops,
    one_of,
    refuse,
    replaced,
)
from tedsl.ops.op import op

__all__ = [
    "embedding", "gather", "index_add", "index_select", "masked_fill", "one_hot", "scatter_add", "scatter_reduce",
    "segment_max", "segment_sum", "top1",
]  # fmt: skip


@op
def embedding(index: te.Tensor, weight: te.Tensor, padding_idx: int | None = None) -> te.Tensor:
    """y[..., j] = weight[index[...], j]; the row padding_idx takes no gradient. As torch.nn.functional.embedding."""
    check_integer(index, "embedding", "index")
    check_rank(weight, 2, "embedding", "weight", "(rows, features)")
    shape = (*index.shape, weight.shape[1])
    rows = weight.shape[0]
    if padding_idx is not None and isinstance(rows, int) and not -rows <= padding_idx < rows:
        raise refuse("embedding", f"padding_idx: expected {-rows} <= row < {rows}, found {padding_idx}")

    def element(*i: Any) -> Any:
        row = index[i[:-1]]
        value = weight[row, i[-1]]
        if padding_idx is None:
            return value
        pads = row == (padding_idx if padding_idx >= 0 else rows + padding_idx)
        return te.select(pads, te.stop_gradient(value), value)

    made = te.compute(shape, element, name="embedding")
    return meant(made, "te.ops.embedding", "index", "the rows of weight")


@op
def gather(x: te.Tensor, axis: int, index: te.Tensor) -> te.Tensor:
    """y[i, j, k] = x[i, index[i, j, k], k] for axis 1 of three; y has the shape of index. As torch.gather."""
    dim = _along(x, axis, index, "gather")
    made = te.compute(index.shape, lambda *i: x[replaced(i, dim, index[i])], name="gather")
    return meant(made, "te.ops.gather", "index", _extent(dim))


def _extent(dim: int) -> str:
    return f"the extent of axis {dim} of x"


def _along(x: te.Tensor, axis: Any, index: te.Tensor, what: str) -> int:
    check_integer(index, what, "index")
    dim = axis_of(x, axis, what)
    if index.ndim != x.ndim:
        raise refuse(what, f"index: expected {x.ndim} dimensions as x has, found {index!r}")
    for d in range(x.ndim):
        small, large = index.shape[d], x.shape[d]
        if d != dim and isinstance(small, int) and isinstance(large, int) and small > large:
            raise refuse(what, f"index: expected at most {large} in dimension {d}, found {small}: {index!r}")
    return dim


@op
def index_select(x: te.Tensor, axis: int, index: te.Tensor) -> te.Tensor:
    """x at the places index (a vector) along an axis. As torch.index_select."""
    check_integer(index, "index_select", "index")
    check_rank(index, 1, "index_select", "index")
    dim = axis_of(x, axis, "index_select")
    shape = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    made = te.compute(shape, lambda *i: x[replaced(i, dim, index[i[dim]])], name="index_select")
    return meant(made, "te.ops.index_select", "index", _extent(dim))


@op
def index_add(x: te.Tensor, axis: int, index: te.Tensor, source: te.Tensor, alpha: float = 1) -> te.Tensor:
    """x with alpha times slice k of `source` added at index[k] along an axis. As torch.index_add."""
    check_integer(index, "index_add", "index")
    check_rank(index, 1, "index_add", "index")
    dim = axis_of(x, axis, "index_add")
    check_rank(source, x.ndim, "index_add", "source", "as x has")
    for d in range(x.ndim):
        expected = index.extents[0] if d == dim else x.extents[d]
        check_extent(source, d, expected, "index_add", "source", "index along the axis, else x")
    at = loops(*source.shape)
    place = replaced(at, dim, index[at[dim]])
    added = source[at] if alpha == 1 else source[at] * alpha
    made = te.scatter(x.shape, at, place, added, init=x, name="index_add")
    return meant(made, "te.ops.index_add", "index", _extent(dim))


@op
def scatter_add(x: te.Tensor, axis: int, index: te.Tensor, src: te.Tensor) -> te.Tensor:
    """x with src[i, j, k] added at [i, index[i, j, k], k] for axis 1 of three. As torch.scatter_add."""
    return _scatter(x, axis, index, src, "add", "scatter_add", x)


@op
def scatter_reduce(
    x: te.Tensor, axis: int, index: te.Tensor, src: te.Tensor, reduce: str, include_self: bool = True
) -> te.Tensor:
    """x with src combined at the places of scatter_add by "sum", "mean", "prod", "amax" or "amin".

    An element of x counts there, too, unless include_self=False. The first of equal winners takes the gradient. As
    torch.scatter_reduce.
    """
    what = "scatter_reduce"
    kinds = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
    one_of(reduce, tuple(kinds), what, "reduce")
    start = x if include_self else None
    total = _scatter(x, axis, index, src, kinds[reduce], what, start)
    if include_self and reduce != "mean":
        return total
    own, ones = te.full(x.shape, int(include_self), "int32"), te.full(index.shape, 1, "int32")
    count = _scatter(own, axis, index, ones, "add", what, own)
    if reduce == "mean":
        number = te.cast(count if include_self else te.maximum(count, 1), x.dtype)
        total = total / number if x.dtype.is_float else total // number
    return total if include_self else te.select(count > 0, total, x)


def _scatter(
    x: te.Tensor, axis: Any, index: te.Tensor, src: te.Tensor, kind: str, what: str, start: te.Tensor | None
) -> te.Tensor:
    dim = _along(x, axis, index, what)
    check_rank(src, x.ndim, what, "src", "as x has")
    at = loops(*index.shape)
    place = replaced(at, dim, index[at])
    made = te.scatter(x.shape, at, place, src[at], op=kind, init=start, name=what)
    return meant(made, f"te.ops.{what}", "index", _extent(dim))


def _segments(x: te.Tensor, segment_ids: te.Tensor, count: Any, what: str) -> tuple[Any, ...]:
    check_integer(segment_ids, what, "segment_ids")
    check_rank(segment_ids, 1, what, "segment_ids")
    if not x.ndim or not same_extent(x.extents[0], segment_ids.extents[0]):
        raise refuse(what, f"segment_ids: expected the length of the first axis of x, found {segment_ids!r} for {x!r}")
    if isinstance(count, bool) or not isinstance(count, (int, te.Expr)):
        raise refuse(what, f"num_segments: expected an integer, found {count!r}")
    return loops(*x.shape)


@op
def segment_sum(x: te.Tensor, segment_ids: te.Tensor, num_segments: int) -> te.Tensor:
    """y[s] = the sum of x[i] where segment_ids[i] == s. As jax.ops.segment_sum."""
    at = _segments(x, segment_ids, num_segments, "segment_sum")
    place = (segment_ids[at[0]], *at[1:])
    made = te.scatter((num_segments, *x.shape[1:]), at, place, x[at], name="segment_sum")
    return meant(made, "te.ops.segment_sum", "segment_ids", "num_segments")


@op
def segment_max(x: te.Tensor, segment_ids: te.Tensor, num_segments: int) -> te.Tensor:
    """y[s] = the greatest x[i] where segment_ids[i] == s, -inf where there is none. As jax.ops.segment_max."""
    at = _segments(x, segment_ids, num_segments, "segment_max")
    place = (segment_ids[at[0]], *at[1:])
    made = te.scatter((num_segments, *x.shape[1:]), at, place, x[at], op="max", name="segment_max")
    return meant(made, "te.ops.segment_max", "segment_ids", "num_segments")


@op
def one_hot(index: te.Tensor, num_classes: int, dtype: str = "float32") -> te.Tensor:
    """y[..., c] = 1 where c == index[...], else 0; all 0 where index is no class. As jax.nn.one_hot."""
    check_integer(index, "one_hot", "index")
    return te.one_hot(index, num_classes, dtype)


@op
def masked_fill(x: te.Tensor, mask: te.Tensor, value: float) -> te.Tensor:
    """`value` where mask, else x. As torch.masked_fill."""
    check_same_shape(x, mask, "masked_fill", ("x", "mask"))
    if not mask.dtype.is_bool:
        raise refuse("masked_fill", f"mask: expected bools, found {mask!r}")
    fill = te.const(value, x.dtype)
    return te.compute(x.shape, lambda *i: te.select(mask[i], fill, x[i]), name="masked_fill")


@op
def top1(x: te.Tensor, axis: int = -1) -> tuple[te.Tensor, te.Tensor]:
    """The greatest element along an axis and its place (int32), the first of equals, in one pass without a sort.

    As torch.topk(x, 1) without its axis of 1.
    """
    dim = axis_of(x, axis, "top1")
    return x.max(dim), x.argmax(dim)
