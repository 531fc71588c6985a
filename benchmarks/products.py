"""Matrix products and convolutions, and each of their gradients by itself, as PyTorch offers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.workload import Peer, Workload, floats, tensor

__all__ = ["products"]

CONVOLUTIONS = {  # channels, pixels, window, stride, padding, dilation
    "3x3": (64, 56, 3, 1, 1, 1), "3x3 stride 2": (64, 56, 3, 2, 1, 1), "3x3 dilation 2": (64, 56, 3, 1, 2, 2),
    "1x1": (64, 56, 1, 1, 0, 1), "7x7 stride 2": (3, 224, 7, 2, 3, 1),
}  # fmt: skip


def products() -> Iterator[Workload]:
    """Every workload of this module, one after another."""
    for m, k, n in ((256, 256, 256), (1024, 1024, 1024), (2048, 2048, 2048), (1024, 64, 1024)):
        yield from _matmul(m, k, n)
    for name, sizes in CONVOLUTIONS.items():
        yield from _convolution(name, *sizes)


def _matmul(m: int, k: int, n: int) -> Iterator[Workload]:
    a, b, g = tensor("a", m, k), tensor("b", k, n), tensor("g", m, n)
    c = a @ b
    da, db = te.differentiate(c, [a, b], head=g)
    name = f"matmul {m}x{k}x{n}" if len({m, k, n}) > 1 else f"matmul {m}"
    cases: list[tuple[str, list[te.Tensor], te.Tensor, Peer]] = [
        ("forward", [a, b], c, lambda x, y: x @ y),
        ("gradient a", [g, b], da, lambda x, y: x @ y.T),
        ("gradient b", [a, g], db, lambda x, y: x.T @ y),
    ]
    for part, inputs, output, peer in cases:
        yield Workload(
            "matmul", f"{name}, {part}", 0.9, inputs, [output], floats(inputs), peer, peer, peer, 2.0 * m * k * n
        )


def _convolution(name: str, ci: int, h: int, k: int, stride: int, pad: int, dilation: int) -> Iterator[Workload]:
    out = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    x, w, g = tensor("x", 4, ci, h, h), tensor("w", 64, ci, k, k), tensor("g", 4, 64, out, out)

    def body(b: Any, o: Any, i: Any, j: Any) -> Any:
        def tap(c: Any, u: Any, v: Any) -> Any:
            return x.at(b, c, i * stride + u * dilation - pad, j * stride + v * dilation - pad, mode="zero")

        return te.sum(lambda c, u, v: tap(c, u, v) * w[o, c, u, v])

    y = te.compute((4, 64, out, out), body, name="y")
    dx, dw = te.differentiate(y, [x, w], head=g)
    settings = ([stride] * 2, [pad] * 2, [dilation] * 2)

    def forward(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, None, *settings)

    def backward(g: Any, x: Any, w: Any, *, data: bool) -> Any:
        mask = [data, not data, False]
        found = torch.ops.aten.convolution_backward(g, x, w, None, *settings, False, [0, 0], 1, mask)
        return next(f for f in found if f is not None)

    def jax_forward(x: Any, w: Any) -> Any:
        import jax

        return jax.lax.conv_general_dilated(x, w, [stride] * 2, [(pad, pad)] * 2, rhs_dilation=[dilation] * 2)

    def transposed(by: int) -> Peer:
        """The gradient by argument `by`; the other argument and the head are given."""
        import jax
        import jax.numpy as jnp

        zeros = jnp.zeros((x, w)[by].shape)

        def gradient(g: Any, other: Any) -> Any:
            given = (zeros, other) if by == 0 else (other, zeros)
            return jax.vjp(jax_forward, *given)[1](g)[by]

        return gradient

    shape_x, shape_w = torch.zeros(x.shape), torch.zeros(w.shape)
    cases: list[tuple[str, list[te.Tensor], te.Tensor, Peer, Peer]] = [
        ("forward", [x, w], y, forward, jax_forward),
        ("data gradient", [g, w], dx, lambda g, w: backward(g, shape_x, w, data=True), _later(transposed, 0)),
        ("weight gradient", [g, x], dw, lambda g, x: backward(g, x, shape_w, data=False), _later(transposed, 1)),
    ]
    work = 2.0 * 4 * 64 * out * out * ci * k * k
    for part, inputs, output, peer, jax_peer in cases:
        yield Workload(
            "convolution", f"{name}, {part}", 0.85, inputs, [output], floats(inputs), peer, jax_peer, flops=work
        )


def _later(make: Any, by: int) -> Peer:
    """A peer that needs JAX to be made, made when it is called."""
    return lambda *arrays: make(by)(*arrays)
