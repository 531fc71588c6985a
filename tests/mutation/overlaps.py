"""Random triples: a program, a schedule for it, and memory that its output shares with its input."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

import tedsl as te

SCHEDULED = ("default", "default", "own", "own", "own")


@dataclass(frozen=True)
class Triple:
    """Inputs and outputs (the first of which lies on the first input), a schedule, and how the memory is shared."""

    inputs: list[te.Tensor]
    outputs: list[te.Tensor]
    schedule: Any
    overlap: str
    note: str


def index_forms(n: int, m: int) -> list[Callable[[Any, Any], tuple[Any, Any]]]:
    """Places from which an element is read: mostly its own."""
    own = [lambda i, j: (i, j)] * 16
    return [
        *own,
        lambda i, j: (te.minimum(i + 1, n - 1), j),
        lambda i, j: (te.maximum(i - 1, 0), j),
        lambda i, j: (n - 1 - i, j),
        lambda i, j: (i, te.minimum(j + 1, m - 1)),
        lambda i, j: (i, m - 1 - j),
        lambda i, j: (i, 0),
        lambda i, j: (i // 2, j),
    ]


class Writer:
    """A program stage by stage."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.n, self.m = rng.randint(2, 9), rng.randint(2, 9)
        self.A, self.B = (te.placeholder((self.n, self.m), "int32", name=x) for x in "AB")
        self.stages: list[te.Tensor] = []

    def read(self, x: te.Tensor, i: Any, j: Any) -> Any:
        if x.ndim == 1:
            return x[i] if x.shape[0] == self.n else x[j]
        form = self.rng.choice(index_forms(self.n, self.m))
        if form(1, 1)[0].__class__ is int:
            return x[form(i, j)]
        if self.rng.random() < 0.3:  # ahead of the element, where there is something
            return te.select(i < self.n - 1, x[i + 1, j], 0)
        return x[form(i, j)]

    def pointwise(self, name: str) -> te.Tensor:
        sources = [self.A, self.A, self.B, *self.stages]
        chosen = [self.rng.choice(sources) for _ in range(self.rng.randint(1, 3))]

        def body(i: Any, j: Any) -> Any:
            parts = [self.read(x, i, j) for x in chosen]
            total = parts[0]
            for k, part in enumerate(parts[1:]):
                total = total + (k + 2) * part
            return total

        return te.compute((self.n, self.m), body, name=name)

    def reduced(self, name: str) -> te.Tensor:
        x = self.rng.choice([self.A, self.A, *(s for s in self.stages if s.ndim == 2)])
        k = te.reduce_axis(self.m if (rows := self.rng.random() < 0.7) else self.n, name="k")
        combine = self.rng.choice([te.sum, te.max])
        if rows:
            return te.compute((self.n,), lambda i: combine(x[i, k], axis=k), name=name)
        return te.compute((self.m,), lambda j: combine(x[k, j], axis=k), name=name)


def random_schedule(rng: random.Random, outputs: list[te.Tensor], stages: list[te.Tensor]) -> tuple[Any, list[str]]:
    """A schedule of a few directives; those that are refused are left out."""
    s = te.Schedule(outputs)
    told: list[str] = []
    for tensor in (*stages, *outputs):
        names = [a.name for a in s[tensor].axes]
        for _ in range(rng.randint(0, 2)):
            verb = rng.choice(["split", "parallel", "vectorize", "unroll", "reorder"])
            with suppress(te.ScheduleError, KeyError):
                loop = rng.choice(names)
                if verb == "split":
                    outer, inner = s[tensor].split(loop, rng.randint(1, 4))
                    names += [getattr(outer, "name", outer), getattr(inner, "name", inner)]
                elif verb == "reorder":
                    s[tensor].reorder(*reversed(s[tensor].axes))
                elif verb == "parallel":
                    s[tensor].parallel(loop)
                else:
                    getattr(s[tensor], verb)(loop, rng.randint(2, 4))
                told.append(f"{tensor.name}.{verb}({loop})")
    for tensor in stages:
        with suppress(te.ScheduleError, KeyError):
            kind = rng.randrange(4)
            if kind == 0:
                loop = rng.choice([a.name for a in s[outputs[0]].axes])
                s[tensor].compute_at(s[outputs[0]], loop)
                told.append(f"{tensor.name}.compute_at({outputs[0].name}, {loop})")
            elif kind == 1:
                s[tensor].compute_inline()
                told.append(f"{tensor.name}.compute_inline()")
    return s, told


def draw(rng: random.Random) -> Triple:
    w = Writer(rng)
    for k in range(rng.randint(0, 2)):
        w.stages.append(w.pointwise(f"S{k}") if rng.random() < 0.5 else w.reduced(f"R{k}"))
    outputs = [w.pointwise("C")]
    if rng.random() < 0.3:
        sources = w.stages
        w.stages = [*sources, outputs[0]]
        outputs.append(w.pointwise("D"))
        w.stages = sources
    needed = [t for t in w.stages if any(t in set(op.inputs) for op in reached(outputs))]
    kind, schedule, told = rng.choice(SCHEDULED), None, ["default"]
    if kind == "own":
        schedule, told = random_schedule(rng, outputs, needed)
    overlap = rng.choice(["alias", "alias", "alias", "exact", "shifted", "reversed", "interleaved"])
    note = "\n".join([*(str(t) for t in (*needed, *outputs)), f"{w.n} x {w.m}", *told, overlap])
    return Triple([w.A, w.B], outputs, schedule, overlap, note)


def reached(outputs: list[te.Tensor]) -> list[Any]:
    """The operations that the outputs need."""
    found: dict[Any, None] = {}
    pending = [t.op for t in outputs]
    while pending:
        op = pending.pop()
        if op not in found:
            found[op] = None
            pending += [t.op for t in op.inputs]
    return list(found)


def run(triple: Triple, seed: int) -> tuple[str, list[Any], list[Any]]:
    """What became of the overlap, the results, and those without any overlap."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-9, 10, t.shape, np.int32) for t in triple.inputs)
    want = te.interpret(triple.outputs, dict(zip(triple.inputs, (a, b), strict=True)))
    if triple.overlap == "alias":
        try:
            kern = te.build(triple.inputs, triple.outputs, triple.schedule, alias={triple.outputs[0]: triple.inputs[0]})
        except te.AliasError:
            return "refused", [], []
        return "in place", list(kern(a, b)), list(want)
    kern = te.build(triple.inputs, triple.outputs, triple.schedule)
    n, m = a.shape
    memory = np.zeros((2 * n + 1, m), np.int32)
    source = memory[:n]
    cuts = {"exact": np.s_[:n], "shifted": np.s_[1 : n + 1], "interleaved": np.s_[: 2 * n : 2]}
    target = memory[:n][::-1] if triple.overlap == "reversed" else memory[cuts[triple.overlap]]
    source[...] = a
    found = kern(source, b, out={triple.outputs[0].name: target})
    return "copied" if kern.stats.copies else "in place", list(found), list(want)
