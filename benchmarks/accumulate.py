"""What `mode="add"` costs beside writing: time in turn, and how much memory each call takes beyond its arrays.

Prints one row per gradient with both ratios; ends with status 1 where adding costs more than 1.1 times writing, or
takes memory that writing does not. Times are CPU time of the process: the best of many calls, both modes in turn.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tedsl as te

LIMIT = 1.1
SECONDS = 6.0  # for each line
MMAP_THRESHOLD = -3  # of mallopt
SLACK = 256 * 1024  # bytes: what the resident size of a process moves by anyway


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, np.float32)


def product(n: int) -> Any:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    return te.build([a, b], a @ b), [floats(n, n), floats(n, n)]


def weights_of_convolution(batch: int, channels: int, size: int) -> Any:
    x, g = (te.placeholder((batch, channels, size, size), name=name) for name in "xg")
    w = te.placeholder((channels, channels, 3, 3), name="w")
    (dw,) = te.differentiate(te.ops.conv2d(x, w, None, 1, 1), [w], g)
    return te.build([x, g], dw), [floats(*x.shape), floats(*x.shape)]


def embedding(words: int, features: int, tokens: int) -> Any:
    table = te.placeholder((words, features), name="table")
    index, g = te.placeholder((tokens,), "int32", name="index"), te.placeholder((tokens, features), name="g")
    (d,) = te.differentiate(te.compute((tokens, features), lambda i, j: table[index[i], j]), [table], g)
    places = np.random.default_rng(1).integers(0, words, tokens).astype("int32")
    return te.build([index, g], d), [places, floats(tokens, features)]


CASES: dict[str, Callable[[], Any]] = {
    "matmul 512": lambda: product(512),
    "matmul 1024": lambda: product(1024),
    "weights of a 3x3 convolution, 8x64x56x56": lambda: weights_of_convolution(8, 64, 56),
    "weights of a 3x3 convolution, 4x256x14x14": lambda: weights_of_convolution(4, 256, 14),
    "embedding of 8 192 tokens, 10 000 x 64": lambda: embedding(10_000, 64, 8192),
    "embedding of 4 096 tokens, 1 000 x 512": lambda: embedding(1000, 512, 4096),
}


def status(name: str) -> int:
    found = re.search(name + r":\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def memory(call: Callable[[], object]) -> int:
    """Bytes by which the resident memory rises while a call runs."""
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    call()
    return max(0, status("VmHWM") - before)


def measured(kernel: Any, arrays: list[Any]) -> tuple[dict[str, float], dict[str, int]]:
    """Best time and extra memory, by the mode."""
    out = kernel(*arrays)

    def run(mode: str) -> Callable[[], object]:
        return lambda: kernel(*arrays, out=out, mode=None if mode == "write" else mode)

    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 64 * 1024)  # what is freed is given back, so that it is seen again
    best, extra, end = {"write": np.inf, "add": np.inf}, {}, time.monotonic() + SECONDS
    for mode in best:
        run(mode)()
        extra[mode] = memory(run(mode))
    turn = 0
    while time.monotonic() < end:
        for mode in sorted(best, reverse=bool(turn % 2)):
            begin = time.process_time()
            run(mode)()
            best[mode] = min(best[mode], time.process_time() - begin)
        turn += 1
    return best, extra


def main() -> int:
    print("| gradient | write (ms of CPU) | add / write | its array (KB) | memory of a call: write, add (KB) | |")
    print("|---|---|---|---|---|---|")
    failed = False
    for name, make in CASES.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        kernel, arrays = make()
        best, extra = measured(kernel, arrays)
        ratio, size = best["add"] / best["write"], kernel.stats.bytes - sum(a.nbytes for a in arrays)
        over = ratio > LIMIT or extra["add"] > extra["write"] + SLACK
        failed |= over
        told = f"{extra['write'] / 1024:.0f}, {extra['add'] / 1024:.0f}"
        print(f"| {name} | {1e3 * best['write']:.3f} | {ratio:.2f} | {size / 1024:.0f} | {told} | {'OVER' * over} |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
