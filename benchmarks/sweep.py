"""Programs drawn from families by a seed, forward and with gradients, beside PyTorch and JAX: where does it fall off?

    python -m benchmarks.sweep [--seed N] [--count N] [--families NAME ...] [--target TARGET] [--threads N] [--peers P]

Results are compared first, then all sides are timed in turns; the ratio is the best peer's time over ours, on one
thread by the clock of the process (JAX has threads of its own), on more by the clock. A wrong result, an error, a
default schedule that Halide refuses and a build of more than three seconds are failures. At the end stands how the
ratios are distributed, and the worst of them with what the cost model says: its time, and the stages that it says most
of it is spent in. Another seed brings other programs.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import torch

import tedsl as te
from benchmarks.compare import interleaved
from benchmarks.npbench import largest_error
from benchmarks.peers import peers
from benchmarks.sweep_families import FAMILIES, Drawn
from benchmarks.workload import Workload
from schedules.default import completion
from schedules.estimate import Cost, cost_of
from schedules.plan import Plan
from schedules.program import program_of
from tedsl.backend.host.targets import machine_of, parse_target
from tedsl.backend.host.threads import set_num_threads

__all__ = ["Line", "distribution", "drawn", "main", "measured", "worst"]

SECONDS, LONG_BUILD = 0.3, 3.0
TOLERANCE = 2e-3  # float32, sums of thousands
KINDS = ("forward", "with gradients")


HEAD = "| program | | best peer / ours | best peer | ours (ms) | build (s) | |\n|---|---|---|---|---|---|---|"


@dataclass
class Line:
    """What was found of a program of one kind; `fault` is empty where all is well."""

    text: str
    kind: str
    ratio: float
    ours: float  # milliseconds
    build: float  # seconds
    fault: str = ""
    best: str = ""  # peer
    cost: Cost = field(default_factory=lambda: Cost({}))  # cycles, by the cost model

    def __str__(self) -> str:
        told = f"{self.ratio:.2f} | {self.best} | {self.ours:.3f} | {self.build:.2f} | {self.fault}"
        return f"| {self.text} | {self.kind} | {told} |"


def drawn(seed: int, count: int, families: Sequence[str] = ()) -> Iterator[tuple[str, Drawn]]:
    """Programs of all families in turn."""
    names = list(families or FAMILIES)
    for number, name in zip(range(count), itertools.cycle(names), strict=False):
        yield name, FAMILIES[name](Random(f"{seed} {number} {name}"))


def workload_of(program: Drawn, kind: str, chance: np.random.Generator) -> Workload:
    """A program with its arrays, alone or with the gradients by all its floats that are not fixed."""
    results, heads, grads = list(program.results), [], []
    if kind == KINDS[1]:
        ends = [y for y in results if y.dtype.is_float]
        leaves = [t for t in program.inputs if t.dtype.is_float and t not in program.fixed]
        if len(results) > 1 or results[0].ndim:
            heads = [te.placeholder(y.shape, y.dtype, name="head") for y in ends]
        grads = list(te.differentiate(ends, leaves, head=heads) if heads else te.differentiate(ends[0], leaves))
    inputs = [*program.inputs, *heads]
    arrays = [program.given.get(t, chance.standard_normal(t.shape).astype(str(t.dtype))) for t in inputs]
    return Workload(
        "sweep", program.text, 0.8, inputs, results + grads, arrays, program.peer, program.jax, step=kind == KINDS[1],
        results=len(results), fixed=frozenset(k for k, t in enumerate(program.inputs) if t in program.fixed),
    )  # fmt: skip


def measured(
    name: str, program: Drawn, kind: str, target: str = "host", seconds: float = SECONDS,
    chosen: Sequence[str] = ("torch",), threads: int = 2,
) -> Line:  # fmt: skip
    """Build, compare and time one program."""
    line = Line(f"{name}: {program.text}", kind, 0.0, 0.0, 0.0)
    workload = workload_of(program, kind, np.random.default_rng(0))
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            start = time.perf_counter()
            kernel = te.build(workload.inputs, workload.outputs, target=target)
            found = kernel(*workload.arrays)
            line.build = time.perf_counter() - start
    except Exception as error:
        line.fault = f"FAILED: {type(error).__name__}: {error}".replace("\n", " ")[:200]
        return line
    line.cost = _cost(workload, target, threads)
    others = peers(workload, chosen)
    away = max(largest_error(found, call()) for call in others.values())
    clock = time.process_time if threads == 1 else time.perf_counter
    times = interleaved({"ours": lambda: kernel(*workload.arrays, out=found), **others}, clock, seconds)
    middle = {side: statistics.median(spent) for side, spent in times.items()}
    line.best = min(others, key=lambda side: middle[side])
    line.ours, line.ratio = middle["ours"] * 1e3, middle[line.best] / middle["ours"]
    faults = ["WRONG" if not away <= TOLERANCE else "", "long build" if line.build > LONG_BUILD else ""]
    faults += [f"warned: {w.message}".replace("\n", " ")[:120] for w in said]
    line.fault = ", ".join(filter(None, faults))
    return line


def _cost(workload: Workload, target: str, threads: int) -> Cost:
    """What the cost model says of the program as one kernel."""
    machine = replace(machine_of(parse_target(target)), cores=threads)
    plan = completion(Plan(program_of(workload.outputs)), workload.inputs, workload.outputs, machine).plan
    return cost_of(plan, machine)


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


def worst(lines: Iterable[Line], count: int) -> str:
    """Faults, and the least ratios, each with what the cost model says of it.

    Its cycles are told as times by what a cycle takes in the median of all lines.
    """
    found = list(lines)
    rates = [x.ours / x.cost.total for x in found if x.ours and x.cost.total]
    cycle = statistics.median(rates) if rates else math.nan
    rows = [f"{row} model (ms) | of it |" if k == 0 else f"{row}---|---|" for k, row in enumerate(HEAD.splitlines())]
    for line in sorted(found, key=lambda x: (not x.fault, x.ratio))[:count]:
        most = sorted(line.cost.stages.items(), key=lambda item: -item[1])[:3]
        parts = ", ".join(f"{name} {cycles / line.cost.total:.0%}" for name, cycles in most if cycles)
        rows.append(f"{line} {line.cost.total * cycle:.3f} | {parts} |")
    return "\n".join(rows)


def main() -> None:
    os.environ["TEDSL_CACHE"] = "off"  # building is measured
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=140, help="programs, of all families in turn")
    parser.add_argument("--families", nargs="*", default=(), choices=list(FAMILIES), metavar="NAME")
    parser.add_argument("--target", default="host", help="the processor that kernels are built for")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", default="torch,jax", help="those to compare with")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of turns for each program and kind")
    parser.add_argument("--worst", type=int, default=20, help="how many of the worst are told again at the end")
    chosen = parser.parse_args()
    set_num_threads(chosen.threads)
    torch.set_num_threads(chosen.threads)
    te.build([], te.compute((1,), lambda i: te.const(1.0), name="warm"))()
    print(HEAD, flush=True)
    lines = []
    others = chosen.peers.split(",")
    for name, program in drawn(chosen.seed, chosen.count, chosen.families):
        for kind in KINDS:
            lines.append(
                measured(name, program, kind, chosen.target, chosen.seconds, chosen=others, threads=chosen.threads)
            )
            print(lines[-1], flush=True)
    print(f"\nSeed {chosen.seed}, {chosen.threads} threads, {platform.processor() or platform.machine()}\n")
    print(distribution(lines), worst(lines, chosen.worst), sep="\n\n")


if __name__ == "__main__":
    main()
