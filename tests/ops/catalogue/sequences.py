"""Resampling, places that are data, attention, recurrences and running sums beside PyTorch and JAX."""

from __future__ import annotations

from typing import Any

import tedsl as te
from tedsl import ops
from tests.autodiff.catalogue.entry import Entry, distinct, in_range
from tests.ops.catalogue.line import entry, like_torch

__all__ = ["ENTRIES"]


def image(n: int) -> Any:
    return {"x": (2, 3, 4 * n + 1, 3 * n)}


def torch_function(name: str, *args: Any, **options: Any) -> Any:
    """torch.name(*arrays, *args, **options); only the first result of a tuple."""

    def oracle(*arrays: Any) -> Any:
        import torch

        found = getattr(torch, name)(*arrays, *args, **options)
        return found[0] if isinstance(found, tuple) else found

    return oracle


def resized(label: str, shape: Any = image, **options: Any) -> Entry:
    return like_torch("interpolate", shape, label, **options)


def wide(n: int) -> Any:
    return {"x": (2, 3, 4 * n, 6 * n)}


RESAMPLING = [
    resized("nearest x2", scale_factor=2),
    resized("nearest (9, 4)", lambda n: {"x": (1, 2, 6, 7)}, size=(9, 4)),
    resized("bilinear x2", scale_factor=2, mode="bilinear"),
    resized("bilinear x(3, 2)", scale_factor=(3, 2), mode="bilinear"),
    resized("bilinear down", lambda n: {"x": (1, 3 * n, 7, 9)}, size=(4, 5), mode="bilinear"),
    resized("bilinear corners", lambda n: {"x": (1, 3 * n, 7, 6)}, size=(10, 9), mode="bilinear", align_corners=True),
    resized("linear x2", lambda n: {"x": (2, 3, 5 * n)}, scale_factor=2, mode="linear"),
    resized("trilinear x2", lambda n: {"x": (1, 2, n + 1, n + 2, n + 1)}, scale_factor=2, mode="trilinear"),
    resized("bicubic x2", scale_factor=2, mode="bicubic"),
    entry("interpolate NHWC", lambda x: ops.interpolate(x, scale_factor=2, mode="bilinear", layout="NHWC"), lambda n: {"x": (2, 4 * n, 3 * n, 3)},
          lambda x: functional("interpolate", x.movedim(-1, 1), scale_factor=2, mode="bilinear").movedim(1, -1)),
    *(entry(f"pad {mode}", lambda x, mode=mode: ops.pad(x, (2, 1, 1, 2), mode), image, lambda x, mode=mode: functional("pad", x, (2, 1, 1, 2), mode))
      for mode in ("reflect", "replicate", "circular")),
    entry("pad constant", lambda x: ops.pad(x, (2, 1, 0, 3), value=0.5), image, lambda x: functional("pad", x, (2, 1, 0, 3), value=0.5)),
    like_torch("pixel_shuffle", lambda n: {"x": (2, 8, 3 * n, 2 * n)}, upscale_factor=2),
    like_torch("pixel_unshuffle", lambda n: {"x": (2, 2, 4 * n, 6 * n)}, downscale_factor=2),
    like_torch("channel_shuffle", lambda n: {"x": (2, 6, 3 * n)}, groups=2),
    like_torch("unfold", wide, "k3 s2 p1", kernel_size=3, stride=2, padding=1),
    like_torch("unfold", wide, "k2", kernel_size=2),
    entry("fold k3 s2 p1", lambda x: fold(ops, x), lambda n: {"x": (2, 3 * 9, 4 * n * 4 * n)}, lambda x: fold(None, x)),
]  # fmt: skip


def functional(name: str, *arrays: Any, **options: Any) -> Any:
    from torch.nn import functional as f

    return getattr(f, name)(*arrays, **options)


def fold(where: Any, x: Any) -> Any:
    side = 2 * int(x.shape[2] ** 0.5)
    options = {"output_size": (side, side), "kernel_size": 3, "padding": 1, "stride": 2}
    return where.fold(x, **options) if where else functional("fold", x, **options)


