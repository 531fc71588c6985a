"""Stages that read the same arrays again, computed together for one slice of these after another.

    mean[c] = sum over n, i of x[n, c, i]                     for each c, in parallel:
    var[c]  = sum over n, i of (x[n, c, i] - mean[c])^2  ->     mean, var, and y[n, c, i] for all n and i
    y[n, c, i] = (x[n, c, i] - mean[c]) / sqrt(var[c])

Each stage would be a walk through memory. Here a slice comes from memory once and is walked through again in the cache.
What a slice is follows from how stages read each other: one place of every loop by which none of them is reduced, or
several, where a stage has one element for so many (`mean[n, c // 16]`); so many vectors of the loop that lies along
memory (a maximum over the first axis). Groups (`groups`) are the same for outermost loops and rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from heapq import heappop, heappush

from schedules.default.costs import Costs, costs_of, is_pointwise
from schedules.default.groups import Group, groups_of, read_by_checks
from schedules.default.patterns.slice_places import FREE, Position, Positions, followed, joined, place_of
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr
from tedsl.lang.extents import number
from tedsl.lang.intervals import Range, hull, range_of
from tedsl.lang.tensor import Compute, Operation, Tensor

__all__ = ["Slices", "slices_of"]

UNIT = 4  # vectors, of which the columns of a slice are a multiple
MADE_FOR = ("", "partial", "folded", "tree")  # kinds of stages that may be computed anywhere
MOST_READS = 1 << 10  # through what is inlined


@dataclass(frozen=True, eq=False)
class Slices:
    """A stage, how many places of which of its loops are a slice, and the stages computed for each, users first.

    `single`: axes of which a slice has one place. `columns`: those along memory, of which it has a part.
    """

    root: Compute
    steps: Mapping[Axis, int]
    members: tuple[Compute, ...]
    single: Set[Axis]
    columns: Set[Axis]


def slices_of(
    rw: Rewriting, outputs: Set[Operation], kept: Set[Operation], costs: Costs, machine: Machine
) -> list[Slices]:
    """What a program computes by slices, its last stages first.

    `costs` inline stages that would take longer to memory and back. Within a slice they are not on their way there.
    """
    search = _Search(rw, kept, costs_of(rw.stages, kept, rw.planned, machine), machine)
    found: list[Slices] = []
    if not search.walks_again():
        return found
    groups: dict[Operation, Group] = {
        g.root: g for g in groups_of(rw.stages, outputs, rw.planned, search.costs, machine)
    }
    for op in reversed(rw.stages):
        group = groups.get(op)  # what is computed within rows stays there, unless these are in slices
        if group is not None and is_pointwise(op) and op not in costs.inlined and search.is_free(op):
            made = search.below(group.root, group)
            if made is not None:
                found.append(made)
                search.busy |= {op, *made.members}
    return found


@dataclass(frozen=True, eq=False)
class _Below:
    """A stage with those that only it and they read: where these are by its loops, and what each reads there."""

    places: Mapping[Compute, Positions]
    reads: Mapping[Compute, Sequence[tuple[Tensor, Positions]]]

    def within(self, loops: Set[Axis]) -> list[Compute]:
        """The stages of which each iteration of the root's `loops` has a part to itself, users before inputs."""
        found: list[Compute] = []
        for op, places in self.places.items():
            readers = [r for r, reads in self.reads.items() if any(t.op is op for t, _ in reads)]
            if loops <= followed(places) and all(r in found for r in readers):
                found.append(op)
        return found


