"""Pools, depthwise convolutions, and functions of rows: softmax, norms, chains of elements, sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.workload import Peer, Workload, both, floats, tensor

__all__ = ["jax_function", "layers"]


def layers() -> Iterator[Workload]:
    """Every workload of this module, one after another."""
    yield from _pools()
    yield from _rows()
    yield from _sums()


# ------------------------------------------------------------------------------------------------------------- pools


def _pools() -> Iterator[Workload]:
    x = tensor("x", 4, 64, 112, 112)
    w = tensor("w", 64, 3, 3)
    y = te.compute(
        (4, 64, 112, 112),
        lambda b, c, i, j: te.sum(lambda u, v: x.at(b, c, i + u - 1, j + v - 1, mode="zero") * w[c, u, v]),
        name="depthwise",
    )
    yield from both(
        "pools", "depthwise 3x3", 1.2, [x, w], y,
        lambda x, w: F.conv2d(x, w.reshape(64, 1, 3, 3), None, 1, 1, 1, 64), _jax_depthwise,
    )  # fmt: skip

    def window(b: Any, c: Any, i: Any, j: Any) -> Any:
        def tap(u: Any, v: Any) -> Any:
            inside = (i * 2 + u >= 1) & (i * 2 + u <= 112) & (j * 2 + v >= 1) & (j * 2 + v <= 112)
            return te.select(inside, x[b, c, i * 2 + u - 1, j * 2 + v - 1], float("-inf"))

        return te.max(tap)

    pooled = te.compute((4, 64, 56, 56), window, name="pooled")
    largest = _jax_window("max", 3, -np.inf, [(0, 0), (0, 0), (1, 1), (1, 1)])
    yield from both("pools", "max pool 3 stride 2", 1.2, [x], pooled, lambda x: F.max_pool2d(x, 3, 2, 1), largest)
    mean = te.compute(
        (4, 64, 56, 56), lambda b, c, i, j: te.sum(lambda u, v: x[b, c, i * 2 + u, j * 2 + v]) * 0.25, name="mean"
    )
    total = _jax_window("add", 2, 0.0, "VALID")
    yield from both(
        "pools", "average pool 2", 1.2, [x], mean, lambda x: F.avg_pool2d(x, 2), lambda x: total(x) * 0.25
    )  # fmt: skip


def _jax_depthwise(x: Any, w: Any) -> Any:
    import jax

    return jax.lax.conv_general_dilated(x, w[:, None], [1, 1], [(1, 1)] * 2, feature_group_count=64)


def _jax_window(name: str, side: int, start: float, padding: Any) -> Peer:
    def pooled(x: Any) -> Any:
        import jax

        return jax.lax.reduce_window(x, start, getattr(jax.lax, name), (1, 1, side, side), (1, 1, 2, 2), padding)

    return pooled


# -------------------------------------------------------------------------------------------------------------- rows


def _rows() -> Iterator[Workload]:
    x = tensor("x", 4096, 1024)
    e = te.exp(x - x.max(axis=1, keepdims=True))
    yield from both(
        "rows",
        "softmax",
        1.2,
        [x],
        e / e.sum(axis=1, keepdims=True),
        lambda x: torch.softmax(x, 1),
        jax_function("softmax"),
    )
    shifted = x - x.max(axis=1, keepdims=True)
    logs = shifted - te.log(te.exp(shifted).sum(axis=1, keepdims=True))
    yield from both(
        "rows", "log-softmax", 1.2, [x], logs, lambda x: torch.log_softmax(x, 1), jax_function("log_softmax")
    )  # fmt: skip
    centred = x - x.mean(axis=1, keepdims=True)
    normal = centred / te.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
    yield from both("rows", "layer norm", 1.2, [x], normal, lambda x: F.layer_norm(x, (1024,)), _jax_norm(1))
    across = x - x.mean(axis=0, keepdims=True)
    batch = across / te.sqrt((across * across).mean(axis=0, keepdims=True) + 1e-5)
    yield from both(
        "rows", "batch norm", 1.2, [x], batch, lambda x: F.batch_norm(x, None, None, training=True, eps=1e-5),
        _jax_norm(0),
    )  # fmt: skip
    gelu = 0.5 * x * (1 + te.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    yield from both(
        "rows", "GELU (tanh)", 1.2, [x], gelu, lambda x: F.gelu(x, approximate="tanh"), jax_function("gelu")
    )  # fmt: skip


def jax_function(name: str) -> Peer:
    """A function of `jax.nn`, for a library that may not be there."""

    def call(x: Any) -> Any:
        import jax

        return getattr(jax.nn, name)(x)

    return call


def _jax_norm(axis: int) -> Peer:
    def norm(x: Any) -> Any:
        import jax.numpy as jnp

        return (x - x.mean(axis, keepdims=True)) / jnp.sqrt(x.var(axis, keepdims=True) + 1e-5)

    return norm


# -------------------------------------------------------------------------------------------------------------- sums


def _sums() -> Iterator[Workload]:
    n, m = 4096, 1024
    x = tensor("x", n, m)
    turned = te.compute((m, n), lambda i, j: x[j, i] * 1.0, name="turned")
    cases: list[tuple[str, te.Tensor, Peer, Peer, Peer]] = [
        ("sum of all", x.sum(), lambda x: x.sum(), lambda x: x.sum(), np.sum),
        ("sum of columns", x.sum(axis=0), lambda x: x.sum(0), lambda x: x.sum(0), lambda x: x.sum(0)),
        ("transpose", turned, lambda x: x.T.contiguous(), lambda x: x.T, lambda x: np.ascontiguousarray(x.T)),
    ]
    for name, y, torch_peer, jax_peer, numpy_peer in cases:
        yield Workload("rows", name, 1.0, [x], [y], floats([x]), torch_peer, jax_peer, numpy_peer)
