"""What the rows of a product are made of, computed by the task that multiplies them.

    for each row, in parallel: each = ..              for each task, in parallel:
    for each task, in parallel: out = each * w   ->     for its rows: each = ..;   out = each * w

The rows stay in the cache on their way, and threads start once. No row is computed twice: blocks of columns that lie
around those of rows would ask for them again, and where they do, all rows are made before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from schedules.default.costs import Costs, points
from schedules.default.rewriting import Rewriting
from schedules.directives import BoundExtent, ComputeAt, Directive, LoopDirective, Parallel
from schedules.loops import Level, nest_of, transformed
from schedules.machine import Machine
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation

__all__ = ["Fed", "Feeding"]

MOST_TWICE = 1.25  # elements of which a loop has one, for each that there is: the last task may have less to do


@dataclass(frozen=True)
class Fed:
    """A loop of a product at which a stage is computed, the loop of its task, and how much of each axis is, there."""

    product: str
    loop: str
    counts: tuple[int, ...]
    task: str
    task_counts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Product:
    """The stage that carries the loops of a product, how many are around its tiles of sums, and their names there."""

    stage: Compute
    loops: tuple[Level, ...]
    around: int  # of the loops
    parallel: bool
    names: Mapping[Axis, Axis]


class Feeding:
    """The products of a program, by the sums of their tiles."""

    def __init__(self, rw: Rewriting, kept: Set[Operation], costs: Costs, machine: Machine) -> None:
        self.kept, self.costs, self.machine = kept, costs, machine
        self.stages = {op.name: op for op in rw.stages}
        self.checked = {t.op for t in rw.finite}
        self.own: dict[str, list[Directive]] = {}
        for said in rw.directives:
            self.own.setdefault(said.stage, []).append(said)
        self.products: dict[Operation, _Product | None] = {}

    def place(self, op: Compute, *, threads: bool) -> Fed | None:
        """Where a stage is computed that one product alone reads; `threads`: whether it is worth some of its own."""
        sums, reads = self._only_reader(op)
        if sums is None or op in self.checked or len(op.outputs) > 1 or not all(number(a.extent) for a in op.axes):
            return None
        product = self._product(sums)
        if product is None or (threads and not product.parallel):
            return None
        return self._best(op, product, reads)

    def _only_reader(self, op: Operation) -> tuple[Operation | None, list[Read]]:
        """The only stage that reads another one, if need be through others that are inlined into it; and its reads."""
        while op not in self.kept:
            sites = self.costs.readers.get(op, [])
            readers = {reader for reader, _ in sites}
            if len(readers) != 1:
                break
            (reader,) = readers
            if reader not in self.costs.inlined:
                return reader, [read for _, read in sites]
            if not all(_is_same_point(reader, read) for _, read in sites):
                break
            op = reader
        return None, []

    def _best(self, op: Compute, product: _Product, reads: Sequence[Read]) -> Fed | None:
        """The outermost loop whose rows fit the second cache well, else the innermost one whose rows fit it at all."""
        task: tuple[str, tuple[int, ...]] | None = None
        found: Fed | None = None
        for depth in range(1, product.around):
            counts = self._counts(op, product, depth, reads)
            if counts is None:
                return None
            times = math.prod(level.known or 0 for level in product.loops[:depth])
            if times * math.prod(counts) > MOST_TWICE * points(op.axes):
                break
            size = math.prod(counts) * op.bodies[0].dtype.itemsize
            task = task or (product.loops[depth - 1].name, counts)
            if size <= self.machine.l2 // 2:
                found = Fed(product.stage.name, product.loops[depth - 1].name, counts, *task)
            if size <= self.machine.l2 // 8:
                break
        return found

    def _counts(self, op: Compute, product: _Product, depth: int, reads: Iterable[Read]) -> tuple[int, ...] | None:
        """How much of each axis an iteration of the loops down to `depth` reads; None where that is not known."""
        inside: dict[Axis | int, int] = {}
        for level in product.loops[depth:]:
            for axis in level.origin:
                inside[axis] = inside.get(axis, 1) * (level.known or 0)
        found: set[tuple[int, ...]] = set()
        for read in reads:
            counts = []
            for index, axis in zip(read.indices, op.axes, strict=True):
                place, extent = _plain(index), number(axis.extent) or 0
                own = product.names.get(place) if isinstance(place, Axis) else None
                if own is None and extent != 1 and not (isinstance(index, Axis) and index.is_reduce):
                    return None
                counts.append(extent if own is None else min(extent, inside.get(own, 1)))
            found.add(tuple(counts))
        return found.pop() if len(found) == 1 else None

    def _product(self, sums: Operation) -> _Product | None:
        if sums not in self.products:
            self.products[sums] = self._seen(sums)
        return self.products[sums]

    def _seen(self, sums: Operation) -> _Product | None:
        """The loops of the product whose tiles of sums a stage is; None for any other."""
        at = [d for d in self.own.get(sums.name, ()) if isinstance(d, ComputeAt)]
        readers = self.costs.readers.get(sums, [])
        if len(at) != 1 or len(readers) != 1 or not isinstance(sums, Compute) or sums.reduction is None:
            return None
        copy, stage = readers[0][0], self.stages.get(at[0].consumer)
        if not isinstance(copy, Compute) or not isinstance(stage, Compute) or len(copy.bodies) > 1:
            return None
        if copy.bodies[0] is not readers[0][1] or len(copy.axes) != len(stage.axes):
            return None
        nest = nest_of(stage.name, stage, "body")
        for said in self.own[stage.name]:
            if isinstance(said, BoundExtent):
                nest = nest.bounded(said.axis, said.extent)
            elif isinstance(said, LoopDirective) and said.definition == "body":
                nest = transformed(nest, said)
        if any(level.known is None for level in nest.levels):
            return None
        places = dict(zip(copy.axes, stage.axes, strict=True))
        names = {a: places[i] for a, i in zip(sums.axes, readers[0][1].indices, strict=True) if isinstance(i, Axis)}
        parallel = any(isinstance(d, Parallel) for d in self.own[stage.name])
        return _Product(stage, nest.levels, nest.position(at[0].loop) + 1, parallel, names)


def _is_same_point(reader: Operation, read: Read) -> bool:
    """Whether the indices of a read are the reader's axes, in order, but for those that have one element."""
    axes, own = getattr(reader, "axes", ()), getattr(read.tensor.op, "axes", ())
    if not len(axes) == len(own) == len(read.indices):
        return False
    return all(a is i or number(o.extent) == 1 for a, i, o in zip(axes, read.indices, own, strict=True))


def _plain(index: Expr) -> Expr:
    """The axis of an index that stops at the end of its row."""
    if isinstance(index, Apply) and index.fn is Fn.MINIMUM and isinstance(index.args[1], Const):
        return index.args[0]
    return index
