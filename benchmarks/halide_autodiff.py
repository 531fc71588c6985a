"""Gradients beside Halide's own: `propagate_adjoints`, scheduled by Halide's autoschedulers.

Only what Halide can differentiate is here: it refuses a maximum over a row, so softmax is without one; and it reads out
of bounds unless inputs are padded by hand, so the convolution's image is. Each pair runs in a process of its own with a
time limit, because the plugins end the process where they meet what they did not expect, or search for minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import halide as hl
import numpy as np

import tedsl as te
from benchmarks.workload import floats, tensor
from tedsl.backend.host.threads import set_num_threads
from tedsl.backend.scheduling.autoschedulers import NAMES, plugin_of

SCHEDULERS = ("mullapudi2016", "adams2019", "li2018")
LIMIT = 80  # seconds of one process
SECONDS, MOST = 2.0, 50


Images = Sequence[Any]


@dataclass(frozen=True)
class Case:
    """A gradient: `output` from `inputs`, the last of which is the adjoint that comes in, and the same in Halide.

    `forward` makes Halide's function of the other inputs; its adjoint for the input at `of` is the result. `guarded`:
    Halide would read the adjoint out of bounds, and gets one that is 0 there.
    """

    inputs: list[te.Tensor]
    output: te.Tensor
    forward: Callable[[Images], Any]
    of: int
    guarded: bool = False


def cases() -> dict[str, Case]:
    """Every gradient, by name."""
    return {
        "matmul 1024, gradient b": _matmul(1024),
        "3x3 convolution, weight gradient": _convolution(),
        "3x3 mean, zero, gradient": _stencil(2048),
        "softmax without maximum, gradient": _softmax(4096, 1024),
        "layer norm, gradient": _norm(4096, 1024),
    }


def _matmul(n: int) -> Case:
    a, b, g = tensor("a", n, n), tensor("b", n, n), tensor("g", n, n)

    def forward(images: Images) -> Any:
        x, y, k = hl.Var("x"), hl.Var("y"), hl.RDom([(0, n)], "k")
        c = hl.Func("c")
        c[x, y] = hl.f32(0)
        c[x, y] += images[0][k, y] * images[1][x, k]
        return c

    return Case([a, b, g], te.differentiate(a @ b, b, head=g), forward, 1)


def _convolution() -> Case:
    x, w, g = tensor("x", 4, 64, 58, 58), tensor("w", 64, 64, 3, 3), tensor("g", 4, 64, 56, 56)
    y = te.compute(
        (4, 64, 56, 56), lambda b, o, i, j: te.sum(lambda c, u, v: x[b, c, i + u, j + v] * w[o, c, u, v]), name="y"
    )

    def forward(images: Images) -> Any:
        j, i, o, b = (hl.Var(name) for name in "jiob")
        r = hl.RDom([(0, 3), (0, 3), (0, 64)], "r")
        out = hl.Func("out")
        out[j, i, o, b] = hl.f32(0)
        out[j, i, o, b] += images[0][j + r[0], i + r[1], r[2], b] * images[1][r[0], r[1], r[2], o]
        return out

    return Case([x, w, g], te.differentiate(y, w, head=g), forward, 1)


def _stencil(n: int) -> Case:
    x, g = tensor("x", n, n), tensor("g", n, n)
    u, v = te.reduce_axis(3, name="u"), te.reduce_axis(3, name="v")
    y = te.compute((n, n), lambda i, j: te.sum(x.at(i + u - 1, j + v - 1, mode="zero"), axis=(u, v)) * (1 / 9))

    def forward(images: Images) -> Any:
        i, j, r = hl.Var("i"), hl.Var("j"), hl.RDom([(-1, 3), (-1, 3)], "r")
        around = hl.BoundaryConditions.constant_exterior(images[0], hl.f32(0), [(0, n), (0, n)])
        total, out = hl.Func("total"), hl.Func("out")
        total[j, i] = hl.f32(0)
        total[j, i] += around[j + r[0], i + r[1]]
        out[j, i] = total[j, i] * hl.f32(1 / 9)
        return out

    return Case([x, g], te.differentiate(y, x, head=g), forward, 0, guarded=True)


def _softmax(n: int, m: int) -> Case:
    x, g = tensor("x", n, m), tensor("g", n, m)
    e = te.exp(x)

    def forward(images: Images) -> Any:
        i, j, k = hl.Var("i"), hl.Var("j"), hl.RDom([(0, m)], "k")
        power, total, out = hl.Func("power"), hl.Func("total"), hl.Func("out")
        power[j, i] = hl.exp(images[0][j, i])
        total[i] = hl.f32(0)
        total[i] += power[k, i]
        out[j, i] = power[j, i] / total[i]
        return out

    return Case([x, g], te.differentiate(e / e.sum(axis=1, keepdims=True), x, head=g), forward, 0)


def _norm(n: int, m: int) -> Case:
    x, g = tensor("x", n, m), tensor("g", n, m)
    centred = x - x.mean(axis=1, keepdims=True)
    normal = centred / te.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)

    def forward(images: Images) -> Any:
        i, j, k = hl.Var("i"), hl.Var("j"), hl.RDom([(0, m)], "k")
        mean, around, spread, out = (hl.Func(name) for name in ("mean", "around", "spread", "out"))
        mean[i] = hl.f32(0)
        mean[i] += images[0][k, i] * hl.f32(1 / m)
        around[j, i] = images[0][j, i] - mean[i]
        spread[i] = hl.f32(0)
        spread[i] += around[k, i] * around[k, i] * hl.f32(1 / m)
        out[j, i] = around[j, i] / hl.sqrt(spread[i] + hl.f32(1e-5))
        return out

    return Case([x, g], te.differentiate(normal, x, head=g), forward, 0)


# -------------------------------------------------------------------------------------------- in a process of its own


def measure(case: Case, scheduler: str) -> dict[str, Any]:
    """Both sides compiled, compared, and timed in turn: CPU time on one thread, which neighbours hardly disturb."""
    set_num_threads(1)
    arrays = floats(case.inputs)
    kernel = te.build(case.inputs, case.output)
    found = kernel(*arrays)
    begin = time.process_time()
    run, theirs = _halide(case, scheduler, arrays)
    run()
    compiling = time.process_time() - begin
    error = float(np.abs(theirs - found).max() / np.abs(found).max())
    sides: dict[str, Callable[[], Any]] = {"ours": lambda: kernel(*arrays, out=found), "halide": run}
    times: dict[str, list[float]] = {name: [] for name in sides}
    end = time.process_time() + SECONDS
    while len(times["ours"]) < 3 or (time.process_time() < end and len(times["ours"]) < MOST):
        for name, call in sides.items():
            call()
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
    middle = {f"{name}_ms": statistics.median(t) * 1e3 for name, t in times.items()}
    return {**middle, "error": error, "halide_compile_s": compiling}


def _halide(case: Case, scheduler: str, arrays: Sequence[Any]) -> tuple[Callable[[], Any], Any]:
    """A call of Halide's gradient, and the array that it writes."""
    images = [hl.ImageParam(hl.Float(32), t.ndim, t.name) for t in case.inputs]
    for image, array in zip(images, arrays, strict=True):
        image.set_estimates(_extents(array))
        image.set(hl.Buffer(array))
    *given, adjoint = images
    # Where an extent is asked for, the binding takes the last place.
    whole = _extents(arrays[-1])
    head = hl.BoundaryConditions.constant_exterior(adjoint, hl.f32(0), whole) if case.guarded else hl.Func(adjoint)
    gradients = hl.propagate_adjoints(case.forward(given), head, [(low, extent - 1) for low, extent in whole])
    gradient = gradients[hl.Func(given[case.of])]
    gradient.set_estimates(_extents(arrays[case.of]))
    pipeline, target = hl.Pipeline([gradient]), hl.Target("host")
    hl.load_plugin(str(plugin_of(scheduler)))
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(NAMES[scheduler], {"parallelism": "2"}))
    pipeline.compile_jit(target)
    result = np.zeros(arrays[case.of].shape, np.float32)
    buffer = hl.Buffer(result)
    return lambda: pipeline.realize(buffer), result


