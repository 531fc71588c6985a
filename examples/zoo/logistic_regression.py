"""Logistic regression with several classes, by plain gradient descent: `python examples/zoo/logistic_regression.py`.

`te.value_and_grad` differentiates a function of tensors. Under `te.jit` the loss, its gradient and the update are one
kernel, called on arrays of NumPy.
"""

from typing import Any

import numpy as np

import tedsl as te

CLASSES, POINTS, RATE = 4, 800, 0.5


def clusters(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points of the plane, gathered around one center for each class, and their classes."""
    labels = random.integers(0, CLASSES, POINTS, "int32")
    angles = 2 * np.pi / CLASSES * labels
    centers = 2 * np.stack([np.cos(angles), np.sin(angles)], 1)
    return (centers + random.normal(0, 0.7, (POINTS, 2))).astype("float32"), labels


def initial() -> dict[str, np.ndarray]:
    return {"w": np.zeros((2, CLASSES), "float32"), "b": np.zeros(CLASSES, "float32")}


def scores(p: dict[str, Any], x: Any) -> Any:
    """Of tensors a tensor, of arrays an array."""
    return x @ p["w"] + p["b"]


def loss(p: dict[str, te.Tensor], x: te.Tensor, y: te.Tensor) -> Any:
    return te.ops.cross_entropy(scores(p, x), y)


@te.jit
def step(p: dict[str, te.Tensor], x: te.Tensor, y: te.Tensor) -> tuple[te.Tensor, dict[str, te.Tensor]]:
    """The loss, and the parameters one step down its slope."""
    value, slopes = te.value_and_grad(loss)(p, x, y)
    return value, {name: p[name] - RATE * slopes[name] for name in p}


def main(steps: int = 200) -> list[float]:
    """Train, print how the plane is divided, and give the losses."""
    x, y = clusters(np.random.default_rng(0))
    p, losses = initial(), []
    for _ in range(steps):
        value, p = step(p, x, y)
        losses.append(float(value))

    rows, columns = np.mgrid[-3.5:3.5:20j, -3.5:3.5:44j]
    classes = scores(p, np.stack([columns, rows], -1)).argmax(-1)
    print("\n".join("".join(".o#+"[k] for k in row) for row in classes))
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, accuracy {(scores(p, x).argmax(1) == y).mean():.1%}")
    return losses


if __name__ == "__main__":
    main()
