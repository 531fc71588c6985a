"""Peak memory of training a residual network of 50 layers: `python -m benchmarks.peak_memory [--batch 8] [--blocks 8]`.

The loss and the gradients of all weights, beside PyTorch (eager) and JAX (jit), each in a process of its own. What is
told is the most that the process held during two calls, less what it held before them: weights, images, compiled code
and libraries are there before, so activations, gradients and workspaces are left.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tedsl as te
from tedsl import ops

WIDTHS, CLASSES, SIZE = (16, 32, 64), 10, 32
Run = Callable[[], list[Any]]


def shapes(blocks: int) -> list[tuple[int, ...]]:
    """The weights of the network in order: kernel, scale and shift of each convolution, then the classifier."""
    found: list[tuple[int, ...]] = []
    channels = 3
    for width, count in ((WIDTHS[0], 1), *((w, 2 * blocks) for w in WIDTHS)):
        for _ in range(count):
            found += [(width, channels, 3, 3), (width,), (width,)]
            channels = width
    return [*found, (WIDTHS[-1], CLASSES), (CLASSES,)]


def arrays(blocks: int, batch: int) -> tuple[list[Any], Any, Any]:
    """Weights, images and labels, the same in every process."""
    rng = np.random.default_rng(0)
    weights = [
        rng.normal(0, np.sqrt(2 / np.prod(s[1:])) if len(s) > 1 else 1, s).astype("float32") for s in shapes(blocks)
    ]
    images = rng.normal(size=(batch, 3, SIZE, SIZE)).astype("float32")
    return weights, images, rng.integers(0, CLASSES, batch).astype("int32")


def network(
    x: Any, weights: list[Any], blocks: int, layer: Callable[..., Any], relu: Callable[..., Any], shrink: Any
) -> Any:
    """Activations before the classifier; `layer` is a convolution and its normalisation, `shrink` the short cut."""
    parts = iter([weights[k : k + 3] for k in range(0, len(weights) - 2, 3)])
    h = relu(layer(x, *next(parts), 1))
    for stage in range(len(WIDTHS)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = layer(relu(layer(h, *next(parts), stride)), *next(parts), 1)
            h = relu(y + (shrink(h) if stride == 2 else h))
    return h


def in_tedsl(blocks: int, batch: int, memory: str | None) -> Run:
    weights, images, labels = arrays(blocks, batch)
    p = [te.placeholder(w.shape, name=f"w{k}") for k, w in enumerate(weights)]
    x, t = te.placeholder(images.shape, name="x"), te.placeholder(labels.shape, "int32", name="t")

    def layer(h: Any, w: Any, scale: Any, shift: Any, stride: int) -> Any:
        return ops.batch_norm(ops.conv2d(h, w, stride=stride, padding=1), weight=scale, bias=shift, training=True)

    def shrink(h: Any) -> Any:
        return te.pad(h[:, :, ::2, ::2], ((0, 0), (0, h.shape[1]), (0, 0), (0, 0)))

    h = network(x, p, blocks, layer, te.relu, shrink)
    loss = ops.cross_entropy(h.mean((2, 3)) @ p[-2] + p[-1], t)
    kernel = te.build([x, t, *p], [loss, *te.differentiate(loss, p)], memory=memory)
    if kernel.program is not None:
        print(str(kernel.program).splitlines()[-1], file=sys.stderr)
    return lambda: list(kernel(images, labels, *weights))


def in_torch(blocks: int, batch: int, memory: str | None) -> Run:
    import torch
    from torch.nn import functional

    weights, images, labels = arrays(blocks, batch)
    p = [torch.tensor(w, requires_grad=True) for w in weights]
    x, t = torch.tensor(images), torch.tensor(labels).long()

    def layer(h: Any, w: Any, scale: Any, shift: Any, stride: int) -> Any:
        h = functional.conv2d(h, w, stride=stride, padding=1)
        return functional.batch_norm(h, None, None, scale, shift, training=True)

    def shrink(h: Any) -> Any:
        return functional.pad(h[:, :, ::2, ::2], (0, 0, 0, 0, 0, h.shape[1]))

    def run() -> list[Any]:
        h = network(x, p, blocks, layer, torch.relu, shrink)
        loss = functional.cross_entropy(h.mean((2, 3)) @ p[-2] + p[-1], t)
        return [loss.detach(), *torch.autograd.grad(loss, p)]

    return run


def in_jax(blocks: int, batch: int, memory: str | None) -> Run:
    import jax
    from jax import numpy as jnp

    weights, images, labels = arrays(blocks, batch)

    def layer(h: Any, w: Any, scale: Any, shift: Any, stride: int) -> Any:
        h = jax.lax.conv(h, w, (stride, stride), "SAME" if stride == 1 else [(1, 1), (1, 1)])
        mean, var = h.mean((0, 2, 3), keepdims=True), h.var((0, 2, 3), keepdims=True)
        return (h - mean) * jax.lax.rsqrt(var + 1e-5) * scale[:, None, None] + shift[:, None, None]

    def shrink(h: Any) -> Any:
        return jnp.pad(h[:, :, ::2, ::2], ((0, 0), (0, h.shape[1]), (0, 0), (0, 0)))

    def loss(p: Any, x: Any, t: Any) -> Any:
        h = network(x, p, blocks, layer, jax.nn.relu, shrink)
        scores = jax.nn.log_softmax(h.mean((2, 3)) @ p[-2] + p[-1])
        return -scores[jnp.arange(batch), t].mean()

    given = [jnp.asarray(w) for w in weights], jnp.asarray(images), jnp.asarray(labels)
    compiled = jax.jit(jax.value_and_grad(loss)).lower(*given).compile()

    def run() -> list[Any]:
        value, gradients = compiled(*given)
        return [jax.block_until_ready(g) for g in (value, *gradients)]

    return run


FRAMEWORKS = {"tedsl": in_tedsl, "PyTorch": in_torch, "JAX": in_jax}


def held(field: str) -> int:
    """Bytes of this process, as Linux tells them: VmRSS now, VmHWM at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def measure(framework: str, blocks: int, batch: int, memory: str | None, results: str) -> None:
    """In a process of its own: prints the bytes, and saves loss and gradients."""
    run = FRAMEWORKS[framework](blocks, batch, memory)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before = held("VmRSS")
    for _ in range(2):
        found = run()
        kept = [np.asarray(value) for value in found]
    peak = held("VmHWM")
    np.savez(results, *kept)
    print(json.dumps({"bytes": peak - before}))


def measured(framework: str, blocks: int, batch: int, memory: str | None = None) -> tuple[int, list[Any]]:
    """The bytes of a framework, and what it computed."""
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "results.npz")
        given = ", ".join(map(repr, (framework, blocks, batch, memory, results)))
        code = f"from benchmarks.peak_memory import measure; measure({given})"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        with np.load(results) as saved:
            return int(json.loads(done.stdout.splitlines()[-1])["bytes"]), [saved[name] for name in saved.files]


def off(found: list[Any], expected: list[Any]) -> float:
    """The largest difference, relative to the largest element of each."""
    return max(float(np.abs(a - b).max() / (np.abs(b).max() + 1e-12)) for a, b in zip(found, expected, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of two convolutions in each of three stages")
    parser.add_argument("--memory", help="a budget for tedsl, such as 60MB")
    asked = parser.parse_args()
    expected: list[Any] = []
    for framework in FRAMEWORKS:
        size, found = measured(framework, asked.blocks, asked.batch, asked.memory if framework == "tedsl" else None)
        expected = expected or found
        print(f"{framework:8} {size / 2**20:8.1f} MB, gradients within {off(found, expected):.1e}", flush=True)


if __name__ == "__main__":
    main()
