"""Kernels on a GPU, built, checked and timed beside PyTorch: `python -m benchmarks.gpu` prints a table in Markdown.

Each program is built for CUDA, compared with PyTorch's result, and timed with its copies from and to the host, which a
call on NumPy arrays makes; PyTorch is timed with the same copies, and without. With `--small --target opencl` the same
programs run in small sizes on any OpenCL device, compared with the reference: a rehearsal without a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tedsl as te

SECONDS = 480.0  # after which no further program is begun
REPEATS = 5


@dataclass(frozen=True)
class Case:
    """A program, and the same in PyTorch."""

    name: str
    inputs: list[te.Tensor]
    output: te.Tensor
    torch: Callable[..., Any]


def cases(*, small: bool) -> list[Case]:
    """The programs; `small` ones take a moment on a CPU."""
    n, rows, long, image = (64, 16, 1 << 14, 20) if small else (4096, 8192, 1 << 26, 256)
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    x, line = te.placeholder((rows, n), name="x"), te.placeholder((long,), name="line")
    pixels = te.placeholder((2, 16, image, image), name="pixels")
    weights = te.placeholder((32, 16, 3, 3), name="weights")
    out = image - 2
    return [
        Case(
            "matmul", [a, b], te.compute((n, n), lambda i, j: te.sum(lambda k: a[i, k] * b[k, j])), lambda p, q: p @ q
        ),
        Case(
            "pointwise", [x], te.compute((rows, n), lambda i, j: te.tanh(x[i, j]) * 2 + 1), lambda v: v.tanh() * 2 + 1
        ),
        Case("row sums", [x], te.compute((rows,), lambda i: te.sum(lambda k: x[i, k])), lambda v: v.sum(1)),
        Case("total", [line], te.compute((1,), lambda i: te.sum(lambda k: line[k])), lambda v: v.sum().reshape(1)),
        Case(
            "convolution",
            [pixels, weights],
            te.compute(
                (2, 32, out, out),
                lambda m, o, y, z: te.sum(lambda c, u, v: pixels[m, c, y + u, z + v] * weights[o, c, u, v]),
            ),
            _convolution,
        ),
    ]


def _matmul(a: Any, b: Any) -> Any:
    return a @ b


def _convolution(pixels: Any, weights: Any) -> Any:
    import torch

    return torch.nn.functional.conv2d(pixels, weights)


def best(call: Callable[[], object]) -> float:
    """The least time of a few calls, in milliseconds."""
    call()
    found = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - begin))
    return min(found)


def values(case: Case) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.random([int(e) for e in t.shape], dtype=np.float32) - np.float32(0.5) for t in case.inputs]


def measure(case: Case, target: str) -> str:
    """A line of the table; AssertionError where the result is wrong."""
    arrays = values(case)
    begin = time.perf_counter()
    kernel = te.build(case.inputs, case.output, target=target)
    built = 1e3 * (time.perf_counter() - begin)
    found = kernel(*arrays)
    if target == "opencl":
        want, beside = te.interpret([case.output], dict(zip(case.inputs, arrays, strict=True)))[0], ["", ""]
    else:
        want, beside = _with_torch(case, arrays)
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-3 * float(np.abs(want).max()))
    ours = best(lambda: kernel(*arrays))
    return f"| {case.name} | {built:.0f} | {ours:.3f} | {' | '.join(beside)} |"


def _with_torch(case: Case, arrays: list[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], list[str]]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    there = [torch.from_numpy(a).cuda() for a in arrays]

    def stays() -> None:
        case.torch(*there)
        torch.cuda.synchronize()

    copied = best(lambda: case.torch(*(torch.from_numpy(a).cuda() for a in arrays)).cpu())
    return case.torch(*there).cpu().numpy(), [f"{copied:.3f}", f"{best(stays):.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    begin = time.perf_counter()
    print("| program | build ms | ms with copies | PyTorch with copies | PyTorch on the GPU |\n|---|---|---|---|---|")
    for case in cases(small=options.small):
        if time.perf_counter() - begin > SECONDS:
            print(f"| {case.name} | not run: {SECONDS:.0f} s are over | | | |")
            continue
        print(measure(case, options.target), flush=True)


if __name__ == "__main__":
    main()
