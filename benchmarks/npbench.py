"""Programs of NPBench in the language itself, beside NumPy and `jax.jit` in float64: forward, and with gradients.

`python -m benchmarks.npbench [names] [--threads 2]`. Results are compared first; then all sides in turns, the lower
quartile of many calls by the clock (times of a process count what JAX's threads do in the call after it). With one
thread the process is held on one core. The ratio is the time of the faster of the two over ours, so above 1 we are
faster. Sizes lie between the presets S and M.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import tedsl as te
from benchmarks.npbench_programs import PROGRAMS, Program
from benchmarks.peers import peers
from benchmarks.workload import Workload
from tedsl.backend.host.threads import set_num_threads

__all__ = ["largest_error", "main", "workloads"]

SECONDS = 0.4  # of each side, but at least three calls
WARM = 5  # calls before these: the first ones of a program of many kernels make a list of them


def workloads(program: Program, sizes: tuple[int, ...], kinds: str = "fg") -> Iterable[Workload]:
    """The program forward ("f"), and with the gradients of its first result by its first inputs ("g")."""
    arrays = [np.asarray(a) for a in program.data(*sizes)]
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"x{i}") for i, a in enumerate(arrays)]
    y = program.ours(*inputs)

    def jax_peer(*given: Any) -> Any:
        import jax.numpy as jnp

        return program.peer(jnp, *given)

    def numpy_peer(*given: Any) -> Any:
        return program.peer(np, *given)

    if "f" in kinds:
        yield Workload(
            "npbench", f"{program.name}, forward", 0.8, inputs, [y], arrays, jax_peer, jax_peer, numpy_peer,
            tolerance=1e-8,
        )  # fmt: skip
    if "g" in kinds and program.differentiable:
        heads = [te.placeholder(y.shape, "float64", name="head")] if y.ndim else []
        grads = te.differentiate(y, inputs, head=heads[0]) if heads else te.differentiate(y, inputs)
        given = [np.random.default_rng(1).standard_normal(y.shape)] if heads else []
        yield Workload(
            "npbench", f"{program.name}, with gradients", 0.8, [*inputs, *heads], [y, *grads], [*arrays, *given],
            jax_peer, jax_peer, tolerance=1e-7, step=True,
        )  # fmt: skip


def largest_error(found: Any, expected: Any) -> float:
    """The largest difference of two sets of results, relative to the largest element of each."""
    ours = found if isinstance(found, tuple) else (found,)
    theirs = expected if isinstance(expected, tuple) else (expected,)
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True)]
    return max(float(np.abs(a - b).max() / max(1e-30, np.abs(b).max())) for a, b in pairs)


def measured(workload: Workload, threads: int) -> tuple[str, float]:
    """A line of the table, and the ratio in it."""
    start = time.process_time()
    kernel = te.build(workload.inputs, workload.outputs)
    found = kernel(*workload.arrays)
    build = time.process_time() - start
    others = peers(workload, ("jax", "numpy"))
    error = max(largest_error(found, call()) for call in others.values())
    sides = {"ours": lambda: kernel(*workload.arrays, out=found), **others}
    set_num_threads(threads)
    with threadpool_limits(threads, user_api="blas"):
        for call in sides.values():
            for _ in range(WARM):
                call()
        times: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(200):
            for name, call in sides.items():
                if turn < 3 or sum(times[name]) < SECONDS:
                    start = time.perf_counter()
                    call()
                    times[name].append(time.perf_counter() - start)
    found_ms = {name: float(np.quantile(spent, 0.25)) * 1e3 for name, spent in times.items()}
    ours, jax, numpy = (found_ms.get(name, math.inf) for name in ("ours", "jax", "numpy"))
    memory = (kernel.stats.peak_bytes - kernel.stats.bytes) / 1e6
    wrong = "" if error <= workload.tolerance else f"WRONG ({error:.1e})"
    ratio = min(jax, numpy) / ours
    told = wrong or ("" if ratio >= workload.target else "short")
    numbers = f"{ratio:.2f} | {ours:.3f} | {jax:.3f} | {numpy:.3f} | {memory:.1f} | {build:.2f}".replace("inf", "")
    return f"| {workload.name} | {numbers} | {told} |", ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="measure the programs of these names")
    parser.add_argument("--kinds", default="fg", help="f: forward, g: with gradients")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    if chosen.threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import jax

    jax.config.update("jax_enable_x64", True)
    os.environ["TEDSL_CACHE"] = "off"  # building is measured
    print("| program | the better / ours | ours (ms) | JAX (ms) | NumPy (ms) | own memory (MB) | build (s) | |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    ratios: dict[str, list[float]] = {"forward": [], "with gradients": []}
    for program in PROGRAMS:
        if not chosen.names or program.name in chosen.names:
            for workload in workloads(program, program.sizes, chosen.kinds):
                line, ratio = measured(workload, chosen.threads)
                ratios[workload.name.partition(", ")[2]].append(ratio)
                print(line, flush=True)
    for kind, found in ratios.items():
        if found:
            print(
                f"{kind}: {math.exp(sum(map(math.log, found)) / len(found)):.2f} in the geometric mean of {len(found)}"
            )


if __name__ == "__main__":
    main()
