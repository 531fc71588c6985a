"""Windows: pooling with and without overlap, stencils with every boundary mode."""

from __future__ import annotations

from typing import Any

import tedsl as te
from tests.autodiff.catalogue.entry import Entry, distinct, loops, tensor

__all__ = ["ENTRIES"]


def pool(kind: str, kernel: int, stride: int) -> Entry:
    def build(n: int) -> Any:
        x = tensor("x", 2, 6 * n + kernel, 5 * n + kernel)
        p, q = loops(kernel, kernel)
        shape = (2, (6 * n) // stride + 1, (5 * n) // stride + 1)

        def body(c: Any, i: Any, j: Any) -> Any:
            value = x[c, i * stride + p, j * stride + q]
            return te.max(value, axis=(p, q)) if kind == "max" else te.sum(value / kernel**2, axis=(p, q))

        return te.compute(shape, body, name="Y"), [x]

    def oracle(x: Any) -> Any:
        from torch.nn import functional

        return getattr(functional, f"{kind}_pool2d")(x[None], kernel, stride)[0]

    def jax_oracle(x: Any) -> Any:
        from jax import lax

        window, steps = (1, kernel, kernel), (1, stride, stride)
        if kind == "max":
            return lax.reduce_window(x, -float("inf"), lax.max, window, steps, "VALID")
        return lax.reduce_window(x / kernel**2, 0.0, lax.add, window, steps, "VALID")

    return Entry(
        f"{kind} pool k{kernel} s{stride}", build, oracle, jax_oracle, smooth=kind != "max", feed={"x": distinct}
    )


def padded_average(n: int) -> Any:
    x = tensor("x", 2, 6 * n, 5 * n)
    p, q = loops(3, 3)
    body = lambda c, i, j: te.sum(x.at(c, i + p - 1, j + q - 1, mode="zero"), axis=(p, q)) / 9.0  # noqa: E731
    return te.compute(x.shape, body, name="Y"), [x]


def padded_average_oracle(x: Any) -> Any:
    from torch.nn import functional

    return functional.avg_pool2d(x[None], 3, 1, padding=1)[0]


def global_average(n: int) -> Any:
    x = tensor("x", 3, 6 * n, 5 * n)
    return x.mean((1, 2)), [x]


TORCH_MODE = {"zero": "constant", "clamp": "replicate", "reflect": "reflect", "wrap": "circular"}
JAX_MODE = {"zero": "constant", "clamp": "edge", "reflect": "reflect", "wrap": "wrap"}


def stencil(size: int, mode: str, nonlinear: bool) -> Entry:
    """A window of weights (an input) over an image, or fixed taps of which each goes through tanh."""
    radius = size // 2

    def build(n: int) -> Any:
        x = tensor("x", 6 * n + 2, 7 * n + 1)
        rows, columns = x.shape
        if nonlinear:
            taps = [(p, q) for p in range(-radius, radius + 1) for q in range(-radius, radius + 1)]

            def sum_of_taps(i: Any, j: Any) -> Any:
                return sum(te.tanh(x.at(i + p, j + q, mode=mode)) * (p + 2 * q + 0.5) for p, q in taps)

            return te.compute(x.shape, sum_of_taps, name="Y"), [x]
        w = tensor("w", size, size)
        p, q = loops(size, size)
        if mode == "error":
            body = lambda i, j: te.sum(x[i + p, j + q] * w[p, q], axis=(p, q))  # noqa: E731
            return te.compute((rows - size + 1, columns - size + 1), body, name="Y"), [x, w]

        def windowed(i: Any, j: Any) -> Any:
            return te.sum(x.at(i + p - radius, j + q - radius, mode=mode) * w[p, q], axis=(p, q))

        return te.compute(x.shape, windowed, name="Y"), [x, w]

    def weights(xp: Any) -> Any:
        taps = range(-radius, radius + 1)
        return xp.asarray([[p + 2 * q + 0.5 for q in taps] for p in taps], dtype=xp.float64)

    def torch_oracle(x: Any, *w: Any) -> Any:
        import torch
        from torch.nn import functional

        value, kernel = (torch.tanh(x), weights(torch)) if nonlinear else (x, w[0])
        if mode != "error":
            value = functional.pad(value[None, None], [radius] * 4, mode=TORCH_MODE[mode])[0, 0]
        return functional.conv2d(value[None, None], kernel[None, None])[0, 0]

    def jax_oracle(x: Any, *w: Any) -> Any:
        import jax.numpy as jnp

        value, kernel = (jnp.tanh(x), weights(jnp)) if nonlinear else (x, w[0])
        if mode != "error":
            value = jnp.pad(value, radius, mode=JAX_MODE[mode])
        rows, columns = value.shape[0] - size + 1, value.shape[1] - size + 1
        return sum(kernel[p, q] * value[p : p + rows, q : q + columns] for p in range(size) for q in range(size))

    kind = "taps" if nonlinear else "weighted"
    return Entry(
        f"stencil {size}x{size} {mode}, {kind}", build, torch_oracle, jax_oracle, grid=not nonlinear and size != 3
    )


ENTRIES = [
    *(pool(kind, k, s) for kind in ("max", "avg") for k, s in ((2, 2), (3, 2), (3, 1), (5, 3))),
    Entry("avg pool padded", padded_average, padded_average_oracle),
    Entry("global average", global_average, lambda x: x.mean((1, 2)), lambda x: x.mean((1, 2))),
    *(stencil(size, mode, False) for size in (2, 3, 5) for mode in ("error", "zero", "clamp", "reflect", "wrap") if size != 2 or mode == "error"),
    *(stencil(3, mode, True) for mode in ("zero", "clamp", "reflect", "wrap")),
    stencil(5, "clamp", True),
]  # fmt: skip
