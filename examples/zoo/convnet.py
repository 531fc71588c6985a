"""A small convolutional network tells drawn shapes apart: `python examples/zoo/convnet.py`.

The network is made of `te.ops`. `ops.optim.train_step` compiles its loss, the gradient and the step of Adam together.
"""

from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops

NAMES, SIDE, BATCH = ("bar", "cross", "circle"), 16, 32
SHAPES = [(8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,), (3, 256), (3,)]


def pictures(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of random places and sizes, under noise: (count, 1, SIDE, SIDE), and which they are."""
    labels = random.integers(0, 3, count, "int32")
    y, x = random.uniform(5, SIDE - 6, (2, count, 1, 1))
    r = random.uniform(3, 5, (count, 1, 1))
    i, j = np.mgrid[:SIDE, :SIDE]
    dy, dx = abs(i - y), abs(j - x)
    bar = (dy < 1) & (dx < r)
    cross = bar | (dx < 1) & (dy < r)
    circle = abs(np.hypot(dy, dx) - r) < 0.8
    drawn = np.choose(labels[:, None, None], [bar, cross, circle])
    return (drawn + random.normal(0, 0.3, drawn.shape))[:, None].astype("float32"), labels


def initial(random: np.random.Generator) -> list[np.ndarray]:
    """He's normal weights, biases of 0."""
    return [random.normal(0, np.sqrt(2 / np.prod(s[1:])), s) if len(s) > 1 else np.zeros(s) for s in SHAPES]


def network(p: tuple[te.Tensor, ...], x: te.Tensor) -> Any:
    """How much each image (n, 1, SIDE, SIDE) looks like each shape: (n, 3)."""
    w1, b1, w2, b2, w3, b3 = p
    h = ops.max_pool2d(ops.relu(ops.conv2d(x, w1, b1, padding=1)), 2)
    h = ops.max_pool2d(ops.relu(ops.conv2d(h, w2, b2, padding=1)), 2)
    return ops.dense(h.reshape(x.shape[0], -1), w3, b3)


def trainer() -> ops.optim.TrainStep:
    p = tuple(te.placeholder(shape) for shape in SHAPES)
    x, y = te.placeholder((BATCH, 1, SIDE, SIDE)), te.placeholder((BATCH,), "int32")
    return ops.optim.train_step(ops.cross_entropy(network(p, x), y), p, [x, y], ops.optim.Adam(0.01))


def main(steps: int = 150) -> list[float]:
    """Train, show a few pictures with what they are taken for, and give the losses."""
    random = np.random.default_rng(0)
    step, losses = trainer(), []
    state = step.start(initial(random))
    for _ in range(steps):
        value, state = step(state, *pictures(random, BATCH))
        losses.append(float(value))

    images, labels = pictures(random, 500)
    found = te.jit(network)(state.params, images).argmax(1)
    for i in range(SIDE):
        print("   ".join("".join(" .+#"[int(np.clip(3 * v, 0, 3))] for v in image[0, i]) for image in images[:5]))
    print("   ".join(NAMES[k].center(SIDE) for k in found[:5]))
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}, {(found == labels).mean():.1%} of unseen pictures named right")
    return losses


if __name__ == "__main__":
    main()