def _extents(array: Any) -> list[tuple[int, int]]:
    return [(0, n) for n in array.shape[::-1]]


# --------------------------------------------------------------------------------------------------------- all of them


def attempt(name: str, scheduler: str) -> dict[str, Any]:
    """What a process of its own finds, or why it found nothing."""
    command = [sys.executable, "-m", "benchmarks.halide_autodiff", "--one", name, scheduler]
    environment = {**os.environ, "HL_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {LIMIT} s"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["nothing said"]
        return {"failed": last[0][:80]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, scheduler: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    if "failed" in found:
        return f"| {name} | {scheduler} | | | | {found['failed']} |"
    ratio = found["halide_ms"] / found["ours_ms"]
    note = "" if found["error"] < 1e-3 else f"differs by {found['error']:.1e}"
    return f"| {name} | {scheduler} | {found['ours_ms']:.2f} | {found['halide_ms']:.1f} | {ratio:.0f} | {note} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="measure the gradients whose name contains one of these")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SCHEDULER"), help="measure here, and print it as JSON")
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(cases()[chosen.one[0]], chosen.one[1])))
        return
    print("| gradient | scheduler | ours (ms) | Halide's (ms) | ratio | |\n|---|---|---|---|---|---|")
    for name in cases():
        for scheduler in SCHEDULERS:
            if not chosen.names or any(n in name for n in chosen.names):
                print(row(name, scheduler, attempt(name, scheduler)), flush=True)


if __name__ == "__main__":
    main()
