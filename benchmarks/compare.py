"""Side by side with PyTorch, JAX and NumPy: every workload compiled by the default schedule, no tuning.

All sides run in turn, on one thread (CPU time of the process, which neighbours hardly disturb) and on two (time on
the clock). Results are compared before anything is timed. The ratio is the best peer's median over ours: above 1 we
are faster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import tedsl as te
from benchmarks.peers import PEERS, peers
from benchmarks.plots import plot
from benchmarks.workload import Workload
from benchmarks.workloads import workloads
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.host.targets import parse_target
from tedsl.backend.host.threads import set_num_threads

HERE = Path(__file__).parent
THREADS = (1, 2)
SECONDS = 1.0  # of each workload and number of threads
TURN = 0.02  # of one side
LOOK = 1e-4  # between two looks at the clock, which take up to a microsecond
TABLES = {"AVX-512": "results.json", "AVX2": "results_avx2.json"}  # each processor has a file, and a table of its own


def measure(workload: Workload, copying: dict[int, float], chosen: Sequence[str]) -> dict[str, Any]:
    """Compile, compare, and time one workload; `copying` has the bytes a second of a copy by the number of threads."""
    kernel, found, compiling = _compiled(workload)
    others = peers(workload, chosen)
    errors = {name: _errors(found, call()) for name, call in others.items()}
    error = max(errors.values())
    row: dict[str, Any] = {
        "group": workload.group, "name": workload.name, "target": workload.target, "error": error,
        "right": error <= workload.tolerance, "compile_ms": kernel.stats.compile_ms,
        "compile_cpu_ms": compiling, "own_bytes": kernel.stats.peak_bytes - kernel.stats.bytes,
    }  # fmt: skip
    sides = {"ours": lambda: kernel(*workload.arrays, out=found), **others}
    outputs = found if isinstance(found, tuple) else (found,)
    moved = sum(a.nbytes for a in (*workload.arrays, *outputs))  # each array once
    for threads in THREADS:
        set_num_threads(threads)
        torch.set_num_threads(threads)
        with threadpool_limits(threads, user_api="blas"):  # NumPy's
            times = interleaved(sides, time.process_time if threads == 1 else time.perf_counter)
        middle = {name: statistics.median(t) for name, t in times.items()}
        best = min(others, key=lambda name: middle[name])
        row[f"threads_{threads}"] = {
            "ours_ms": middle["ours"] * 1e3, **{f"{name}_ms": middle[name] * 1e3 for name in others},
            "best_peer": best, "ratio": middle[best] / middle["ours"],
            "ratio_of_best": min(min(times[name]) for name in others) / min(times["ours"]), "runs": len(times["ours"]),
            "spread": _spread(times["ours"]), "gflops": workload.flops / middle["ours"] / 1e9,
            "of_bandwidth": moved / middle["ours"] / copying[threads],
        }  # fmt: skip
    return row


def _compiled(workload: Workload) -> tuple[Kernel, Any, float]:
    """The kernel, its results, and milliseconds to build it, with what the first call takes longer than the second."""
    _until_idle()
    start = time.process_time()
    kernel = te.build(workload.inputs, workload.outputs)
    kernel(*workload.arrays)
    ready = time.process_time()
    found = kernel(*workload.arrays)
    return kernel, found, (2 * ready - start - time.process_time()) * 1e3


def interleaved(
    sides: dict[str, Callable[[], Any]], clock: Callable[[], float], seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Seconds of each side, in turns of a few calls back to back, when no thread of the side before is busy."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    begin = time.perf_counter()
    while len(times["ours"]) < 5 or (time.perf_counter() - begin < seconds and len(times["ours"]) < 200):
        for name, call in sides.items():
            _until_idle()
            call()
            turn = time.perf_counter()
            call()
            count = 1 + int(LOOK / (time.perf_counter() - turn))
            turn = time.perf_counter()
            while time.perf_counter() - turn < TURN:
                start = clock()
                for _ in range(count):
                    call()
                times[name].append((clock() - start) / count)
    return times


def _until_idle() -> None:
    """Threads spin after a call, PyTorch's for 7 ms, OpenBLAS's for 100, on a core and on everybody's account."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.004)
        if time.process_time() - before < 0.0004:
            return


