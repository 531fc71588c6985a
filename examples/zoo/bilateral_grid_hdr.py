"""Tone mapping by a bilateral grid, after HDRnet (Gharbi et al., 2017). `python examples/zoo/bilateral_grid_hdr.py`

A small grid holds affine maps of color; each pixel takes its own, between the cells at its place and at the brightness
that a learned guide gives it. "Between" is a tent over a whole axis, so that nothing is read at an index that is data,
and every gradient is a gather.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl.ops import optim

SIZE, CELLS, DEPTH = 128, 8, 6


def tent(place: te.Expr, cell: te.Expr, cells: int) -> Any:
    """How much a cell counts at a place from 0 to 1: all at its center, nothing at the center of the next."""
    return te.maximum(1 - te.abs(te.clip(place * cells - 0.5, 0, cells - 1) - cell), 0)


def enhance(image: te.Tensor, grid: te.Tensor, look: te.Tensor) -> te.Tensor:
    """Colors (3, SIZE, SIZE), mapped by a grid (3, 4, DEPTH, CELLS, CELLS) that is sliced by a guide."""
    pixel = te.compute((4, SIZE, SIZE), lambda k, i, j: te.select(k < 3, image[k, i, j], 1.0))
    guide = te.compute((SIZE, SIZE), lambda i, j: te.sigmoid(te.sum(lambda k: look[k] * pixel[k, i, j])))
    deep = te.compute((DEPTH, SIZE, SIZE), lambda z, i, j: tent(guide[i, j], z, DEPTH))
    near = te.compute((CELLS, SIZE), lambda m, i: tent((i + 0.5) / SIZE, m, CELLS))
    wide = te.compute(lambda c, k, z, m, j: te.sum(lambda n: grid[c, k, z, m, n] * near[n, j]))
    affine = te.compute(lambda c, k, i, j: te.sum(lambda z, m: deep[z, i, j] * near[m, i] * wide[c, k, z, m, j]))
    enhanced: te.Tensor = te.compute(lambda c, i, j: te.sum(lambda k: affine[c, k, i, j] * pixel[k, i, j]))
    return enhanced


def pictures() -> tuple[Any, Any]:
    """The logarithm of a scene lit from 1 to 1000; and what a painter makes of it, who knows the lighting."""
    rng = np.random.default_rng(0)
    i, j = np.mgrid[:SIZE, :SIZE] / SIZE
    colors = np.full((3, SIZE, SIZE), 0.5)
    for y, x, radius in rng.uniform(0, [1, 1, 0.2], (40, 3)):
        colors[:, (i - y) ** 2 + (j - x) ** 2 < radius**2] = rng.uniform(0.1, 1, (3, 1))
    lighting = 10 ** (1.5 + 1.5 * np.sin(5 * i) * np.cos(4 * j))
    scene = colors * lighting
    return np.log10(scene).astype("float32") / 3, ((scene / (scene + 0.5 * lighting)) ** (1 / 2.2)).astype("float32")


def start() -> list[Any]:
    """Maps that change no color, and a guide that is the mean of red, green and blue."""
    grid = np.zeros((3, 4, DEPTH, CELLS, CELLS))
    grid[range(3), range(3)] = 1
    return [grid, np.array([1.5, 1.5, 1.5, -2])]


def trainer() -> tuple[optim.TrainStep, Any]:
    """A step of Adam as one kernel, and its first state."""
    params = te.placeholder((3, 4, DEPTH, CELLS, CELLS), name="grid"), te.placeholder((4,), name="look")
    image, painted = te.placeholder((3, SIZE, SIZE), name="image"), te.placeholder((3, SIZE, SIZE), name="painted")
    loss = ((enhance(image, *params) - painted) ** 2).mean()
    step = optim.train_step(loss, params, [image, painted], optim.Adam(0.03))
    return step, step.start(start())


def main(steps: int = 200) -> list[float]:
    (image, painted), (step, state), losses = pictures(), trainer(), []
    for _ in range(steps):
        loss, state = step(state, image, painted)
        losses.append(float(loss))
    for row in np.concatenate([image, te.jit(enhance)(image, *state.params), painted], 2)[0, ::8, ::4]:
        print("".join(" .:-=+*#%@"[int(np.clip(10 * v, 0, 9))] for v in row))
    print(f"{-10 * np.log10(losses[0]):.1f} dB -> {-10 * np.log10(losses[-1]):.1f} dB")
    return losses


if __name__ == "__main__":
    main()
