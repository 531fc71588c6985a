"""Rows of the table for attention: softmax(q k' scale + mask) v, and its derivative.

Of the forward pass the derivative reads the result and the logarithm of each row's sum, so that no row is summed
twice. A row that is masked everywhere gives 0 and sends nothing back; its logarithm is 0, as in PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

from tedsl.bridges.fx.rows.arrays import Row, fresh, single
from tedsl.lang import functions as fn
from tedsl.lang.arrays import where
from tedsl.lang.compute import compute
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array


def _grouped(x: Tensor, heads: int) -> Tensor:
    """Heads of queries that share a head of keys as one head with the rows of all."""
    batch, count, length, size = x.shape
    return x if count == heads else x.reshape((batch, heads, count // heads * length, size))


def _apart(x: Tensor, heads: int) -> Tensor:
    """Heads as they were before they were grouped."""
    batch, count, length, size = x.shape
    return x if count == heads else x.reshape((batch, heads, length // (heads // count), size))


def _over_keys(rows: Tensor, keys: Tensor) -> Tensor:
    """rows @ keys, head by head."""
    found: Tensor = _grouped(rows, keys.shape[1]) @ keys
    return _apart(found, rows.shape[1])


def _over_queries(rows: Tensor, queries: Tensor, heads: int) -> Tensor:
    """rows' @ queries: for each head of keys, over all queries that read it."""
    found: Tensor = _grouped(rows, heads).transpose(0, 1, 3, 2) @ _grouped(queries, heads)
    return found


def _scores(q: Tensor, k: Tensor, is_causal: bool, mask: Any, scale: float) -> Tensor:
    """What the softmax is taken of."""
    product: Tensor = _over_keys(q, k.transpose(0, 1, 3, 2)) * scale
    if mask is not None and mask.dtype.is_bool:
        product = where(mask, product, -math.inf)
    elif mask is not None:
        product = product + mask
    if is_causal:
        product = compute(product.shape, lambda *at: fn.select(at[-1] <= at[-2], product[at], -math.inf), name="causal")
    return product


def _options(q: Array, dropout: float, mask: Any, scale: Any) -> tuple[Any, float]:
    """The mask as a tensor, and the factor."""
    if dropout:
        raise NotImplementedError("attention with dropout")
    return None if mask is None else mask.value, 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def _attention(
    q: Array, k: Array, v: Array, dropout: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
    scale: Any = None,
) -> tuple[Array, Array]:  # fmt: skip
    """The result, and the logarithms of the sums."""
    scores = _scores(q.value, k.value, is_causal, *_options(q, dropout, attn_mask, scale))
    top = scores.max(-1, keepdims=True)
    is_masked = top == -math.inf
    start = where(is_masked, 0.0, top)
    weights = fn.exp(scores - start)
    sums = where(is_masked, 1.0, weights.sum(-1, keepdims=True))
    made = _over_keys(weights / sums, v.value)
    return fresh(made), fresh((start + fn.log(sums))[:, :, :, 0])


def _attention_backward(
    g: Array, q: Array, k: Array, v: Array, out: Array, sums: Array, dropout: float, is_causal: bool, *,
    attn_mask: Any = None, scale: Any = None,
) -> list[Array]:  # fmt: skip
    """The adjoints of q, k and v."""
    mask, factor = _options(q, dropout, attn_mask, scale)
    heads = k.shape[1]
    logarithms: Tensor = sums.value
    weights = fn.exp(_scores(q.value, k.value, is_causal, mask, factor) - logarithms[:, :, :, None])
    of_weights = _over_keys(g.value, v.value.transpose(0, 1, 3, 2))
    inner = (g.value * out.value).sum(-1, keepdims=True)
    of_scores = weights * (of_weights - inner) * factor
    return [
        fresh(_over_keys(of_scores, k.value)),
        fresh(_over_queries(of_scores, q.value, heads)),
        fresh(_over_queries(weights, g.value, heads)),
    ]


ATTENTION: dict[str, Row] = {
    "_scaled_dot_product_flash_attention_for_cpu": single(_attention),
    "_scaled_dot_product_flash_attention_for_cpu_backward": single(_attention_backward),
}  # fmt: skip
