"""`python -m benchmarks.zoo`: a training step of each program of `examples/zoo`, beside the same step in PyTorch.

Names after it are those of some programs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.zoo import images, networks

# Turns of both, and the steps of a turn: few, as slopes of what has learned its batch by heart are denormal numbers.
ROUNDS, STEPS = 15, 8


def steps() -> dict[str, Callable[[], tuple[Any, Any]]]:
    """The name of an example, and what gives our step and PyTorch's on equal data."""
    return {name: getattr(module, name) for module in (networks, images) for name in module.__all__}


def seconds(step: Callable[[], object]) -> float:
    """Of one call, in a turn of several."""
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begin) / STEPS


def main(names: list[str]) -> None:
    print("| example | tedsl | PyTorch | PyTorch / tedsl |\n|---|---|---|---|")
    for name, make in steps().items():
        if names and name not in names:
            continue
        pair = make()
        for step in pair:
            step()
        turns = [[seconds(step) for step in pair] for _ in range(ROUNDS)]
        ours, theirs = (median(column) for column in zip(*turns))
        ratio = median(b / a for a, b in turns)
        print(f"| {name} | {ours * 1e3:.2f} ms | {theirs * 1e3:.2f} ms | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