INDEX: dict[str, Any] = {"integers": ("index",), "affine": False}
AT: dict[str, Any] = {**INDEX, "feed": {"index": in_range(4)}}


def rows(n: int) -> Any:
    return {"x": (4, 3 * n), "index": (6, 3 * n)}


def scattered(n: int) -> Any:
    return {"x": (4, 3 * n), "index": (5, 3 * n), "src": (5, 3 * n)}


def segments(name: str) -> Any:
    def oracle(x: Any, index: Any) -> Any:
        import jax

        return getattr(jax.ops, name)(x, index, 4)

    return oracle


def reduced(kind: str) -> Entry:
    return entry(
        f"scatter_reduce {kind}", lambda x, i, s: ops.scatter_reduce(x, 0, i, s, kind), scattered,
        lambda x, i, s: x.scatter_reduce(0, i, s, kind), **AT,
    )  # fmt: skip


INDEXING = [
    entry("embedding", ops.embedding, lambda n: {"index": (2, 3 * n), "weight": (4, 5)}, lambda i, w: functional("embedding", i, w), **AT),
    entry("gather", lambda x, i: ops.gather(x, 0, i), rows, lambda x, i: x.gather(0, i), **AT),
    entry("index_select", lambda x, i: ops.index_select(x, 1, i), lambda n: {"x": (3, 4, 2), "index": (5 * n,)}, lambda x, i: x.index_select(1, i), **AT),
    entry("index_add", lambda x, i, s: ops.index_add(x, 0, i, s), lambda n: {"x": (4, 3 * n), "index": (6,), "src": (6, 3 * n)},
          lambda x, i, s: x.index_add(0, i, s), **AT),
    entry("scatter_add", lambda x, i, s: ops.scatter_add(x, 0, i, s), scattered, lambda x, i, s: x.scatter_add(0, i, s), **AT),
    *map(reduced, ("sum", "prod", "amax", "amin")),
    entry("segment_sum", lambda x, i: ops.segment_sum(x, i, 4), lambda n: {"x": (8 * n, 3), "index": (8 * n,)}, jax=segments("segment_sum"), **AT),
    entry("segment_max", lambda x, i: ops.segment_max(x, i, 4), lambda n: {"x": (30 * n, 3), "index": (30 * n,)}, jax=segments("segment_max"), **AT),
    entry("one_hot", lambda i, w: te.matmul(ops.one_hot(i, 4, "float64"), w), lambda n: {"index": (6 * n,), "w": (4, 3)},
          lambda i, w: functional("one_hot", i, 4).double() @ w, **AT),
    entry("masked_fill", lambda x: ops.masked_fill(x, x > 0.2, 3.0), image, lambda x: x.masked_fill(x > 0.2, 3.0)),
    entry("top1", lambda x: ops.top1(x, 1)[0], image, lambda x: x.topk(1, 1)[0][:, 0]),
]  # fmt: skip


def heads(n: int) -> Any:
    return {"q": (2, 2, 3 * n, 4), "k": (2, 2, 4 * n, 4), "v": (2, 2, 4 * n, 3)}


def few(n: int) -> Any:
    return {"q": (1, 2 * n, 3), "k": (1, 3 * n, 3), "v": (1, 3 * n, 2)}


def attended(**options: Any) -> Any:
    return lambda q, k, v: functional("scaled_dot_product_attention", q, k, v, **options)


ATTENTION = [
    entry("attention", ops.attention, heads, attended()),
    entry("attention causal", lambda q, k, v: ops.attention(q, k, v, causal=True, scale=0.7), heads, attended(is_causal=True, scale=0.7)),
    entry("attention mask", lambda q, k, v, m: ops.attention(q, k, v, m), lambda n: {**heads(n), "mask": (3 * n, 4 * n)},
          lambda q, k, v, m: functional("scaled_dot_product_attention", q, k, v, attn_mask=m)),
    entry("streaming_attention", ops.streaming_attention, few, attended()),
    entry("streaming_attention causal", lambda q, k, v: ops.streaming_attention(q, k, v, causal=True, scale=0.7), few, attended(is_causal=True, scale=0.7)),
]  # fmt: skip


