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
TILES = (
    (8, 32, 16),
    (4, 16, 8),
)  # filters, columns, columns in a vector: for 32 wide registers, for 16 of half the width


def layer(dtype: str) -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    """loss = mean((tanh(conv3x3(x, w) + b) - target)^2), with zeros around the image."""
    x = te.placeholder((CHANNELS, HEIGHT, WIDTH), dtype, name="x")
    w = te.placeholder((FILTERS, CHANNELS, 3, 3), dtype, name="w")
    b = te.placeholder((FILTERS,), dtype, name="b")
    target = te.placeholder((FILTERS, HEIGHT, WIDTH), dtype, name="target")

    padded = te.compute(
        (CHANNELS, HEIGHT + 2, WIDTH + 2), lambda c, i, j: x.at(c, i - 1, j - 1, mode="zero"), name="padded"
    )
    conv = te.compute(
        (FILTERS, HEIGHT, WIDTH),
        lambda f, i, j: te.sum(lambda c, di, dj: padded[c, i + di, j + dj] * w[f, c, di, dj]),
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


def schedule_by_hand(conv: te.Tensor, filters: int, columns: int, lanes: int) -> te.Schedule:
    """Threads over the rows; the sums of a tile stay in registers while window and channels are walked."""
    schedule = te.Schedule(conv)
    sums = schedule[conv].cache_write("sums")
    fo, jo, fi, ji = schedule[conv].tile("f", "j", filters, columns)
    schedule[conv].reorder("i", fo, jo, fi, ji).parallel("i").vectorize(ji, lanes)
    sums.compute_at(conv, jo).bound_extent("f", filters).bound_extent("j", columns)
    sums.init.vectorize("j", lanes).unroll("j").unroll("f")
    sums.reorder("c", "di", "dj", "f", "j").vectorize("j", lanes).unroll("j").unroll("f")
    schedule["padded"].parallel("c").vectorize("j", lanes)
    return schedule


def indented(text: object) -> str:
    return "   " + str(text).replace("\n", "\n   ").rstrip()


def main() -> int:
    inputs, conv, loss = layer("float32")
    arrays = random_arrays(inputs, seed=0)
    print("1. write\n")
    print(indented(f"{conv}\n{loss}"))

    print("\n2. differentiate: tensors again, each read inverted into a gather\n")
    gradients = te.differentiate(loss, inputs[:3])
    for tensor, gradient in gradients.adjoints.items():
        if tensor.name in ("padded", "w", "b"):
            print(indented(f"d loss / d {tensor.name}:  {gradient}"))

    print("\n3. schedule: the loops of the convolution, by hand; without them, a default schedule is made\n")
    kernels: dict[str, Any] = {}
    for filters, columns, lanes in TILES:
        schedule = schedule_by_hand(conv, filters, columns, lanes)
        kernels[f"by hand, {filters} filters x {columns} columns"] = te.build(inputs[:2], conv, schedule=schedule)
    print(indented(schedule))

    print("\n4. compile\n")
    kernels |= {
        "default schedule": te.build(inputs[:2], conv),
        "loss": te.build(inputs, loss),
        "loss and its three gradients": te.build(inputs, [loss, *gradients]),
    }
    results = {name: kernel(*arrays[: len(kernel.inputs)]) for name, kernel in kernels.items()}
    for name, kernel in kernels.items():
        print(f"   {name:32} {kernel.stats.compile_ms:8.0f} ms")

    print("\n5. check\n")
    *by_hand, default = list(results.values())[: len(TILES) + 1]
    distance = max(float(np.abs(result - default).max()) for result in by_hand)
    error = worst_error_against_finite_differences()
    print(f"   largest difference between schedules: {distance:.1e}")
    print(f"   gradients against finite differences in float64, 5 random directions: relative error {error:.1e}")

    print("\n6. figures: which tile is best depends on the vectors of the processor; the default knows them\n")
    flops = te.work(conv).flops
    for name, kernel in kernels.items():
        took = milliseconds(lambda kernel=kernel: kernel(*arrays[: len(kernel.inputs)]))  # type: ignore[misc]
        rate = f"{flops / took / 1e6:8.1f} GFLOP/s" if "loss" not in name else ""
        print(f"   {name:32} {took:8.2f} ms {rate}")
    if distance > 1e-5 or error > 1e-6:
        print("\nthe results are wrong: expected differences below 1e-5 and 1e-6", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
