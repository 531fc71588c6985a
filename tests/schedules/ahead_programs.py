"""Programs drawn around stages with threads of their own: each is called on several numbers of threads, and compared.

Run as `python -m tests.schedules.ahead_programs FIRST COUNT CALLS`: a call that never ends must not take a test suite
along. The last line says how many schedules were built, and how many of them have a stage that is computed ahead.
Numbers are small and whole, so that no order and no rounding shows in a sum.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

import tedsl as te
from schedules.placing.ahead import why_in_turn

THREADS = (1, 2, 4)
ROWS, COLUMNS = 12, 18


def program(chance: random.Random) -> tuple[list[te.Tensor], te.Tensor]:
    """Stages that T needs, T, who reads it, and who reads that."""
    x, w = te.placeholder((ROWS + 4, COLUMNS + 2), name="x"), te.placeholder((COLUMNS, COLUMNS), name="w")
    n, m, k = ROWS, COLUMNS, te.reduce_axis(COLUMNS, "k")
    before = te.compute((n + 4, m + 2), lambda i, j: x[i, j] * 2 + 1, name="before")
    beside = te.compute((n, m), lambda i, j: x[i, j] - 1, name="beside")
    bodies: list[Any] = [
        lambda i, j: x[i, j] * before[i + 1, j] + before[i, j],
        lambda i, j: te.select(i < j, before[i, j], x[i, j]),
        lambda i, j: before[i, j] * x[i, j + 1] + before[i + 2, j + 2],
        lambda i, j: x[i, j] * x[i + 1, j + 1],
        lambda i, j: te.select(i % 3 == 1, x[i, j], x[i + 2, m - j]) - j,
        lambda i, j: te.sum(before[i, k + 1] * w[k, j], axis=k),
    ]
    t = te.compute((n + 2, m), chance.choice(bodies), name="T")
    bodies = [
        lambda i, j: t[i, j] + 1,
        lambda i, j: t[i, j] + t[i + 2, j],
        lambda i, j: t[i, j] + beside[i, j] * t[i + 1, m - 1 - j],
        lambda i, j: te.sum(t[i, k] * w[k, j], axis=k),
        lambda i, j: te.sum(t[i, k] * w[k, j], axis=k, where=k % 3 != 1),
        lambda i, j: te.select(i % 3 == 1, t[i + 1, j], 0.5),
    ]
    u = te.compute((n, m), chance.choice(bodies), name="U")
    bodies = [
        lambda i, j: u[i, j] * 2,
        lambda i, j: u[i, j] - u[i, m - 1 - j],
        lambda i, j: te.select((i + j) % 4 > 1, u[i, j], x[i, j]),
    ]
    last = te.compute((n, m), chance.choice(bodies), name="V") if chance.random() < 0.5 else u
    return [x, w], last


def drawn(seed: int) -> tuple[list[te.Tensor], te.Schedule]:
    """A program, and a schedule of it that places T inside of loops of its reader more often than not."""
    chance = random.Random(seed)
    inputs, output = program(chance)
    s = te.Schedule(output)
    for view in list(s):
        for _ in range(chance.randint(0, 3)):
            _tried(s, lambda view=view: _loops(chance, view))
    for view in reversed([x for x in s if x.name in ("T", "before", "beside", "U") and x.name != output.name]):
        if view.name in ("before", "beside") and chance.random() < 0.6:
            _tried(s, view.compute_inline)
        elif view.name == "T" or chance.random() < 0.3:
            _tried(s, lambda view=view: _placed(chance, s, view))
    return inputs, s


def _tried(s: te.Schedule, draw: Any) -> None:
    before = s.plan, s.steps
    try:
        draw()
        str(s)
    except te.ScheduleError:
        s.plan, s.steps = before


def _loops(chance: random.Random, view: Any) -> None:
    loops, factor = [*view.loops, "nowhere"], chance.choice([2, 3, 6, 6, 5])
    verb = chance.choice(["split", "reorder", "parallel", "vectorize", "unroll", "tile", "fuse"])
    if verb == "split":
        view.split(chance.choice(loops[:-1]), factor)
    elif verb == "reorder":
        view.reorder(*chance.sample(loops[:-1], min(len(loops) - 1, 3)))
    elif verb == "parallel":
        view.parallel(loops[0])
    elif verb == "vectorize":
        view.vectorize(loops[-2], factor)
    elif verb == "unroll":
        view.unroll(chance.choice(loops[:-1]), 2)
    elif verb == "fuse" and view.name in ("U", "V"):
        view.fuse(*loops[:2])
    elif verb == "tile":
        view.tile(*loops[:2], factor, 3)


def _placed(chance: random.Random, s: te.Schedule, view: Any) -> None:
    """A place in a loop, and memory outside of it; now and then something that leaves it in turn."""
    reader = s[chance.choice(s.plan.program.readers[view.name])]
    loops = list(reader.loops)
    k = chance.randrange(min(3, len(loops)))
    view.compute_at(reader, loops[k])
    memory = chance.random()
    if memory < 0.75:
        outer = k - 1 if chance.random() < 0.9 else chance.randint(-1, k)
        view.hoist_storage(*([] if outer < 0 else [reader, loops[outer]]))
    elif memory < 0.95:
        view.store_at(reader, loops[max(0, k - 1)])
    else:
        view.store_root()
    if chance.random() < 0.05:
        view.bound("j", 0, COLUMNS)
    if chance.random() < 0.05:
        view.align_storage("j", 4)
    if view.name == "T" or chance.random() < 0.5:
        view.async_()


def main(first: int, count: int, calls: int) -> None:
    """Call each kernel so often on each number of threads; its results are those of the schedule without async_."""
    built = ahead = 0
    for seed in range(first, first + count):
        inputs, s = drawn(seed)
        asked = {d.stage for d in s.directives if d.verb == "async_"}
        data = np.random.default_rng(seed)
        arrays = [data.integers(-4, 5, t.shape).astype(np.float32) for t in inputs]
        print(f"seed {seed}", flush=True)
        try:
            expected = te.build(inputs, s.outputs[0], schedule=s.without("async_") if asked else s)(*arrays)
        except te.ScheduleError:
            continue
        kernel = te.build(inputs, s.outputs[0], schedule=s)
        built += bool(asked)
        if any(not why_in_turn(s.plan, name) for name in asked):
            ahead += "@halide_semaphore_release" in kernel.source("llvm")  # which only Halide may have refused
        for threads in THREADS * bool(asked):
            te.set_num_threads(threads)
            for _ in range(calls):
                np.testing.assert_array_equal(kernel(*arrays), expected, f"{threads} threads\n{s.code()}\n{s}")
    print(f"built {built}, ahead {ahead}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