def cell(gates: int) -> Any:
    def shapes(n: int) -> Any:
        i, h = 2 * n + 1, n + 2
        states = {"h": (2, h), "c": (2, h)} if gates == 4 else {"h": (2, h)}
        return {
            "x": (2, i),
            **states,
            "w_ih": (gates * h, i),
            "w_hh": (gates * h, h),
            "b_ih": (gates * h,),
            "b_hh": (gates * h,),
        }

    return shapes


def sequence(gates: int) -> Any:
    return lambda n: {**cell(gates)(n), "x": (4, 2, 2 * n + 1)}


def whole(name: str) -> Any:
    """The states of every step by torch's layer."""

    def oracle(x: Any, *rest: Any) -> Any:
        import torch

        states, weights = (rest[:2], rest[2:]) if name == "lstm" else (rest[:1], rest[1:])
        start = tuple(s[None] for s in states)
        return getattr(torch, name)(
            x, start if name == "lstm" else start[0], weights, True, 1, 0.0, True, False, False
        )[0]

    return oracle


def backwards(x: Any, *rest: Any) -> Any:
    return whole("rnn_relu")(x.flip(0), *rest).flip(0)


def lstm_cell(x: Any, h: Any, c: Any, *weights: Any) -> Any:
    import torch

    return torch.lstm_cell(x, (h, c), *weights)


def unrolled_lstm(x: Any, h: Any, c: Any, *weights: Any) -> Any:
    import torch

    states = [(h, c)]
    for row in x.flip(0):
        states.append(torch.lstm_cell(row, states[-1], *weights))
    return tuple(torch.stack([s[k] for s in states[:0:-1]]) for k in (0, 1))


def unrolled_gru(x: Any, h: Any, *weights: Any) -> Any:
    import torch

    states = [h]
    for row in x.flip(0):
        states.append(torch.gru_cell(row, states[-1], *weights))
    return torch.stack(states[:0:-1])


RECURRENT = [
    entry("rnn_cell", ops.rnn_cell, cell(1), torch_function("rnn_tanh_cell")),
    entry("rnn_cell relu", lambda *a: ops.rnn_cell(*a, nonlinearity="relu"), cell(1), torch_function("rnn_relu_cell")),
    entry("lstm_cell", ops.lstm_cell, cell(4), lstm_cell),
    entry("gru_cell", ops.gru_cell, cell(3), torch_function("gru_cell")),
    entry("rnn", ops.rnn, sequence(1), whole("rnn_tanh")),
    entry("rnn reverse relu", lambda *a: ops.rnn(*a, nonlinearity="relu", reverse=True), sequence(1), backwards),
    entry("lstm", lambda *a: ops.lstm(*a)[0], sequence(4), whole("lstm")),
    entry("lstm reverse, cells", lambda *a: ops.lstm(*a, reverse=True), sequence(4), unrolled_lstm),
    entry("gru", ops.gru, sequence(3), whole("gru")),
    entry(
        "gru reverse, no biases",
        lambda *a: ops.gru(*a, reverse=True),
        lambda n: dict(list(sequence(3)(n).items())[:-2]),
        unrolled_gru,
    ),
]

CUMULATIVE = [
    *(entry(f"{name} axis {axis}", lambda x, name=name, axis=axis: getattr(ops, name)(x, axis), image, torch_function(name, dim=axis))
      for name, axis in (("cumsum", 2), ("cumsum", 1), ("cumprod", 3), ("logcumsumexp", 2))),
    *(entry(name, lambda x, name=name: getattr(ops, name)(x, 2)[0], image, torch_function(name, dim=2), feed={"x": distinct})
      for name in ("cummax", "cummin")),
]  # fmt: skip

ENTRIES = [*RESAMPLING, *INDEXING, *ATTENTION, *RECURRENT, *CUMULATIVE]
