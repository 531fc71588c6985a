"""A differentiable renderer: discs with soft edges, painted one over another. `python examples/zoo/renderer.py`

How much of a pixel a disc covers is a sigmoid of its signed distance, so that places and sizes have gradients too. The
painting is a recurrence over the discs; its gradient runs from the last one back to the first.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl.ops import optim

SIZE, DISCS, SOFT = 64, 5, 0.03
SHAPES = {"place": (DISCS, 2), "radius": (DISCS,), "color": (DISCS, 3)}


def render(place: te.Tensor, radius: te.Tensor, color: te.Tensor) -> te.Tensor:
    """A picture (3, SIZE, SIZE) of discs in the unit square, on white."""

    def covered(k: te.Expr, i: te.Expr, j: te.Expr) -> Any:
        away = te.hypot((i + 0.5) / SIZE - place[k, 0], (j + 0.5) / SIZE - place[k, 1])
        return te.sigmoid((radius[k] - away) / SOFT)

    def paint(canvas: te.Tensor, k: te.Expr, c: te.Expr, i: te.Expr, j: te.Expr) -> Any:
        below = te.select(k == 0, 1.0, canvas[k - 1, c, i, j])
        return below + cover[k, i, j] * (color[k, c] - below)

    cover = te.compute((DISCS, SIZE, SIZE), covered)
    picture: te.Tensor = te.scan((DISCS, 3, SIZE, SIZE), paint)[-1]
    return picture


def arrays() -> tuple[list[Any], list[Any]]:
    """The discs of the target, and a guess: in about those places, all alike and gray."""
    rng = np.random.default_rng(0)
    place = np.array([[0.3, 0.3], [0.35, 0.7], [0.65, 0.25], [0.7, 0.7], [0.5, 0.5]])
    truth = [place, rng.uniform(0.1, 0.2, DISCS), rng.uniform(0, 0.9, (DISCS, 3))]
    guess = [place + rng.normal(0, 0.06, place.shape), np.full(DISCS, 0.15), np.full((DISCS, 3), 0.5)]
    return [p.astype("float32") for p in truth], guess


def trainer() -> tuple[optim.TrainStep, Any, Any]:
    """A step of Adam as one kernel, its first state, and the target."""
    truth, guess = arrays()
    params = [te.placeholder(shape, name=name) for name, shape in SHAPES.items()]
    target = te.placeholder((3, SIZE, SIZE), name="target")
    loss = ((render(*params) - target) ** 2).mean()
    step = optim.train_step(loss, params, [target], optim.Adam(0.01))
    return step, step.start(guess), te.jit(render)(*truth)


def main(steps: int = 200) -> list[float]:
    step, state, target = trainer()
    losses = []
    for _ in range(steps):
        loss, state = step(state, target)
        losses.append(float(loss))
    for row in np.concatenate([target, te.jit(render)(*state.params)], 2).mean(0)[::4, ::2]:
        print("".join("@%#*+=-:. "[int(9.9 * v)] for v in row))
    print(f"mean squared error {losses[0]:.4f} -> {losses[-1]:.1e}")
    for name, true, found in zip(SHAPES, arrays()[0], state.params):
        print(f"{name} within {np.abs(true - found).max():.1e}")
    return losses


if __name__ == "__main__":
    main()
