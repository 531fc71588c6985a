"""What `make bench` measures: each workload as a program, its arrays, and the same computation in PyTorch.

A gradient is measured by itself where PyTorch offers it by itself (products, convolutions), else with the forward,
as a training step does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.imaging import imaging
from benchmarks.workload import Workload, both, floats, tensor

__all__ = ["Workload", "workloads"]

_RANDOM = np.random.default_rng(0)


def workloads() -> Iterator[Workload]:
    """Every workload, one after another."""
    yield from _matmuls()
    yield from _convolutions()
    yield from _pools()
    yield from _rows()
    yield from _scans()
    yield from _scatters()
    yield from _stencils()
    yield from imaging()


def _matmuls() -> Iterator[Workload]:
    for m, k, n in ((256, 256, 256), (1024, 1024, 1024), (2048, 2048, 2048), (1024, 64, 1024)):
        a, b, g = tensor("a", m, k), tensor("b", k, n), tensor("g", m, n)
        c = a @ b
        da, db = te.differentiate(c, [a, b], head=g)
        name = f"matmul {m}x{k}x{n}" if len({m, k, n}) > 1 else f"matmul {m}"
        work = 2.0 * m * k * n
        cases: list[tuple[str, list[te.Tensor], te.Tensor, Callable[..., Any]]] = [
            ("forward", [a, b], c, lambda x, y: x @ y),
            ("gradient a", [g, b], da, lambda x, y: x @ y.T),
            ("gradient b", [a, g], db, lambda x, y: x.T @ y),
        ]
        for part, inputs, output, peer in cases:
            yield Workload("matmul", f"{name}, {part}", 0.9, inputs, [output], floats(inputs), peer, work)


def _convolutions() -> Iterator[Workload]:
    shapes = {
        "3x3": (64, 56, 3, 1, 1, 1), "3x3 stride 2": (64, 56, 3, 2, 1, 1), "3x3 dilation 2": (64, 56, 3, 1, 2, 2),
        "1x1": (64, 56, 1, 1, 0, 1), "7x7 stride 2": (3, 224, 7, 2, 3, 1),
    }  # fmt: skip
    for name, (ci, h, k, stride, pad, dilation) in shapes.items():
        out = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
        x, w, g = tensor("x", 4, ci, h, h), tensor("w", 64, ci, k, k), tensor("g", 4, 64, out, out)

        def body(
            b: Any, o: Any, i: Any, j: Any, x: Any = x, w: Any = w, s: int = stride, p: int = pad, d: int = dilation
        ) -> Any:
            return te.sum(lambda c, u, v: x.at(b, c, i * s + u * d - p, j * s + v * d - p, mode="zero") * w[o, c, u, v])

        y = te.compute((4, 64, out, out), body, name="y")
        dx, dw = te.differentiate(y, [x, w], head=g)
        settings = ([stride] * 2, [pad] * 2, [dilation] * 2)

        def forward(x: Any, w: Any, s: Any = settings) -> Any:
            return F.conv2d(x, w, None, *s)

        def backward(g: Any, x: Any, w: Any, mask: list[bool], s: Any) -> Any:
            found = torch.ops.aten.convolution_backward(g, x, w, None, *s, False, [0, 0], 1, mask)
            return next(f for f in found if f is not None)

        shape_x, shape_w = torch.zeros(x.shape), torch.zeros(w.shape)
        cases: list[tuple[str, list[te.Tensor], te.Tensor, Callable[..., Any]]] = [
            ("forward", [x, w], y, forward),
            (
                "data gradient",
                [g, w],
                dx,
                lambda g, w, z=shape_x, s=settings: backward(g, z, w, [True, False, False], s),
            ),
            (
                "weight gradient",
                [g, x],
                dw,
                lambda g, x, z=shape_w, s=settings: backward(g, x, z, [False, True, False], s),
            ),
        ]
        for part, inputs, output, peer in cases:
            work = 2.0 * 4 * 64 * out * out * ci * k * k
            yield Workload("convolution", f"{name}, {part}", 0.85, inputs, [output], floats(inputs), peer, work)


def _pools() -> Iterator[Workload]:
    x = tensor("x", 4, 64, 112, 112)
    w = tensor("w", 64, 3, 3)
    y = te.compute(
        (4, 64, 112, 112),
        lambda b, c, i, j: te.sum(lambda u, v: x.at(b, c, i + u - 1, j + v - 1, mode="zero") * w[c, u, v]),
        name="depthwise",
    )
    yield from both(
        "pools", "depthwise 3x3", 1.2, [x, w], y, lambda x, w: F.conv2d(x, w.reshape(64, 1, 3, 3), None, 1, 1, 1, 64)
    )

    def window(b: Any, c: Any, i: Any, j: Any) -> Any:
        def tap(u: Any, v: Any) -> Any:
            inside = (i * 2 + u >= 1) & (i * 2 + u <= 112) & (j * 2 + v >= 1) & (j * 2 + v <= 112)
            return te.select(inside, x[b, c, i * 2 + u - 1, j * 2 + v - 1], float("-inf"))

        return te.max(tap)

    pooled = te.compute((4, 64, 56, 56), window, name="pooled")
    yield from both("pools", "max pool 3 stride 2", 1.2, [x], pooled, lambda x: F.max_pool2d(x, 3, 2, 1))
    mean = te.compute(
        (4, 64, 56, 56), lambda b, c, i, j: te.sum(lambda u, v: x[b, c, i * 2 + u, j * 2 + v]) * 0.25, name="mean"
    )
    yield from both("pools", "average pool 2", 1.2, [x], mean, lambda x: F.avg_pool2d(x, 2))


def _rows() -> Iterator[Workload]:
    n, m = 4096, 1024
    x = tensor("x", n, m)
    e = te.exp(x - x.max(axis=1, keepdims=True))
    yield from both("rows", "softmax", 1.2, [x], e / e.sum(axis=1, keepdims=True), lambda x: torch.softmax(x, 1))
    shifted = x - x.max(axis=1, keepdims=True)
    logs = shifted - te.log(te.exp(shifted).sum(axis=1, keepdims=True))
    yield from both("rows", "log-softmax", 1.2, [x], logs, lambda x: torch.log_softmax(x, 1))
    centred = x - x.mean(axis=1, keepdims=True)
    normal = centred / te.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
    yield from both("rows", "layer norm", 1.2, [x], normal, lambda x: F.layer_norm(x, (m,)))
    across = x - x.mean(axis=0, keepdims=True)
    batch = across / te.sqrt((across * across).mean(axis=0, keepdims=True) + 1e-5)
    yield from both(
        "rows", "batch norm", 1.2, [x], batch, lambda x: F.batch_norm(x, None, None, training=True, eps=1e-5)
    )
    gelu = 0.5 * x * (1 + te.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    yield from both("rows", "GELU (tanh)", 1.2, [x], gelu, lambda x: F.gelu(x, approximate="tanh"))
    yield Workload("rows", "sum of all", 1.0, [x], [x.sum()], floats([x]), lambda x: x.sum())
    yield Workload("rows", "sum of columns", 1.0, [x], [x.sum(axis=0)], floats([x]), lambda x: x.sum(0))
    turned = te.compute((m, n), lambda i, j: x[j, i] * 1.0, name="turned")
    yield Workload("rows", "transpose", 1.0, [x], [turned], floats([x]), lambda x: x.T.contiguous())


def _scans() -> Iterator[Workload]:
    x = tensor("x", 1024, 1024)
    down = te.scan((1024, 1024), lambda s, t, i: te.select(t == 0, x[0, i], s[t - 1, i] + x[t, i]), axis=0)
    yield Workload("scans", "cumulative sum, axis 0", 1.5, [x], [down], floats([x]), lambda x: x.cumsum(0))
    along = te.scan((1024, 1024), lambda s, i, t: te.select(t == 0, x[i, 0], s[i, t - 1] + x[i, t]), axis=1)
    yield Workload("scans", "cumulative sum, axis 1", 1.5, [x], [along], floats([x]), lambda x: x.cumsum(1))
    decay = te.scan((1024, 1024), lambda s, t, i: te.select(t == 0, x[0, i], 0.9 * s[t - 1, i] + x[t, i]), axis=0)

    def loop(x: Any) -> Any:
        y = torch.empty_like(x)
        y[0] = x[0]
        for t in range(1, 1024):
            torch.add(x[t], y[t - 1], alpha=0.9, out=y[t])
        return y

    yield Workload("scans", "IIR filter, axis 0", 1.5, [x], [decay], floats([x]), loop)


def _scatters() -> Iterator[Workload]:
    rows, width, words = 8192, 128, 10000
    index: te.Tensor = te.placeholder((rows,), "int32", name="index")
    g = tensor("g", rows, width)
    i, j = te.reduce_axis(rows, name="i"), te.reduce_axis(width, name="j")
    table = te.scatter((words, width), axes=[i, j], index=(index[i], j), value=g[i, j], op="add")
    places = _RANDOM.integers(0, words, rows).astype(np.int32)

    def peer(index: Any, g: Any) -> Any:
        return torch.zeros(words, width).index_add_(0, index, g)

    yield Workload("scatters", "embedding gradient", 1.2, [index, g], [table], [places, *floats([g])], peer)


def _stencils() -> Iterator[Workload]:
    x = tensor("x", 2048, 2048)
    u, v = te.reduce_axis(3, name="u"), te.reduce_axis(3, name="v")
    kernel = torch.full((1, 1, 3, 3), 1 / 9)
    modes = {"zero": "constant", "clamp": "replicate", "reflect": "reflect", "wrap": "circular"}
    for mode, padding in modes.items():
        y = te.compute(
            (2048, 2048),
            lambda i, j, mode=mode, u=u, v=v: te.sum(x.at(i + u - 1, j + v - 1, mode=mode), axis=(u, v)) * (1 / 9),
            name="blurred",
        )

        def peer(x: Any, padding: str = padding) -> Any:
            return F.conv2d(F.pad(x[None, None], (1, 1, 1, 1), mode=padding), kernel)[0, 0]

        yield Workload("stencils", f"3x3 mean, {mode}", 2.0, [x], [y], floats([x]), peer)
