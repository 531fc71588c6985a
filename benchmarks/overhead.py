"""What the library itself costs: a call, an import, a build, a gradient, and memory over many builds.

Prints one row per figure with its limit, and ends with status 1 when a limit is broken. Each figure is the best of
several runs: others on the machine can only make it slower. Import time and memory are measured in fresh processes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.differentiation import PROGRAMS


@dataclass(frozen=True)
class Figure:
    """One measurement; `limit` is what it may be at most, None for a figure given for comparison only."""

    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def holds(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"{self.limit:g} {self.unit}"
        return f"| {self.name} | {self.value:.3g} {self.unit} | {limit} | {'' if self.holds else 'OVER'} |"


def seconds_per_call(call: Callable[[], object], *, calls: int = 20_000, repeats: int = 7) -> float:
    """The best mean over `calls` calls."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - start)
    return best / calls


def halide_callable() -> Callable[..., Any]:
    """`2 x + 1` on 16 elements through Halide's own JIT."""
    import halide as hl

    x = hl.ImageParam(hl.Float(32), 1)
    i, y = hl.Var(), hl.Func()
    y[i] = x[i] * 2.0 + 1.0
    y.vectorize(i, 8)
    callable_: Callable[..., Any] = y.compile_to_callable([x], hl.get_host_target())
    return callable_


def call_overhead() -> list[Figure]:
    """A kernel of 16 elements: all that is measured is the way there and back."""
    x = te.placeholder((16,), "float32", name="x")
    kernel = te.build([x], te.compute((16,), lambda i: x[i] * 2.0 + 1.0, name="y"))
    peer = halide_callable()
    a, out = np.arange(16, dtype=np.float32), np.empty(16, dtype=np.float32)
    peer(a, out)
    np.testing.assert_array_equal(out, kernel(a))
    base = seconds_per_call(lambda: peer(a, out)) * 1e6
    reused = seconds_per_call(lambda: kernel(a, out=out)) * 1e6
    fresh = seconds_per_call(lambda: kernel(a)) * 1e6
    return [
        Figure("call, Halide's callable", base, "us"),
        Figure("call, out= given", reused, "us"),
        Figure("call, output allocated", fresh, "us"),
        Figure("call, output allocated, over Halide's callable", fresh - base, "us", limit=6),
    ]


def in_fresh_process(code: str) -> float:
    """The number that `code` prints in a process of its own."""
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def import_time() -> list[Figure]:
    """`import tedsl`, the same up to the first name used (which loads NumPy and the language), and what comes later."""

    def best(statement: str) -> float:
        code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        return min(in_fresh_process(code) for _ in range(7))

    return [
        Figure("import tedsl", best("import tedsl"), "s", limit=0.25),
        Figure("import tedsl and its language", best("import tedsl; tedsl.compute"), "s", limit=0.25),
        Figure(
            "sympy, at the first gradient that asks it", best("import sympy.polys.matrices.normalforms"), "s", limit=1
        ),
    ]


def build_time() -> list[Figure]:
    """Small kernels that share nothing but the process, each built and called once. The first pays for starting Halide.

    The limit is for the pointwise one. A transposed read is passed through registers, which is more code to compile.
    """
    x = te.placeholder((64, 64), "float32", name="x")
    a = np.ones((64, 64), dtype=np.float32)

    def milliseconds(body: Callable[..., Any]) -> float:
        start = time.perf_counter()
        te.build([x], te.compute((64, 64), body, name="y"))(a)
        return (time.perf_counter() - start) * 1e3

    first = milliseconds(lambda i, j: x[i, j] + 0.25)
    factors = [0.5 + n for n in range(9)]
    pointwise = [milliseconds(lambda i, j, c=c: te.exp(x[i, j] * c) + 1.0) for c in factors]
    transposed = [milliseconds(lambda i, j, c=c: x[i, j] * c + x[j, i]) for c in factors]
    return [
        Figure("build and call, the first of a process", first, "ms"),
        Figure("build and call, pointwise, median after the first", statistics.median(pointwise), "ms", limit=120),
        Figure("build and call, with a transposed read", statistics.median(transposed), "ms"),
    ]


