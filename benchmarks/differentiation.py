"""How long `differentiate` takes for a layer, a network and a pipeline, with nothing remembered from before.

Each program has its own process: answers of index inversion are kept by structure, and a second layer of the same
form costs almost nothing. The time is the process's own, which others on the machine do not lengthen. What a process
pays once, loading the modules, is left out: the second is a figure of its own in `benchmarks.overhead`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tedsl as te
from tedsl import ops

__all__ = ["PROGRAMS", "seconds", "warm"]

Program = Callable[[], tuple[te.Tensor, list[te.Tensor]]]


def convolution() -> tuple[te.Tensor, list[te.Tensor]]:
    """One layer, 3x3 with stride 2 and padding."""
    x, w = te.placeholder((8, 16, 56, 56), name="x"), te.placeholder((32, 16, 3, 3), name="w")
    return ops.conv2d(x, w, stride=2, padding=1), [x, w]


def network() -> tuple[te.Tensor, list[te.Tensor]]:
    """Twenty layers of convolution, batch norm and relu, a pooling with overlap after each fourth."""
    y = te.placeholder((4, 3, 64, 64), name="x")
    parameters = []
    for layer in range(20):
        channels = 16 << layer // 4
        w = te.placeholder((channels, y.shape[1], 3, 3), name=f"w{layer}")
        gamma = te.placeholder((1, channels, 1, 1), name=f"gamma{layer}")
        beta = te.placeholder((1, channels, 1, 1), name=f"beta{layer}")
        parameters += [w, gamma, beta]
        y = ops.conv2d(y, w, padding=1)
        centred = y - y.mean((0, 2, 3), keepdims=True)
        y = centred / te.sqrt((centred * centred).mean((0, 2, 3), keepdims=True) + 1e-5) * gamma + beta
        y = te.relu(y)
        if layer % 4 == 3:
            y = ops.max_pool2d(y, 3, stride=2, padding=1)
    return y.mean((2, 3)), parameters


def pipeline(stages: int = 50) -> tuple[te.Tensor, list[te.Tensor]]:
    """Stages on an image: blurs across and along with every border, products, tone curves."""
    x = te.placeholder((480, 640), name="x")
    y = x
    modes = ("clamp", "reflect", "zero", "wrap")
    for stage in range(stages):
        y = STAGES[stage % len(STAGES)](y, modes[stage // len(STAGES) % len(modes)])
    return y.mean(), [x]


def _across(y: te.Tensor, mode: str) -> Any:
    def body(i: Any, j: Any) -> Any:
        return 0.25 * y.at(i, j - 1, mode=mode) + 0.5 * y[i, j] + 0.25 * y.at(i, j + 1, mode=mode)

    return te.compute(y.shape, body, name="across")


def _along(y: te.Tensor, mode: str) -> Any:
    def body(i: Any, j: Any) -> Any:
        return 0.25 * y.at(i - 1, j, mode=mode) + 0.5 * y[i, j] + 0.25 * y.at(i + 1, j, mode=mode)

    return te.compute(y.shape, body, name="along")


def _curve(y: te.Tensor, mode: str) -> Any:
    return te.compute(y.shape, lambda i, j: te.tanh(y[i, j]) * 1.1, name="curve")


def _edges(y: te.Tensor, mode: str) -> Any:
    return te.compute(y.shape, lambda i, j: y[i, j] + 0.1 * (y[i, j] - y.at(i + 1, j + 1, mode=mode)), name="edges")


def _normal(y: te.Tensor, mode: str) -> Any:
    return y / te.sqrt((y * y).mean(1, keepdims=True) + 1e-3)


STAGES = (_across, _along, _curve, _edges, _normal)

PROGRAMS: dict[str, tuple[Program, float]] = {
    "one convolution layer": (convolution, 0.15),
    "a network of 20 layers": (network, 2.0),
    "a pipeline of 50 stages": (pipeline, 2.0),
    "a pipeline of 200 stages": (lambda: pipeline(200), 8.0),
}


def warm() -> None:
    """Load what any gradient needs."""
    te.differentiate(te.placeholder((), name="s") * 1.0)


def seconds(name: str) -> float:
    """The time of this process for one program's gradient, its construction left out."""
    warm()
    program, _ = PROGRAMS[name]
    output, inputs = program()
    head = te.placeholder(output.shape, name="head")
    start = time.process_time()
    te.differentiate(output, inputs, head=head)
    return time.process_time() - start