class _Search:
    """What may be computed by slices of a stage."""

    def __init__(self, rw: Rewriting, kept: Set[Operation], costs: Costs, machine: Machine) -> None:
        self.rw, self.costs, self.machine = rw, costs, machine
        self.busy: set[Operation] = set()  # in slices already
        self.parts: dict[Operation, Mapping[Tensor, float]] = {}
        folded = {op for op in kept if rw.kinds.get(op.name) == "folded"}
        self.outside = {*kept, *read_by_checks(rw.stages)} - folded
        self.stored = [op for op in rw.stages if op not in costs.inlined]
        self.place = {op: k for k, op in enumerate(self.stored)}
        self.readers: dict[Operation, set[Operation]] = {}  # those that are stored, through what is inlined

    def walks_again(self) -> bool:
        """Whether a large array is read by a reduction and by another stage, or made for one."""
        sums: set[Tensor] = set()
        found: dict[Tensor, int] = {}
        for op in self.stored:
            for tensor in self._read_by(op):
                self.readers.setdefault(tensor.op, set()).add(op)
                found[tensor] = found.get(tensor, 0) + 1
                if getattr(op, "reduction", None) is not None:
                    sums.add(tensor)
        large = [t for t in sums if _bytes(t) >= self.machine.least.slices]
        return any(found[t] > 1 or t.op in self.place for t in large)

    def _read_by(self, op: Operation) -> set[Tensor]:
        """The stored tensors that a stage reads."""
        found: set[Tensor] = set()
        seen: set[Operation] = {op}
        pending = [op]
        for stage in pending:
            for tensor in stage.inputs:
                if tensor.op not in self.costs.inlined:
                    found.add(tensor)
                elif tensor.op not in seen:
                    seen.add(tensor.op)
                    pending.append(tensor.op)
        return found

    def is_free(self, op: Operation) -> bool:
        """Whether the loops of a stage are still open."""
        known = isinstance(op, Compute) and all(number(a.extent) and number(a.begin) == 0 for a in op.axes)
        is_open = op not in self.costs.inlined and op not in self.busy and op.name not in self.rw.planned
        return known and is_open and self.rw.kinds.get(op.name, "") in MADE_FOR

    def below(self, root: Compute, group: Group) -> Slices | None:
        """The slices of a stage, where they keep more in the cache than its rows do."""
        if not any(self.readers.get(t.op, set()) <= {root} for t in self._read_by(root) if self.is_free(t.op)):
            return None
        known = self._below(root)
        if known is None:
            return None
        loops = {followed(p) for p in known.places.values()}
        loops |= {a - {_last(root)} for a in loops}
        loops = {a & b for a in loops for b in loops if a & b}
        inside = [m for m in group.members if m in known.places]
        rows = self._worth(known, root, inside, dict.fromkeys(root.axes[: group.depth], 1))
        best, least = None, rows + self.machine.least.slices
        for chosen in sorted(loops, key=lambda s: [a in s for a in root.axes], reverse=True):
            made = self._slices(known, root, chosen)
            worth = 0 if made is None else self._worth(known, root, made.members, made.steps)
            if worth >= least + (best is not None):
                best, least = made, worth
        return best

    def _below(self, root: Compute) -> _Below | None:
        own = tuple(Position(a) if number(a.extent) != 1 else FREE for a in root.axes)
        places: dict[Compute, Positions] = {root: own}
        reads: dict[Compute, list[tuple[Tensor, Positions]]] = {}
        arrived: dict[Operation, list[Positions]] = {}
        waiting = [-self.place[root]]  # the last one first: all that read a stage come before it
        while waiting:
            op = self.stored[-heappop(waiting)]
            if op is not root:
                if not self.readers.get(op, {op}) <= places.keys() or op in self.outside or not self.is_free(op):
                    continue
                assert isinstance(op, Compute)
                at = joined(arrived[op])
                if not followed(at):
                    continue
                places[op] = at
            assert isinstance(op, Compute)
            found = self._reads(op, places[op])
            if found is None:
                return None
            reads[op] = found
            for tensor, here in found:
                if tensor.op in self.place and tensor.op not in arrived:
                    heappush(waiting, -self.place[tensor.op])
                arrived.setdefault(tensor.op, []).append(here)
        return _Below(places, reads) if len(places) > 1 else None

    def _reads(self, op: Compute, places: Positions) -> list[tuple[Tensor, Positions]] | None:
        """Where a stage reads what is stored; None where there are too many ways."""
        found: dict[tuple[Tensor, Positions], None] = {}
        seen: set[tuple[Operation, Positions]] = {(op, places)}
        pending: list[tuple[Operation, Positions]] = [(op, places)]
        for stage, own in pending:
            at: dict[Axis, Position] = dict(zip(getattr(stage, "axes", ()), own, strict=True))
            for read in stage.reads:
                here = tuple(place_of(i, at) for i in read.indices)
                inner = read.tensor.op
                if inner not in self.costs.inlined:
                    found[read.tensor, here] = None
                elif (inner, here) not in seen:
                    seen.add((inner, here))
                    pending.append((inner, here))
            if len(seen) > MOST_READS:
                return None
        return list(found)

    def _slices(self, known: _Below, root: Compute, loops: Set[Axis]) -> Slices | None:
        """The slices of a stage by some of its loops, where they fit a cache and give every core some."""
        members = known.within(loops)[1:]
        if not members:
            return None
        steps = {
            a: math.lcm(*(p.by for m in members for p in known.places[m] if p.axis is a))
            for a in root.axes
            if a in loops
        }
        if any((number(a.extent) or 0) % n for a, n in steps.items()):
            return None
        if _last(root) in loops:
            if not self._is_large(known, root, members, steps):
                return None  # parts of rows, far apart, come from the shared cache slower than whole rows
            wide = self._columns(known, root, members, steps)
            if wide is None:
                return None
            steps = {**steps, _last(root): wide}
        tasks = math.prod(-(-(number(a.extent) or 0) // n) for a, n in steps.items())
        fits = self._fits(known, root, members, steps)
        if not fits or (self.machine.cores > 1 and tasks < 2 * self.machine.cores):
            return None
        axes = [(a, p) for m in (root, *members) for a, p in zip(m.axes, known.places[m], strict=True)]
        single = {a for a, p in axes if p.axis is not None and p.each * steps.get(p.axis, 0) == p.by}
        columns = {a for a, p in axes if p.axis is _last(root)} if _last(root) in steps else set()
        return Slices(root, steps, tuple(members), single, columns)

    def _columns(
        self, known: _Below, root: Compute, members: Sequence[Compute], steps: Mapping[Axis, int]
    ) -> int | None:
        """How many elements of the loop along memory are in a slice: whole vectors, equal parts if possible."""
        vector = _last(root)
        extent, unit = number(vector.extent) or 0, UNIT * self.machine.vector_bytes // 4
        most = [n for n in range(unit, extent, unit) if n % steps[vector] == 0]
        for room in (self.machine.l2 // 2, self.machine.l2):
            fit = [n for n in most if self._size(known, root, members, {**steps, vector: n}) <= room]
            if fit and fit[-1] * UNIT >= self.machine.least.slice_vectors * unit:
                even = [n for n in fit if extent % n == 0]
                return even[-1] if even and 4 * even[-1] >= fit[-1] else fit[-1]
        return None

    def _fits(self, known: _Below, root: Compute, members: Sequence[Compute], steps: Mapping[Axis, int]) -> bool:
        """Whether a slice fits the cache of a core, or the one that all share where not everything does."""
        size, machine = self._size(known, root, members, steps), self.machine
        if size <= machine.l2:
            return True
        return size <= machine.l3 // (2 * machine.cores) and self._is_large(known, root, members, steps)

    def _is_large(self, known: _Below, root: Compute, members: Sequence[Compute], loops: Iterable[Axis]) -> bool:
        """Whether all that is read and made may not stay in the cache that the cores share, among others."""
        return 2 * self._size(known, root, members, {a: number(a.extent) or 1 for a in loops}) > self.machine.l3

    def _size(self, known: _Below, root: Compute, members: Sequence[Compute], steps: Mapping[Axis, int]) -> int:
        """The bytes of all that is read and made for a slice."""
        parts: dict[Tensor, float] = {}
        for op in (root, *members):
            own = [(t, known.places[op]) for t in op.outputs]
            for tensor, places in [*own, *known.reads[op]]:
                part = math.prod(_share(p, e, steps) for p, e in zip(places, tensor.extents, strict=True))
                parts[tensor] = max(parts.get(tensor, 0), part)
        return round(sum(part * _bytes(t) for t, part in parts.items()))

    def _worth(self, known: _Below, root: Compute, members: Sequence[Compute], steps: Mapping[Axis, int]) -> int:
        """The bytes that need not come from memory again, of what does not stay in the cache anyway."""
        if not self._fits(known, root, members, steps):
            return 0
        times: dict[Tensor, float] = {}
        for op in (root, *members):
            for tensor, part in self._parts(op).items():
                times[tensor] = times.get(tensor, 0 if tensor.op not in members else 2) + part
        least = self.machine.least.slices
        return sum(round(_bytes(t) * max(0, n - 1)) for t, n in times.items() if _bytes(t) >= least)

    def _parts(self, op: Compute) -> Mapping[Tensor, float]:
        """Which part of each stored tensor a stage reads: what blocks of a sum leave over is little of it."""
        if op not in self.parts:
            boxes: dict[Tensor, tuple[Range, ...]] = {}
            seen: set[tuple[Operation, tuple[Range, ...]]] = set()
            pending: list[tuple[Operation, dict[Expr, Range]]] = [(op, {})]
            for stage, known in pending:
                for read in stage.reads:
                    inner, box = read.tensor.op, tuple(range_of(i, known) for i in read.indices)
                    if inner not in self.costs.inlined:
                        boxes[read.tensor] = tuple(map(hull, box, boxes.get(read.tensor, box)))
                    elif (inner, box) not in seen:
                        seen.add((inner, box))
                        pending.append((inner, dict(zip(getattr(inner, "axes", ()), box, strict=True))))
            self.parts[op] = {t: _part_of(t, box) for t, box in boxes.items()}
        return self.parts[op]


def _last(root: Compute) -> Axis:
    """The loop along memory."""
    return next((a for a in root.axes[::-1] if number(a.extent) != 1), root.axes[-1])


def _bytes(tensor: Tensor) -> int:
    return math.prod(number(e) or 1 for e in tensor.extents) * tensor.dtype.itemsize


def _part_of(tensor: Tensor, box: Sequence[Range]) -> float:
    """Which part of a tensor lies between the least and the greatest indices."""
    sizes = [(high - low + 1, number(e) or 1) for (low, high), e in zip(box, tensor.extents, strict=True)]
    return math.prod(min(1, part / size) for part, size in sizes)


def _share(place: Position, extent: Expr, steps: Mapping[Axis, int]) -> float:
    """Which part of a dimension is in a slice."""
    if place.axis is None or place.axis not in steps:
        return 1
    return min(1, place.each * steps[place.axis] / place.by / (number(extent) or 1))