def random_program(rng: random.Random) -> tuple[Any, Any, tuple[int, ...]]:
    """A placeholder, an output of one to three stages over it, and the shape of the placeholder."""
    shape = (rng.randint(1, 40), rng.randint(1, 40))
    x = te.placeholder(shape, "float32", name="x")
    y = x
    for stage in range(rng.randint(1, 3)):
        scale = rng.uniform(0.5, 2.0)
        shift = rng.randint(-3, 3)
        form = rng.randrange(3)
        if form == 0:
            y = te.compute(shape, lambda i, j, y=y, c=scale: te.tanh(y[i, j]) * c, name=f"map{stage}")
        elif form == 1:
            y = te.compute(
                shape, lambda i, j, y=y, d=shift: y.at(i + d, j, mode="clamp") + y[i, j], name=f"shift{stage}"
            )
        else:
            k = te.reduce_axis(shape[1], name="k")
            y = te.compute(shape, lambda i, j, y=y, k=k, c=scale: te.sum(y[i, k], axis=k) * c, name=f"sum{stage}")
    return x, y, shape


def resident_bytes() -> int:
    """Memory of this process after Python and the C library have given back what they can."""
    gc.collect()
    if platform.system() == "Linux":
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/statm") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def growth_over_builds(programs: int = 200, warm: int = 100) -> float:
    """MiB that `programs` builds and calls leave behind, after `warm` others have filled caches and arenas."""
    rng = random.Random(0)
    before = 0
    for n in range(warm + programs):
        if n == warm:
            before = resident_bytes()
        x, y, shape = random_program(rng)
        te.build([x], y)(np.ones(shape, dtype=np.float32))
    return (resident_bytes() - before) / 2**20


def memory() -> list[Figure]:
    """Compiled code is dropped with the last reference to its kernel, so many programs need no more than a few."""
    code = "from benchmarks.overhead import growth_over_builds; print(growth_over_builds())"
    return [Figure("memory left by 200 random programs", in_fresh_process(code), "MiB", limit=4)]


def differentiation() -> list[Figure]:
    """`differentiate` with index inversion, nothing remembered; four times the stages may take four times as long."""

    def best(name: str) -> float:
        code = f"from benchmarks.differentiation import seconds; print(seconds({name!r}))"
        return min(in_fresh_process(code) for _ in range(3))

    return [Figure(f"differentiate {name}", best(name), "s", limit) for name, (_, limit) in PROGRAMS.items()]


def operators() -> list[Figure]:
    """An operator on 16 elements: in NumPy, and in PyTorch beside a function of autograd that computes as much."""

    @te.op
    def scaled(x: te.Tensor) -> Any:
        return te.compute(x.shape, lambda i: x[i] * 2.0)

    a = np.ones(16, "float32")
    calls: dict[str, tuple[Callable[[], object], float | None]] = {"NumPy": (lambda: scaled(a), 15)}
    with contextlib.suppress(ImportError):
        calls |= torch_calls(scaled)
    return [
        Figure(f"an operator on 16 elements, {name}", seconds_per_call(call, calls=100, repeats=200) * 1e6, "us", limit)
        for name, (call, limit) in calls.items()
    ]


def torch_calls(scaled: Callable[[Any], Any]) -> dict[str, tuple[Callable[[], object], float | None]]:
    import torch

    class Scaled(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            context.save_for_backward(x)
            return torch.from_numpy(x.detach().numpy() * 2)

        @staticmethod
        def backward(context: Any, g: Any) -> Any:
            return g * 2

    x, y = torch.ones(16), torch.ones(16, requires_grad=True)
    return {
        "PyTorch": (lambda: scaled(x), 40),
        "PyTorch with a gradient": (lambda: scaled(y), 40),
        "an autograd.Function beside it": (lambda: Scaled.apply(y), None),
    }


FIGURES = {
    "call": call_overhead, "import": import_time, "build": build_time, "differentiate": differentiation,
    "memory": memory, "operators": operators,
}  # fmt: skip


def main() -> int:
    os.environ["TEDSL_CACHE"] = "off"  # compiling is measured, so nothing may come from an earlier run
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help="what to measure; everything when left out")
    chosen = parser.parse_args().figures or list(FIGURES)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, tedsl {te.__version__}\n")
    print("| figure | measured | limit | |\n|---|---|---|---|")
    broken = 0
    for name in chosen:
        for figure in FIGURES[name]():
            print(figure, flush=True)
            broken += not figure.holds
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
