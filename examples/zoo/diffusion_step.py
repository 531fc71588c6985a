"""Denoising diffusion of points of the plane: `python examples/zoo/diffusion_step.py`.

A network learns to tell the noise that was mixed into points of a spiral. Sampling begins with noise alone and takes
some of it off at each time. How much of a mixture is noise stands in a table, read at the time of each point.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops

BATCH, TIMES, WIDTH = 512, 50, 64
KEPT = np.cumprod(1 - np.linspace(1e-3, 0.2, TIMES)).astype("float32")  # the rest of the variance is noise
WAVES = np.pi / TIMES * np.arange(1, 5, dtype="float32")
SHAPES = [(WIDTH, 10), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (2, WIDTH), (2,)]


def spiral(random: np.random.Generator, count: int) -> np.ndarray:
    turn: np.ndarray = 3 * np.pi * np.sqrt(random.random((count, 1), "float32"))
    return np.concatenate([turn * np.cos(turn), turn * np.sin(turn)], 1) / 6


def noise_in(p: tuple[te.Tensor, ...], x: te.Tensor, t: te.Tensor) -> Any:
    """Of points x (n, 2) at times t (n,)."""
    w1, b1, w2, b2, w3, b3 = p
    angle = te.cast(t, "float32")[:, None] * WAVES
    h = ops.silu(ops.dense(te.concatenate([x, te.sin(angle), te.cos(angle)], 1), w1, b1))
    return ops.dense(ops.silu(ops.dense(h, w2, b2)), w3, b3)


def initial(random: np.random.Generator) -> list[np.ndarray]:
    return [random.normal(0, np.sqrt(2 / s[1]), s) if len(s) > 1 else np.zeros(s) for s in SHAPES]


def batch(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, times and noise."""
    x, t = spiral(random, BATCH), random.integers(0, TIMES, BATCH, "int32")
    return x, t, random.standard_normal((BATCH, 2), "float32")


def trainer() -> ops.optim.TrainStep:
    p, kept = tuple(te.placeholder(shape) for shape in SHAPES), te.constant(KEPT)
    x, t, noise = te.placeholder((BATCH, 2)), te.placeholder((BATCH,), "int32"), te.placeholder((BATCH, 2))
    mixed = te.compute((BATCH, 2), lambda i, j: te.sqrt(kept[t[i]]) * x[i, j] + te.sqrt(1 - kept[t[i]]) * noise[i, j])
    return ops.optim.train_step(ops.mse_loss(noise_in(p, mixed, t), noise), p, [x, t, noise], ops.optim.Adam(0.01))


def sample(p: tuple[np.ndarray, ...], random: np.random.Generator, count: int) -> np.ndarray:
    x, told = random.standard_normal((count, 2), "float32"), te.jit(noise_in)
    for t in reversed(range(TIMES)):
        noise = told(p, x, np.full(count, t, "int32"))
        point = (x - np.sqrt(1 - KEPT[t]) * noise) / np.sqrt(KEPT[t])
        x = np.sqrt(KEPT[t - 1]) * point + np.sqrt(1 - KEPT[t - 1]) * noise if t else point
    return x


def main(steps: int = 1200) -> list[float]:
    """Train, draw points that were made from noise, and give the losses."""
    random = np.random.default_rng(0)
    step, losses = trainer(), []
    state = step.start(initial(random))
    for _ in range(steps):
        value, state = step(state, *batch(random))
        losses.append(float(value))

    points = sample(state.params, random, 500)
    counts, *_ = np.histogram2d(points[:, 1], points[:, 0], (22, 44), [(-1.8, 1.8)] * 2)
    print("\n".join("".join(" .+#"[int(min(n, 3))] for n in row) for row in counts))
    away = np.linalg.norm(points[:, None] - spiral(random, 2000), axis=2).min(1)
    print(f"loss {losses[0]:.3f} to {np.mean(losses[-50:]):.3f}; half of the points within {np.median(away):.3f}")
    return losses


if __name__ == "__main__":
    main()
