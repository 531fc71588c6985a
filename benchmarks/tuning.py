"""What `te.tune` gains: workloads by the default schedule, by the tuned one, and by PyTorch, in turns.

`python -m benchmarks.tuning NAME...` searches for `--budget` seconds for each workload whose name begins so, on the
threads that calls use, and prints a line of the table in README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import tedsl as te
from benchmarks.compare import interleaved
from benchmarks.peers import peers
from benchmarks.workload import Workload
from benchmarks.workloads import workloads
from tedsl.backend.host.threads import set_num_threads


def measure(workload: Workload, budget: float) -> str:
    """Tune one workload, and a line of the table."""
    tuned = te.tune(workload.outputs, budget, progress=False)
    default = te.build(workload.inputs, workload.outputs, name="default")
    better = te.build(workload.inputs, workload.outputs, schedule="tuned", name="tuned")
    found = default(*workload.arrays)
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: default(*workload.arrays, out=found), "tuned": lambda: better(*workload.arrays, out=found),
        **peers(workload, ["torch"]),
    }  # fmt: skip
    ratios = []
    for threads in (1, 2):
        set_num_threads(threads)
        torch.set_num_threads(threads)
        times = interleaved(sides, time.process_time if threads == 1 else time.perf_counter)
        middle = {name: statistics.median(t) for name, t in times.items()}
        ratios += [middle["torch"] / middle["ours"], middle["torch"] / middle["tuned"]]
    chosen = ", ".join(f"{name}={value}" for name, value in tuned.best.choices.items()) or "the default"
    shown = " | ".join(f"{r:.2f}" for r in ratios)
    set_num_threads(os.cpu_count() or 1)
    return f"| {workload.name} | {shown} | {len(tuned.history)} | {chosen} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", help="tune the workloads whose name begins with one of these")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tedsl") as folder:
        os.environ["TEDSL_CACHE_DIR"] = folder  # nothing that was found before
        for workload in workloads():
            if any(workload.name.startswith(n) for n in chosen.names):
                print(measure(workload, chosen.budget), flush=True)


if __name__ == "__main__":
    main()
