"""A learned camera pipeline: from the mosaic of a sensor to a picture. `python examples/zoo/learned_isp.py`

White balance, 5 x 5 filters that fill in the missing colors, a color matrix and a gamma: four expressions, fitted
together to a reference. `% 2` is solved, so that the gradient of a filter visits the pixels it was used at, no others.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl.ops import optim

SIZE, REACH, TAPS = 64, 2, 5
SHAPES: dict[str, tuple[int, ...]] = {"gains": (3,), "filters": (2, 2, 3, TAPS, TAPS), "matrix": (3, 3), "gamma": ()}


def develop(mosaic: te.Tensor, gains: te.Tensor, filters: te.Tensor, matrix: te.Tensor, gamma: te.Tensor) -> te.Tensor:
    """The picture (3, SIZE, SIZE) of a mosaic with red and green in even rows, green and blue in odd ones."""
    wide = SIZE + 2 * REACH  # REACH is even: the pattern begins as in the mosaic
    balanced = te.compute(
        (wide, wide), lambda i, j: gains[i % 2 + j % 2] * mosaic.at(i - REACH, j - REACH, mode="reflect")
    )
    full = te.compute(lambda c, i, j: te.sum(lambda p, q: filters[i % 2, j % 2, c, p, q] * balanced[i + p, j + q]))
    mixed = te.compute(lambda c, i, j: te.sum(lambda k: matrix[c, k] * full[k, i, j]))
    picture: te.Tensor = te.maximum(mixed, 1e-3) ** (1 / gamma)
    return picture


def photograph() -> tuple[Any, Any]:
    """What a sensor sees of edges between colors, with a cast and noise; and the picture to make of it."""
    rng = np.random.default_rng(0)
    i, j = np.mgrid[:SIZE, :SIZE]
    light = np.full((3, SIZE, SIZE), 0.5)
    for _ in range(12):
        angle, place = rng.uniform(0, np.pi), rng.uniform(-0.5, 1) * SIZE
        side = 1 / (1 + np.exp(place - np.cos(angle) * i - np.sin(angle) * j))
        light += side * (rng.uniform(0, 1, (3, 1, 1)) - light)
    cast = np.array([0.5, 1, 0.6])[:, None, None]
    mosaic = np.take_along_axis(cast * light, (i % 2 + j % 2)[None], 0)[0] + rng.normal(0, 0.003, (SIZE, SIZE))
    matrix = np.array([[1.6, -0.4, -0.2], [-0.3, 1.5, -0.2], [0, -0.5, 1.5]])
    picture = np.einsum("ck,kij->cij", matrix, light).clip(1e-3) ** (1 / 2.2)
    return mosaic.astype("float32"), picture.astype("float32")


def start() -> list[Any]:
    """Bilinear filters; colors as they are; a gamma of 2."""
    tent, (p, q) = np.outer([0, 1, 2, 1, 0], [0, 1, 2, 1, 0]), np.mgrid[:TAPS, :TAPS]
    filters = np.zeros(SHAPES["filters"])
    for a, b, c in np.ndindex(2, 2, 3):
        seen = tent * ((a + p) % 2 + (b + q) % 2 == c)
        filters[a, b, c] = seen / seen.sum()
    return [np.ones(3), filters, np.eye(3), np.array(2.0)]


def trainer() -> tuple[optim.TrainStep, Any]:
    """A step of Adam as one kernel, and its first state."""
    params = [te.placeholder(shape, name=name) for name, shape in SHAPES.items()]
    mosaic, picture = te.placeholder((SIZE, SIZE), name="mosaic"), te.placeholder((3, SIZE, SIZE), name="picture")
    loss = ((develop(mosaic, *params) - picture) ** 2).mean()
    step = optim.train_step(loss, params, [mosaic, picture], optim.Adam(0.01))
    return step, step.start(start())


def main(steps: int = 400) -> list[float]:
    (mosaic, picture), (step, state), losses = photograph(), trainer(), []
    for _ in range(steps):
        loss, state = step(state, mosaic, picture)
        losses.append(float(loss))
    print(f"{-10 * np.log10(losses[0]):.1f} dB -> {-10 * np.log10(losses[-1]):.1f} dB")
    gains, filters, matrix, gamma = state.params
    print(f"gains {gains.round(2)}, gamma {gamma:.2f}, matrix\n{matrix.round(2)}")
    print(f"green at a red pixel\n{filters[0, 0, 1].round(2)}")
    return losses


if __name__ == "__main__":
    main()
