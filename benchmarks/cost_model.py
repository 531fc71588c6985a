"""What `schedules.estimate` says of loop nests beside the time that they take: `python -m benchmarks.cost_model`.

Programs are drawn by a seed from the families of `autodiff.strategies`, scheduled as ever for one core, estimated and
run on one thread. Told are the rank correlation of estimates and times, and the programs that are farthest off. Times
are of this process alone, the least of many calls, so that a machine with other work to do is no hindrance.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import tedsl as te
from autodiff.strategies import PATTERNS, Program, patterns
from schedules.default import assuming, completion
from schedules.estimate import cost_of
from schedules.plan import Plan
from schedules.program import program_of
from tedsl.backend.host.targets import machine_of, parse_target

LONG = 2e5  # cycles of an estimate, below which a call is most of what is measured
MOST = 2e9
CALLS, SECONDS = 200, 0.3


def least_time(kern: Any, arrays: list[Any]) -> float:
    """Seconds of the quickest call, by the clock of the process."""
    kern(*arrays)
    best, begin = float("inf"), time.process_time()
    for _ in range(CALLS):
        before = time.process_time()
        kern(*arrays)
        best = min(best, time.process_time() - before)
        if time.process_time() - begin > SECONDS:
            break
    return best


def drawn(name: str, count: int, number: int) -> list[Program]:
    """So many programs of a family, of different texts."""
    found: dict[str, Program] = {}

    @seed(number)
    @settings(
        max_examples=30 * count, phases=(Phase.generate,), deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(program=patterns(names=[name], large=True, symbolic=False))
    def draw(program: Program) -> None:
        if len(found) < count and LONG < estimate(program) < MOST:
            found.setdefault(str(program), program)

    draw()
    return list(found.values())


def array_for(program: Program, tensor: te.Tensor, chance: np.random.Generator) -> Any:
    """Small integers, or indices within their bounds."""
    return chance.integers(0, program.below.get(tensor, 3), program.shape(tensor)).astype(str(tensor.dtype))


def estimate(program: Program) -> float:
    """Cycles of a program on one core of this machine."""
    machine = replace(machine_of(parse_target("host")), cores=1)
    plan = completion(Plan(program_of(program.outputs)), (), program.outputs, machine).plan
    return cost_of(plan, machine).total


def ranks(values: Any) -> Any:
    return np.argsort(np.argsort(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4, help="programs of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=6, help="programs that are farthest off")
    given_ = parser.parse_args()
    te.set_num_threads(1)
    rows = []
    chance = np.random.default_rng(given_.seed)
    for program in (p for name in PATTERNS for p in drawn(name, given_.count, given_.seed)):
        with assuming({"cores": 1}):
            kern = te.build(list(program.inputs), list(program.outputs))
        rows.append(
            (estimate(program), least_time(kern, [array_for(program, t, chance) for t in program.inputs]), program)
        )
    cycles, seconds = (np.array([row[k] for row in rows]) for k in (0, 1))
    correlation = np.corrcoef(ranks(cycles), ranks(seconds))[0, 1]
    scale = np.exp(np.median(np.log(seconds / cycles)))
    off = np.abs(np.log2(seconds / cycles / scale))
    print(f"{len(rows)} programs, seed {given_.seed}: rank correlation {correlation:.2f}; {1e-9 / scale:.2f} GHz")
    print(f"off by a factor of {2 ** np.median(off):.2f} in the median, {2 ** np.quantile(off, 0.9):.2f} at 90 %")
    for k in np.argsort(-off)[: given_.shown]:
        print(
            f"\n{cycles[k]:.3g} cycles, {seconds[k] * 1e3:.3f} ms: {seconds[k] / cycles[k] / scale:.2f}\n{rows[k][2]}"
        )


if __name__ == "__main__":
    main()
