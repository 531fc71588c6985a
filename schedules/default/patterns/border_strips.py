"""Copies with a border, made of a few rows at a time, by the thread that moves a window over them.

    for all rows: bordered = ..;                    for each strip of rows, in parallel:
    for each row, in parallel: y = ..       ->        for its rows and those that its windows reach: bordered = ..
                                                      for each row: y = ..

A whole copy of a large image goes to memory and comes back, and of a small one takes threads longer to start than to
make. A strip stays in the second cache. What is made twice is the height of a window for each strip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from schedules.default.costs import Costs, points
from schedules.default.neighbors import period
from schedules.default.rewriting import Rewriting, fused
from schedules.directives import (
    AlignStorage,
    BoundExtent,
    ComputeAt,
    ComputeRoot,
    Directive,
    Parallel,
    Split,
    Unroll,
    Vectorize,
)
from schedules.machine import Machine
from tedsl.analysis.affine import affine_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute

__all__ = ["Strips", "strips_of", "whole_copies"]

STRIPS = 4  # for each core
MOST_TWICE = 1.4  # elements that are made, for each of the copy
KINDS = ("bordered", "finite", "tabulated")


@dataclass(frozen=True, eq=False)
class _Copy:
    """A copy, and what of it an iteration of the outer loops of the window reads."""

    table: Compute
    spans: tuple[tuple[int, int], ...]  # of each axis: elements that a row of the result needs, more for another one

    def counts(self, height: int) -> list[int]:
        """Elements along each axis for so many rows."""
        ends = [number(a.extent) or 1 for a in self.table.axes]
        return [min(end, first + more * (height - 1)) for end, (first, more) in zip(ends, self.spans, strict=True)]

    def bytes(self, height: int) -> int:
        return math.prod(self.counts(height)) * self.table.bodies[0].dtype.itemsize

    def twice(self, height: int, strips: int) -> float:
        """How often an element is made."""
        return math.prod(self.counts(height)) * strips / points(self.table.axes)


@dataclass(frozen=True, eq=False)
class Strips:
    """Copies of which one strip of so many rows of a result is made at a time."""

    copies: tuple[_Copy, ...]
    height: int

    def directives(self, consumer: str, at: str, machine: Machine) -> list[Directive]:
        """Their loops within one of the stage that carries those of the strips."""
        made: list[Directive] = []
        for copy in self.copies:
            table = copy.table
            made.append(ComputeAt(stage=table.name, consumer=consumer, loop=at))
            for axis, count in zip(table.axes, copy.counts(self.height), strict=True):
                if count == number(axis.extent):
                    made.append(BoundExtent(stage=table.name, axis=axis.name, extent=count))
            made += _vectors(table, machine)
            width, extent = machine.vector_bytes // table.bodies[0].dtype.itemsize, number(table.axes[-1].extent) or 0
            if extent % width and extent > 2 * width:
                made.append(AlignStorage(stage=table.name, axis=table.axes[-1].name, multiple=width))
        return made


def strips_of(
    rw: Rewriting, window: Compute, root: Compute, costs: Costs, machine: Machine, within: Sequence[int] = ()
) -> Strips | None:  # fmt: skip
    """The strips of the copies that a window reads, where it has rows and nobody else reads them.

    `within`: how much of each axis of the root a strip has, where that is known already.
    """
    if len(root.axes) < 3:
        return None
    copies: list[_Copy] = []
    for table in {t.op: None for t in window.inputs if rw.kinds.get(t.op.name) == "bordered"}:
        sites = costs.readers[table]
        copy = _copy(window, sites[0][1], table) if len(sites) == 1 and isinstance(table, Compute) else None
        if copy is None:
            return None
        copies.append(copy)
    size = sum(points(c.table.axes) * c.table.bodies[0].dtype.itemsize for c in copies)
    if not copies or size < machine.least.border_strips:
        return None
    height = _height_within(root, copies, machine, within) if within else _height(root, copies, machine)
    return None if height is None else Strips(tuple(copies), height)


def _copy(window: Compute, read: Read, table: Compute) -> _Copy | None:
    """What a window reads of a copy while its loops stay but for the last three; None where that is not known."""
    assert window.reduction is not None
    row, inner = window.axes[-3], (*window.axes[-2:], *window.reduction.axes)
    spans: list[tuple[int, int]] = []
    for index in read.indices:
        form = affine_of(index)
        if form is None or not form.is_linear or any(not isinstance(a, Axis) for a in form.atoms):
            return None
        factors = {a: abs(form.terms.get((a,), 0)) for a in (row, *inner)}
        spans.append((1 + sum(factors[a] * ((number(a.extent) or 1) - 1) for a in inner), factors[row]))
    return _Copy(table, tuple(spans))


def _height(root: Compute, copies: Sequence[_Copy], machine: Machine) -> int | None:
    """Rows of a strip: enough strips for all cores, each in the second cache; None where too much is made twice."""
    extent, outer = number(root.axes[-3].extent) or 0, math.prod(number(a.extent) or 0 for a in root.axes[:-3])
    best: tuple[bool, int, int] | None = None
    for count in range(1, extent + 1):
        height = -(-extent // count)
        strips = outer * -(-extent // height)
        if strips < machine.cores or sum(c.bytes(height) for c in copies) > machine.l2 // 2:
            continue
        if any(c.twice(height, strips) > MOST_TWICE for c in copies):
            break
        even = strips % machine.cores == 0
        if best is None or (even, strips) > best[:2]:
            best = even, strips, height
        if strips >= STRIPS * machine.cores:
            break
    return None if best is None else best[2]


def _height_within(root: Compute, copies: Sequence[_Copy], machine: Machine, within: Sequence[int]) -> int | None:
    """Rows of a strip that has so much of each axis; None where it has several images, or its copies are too large."""
    *outer, height = within[:-2]
    strips = points(root.axes[:-2]) // height
    fits = math.prod(outer) == 1 and sum(c.bytes(height) for c in copies) <= machine.l2 // 2
    return height if fits and all(c.twice(height, strips) <= MOST_TWICE for c in copies) else None


def whole_copies(rw: Rewriting, strips: Iterable[Strips], machine: Machine) -> list[Directive]:
    """Directives for the copies that are not in strips: row after row of pixels."""
    taken = {copy.table for made in strips for copy in made.copies}
    made: list[Directive] = []
    for table in rw.stages:
        if rw.kinds.get(table.name) not in KINDS or table in taken or not isinstance(table, Compute):
            continue
        stage, names = table.name, [a.name for a in table.axes]
        made += [ComputeRoot(stage=stage), *_vectors(table, machine)]
        if machine.cores > 1 and points(table.axes) >= machine.least.table_threads and len(names) > 1:
            fusing, (task,) = fused(stage, names[: max(1, len(names) - 2)], "f")
            made += [*fusing, Parallel(stage=stage, loop=task)]
    return made


def _vectors(table: Compute, machine: Machine) -> list[Directive]:
    """Along the last loop; as many at a time as know by their lanes which elements are read several times."""
    stage, lane = table.name, table.axes[-1]
    width = machine.vector_bytes // table.bodies[0].dtype.itemsize
    times = period(table, lane, width)
    made: list[Directive] = []
    if times > 1:
        made += [
            Split(stage=stage, loop=lane.name, outer="v_o", inner="v_w", factor=times * width),
            Split(stage=stage, loop="v_w", outer="v_w", inner="v_v", factor=width, exact=True),
            Unroll(stage=stage, loop="v_w"),
        ]
    else:
        made.append(Split(stage=stage, loop=lane.name, outer="v_o", inner="v_v", factor=width))
    return [*made, Vectorize(stage=stage, loop="v_v")]
