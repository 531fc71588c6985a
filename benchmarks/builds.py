"""How long people wait for a first result, with nothing kept from before, beside `jax.jit`; and where the time goes.

    python -m benchmarks.builds [names]

Each figure is a process of its own with an empty cache, and then a second one that finds what the first one kept. The
clock runs from the first line of a program to its result, imports left out but where a name says otherwise.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib.util
import io
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["PROGRAMS", "Program", "main", "seconds"]

PEER = "import jax, jax.numpy as jnp, numpy as np\njax.config.update('jax_enable_x64', True)\n"
OURS = "import numpy as np, tedsl as te\nfrom tedsl import ops\n"
WARM = "te.evaluate(te.compute((8,), lambda i: i + 1))\n"  # what the first build of a process costs is not a program's
PEER_WARM = "jax.jit(lambda x: x + 1)(jnp.ones(8)).block_until_ready()\n"
ROW = "| {:<26} | {:>8} | {:>8} | {:>10} | {:>14} |"


@dataclass(frozen=True)
class Program:
    """A program in the language and for JAX: what is not timed, and what is. `warm`: after another kernel."""

    name: str
    ours: str
    jax: str = ""
    warm: bool = True


def _chain(stages: int) -> Program:
    """Stages that read their neighbours, with the gradients by the first state and the weights."""
    ours = f"""
n = 200
x, w, head = (te.placeholder(s, "float64", name=m) for s, m in (((n,), "x"), ((3,), "w"), ((n,), "head")))
def near(h, by): return lambda i: h.at(i + by, mode="clamp")
def stage(h):
    left, right = near(h, -1), near(h, 1)
    return te.compute((n,), lambda i: te.tanh(w[0] * left(i) + w[1] * h[i] + w[2] * right(i)))
h = x
for _ in range({stages}):
    h = stage(h)
te.build([x, w, head], [h, *te.differentiate(h, [x, w], head=head)])(np.ones(n), np.ones(3), np.ones(n))
"""
    jax = f"""
n = 200
low, high = np.maximum(np.arange(n) - 1, 0), np.minimum(np.arange(n) + 1, n - 1)
def f(x, w):
    for _ in range({stages}):
        x = jnp.tanh(w[0] * x[low] + w[1] * x + w[2] * x[high])
    return x
def both(x, w, head):
    y, back = jax.vjp(f, x, w)
    return y, *back(head)
jax.block_until_ready(jax.jit(both)(np.ones(n), np.ones(3), np.ones(n)))
"""
    return Program(f"chain of {stages}", ours, jax)


SMALL = Program(
    "a small kernel",
    "x = te.placeholder((4096,), name='x')\nte.build(x, te.exp(x) * 2 + 1)(np.ones(4096, 'f4'))\n",
    "jax.block_until_ready(jax.jit(lambda x: jnp.exp(x) * 2 + 1)(np.ones(4096, 'f4')))\n",
)
LAYER = Program(
    "a convolution, gradients",
    """
x, w = te.placeholder((2, 16, 32, 32), name="x"), te.placeholder((32, 16, 3, 3), name="w")
y = ops.conv2d(x, w, padding=1)
head = te.placeholder(y.shape, name="head")
arrays = [np.ones(t.shape, "f4") for t in (x, w, head)]
te.build([x, w, head], [y, *te.differentiate(y, [x, w], head=head)])(*arrays)
""",
    """
def f(x, w): return jax.lax.conv(x, w, (1, 1), "SAME")
def both(x, w, head):
    y, back = jax.vjp(f, x, w)
    return y, *back(head)
given = [np.ones(s, "f4") for s in ((2, 16, 32, 32), (32, 16, 3, 3), (2, 32, 32, 32))]
jax.block_until_ready(jax.jit(both)(*given))
""",
)
DEEP = Program(
    "x = x * x + y, 60 times",
    """
