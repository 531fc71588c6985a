"""Programs drawn from families by a seed, forward and with gradients, beside PyTorch: where does it fall off?

    python -m benchmarks.sweep [--seed N] [--count N] [--families NAME ...] [--target TARGET] [--threads N]

Results are compared first, then both sides are timed in turns; the ratio is PyTorch's time over ours. A wrong result,
an error, a default schedule that Halide refuses and a build of more than three seconds are failures. At the end stands
how the ratios are distributed, and the worst of them. Another seed brings other programs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

import tedsl as te
from benchmarks.compare import interleaved
from benchmarks.npbench import largest_error
from benchmarks.sweep_families import FAMILIES, Drawn
from tedsl.backend.host.threads import set_num_threads

__all__ = ["Line", "distribution", "drawn", "main", "measured"]

SECONDS, LONG_BUILD = 0.3, 3.0
TOLERANCE = 2e-3  # float32, sums of thousands
KINDS = ("forward", "with gradients")


@dataclass
class Line:
    """What was found of a program of one kind; `fault` is empty where all is well."""

    text: str
    kind: str
    ratio: float
    ours: float  # milliseconds
    build: float  # seconds
    fault: str = ""

    def __str__(self) -> str:
        return f"| {self.text} | {self.kind} | {self.ratio:.2f} | {self.ours:.3f} | {self.build:.2f} | {self.fault} |"


def drawn(seed: int, count: int, families: Sequence[str] = ()) -> Iterator[tuple[str, Drawn]]:
    """Programs of all families in turn."""
    names = list(families or FAMILIES)
    for number, name in zip(range(count), itertools.cycle(names), strict=False):
        yield name, FAMILIES[name](Random(f"{seed} {number} {name}"))


def measured(name: str, program: Drawn, kind: str, target: str = "host", seconds: float = SECONDS) -> Line:
    """Build, compare and time one program."""
    line = Line(f"{name}: {program.text}", kind, 0.0, 0.0, 0.0)
    chance = np.random.default_rng(0)
    leaves = [t for t in program.inputs if t not in program.given]
    head = te.placeholder(program.output.shape, name="head")
    inputs, outputs = list(program.inputs), [program.output]
    arrays = [program.given.get(t, chance.standard_normal(t.shape).astype(np.float32)) for t in inputs]
    if kind == KINDS[1]:
        outputs += te.differentiate(program.output, leaves, head=head)
        inputs.append(head)
        arrays.append(chance.standard_normal(head.shape).astype(np.float32))
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            start = time.perf_counter()
            kernel = te.build(inputs, outputs, target=target)
            found = kernel(*arrays)
            line.build = time.perf_counter() - start
    except Exception as error:
        line.fault = f"FAILED: {type(error).__name__}: {error}".replace("\n", " ")[:200]
        return line
    tensors = [torch.from_numpy(a) for a in arrays]

    def peer() -> Any:
        if kind == KINDS[0]:
            return program.peer(*tensors)
        given = [a.detach().requires_grad_() if a.dtype.is_floating_point else a for a in tensors[:-1]]
        result = program.peer(*given)
        return (result.detach(), *torch.autograd.grad(result, [a for a in given if a.requires_grad], tensors[-1]))

    away = largest_error(found, peer())
    times = interleaved({"ours": lambda: kernel(*arrays, out=found), "torch": peer}, time.perf_counter, seconds)
    middle = {side: statistics.median(spent) for side, spent in times.items()}
    line.ours, line.ratio = middle["ours"] * 1e3, middle["torch"] / middle["ours"]
    faults = ["WRONG" if not away <= TOLERANCE else "", "long build" if line.build > LONG_BUILD else ""]
    faults += [f"warned: {w.message}".replace("\n", " ")[:120] for w in said]
    line.fault = ", ".join(filter(None, faults))
    return line


def distribution(lines: Iterable[Line]) -> str:
    """The ratios of each kind at some of their quantiles, as a table."""
    rows = [
        "| | programs | least | p5 | p25 | p50 | p75 | below 0.5 | faults |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    found = list(lines)
    for kind in KINDS:
        mine = [x for x in found if x.kind == kind]
        ratios = [x.ratio for x in mine if x.ratio]
        if ratios:
            at = " | ".join(f"{q:.2f}" for q in np.quantile(ratios, [0, 0.05, 0.25, 0.5, 0.75]))
            below, faults = sum(r < 0.5 for r in ratios), sum(bool(x.fault) for x in mine)
            rows.append(f"| {kind} | {len(mine)} | {at} | {below} | {faults} |")
    return "\n".join(rows)


def main() -> None:
    os.environ["TEDSL_CACHE"] = "off"  # building is measured
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=140, help="programs, of all families in turn")
    parser.add_argument("--families", nargs="*", default=(), choices=list(FAMILIES), metavar="NAME")
    parser.add_argument("--target", default="host", help="the processor that kernels are built for")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worst", type=int, default=20, help="how many of the worst are told again at the end")
    chosen = parser.parse_args()
    set_num_threads(chosen.threads)
    torch.set_num_threads(chosen.threads)
    te.build([], te.compute((1,), lambda i: te.const(1.0), name="warm"))()
    head = "| program | | PyTorch / ours | ours (ms) | build (s) | |\n|---|---|---|---|---|---|"
    print(head, flush=True)
    lines = []
    for name, program in drawn(chosen.seed, chosen.count, chosen.families):
        for kind in KINDS:
            lines.append(measured(name, program, kind, chosen.target))
            print(lines[-1], flush=True)
    print(f"\nSeed {chosen.seed}, {chosen.threads} threads, {platform.processor() or platform.machine()}\n")
    print(distribution(lines), end="\n\n")
    print(head, *sorted(lines, key=lambda x: (not x.fault, x.ratio))[: chosen.worst], sep="\n")


if __name__ == "__main__":
    main()
