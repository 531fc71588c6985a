"""Directives for stages that are computed by slices (`slices`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set

from schedules.default.costs import Costs
from schedules.default.groups import Group
from schedules.default.neighbors import along
from schedules.default.patterns.nests import GroupLoops
from schedules.default.patterns.slices import Slices
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.directives import ComputeAt, ComputeRoot, Reorder, Split, Unroll, Vectorize
from schedules.machine import Machine
from schedules.plan import Plan
from tedsl.lang.expr import Axis
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute

__all__ = ["plan_slices"]

ROWS = 8  # of a reduction along columns, at a time


def plan_slices(rw: Rewriting, found: Iterable[Slices], costs: Costs, machine: Machine, plan: Plan) -> None:
    """Directives for the stages of slices, which are planned then."""
    for made in found:
        group = Group(made.root, 0, list(made.members))
        _SliceLoops(rw, group, costs, machine, plan).share(made)
        rw.planned |= {op.name for op in (made.root, *made.members)}


class _SliceLoops(GroupLoops):
    """The loops of stages that are computed by slices."""

    single: Set[Axis] = frozenset()
    columns: Set[Axis] = frozenset()

    def share(self, made: Slices) -> None:
        """Slices outside, shared among threads; in each the stages one after another."""
        root, names = made.root, loop_names(made.root)
        self.single, self.columns = made.single, made.columns
        self.say(ComputeRoot(stage=root.name))
        outer: list[str] = []
        for axis, step in made.steps.items():
            if step > 1:
                name, exact = names[axis], (number(axis.extent) or 0) % step == 0
                slices, inside = f"{name}_t", f"{name}_b"
                self.say(Split(stage=root.name, loop=name, outer=slices, inner=inside, factor=step, exact=exact))
                names[axis] = inside
        outer = [f"{loop_names(root)[a]}_t" if made.steps[a] > 1 else names[a] for a in root.axes if a in made.steps]
        within = [a for a in root.axes if a not in made.single]
        order = [names[a] for a in within]
        inner = self._vectors_of(root, made, order, names)
        self.say(Reorder(stage=root.name, loops=(*outer, *order, *inner)))
        fusing, (task,) = fused(root.name, outer, "f")
        self.say(*fusing)
        count = math.prod(-(-(number(a.extent) or 0) // n) for a, n in made.steps.items())
        threads = self.machine.cores > 1 and self._work() >= self.machine.least.nest_threads
        at = self._tasks(root, task, count, threads=threads)
        for member in made.members:
            self.say(ComputeAt(stage=member.name, consumer=root.name, loop=at))
            self._inner(member, 0)

    def _vectors_of(self, root: Compute, made: Slices, order: list[str], names: Mapping[Axis, str]) -> list[str]:
        """The loop along memory as vectors; the loops inside of it."""
        vector = self._vector_axis(root, 0)
        step = 1 if vector is None else made.steps.get(vector, 1)
        if vector is None or step == 1:
            return self._cut(root, "body", vector, order)
        width, name = self._width(root), loop_names(root)[vector]
        exact = step % width == 0
        self.say(
            Split(stage=root.name, loop=names[vector], outer=f"{name}_o", inner=f"{name}_v", factor=width, exact=exact),
            Vectorize(stage=root.name, loop=f"{name}_v"),
        )
        order[order.index(names[vector])] = f"{name}_o"
        return [f"{name}_v"]

    def _inner(self, op: Compute, depth: int) -> None:
        """As of any stage, but columns of a slice are reduced a few rows at a time, each of them in one piece."""
        vector = self._vector_axis(op, depth)
        rows = None if op.reduction is None else number(op.reduction.axes[-1].extent)
        if vector not in self.columns or vector is None or rows is None or rows < ROWS or not along(op, vector):
            super()._inner(op, depth)
            return
        names, width = loop_names(op), self._width(op)
        assert op.reduction is not None
        sums = [names[a] for a in op.reduction.axes]
        others = [names[a] for a in op.axes if a is not vector]
        self._cut(op, "init", vector, [names[a] for a in op.axes])
        name, row = names[vector], f"{sums[-1]}_i"
        outer, lane = f"{name}_o", f"{name}_v"
        self.say(
            Split(stage=op.name, loop=name, outer=outer, inner=lane, factor=width),
            Vectorize(stage=op.name, loop=lane),
            Split(stage=op.name, loop=sums[-1], outer=f"{sums[-1]}_o", inner=row, factor=ROWS),
            Unroll(stage=op.name, loop=row),
            Reorder(stage=op.name, loops=(*others, *sums[:-1], f"{sums[-1]}_o", outer, row, lane)),
        )

    def _longer(self, op: Compute, depth: int = 0) -> list[Axis]:
        """As of any stage, but for axes of which a slice has one place."""
        return [a for a in super()._longer(op, depth) if a not in self.single]
