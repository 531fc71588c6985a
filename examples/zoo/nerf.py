"""A neural radiance field, fitted to views of a ball in front of a box: `python examples/zoo/nerf.py`.

A network gives density and color at each point. A camera sees their sum along a ray, each sample dimmed by those
before it. `composite` is written with NumPy's functions: it takes the scene's arrays and the network's tensors alike.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops

SAMPLES, BATCH, WIDTH, BANDS = 24, 256, 32, np.pi * np.array([1, 2, 4], "float32")
DEPTHS, STEP = np.linspace(1, 3, SAMPLES), 2 / (SAMPLES - 1)
SHAPES = [(WIDTH, 3 + 6 * len(BANDS)), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (4, WIDTH), (4,)]


def composite(density: Any, color: Any) -> Any:
    """The colors (rays, 3) of samples along rays: density (rays, samples), color (rays, samples, 3)."""
    thickness = density * STEP
    reached = np.exp(thickness - np.cumsum(thickness, 1))  # the share of light that passes all samples before
    return ((reached * (1 - np.exp(-thickness)))[..., None] * color).sum(1)


def scene(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ball = ((x - [0.3, 0.1, 0.3]) ** 2).sum(-1) < 0.4**2
    box = (abs(x - [-0.2, -0.1, -0.2]) < [0.3, 0.5, 0.3]).all(-1)
    return 20.0 * (ball | box), np.where(ball[..., None], [1, 0.8, 0.3], [0.2, 0.3, 0.6])


def view(angle: float) -> np.ndarray:
    """Samples along the rays of a camera that goes around the scene: (rays, samples, 3)."""
    v, u = np.mgrid[0.45:-0.45:24j, -0.45:0.45:24j].reshape(2, -1, 1)
    x, y, z, c, s = u * DEPTHS, v * DEPTHS, 2 - DEPTHS, np.cos(angle), np.sin(angle)
    return np.stack([c * z - s * x, y, s * z + c * x], -1).astype("float32")


def render(p: tuple[te.Tensor, ...], x: te.Tensor) -> Any:
    """The colors (rays, 3) that the network gives to samples x (rays, samples, 3)."""
    w1, b1, w2, b2, w3, b3 = p
    angle = (x[..., None] * BANDS).reshape(*x.shape[:2], -1)
    h = ops.relu(ops.dense(te.concatenate([x, te.sin(angle), te.cos(angle)], -1), w1, b1))
    out = ops.dense(ops.relu(ops.dense(h, w2, b2)), w3, b3)
    return composite(ops.softplus(out[..., 3]), te.sigmoid(out[..., :3]))


def initial(random: np.random.Generator) -> list[np.ndarray]:
    return [random.normal(0, np.sqrt(2 / s[-1]), s) if len(s) > 1 else np.zeros(s) for s in SHAPES]


def trainer() -> ops.optim.TrainStep:
    p = tuple(te.placeholder(shape) for shape in SHAPES)
    x, y = te.placeholder((BATCH, SAMPLES, 3)), te.placeholder((BATCH, 3))
    return ops.optim.train_step(ops.mse_loss(render(p, x), y), p, [x, y], ops.optim.Adam(0.01))


def main(steps: int = 300) -> list[float]:
    """Train on eight views, show one between them (the scene, and what was learned), and give the losses."""
    random = np.random.default_rng(0)
    points = np.concatenate([view(k * np.pi / 4) for k in range(8)])
    colors = composite(*scene(points)).astype("float32")
    step, losses = trainer(), []
    state = step.start(initial(random))
    for _ in range(steps):
        rays = random.integers(0, len(points), BATCH)
        value, state = step(state, points[rays], colors[rays])
        losses.append(float(value))

    new = view(np.pi / 8)
    pictures = np.stack([composite(*scene(new)), te.jit(render)(state.params, new)]).mean(-1).reshape(2, 24, 24)
    for rows in zip(*pictures):
        print("    ".join("".join(" .:-=+*#%@"[int(14 * min(v, 0.7))] * 2 for v in row) for row in rows))
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
