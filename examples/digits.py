"""A convolutional network learns digits: `python examples/digits.py [tedsl | torch | jax]` (needs scikit-learn).

The network is one function, made of operators of the catalog. With tedsl alone its loss, its gradients and the steps
of Adam are one kernel; in PyTorch and in JAX each operator is one of theirs, and they differentiate and optimize.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
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


def batches(epochs: int) -> Iterator[tuple[int, float, Any, Any]]:
    """(epoch, learning rate, images, labels), in the same random order each time."""
    images, labels, *_ = digits()
    random = np.random.default_rng(1)
    initial(random)
    for epoch in range(epochs):
        order = random.permutation(len(labels))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            yield epoch, RATE * (1.0 - epoch / EPOCHS), images[chosen], labels[chosen]


def train(epochs: int = EPOCHS) -> tuple[list[float], float]:
    """With tedsl alone: the losses of all steps, and the accuracy on the images kept apart."""
    p = {name: te.placeholder(shape, name=name) for name, shape in SHAPES.items()}
    x, y, rate = te.placeholder((BATCH, 1, 8, 8), name="x"), te.placeholder((BATCH,), "int32", "y"), te.placeholder(())
    loss = ops.cross_entropy(network(x, p), y)
    step = optim.train_step(loss, list(p.values()), [x, y, rate], optim.Adam(rate))
    state, losses = step.start(initial(np.random.default_rng(1))), []
    for _, lr, images, labels in batches(epochs):
        value, state = step(state, images, labels, np.float32(lr))
        losses.append(float(value))
    return losses, accuracy(state.params)


def train_in_torch(epochs: int = EPOCHS) -> tuple[list[float], float]:
    """The same network as operators of PyTorch, with its autograd and its Adam."""
    import torch

    start = initial(np.random.default_rng(1))
    params = [torch.tensor(v, dtype=torch.float32, requires_grad=True) for v in start]
    adam, losses = torch.optim.Adam(params), []
    for _, lr, images, labels in batches(epochs):
        adam.param_groups[0]["lr"] = lr
        adam.zero_grad()
        scores = network(torch.from_numpy(images), dict(zip(SHAPES, params, strict=True)))
        loss = ops.cross_entropy(scores, torch.from_numpy(labels))
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses, accuracy([v.detach().numpy() for v in params])


def train_in_jax(epochs: int = EPOCHS) -> tuple[list[float], float]:
    """The same network as operators of JAX, with its `grad` and `jit`; Adam in a few lines."""
    import jax
    import jax.numpy as jnp

    def loss_of(params: Any, images: Any, labels: Any) -> Any:
        return ops.cross_entropy(network(images, dict(zip(SHAPES, params, strict=True))), labels)

    def step(params: Any, mean: Any, square: Any, count: Any, lr: Any, images: Any, labels: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, grads, strict=True)]
        square = [0.999 * s + 0.001 * g * g for s, g in zip(square, grads, strict=True)]
        size = lr * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        offset = 1e-8 * jnp.sqrt(1 - 0.999**count)
        params = [p - size * m / (jnp.sqrt(s) + offset) for p, m, s in zip(params, mean, square, strict=True)]
        return loss, params, mean, square

    compiled = jax.jit(step)
    params = [jnp.asarray(v, "float32") for v in initial(np.random.default_rng(1))]
    mean, losses = [jnp.zeros_like(v) for v in params], []
    square = mean
    for count, (_, lr, images, labels) in enumerate(batches(epochs), 1):
        loss, params, mean, square = compiled(params, mean, square, float(count), lr, images, labels)
        losses.append(float(loss))
    return losses, accuracy([np.asarray(v) for v in params])


def accuracy(params: Sequence[Any]) -> float:
    """The share of the images kept apart that are named right."""
    *_, images, labels = digits()
    x = te.placeholder(images.shape, name="images")
    p = {name: te.placeholder(shape, name=name) for name, shape in SHAPES.items()}
    predict = te.build([x, *p.values()], network(x, p).argmax(1))
    return float((predict(images, *params) == labels).mean())


WAYS = {"tedsl": train, "torch": train_in_torch, "jax": train_in_jax}


def main() -> None:
    way = sys.argv[1] if len(sys.argv) > 1 else "tedsl"
    if way not in WAYS:
        sys.exit(f"digits.py: one of {', '.join(WAYS)} was expected, found {way!r}")
    start = time.perf_counter()
    losses, share = WAYS[way]()
    seconds = time.perf_counter() - start
    print(
        f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.4f} in {seconds:.1f} s; test accuracy {share:.1%}"
    )
    sys.exit(share < 0.97)


if __name__ == "__main__":
    main()
