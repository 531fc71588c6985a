"""The library on one screen: a convolution layer is written, differentiated, scheduled, compiled, checked and timed.

Run it with `make demo`. It ends with status 1 when the gradient disagrees with finite differences.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tedsl as te

Array = npt.NDArray[Any]

CHANNELS, FILTERS, HEIGHT, WIDTH = 16, 32, 64, 64


def layer(dtype: str) -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    """loss = mean((tanh(conv3x3(x, w) + b) - target)^2), with zeros around the image."""
    x = te.placeholder((CHANNELS, HEIGHT, WIDTH), dtype, name="x")
    w = te.placeholder((FILTERS, CHANNELS, 3, 3), dtype, name="w")
    b = te.placeholder((FILTERS,), dtype, name="b")
    target = te.placeholder((FILTERS, HEIGHT, WIDTH), dtype, name="target")

    conv = te.compute(
        (FILTERS, HEIGHT, WIDTH),
        lambda f, i, j: te.sum(lambda c, di, dj: x.at(c, i + di - 1, j + dj - 1, mode="zero") * w[f, c, di, dj]),
        name="conv",
    )
    act = te.compute((FILTERS, HEIGHT, WIDTH), lambda f, i, j: te.tanh(conv[f, i, j] + b[f]), name="act")
    size = FILTERS * HEIGHT * WIDTH
    loss = te.compute(
        (), lambda: te.sum(lambda f, i, j: (act[f, i, j] - target[f, i, j]) * (act[f, i, j] - target[f, i, j])) / size,
        name="loss",
    )  # fmt: skip
    return [x, w, b, target], conv, loss


def random_arrays(tensors: list[te.Tensor], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal([int(str(n)) for n in t.shape]) * 0.2).astype(str(t.dtype)) for t in tensors]


def milliseconds(call: Callable[[], object], repeats: int = 20) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def worst_error_against_finite_differences(directions: int = 5, eps: float = 1e-5) -> float:
    """Compare <gradient, v> with (loss(p + eps v) - loss(p - eps v)) / (2 eps) in float64, for random v."""
    inputs, _, loss = layer("float64")
    kernel = te.build(inputs, [loss, *te.differentiate(loss, inputs[:3])])
    arrays = random_arrays(inputs, seed=1)
    _, *gradients = kernel(*arrays)
    worst = 0.0
    for seed in range(directions):
        v = random_arrays(inputs[:3], seed=100 + seed)
        above, *_ = kernel(*[p + eps * d for p, d in zip(arrays, v)], arrays[3])
        below, *_ = kernel(*[p - eps * d for p, d in zip(arrays, v)], arrays[3])
        numeric = float(above - below) / (2 * eps)
        exact = sum(float(np.vdot(g, d)) for g, d in zip(gradients, v))
        worst = max(worst, abs(numeric - exact) / abs(exact))
    return worst


def main() -> int:
    print("1. write\n")
    inputs, conv, loss = layer("float32")
    print(f"   {conv}\n   {loss}\n")

    print("2. differentiate\n")
    gradients = te.differentiate(loss, inputs[:3])
    for tensor, gradient in zip(inputs, gradients):
        print(f"   d loss / d {tensor.name}: {gradient}")

    print("\n3. schedule and compile\n")
    arrays = random_arrays(inputs, seed=0)
    forward = te.build(inputs, loss, schedule="default")
    both = te.build(inputs, [loss, *gradients], schedule="default")
    forward(*arrays), both(*arrays)  # a kernel compiles for the layout of its first arrays
    print(f"   forward {forward.stats.compile_ms:.0f} ms, forward and backward {both.stats.compile_ms:.0f} ms")
    print("\n   the loops of the forward:\n")
    print("   " + forward.loop_nest().replace("\n", "\n   "))

    print("4. check against finite differences\n")
    error = worst_error_against_finite_differences()
    print(f"   largest relative error over 5 random directions, float64: {error:.1e}")

    print("\n5. figures\n")
    work = te.work(loss)
    alone, together = milliseconds(lambda: forward(*arrays)), milliseconds(lambda: both(*arrays))
    print(f"   forward              {alone:8.2f} ms   {work.flops / alone / 1e6:6.1f} GFLOP/s")
    print(f"   forward and backward {together:8.2f} ms")
    if error > 1e-6:
        print("\nthe gradient is wrong: expected a relative error below 1e-6", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
