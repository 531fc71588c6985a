"""Does the model of what a kernel costs to compile tell which programs take long to build?

    python -m benchmarks.compile_cost [--seed N] [--count N]

Programs of all families of the sweep, forward and with gradients, those that are one kernel: milliseconds that their
code took beside what the model says of the plan (`schedules.estimate.compiling`), and the factors that fit best. By the
clock, so with nothing else running.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import astuple, fields

import numpy as np

import tedsl as te
from benchmarks.sweep import KINDS, drawn, workload_of
from benchmarks.workload import Workload
from schedules.default import completion
from schedules.estimate.compiling import CodeSize, compile_ms, size_of
from schedules.plan import Plan
from schedules.program import program_of
from tedsl.backend.compiling.single_kernel import SingleKernel
from tedsl.backend.host.targets import machine_of, parse_target

__all__ = ["main", "measured"]

WARM = te.compute((8,), lambda i: i + 1)  # what the first build of a process costs is nobody's


def measured(workload: Workload) -> tuple[CodeSize, float, float] | None:
    """The size of the code, and the milliseconds that it took and was said to take; None of several kernels."""
    kernel = te.build(workload.inputs, workload.outputs)
    kernel(*workload.arrays)
    if not isinstance(kernel._parts.core, SingleKernel):
        return None
    taken = sum(ms for phase, ms in kernel.stats.phases.items() if phase != "schedule")
    made = Plan(program_of(workload.outputs))
    plan = completion(made, workload.inputs, workload.outputs, machine_of(parse_target("host"))).plan
    return size_of(plan), taken, compile_ms(plan)


def ranked(values: np.ndarray) -> np.ndarray:
    """The place of each in order."""
    return np.argsort(np.argsort(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60, help="programs, each forward and with gradients")
    chosen = parser.parse_args()
    os.environ["TEDSL_CACHE"] = "off"
    te.evaluate(WARM)
    pairs = [(program, kind) for _, program in drawn(chosen.seed, chosen.count) for kind in KINDS]
    found = [measured(workload_of(program, kind, np.random.default_rng(0))) for program, kind in pairs]
    sizes, taken, said = zip(*[line for line in found if line is not None], strict=True)
    took, expected = np.array(taken), np.array(said)
    ratio = np.exp(np.abs(np.log(expected / took)))
    rank = np.corrcoef(ranked(took), ranked(expected))[0, 1]
    print(
        f"{len(took)} kernels of {took.min():.0f} to {took.max():.0f} ms: rank correlation {rank:.2f}, off by a factor"
    )
    print(f"of {np.median(ratio):.2f} in the median and {np.quantile(ratio, 0.9):.2f} for a tenth of them")
    parts = np.array([[1.0, *astuple(size)] for size in sizes]) / took[:, None]
    best = np.linalg.lstsq(parts, np.ones(len(took)), rcond=None)[0]
    names = ["kernel", *(f.name for f in fields(CodeSize))]
    print(", ".join(f"{name} {value:.2f}" for name, value in zip(names, best, strict=True)))


if __name__ == "__main__":
    main()
