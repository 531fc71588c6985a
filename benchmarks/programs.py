"""How long a residual network of many layers takes to build, forward and backward, in a first process and in a second.

    python -m benchmarks.programs [layers ...]

Each row is two processes that share an empty cache: the first compiles, the second loads. Seconds are those of the
processor, which others on the machine do not lengthen, and those by the clock; kernels compile on all cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.differentiation import warm
from tedsl import ops

__all__ = ["network"]

LAYERS = (8, 20, 50, 98)
ROW = "| {:>6} | {:>5} | {:>7} | {:>13} | {:>16} | {:>16} | {:>16} |"
HEAD = ("layers", "calls", "kernels", "differentiate", "first build", "second build", "its first call")


def network(layers: int, batch: int = 8, size: int = 32) -> tuple[list[te.Tensor], te.Tensor, list[te.Tensor]]:
    """Inputs, loss and parameters of the residual network for small images of 6 n + 2 layers, with batch norm."""
    parameters: list[te.Tensor] = []

    def parameter(shape: tuple[int, ...], name: str) -> te.Tensor:
        parameters.append(te.placeholder(shape, name=f"{name}{len(parameters)}"))
        return parameters[-1]

    def layer(h: te.Tensor, width: int, stride: int = 1) -> te.Tensor:
        w = parameter((width, h.shape[1], 3, 3), "w")
        scale, shift = parameter((width,), "scale"), parameter((width,), "shift")
        h = ops.conv2d(h, w, stride=stride, padding=1)
        normal: te.Tensor = ops.batch_norm(h, weight=scale, bias=shift, training=True)
        return normal

    x, label = te.placeholder((batch, 3, size, size), name="x"), te.placeholder((batch,), "int32", name="label")
    h = te.relu(layer(x, 16))
    for width in (16, 32, 64):
        for block in range((layers - 2) // 6):
            stride = 2 if width > 16 and block == 0 else 1
            y = layer(te.relu(layer(h, width, stride)), width)
            if stride == 2:
                h = te.pad(h[:, :, ::2, ::2], ((0, 0), (0, width - h.shape[1]), (0, 0), (0, 0)))
            h = te.relu(y + h)
    logits = h.mean((2, 3)) @ parameter((64, 10), "w") + parameter((10,), "shift")
    return [x, label], ops.cross_entropy(logits, label), parameters


def arrays(tensors: list[te.Tensor]) -> list[np.ndarray[Any, Any]]:
    """Labels, and numbers for which the loss is finite."""
    draw = np.random.default_rng(0)
    return [
        (0.1 * draw.standard_normal(t.shape)).astype("f4")
        if t.dtype == "float32"
        else draw.integers(0, 10, t.shape, "i4")
        for t in tensors
    ]


def measured(layers: int) -> str:
    """Seconds of one process, its own and by the clock: of `differentiate`, of the build, and of the first call."""
    te.build(*(lambda x: (x, te.compute(x.shape, lambda i: x[i] + 1)))(te.placeholder((4,), name="x")))  # the runtime
    warm()
    inputs, loss, parameters = network(layers)
    found = []

    def timed(work: Any) -> Any:
        own, clock = spent(), time.perf_counter()
        done = work()
        found.append(f"{spent() - own:.2f}/{time.perf_counter() - clock:.2f}")
        return done

    gradients = timed(lambda: te.differentiate(loss, parameters))
    given = [*inputs, *parameters]
    kern = timed(lambda: te.build(given, [loss, *gradients]))
    values = arrays(given)
    assert np.isfinite(timed(lambda: kern(*values))[0])
    return " ".join([*found, str(len(kern.core.plan.steps)), str(len(kern.core.plan.kernels))])


def spent() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def row(layers: int) -> str:
    """Both processes."""
    with tempfile.TemporaryDirectory(prefix="tedsl-programs-") as folder:
        places = os.environ | {"TEDSL_CACHE_DIR": folder, "TEDSL_CACHE": "on"}
        command = [sys.executable, "-m", "benchmarks.programs", "--measure", str(layers)]
        first, second = (
            subprocess.run(command, env=places, check=True, capture_output=True, text=True).stdout.split()
            for _ in range(2)
        )
    slope, build, _, calls, kernels = first
    return ROW.format(layers, calls, kernels, slope, build, second[1], second[2])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--measure"]:
        print(measured(int(arguments[1])))
        return
    print(ROW.format(*HEAD))
    print(ROW.format(*["---"] * len(HEAD)))
    for layers in map(int, arguments or map(str, LAYERS)):
        print(row(layers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
