"""Attention: the softmax of scores as weights of values, by rows of scores or in one pass over the keys."""

from __future__ import annotations

import math
from typing import Any

from tedsl.lang.reducing import widened_float
from tedsl.ops import language as te
from tedsl.ops.arguments import check_extent, check_float, loops, refuse
from tedsl.ops.normalization import softmax
from tedsl.ops.op import op
from tedsl.ops.statistics import shrunk

__all__ = ["attention", "streaming_attention"]


def _check(q: te.Tensor, k: te.Tensor, v: te.Tensor, what: str) -> None:
    for tensor, name in ((q, "q"), (k, "k"), (v, "v")):
        check_float(tensor, what, name)
        if tensor.ndim < 2 or tensor.ndim != q.ndim:
            raise refuse(what, f"expected q, k and v (..., length, features) of one rank, found {q!r}, {k!r}, {v!r}")
    check_extent(k, -1, q.extents[-1], what, "k", "the features of q")
    check_extent(v, -2, k.extents[-2], what, "v", "the length of k")
    for d in range(q.ndim - 2):
        check_extent(k, d, q.extents[d], what, "k", "that of q")
        check_extent(v, d, q.extents[d], what, "v", "that of q")


def _scores(q: te.Tensor, k: te.Tensor, scale: float | None, mask: te.Tensor | None, causal: bool) -> te.Tensor:
    """Scores, -inf where a key may not be seen."""
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    products = te.matmul(q, te.swapaxes(k, -1, -2))
    seen = te.broadcast_to(mask, products.shape) if mask is not None else None

    def element(*i: Any) -> Any:
        score = products[i] * factor
        if seen is not None:
            score = te.select(seen[i], score, float("-inf")) if seen.dtype.is_bool else score + seen[i]
        return te.select(i[-1] <= i[-2], score, float("-inf")) if causal else score

    return te.compute(products.shape, element, name="scores")  # type: ignore[no-any-return]


@op
def attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None = None, causal: bool = False,
    scale: float | None = None,
) -> te.Tensor:  # fmt: skip
    """softmax(q k^T scale + mask) v over the keys; scale is 1 / sqrt(features of q) unless given.

    q (..., l, e), k (..., s, e), v (..., s, d) -> (..., l, d). A mask of bools says which keys are seen, one of floats
    is added; the result is 0 for a query that sees none. causal: query i sees the keys up to i. As
    torch.nn.functional.scaled_dot_product_attention.
    """
    _check(q, k, v, "attention")
    _check_scale(q, scale, "attention")
    scores = _scores(q, k, scale, mask, causal)
    return te.matmul(softmax(scores) if mask is None else _weights(scores), v)


def _weights(scores: te.Tensor) -> te.Tensor:
    """softmax over the keys, but 0 for a query that sees none."""
    top = scores.max(-1, keepdims=True)
    each = te.exp(scores - te.where(top == float("-inf"), 0.0, top))
    total = each.sum(-1, keepdims=True)
    return each / te.where(total == 0, 1.0, total)  # type: ignore[no-any-return]


def _check_scale(q: te.Tensor, scale: float | None, what: str) -> None:
    if scale is None and not isinstance(q.shape[-1], int):
        raise refuse(what, f"scale: expected a number where the features of q are not known, found {q!r}")


@op
def streaming_attention(
    q: te.Tensor, k: te.Tensor, v: te.Tensor, causal: bool = False, scale: float | None = None
) -> te.Tensor:
    """attention in one pass over the keys, by a reducer of (greatest score, sum of weights, weighted value).

    Neither the softmax nor its maximum is a stage of its own: between keys, three numbers are kept for each element.
    """
    _check(q, k, v, "streaming_attention")
    _check_scale(q, scale, "streaming_attention")
    dtype = widened_float(q.dtype)
    scores, values = (te.cast(t, dtype) for t in (_scores(q, k, scale, None, causal), v))
    (s,) = loops(k.shape[-2], name="s")

    def combine(a: Any, b: Any) -> Any:
        top = te.maximum(a[0], b[0])
        left, right = (shrunk(c[0], top) for c in (a, b))
        return top, a[1] * left + b[1] * right, a[2] * left + b[2] * right

    online = te.reducer(combine, (float("-inf"), 0.0, 0.0))

    def element(*i: Any) -> Any:
        score_at, value_at = (*i[:-1], s), (*i[:-2], s, i[-1])
        return online((scores[score_at], te.const(1.0, dtype), values[value_at]), axis=s)

    _, weight, value = te.compute((*q.shape[:-1], v.shape[-1]), element, name=("top", "weight", "value"))
    found = te.compute(value.shape, lambda *i: value[i] / weight[i], name="streaming_attention")
    return te.cast(found, q.dtype)  # type: ignore[no-any-return]