x, y = te.placeholder((4096,), name="x"), te.placeholder((4096,), name="y")
z = x
for _ in range(60):
    z = z * z + y
te.build([x, y], z)(np.zeros(4096, "f4"), np.zeros(4096, "f4"))
""",
    """
def f(x, y):
    for _ in range(60): x = x * x + y
    return x
jax.block_until_ready(jax.jit(f)(np.zeros(4096, "f4"), np.zeros(4096, "f4")))
""",
)
PROGRAMS = {
    p.name: p
    for p in (
        SMALL, Program("the first of a process", SMALL.ours, SMALL.jax, warm=False), LAYER, DEEP,
        *map(_chain, (12, 50, 100)),
    )
}  # fmt: skip


def seconds(text: str, before: str, folder: str) -> float:
    """The time of a text in a process of its own, after another one that is not timed."""
    code = f"{before}\nimport time\nstart = time.perf_counter()\n{text}\nprint(time.perf_counter() - start)"
    places = os.environ | {"TEDSL_CACHE": "on", "TEDSL_CACHE_DIR": folder}
    places.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, when they are installed
    done = subprocess.run([sys.executable, "-c", code], env=places, check=True, capture_output=True, text=True)
    return float(done.stdout)


def row(program: Program, *, has_jax: bool) -> str:
    """Both processes, and the peer's."""
    before = OURS + (WARM if program.warm else "")
    with tempfile.TemporaryDirectory(prefix="tedsl-builds-") as folder:
        first, second = (seconds(program.ours, before, folder) for _ in range(2))
    if not (has_jax and program.jax):
        return ROW.format(program.name, f"{first:.2f}", "", "", f"{second:.3f}")
    theirs = seconds(program.jax, PEER + (PEER_WARM if program.warm else ""), os.devnull)
    return ROW.format(program.name, f"{first:.2f}", f"{theirs:.2f}", f"{theirs / first:.2f}", f"{second:.3f}")


PHASES: dict[str, Callable[[str], bool]] = {
    "differentiate": lambda where: "autodiff/reverse.py" in where and "(differentiate)" in where,
    "schedule": lambda where: "schedules/default/scheduler.py" in where and "(completion)" in where,
    "Halide": lambda where: "compile_to" in where,
    "LLVM": lambda where: "emit_object" in where,
}


def phases(program: Program) -> dict[str, float]:
    """Seconds in each part of a first build, all of it in this process, where the profile sees it."""
    from tedsl.backend.sequence import workers

    os.environ["TEDSL_CACHE"], workers.MOST = "off", 0
    given: dict[str, object] = {}
    exec(OURS + WARM, given)
    profile, start = cProfile.Profile(), time.perf_counter()
    profile.runctx(program.ours, given, given)
    stats = pstats.Stats(profile, stream=io.StringIO()).stats  # type: ignore[attr-defined]
    found = {"in all": time.perf_counter() - start}
    for phase, is_it in PHASES.items():
        found[phase] = sum(entry[3] for place, entry in stats.items() if is_it(f"{place[0]} ({place[2]})"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="measure the programs whose name contains one of these")
    parser.add_argument("--phases", action="store_true", help="profile the first builds instead, in this process")
    chosen = parser.parse_args()
    programs = [p for p in PROGRAMS.values() if not chosen.names or any(n in p.name for n in chosen.names)]
    if chosen.phases:
        for program in programs:
            print(f"{program.name}: " + ", ".join(f"{name} {spent:.2f} s" for name, spent in phases(program).items()))
        return
    has_jax = importlib.util.find_spec("jax") is not None
    with tempfile.TemporaryDirectory(prefix="tedsl-builds-") as folder:
        seconds("", OURS + WARM, folder)
    print(ROW.format("program", "ours (s)", "JAX (s)", "JAX / ours", "second process"))
    print(ROW.format(*["---"] * 5))
    for program in programs:
        print(row(program, has_jax=has_jax), flush=True)


if __name__ == "__main__":
    main()
