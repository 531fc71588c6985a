"""How time grows with size, from what a call costs to what memory and multipliers allow.

`python -m benchmarks.sizes` times each family of workloads at every size, beside PyTorch, JAX and NumPy, all threads,
back to back as in a loop of a program; `--plot FILE` draws it, `--write` puts the table into README.md.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tedsl as te
from benchmarks.layers import jax_function
from benchmarks.peers import peers
from benchmarks.workload import Peer, Workload, floats, tensor

BEGIN, END = "<!-- sizes -->", "<!-- end of sizes -->"
SECONDS = 0.3  # of each size
SIDES = ("ours", "torch", "jax", "numpy")

Made = tuple[list[te.Tensor], te.Tensor, Peer, Peer, Peer]  # inputs, output; of PyTorch, JAX, NumPy


def _gelu(count: int) -> Made:
    x = tensor("x", count)
    y = 0.5 * x * (1 + te.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def in_numpy(x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)))

    return [x], y, lambda x: F.gelu(x, approximate="tanh"), jax_function("gelu"), in_numpy


def _product(side: int) -> Made:
    a, b = tensor("a", side, side), tensor("b", side, side)

    def peer(x: Any, y: Any) -> Any:
        return x @ y

    return [a, b], a @ b, peer, peer, peer


def _softmax(rows: int) -> Made:
    x = tensor("x", rows, 1024)
    e = te.exp(x - x.max(axis=1, keepdims=True))

    def in_numpy(x: Any) -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    y = e / e.sum(axis=1, keepdims=True)
    return [x], y, lambda x: torch.softmax(x, 1), jax_function("softmax"), in_numpy


FAMILIES: dict[str, tuple[str, Callable[[int], Made], tuple[int, ...]]] = {
    "GELU": ("elements", _gelu, (16, 256, 1 << 12, 1 << 16, 1 << 20, 1 << 22)),
    "matrix product": ("rows and columns", _product, (8, 16, 32, 64, 128, 256, 512, 1024)),
    "softmax": ("rows of 1024", _softmax, (1, 4, 16, 64, 256, 1024, 4096)),
}


def measured(family: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Each size, and seconds of a call by side."""
    _, make, sizes = FAMILIES[family]
    for size in sizes:
        inputs, y, torch_peer, jax_peer, numpy_peer = make(size)
        arrays = floats(inputs)
        workload = Workload(family, family, 1.0, inputs, [y], arrays, torch_peer, jax_peer, numpy_peer)
        ours = functools.partial(te.build(inputs, [y]), *arrays)
        calls: dict[str, Callable[[], Any]] = {"ours": ours, **peers(workload)}
        yield size, {name: _per_call(call) for name, call in calls.items()}


def _per_call(call: Callable[[], Any]) -> float:
    """Median seconds of a call, back to back."""
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-7)
    many = max(1, int(1e-3 / once))  # a clock's reading costs a tenth of a microsecond
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - begin < SECONDS and len(times) < 200):
        start = time.perf_counter()
        for _ in range(many):
            call()
        times.append((time.perf_counter() - start) / many)
    return statistics.median(times)


def table(found: dict[str, list[tuple[int, dict[str, float]]]]) -> str:
    """The times in Markdown, in microseconds."""
    lines = ["| | size | tedsl (us) | PyTorch | JAX | NumPy |", "|---|---|---|---|---|---|"]
    for family, rows in found.items():
        for size, times in rows:
            shown = " | ".join(f"{times[s] * 1e6:.4g}" if s in times else "" for s in SIDES)
            lines.append(f"| {family} | {size} {FAMILIES[family][0]} | {shown} |")
    return "\n".join(lines)


def plot(found: dict[str, list[tuple[int, dict[str, float]]]], path: Path) -> None:
    """A panel for each family, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 3.6), layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, (family, rows) in zip(panels, found.items(), strict=True):
        for side in SIDES:
            known = [(size, times[side] * 1e6) for size, times in rows if side in times]
            if known:
                label = "tedsl" if side == "ours" else side
                axes.loglog(*zip(*known, strict=True), marker="o", markersize=3, label=label)
        axes.set_title(family)
        axes.set_xlabel(FAMILIES[family][0])
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("microseconds of a call")
    panels[0].legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it (needs matplotlib)")
    parser.add_argument("--write", action="store_true", help="write the table of README.md")
    chosen = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    found = {family: list(measured(family)) for family in FAMILIES}
    print(table(found))
    if chosen.plot is not None:
        plot(found, chosen.plot)
    if chosen.write:
        readme = Path(__file__).parent / "README.md"
        head, rest = readme.read_text().split(BEGIN)
        readme.write_text(f"{head}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
