"""A convolutional network learns handwritten digits, with tedsl alone: `python examples/digits.py` (needs
scikit-learn).

The network is a function of tensors made of operators of the catalogue; its loss, gradients and the steps of Adam are
one kernel.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops
from tedsl.ops import optim

BATCH, EPOCHS, RATE = 64, 24, 4e-3
SHAPES = {
    "w1": (8, 1, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "b2": (16,),
    "w3": (64, 64), "b3": (64,), "w4": (10, 64), "b4": (10,),
}  # fmt: skip


def network(x: te.Tensor, p: dict[str, te.Tensor]) -> te.Tensor:
    """Scores of ten digits for images (n, 1, 8, 8): two convolutions with pools, two dense layers."""
    h = ops.max_pool2d(ops.relu(ops.conv2d(x, p["w1"], p["b1"], padding=1)), 2)
    h = ops.max_pool2d(ops.relu(ops.conv2d(h, p["w2"], p["b2"], padding=1)), 2)
    h = ops.relu(ops.dense(h.reshape(x.shape[0], -1), p["w3"], p["b3"]))
    scores: te.Tensor = ops.dense(h, p["w4"], p["b4"])
    return scores


def initial(random: np.random.Generator) -> list[Any]:
    """He's normal weights, biases of 0."""
    return [
        random.normal(0.0, np.sqrt(2.0 / np.prod(s[1:])), s) if len(s) > 1 else np.zeros(s) for s in SHAPES.values()
    ]


def digits() -> tuple[Any, Any, Any, Any]:
    """Images and labels: four fifths to learn from, one to test."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images[order, None] / 16.0).astype("float32")
    labels, cut = data.target[order].astype("int32"), len(order) * 4 // 5
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def train(epochs: int = EPOCHS, report: Any = None) -> tuple[list[float], float]:
    """The losses of all steps, and the accuracy on the images kept apart."""
    images, labels, test_images, test_labels = digits()
    random = np.random.default_rng(1)
    p = {name: te.placeholder(shape, name=name) for name, shape in SHAPES.items()}
    x, y, rate = te.placeholder((BATCH, 1, 8, 8), name="x"), te.placeholder((BATCH,), "int32", "y"), te.placeholder(())
    loss = ops.cross_entropy(network(x, p), y)
    step = optim.train_step(loss, list(p.values()), [x, y, rate], optim.Adam(rate))
    many = te.placeholder((len(test_labels), 1, 8, 8), name="images")
    predict = te.build([many, *p.values()], network(many, p).argmax(1))

    state, losses = step.start(initial(random)), []
    for epoch in range(epochs):
        order = random.permutation(len(labels))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            value, state = step(state, images[chosen], labels[chosen], np.float32(RATE * (1.0 - epoch / epochs)))
            losses.append(float(value))
        if report is not None:
            accuracy = float((predict(test_images, *state.params) == test_labels).mean())
            report(f"epoch {epoch + 1:2d}: loss {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
    return losses, float((predict(test_images, *state.params) == test_labels).mean())


def main() -> None:
    start = time.perf_counter()
    losses, accuracy = train(report=print)
    seconds = time.perf_counter() - start
    print(f"{len(losses)} steps and two kernels in {seconds:.1f} s; test accuracy {accuracy:.1%}")
    sys.exit(accuracy < 0.97)


if __name__ == "__main__":
    main()