def _errors(found: Any, expected: Any) -> float:
    return max(map(_error, found, expected if isinstance(expected, tuple) else (expected,)))


def _error(found: Any, expected: Any) -> float:
    want = expected.detach().numpy() if isinstance(expected, torch.Tensor) else np.asarray(expected)
    return float(np.abs(found - want).max() / max(1e-30, np.abs(want).max()))


def _spread(times: list[float]) -> float:
    quarter, _, last = statistics.quantiles(times, n=4)
    return (last - quarter) / statistics.median(times)


def bandwidth(threads: int) -> float:
    """Bytes a second of a copy, read and written."""
    torch.set_num_threads(threads)
    a = torch.zeros(1 << 25)
    b = torch.zeros(1 << 25)
    best = min(_timed(lambda: b.copy_(a)) for _ in range(5))
    return float(2 * a.numel() * 4 / best)


def peak() -> float:
    """Floating-point operations a second of PyTorch's largest product on two threads."""
    a = torch.ones(2048, 2048)
    return 2 * 2048.0**3 / min(_timed(lambda: a @ a) for _ in range(5))


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return float(time.perf_counter() - start)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| workload | wanted | 1 thread | best peer | 2 threads | ours, 2 threads (ms) | of a copy (%) "
        "| own memory (MB) | compile (ms of CPU) | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        one, two = row["threads_1"]["ratio"], row["threads_2"]["ratio"]
        note = "" if row["right"] else f"WRONG ({row['error']:.1e})"
        note = note or ("" if one >= row["target"] else "short")
        lines.append(
            f"| {row['name']} | {row['target']:g} | {one:.2f} | {row['threads_1']['best_peer']} | {two:.2f} "
            f"| {row['threads_2']['ours_ms']:.3f} | {row['threads_2']['of_bandwidth'] * 100:.0f} "
            f"| {row['own_bytes'] / 1e6:.1f} | {row['compile_cpu_ms']:.0f} | {note} |"
        )
    return "\n".join(lines)


def main() -> None:
    os.environ["TEDSL_CACHE"] = "off"  # compiling is measured, so nothing may come from an earlier run
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="measure the workloads whose name contains one of these")
    parser.add_argument(
        "--write", action="store_true", help="write to the table of this processor and its results*.json"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.add_argument(
        "--peers", default=",".join(PEERS[:-1]), help=f"those of {', '.join(PEERS)} to compare with (all but the last)"
    )
    chosen = parser.parse_args()
    os.environ["TEDSL_CACHE"] = "off"  # what is kept from an earlier run was not compiled in this one
    te.build([], te.compute((1,), lambda i: te.const(1.0), name="warm"))()
    copying = {threads: bandwidth(threads) for threads in THREADS}
    rows = []
    for workload in workloads():
        if chosen.names and not any(n in workload.name for n in chosen.names):
            continue
        row = measure(workload, copying, chosen.peers.split(","))
        rows.append(row)
        print(table([row]).splitlines()[-1], flush=True)
    machine = {
        "processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__,
        "load": os.getloadavg()[0], "gflops": peak() / 1e9, "gigabytes": copying[2] / 1e9,
    }  # fmt: skip
    print(json.dumps(machine))
    if chosen.plot is not None:
        plot(rows, chosen.plot)
    if chosen.write:
        write(rows, machine)


def write(rows: list[dict[str, Any]], machine: dict[str, Any]) -> None:
    """Put rows into the file and the table of this processor, beside those that were not measured now."""
    level = "AVX-512" if parse_target("x86-64-v4").problem is None else "AVX2"
    kept, readme = HERE / TABLES[level], HERE / "README.md"
    known = {row["name"]: row for row in json.loads(kept.read_text())["rows"]} if kept.exists() else {}
    known |= {row["name"]: row for row in rows}
    listed = [known[w.name] for w in workloads() if w.name in known]
    kept.write_text(json.dumps({"machine": machine, "rows": listed}, indent=1) + "\n")
    begin, end = f"<!-- table {level} -->", f"<!-- end of table {level} -->"
    head, rest = readme.read_text().split(begin)
    readme.write_text(f"{head}{begin}\n{table(listed)}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
