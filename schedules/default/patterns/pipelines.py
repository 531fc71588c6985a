"""Stages that read each other through windows, computed together row by row, so that what they read is in the cache.

    blur[y, x] = x[y, x] + x[y, x + 1] + x[y, x + 2]                 for each strip of rows, in parallel:
    out[y, x] = blur[y, x] + blur[y + 1, x] + blur[y + 2, x]   ->      for each row: one more of blur, one of out

Each stage would be written to memory and read again where it does not fit the cache, or computed once more for each
place of the window that it is read through. Here it has memory for as many rows as the window is high, or where rows
are held at an end for those of a strip. What is computed twice is the height of a window for each strip.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set

from schedules.default.costs import Costs, costs_of, is_pointwise, is_same_point, pays_to_keep, points
from schedules.default.groups import Group, read_by_checks
from schedules.default.patterns.nests import FEW_UNROLLED, TASKS, GroupLoops, shared_along
from schedules.default.patterns.phases import phases_of
from schedules.default.patterns.switches import asked_by, pays_by_cases
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.directives import ComputeAt, ComputeRoot, Parallel, Reorder, Split, StoreAt
from schedules.machine import Machine
from schedules.placing.sliding import held
from schedules.plan import Plan
from tedsl.analysis.affine import affine_of
from tedsl.analysis.rounds import unfolded
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.intervals import range_of
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of

__all__ = ["Pipeline", "pipelines_of", "plan_pipelines"]

SHARE_OF_MANY = 2  # rows of a strip for each that another one computes too, of what would be computed for each of
MANY_READS = 8  # so many reads


@dataclass(frozen=True)
class _Place:
    """Where along the loops of the root an axis is: beside one of them, from `low` to `high`; or some way off.

    `moves`: the loops of the root by which it moves at all.
    """

    axis: Axis | None
    low: int
    high: int
    moves: frozenset[Axis]


_Places = Mapping[Axis, _Place]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A stage, one of its loops, and the stages of which each iteration computes what it reads, users before inputs.

    `around`: loops farther out, of which each iteration has a part of every member to itself. `height`: the rows of a
    strip. `slides`: members have memory for a window of rows, or else for all that a strip needs. `whole`: axes of
    members along which each iteration computes all.
    """

    root: Compute
    rows: Axis
    around: tuple[Axis, ...]
    members: tuple[Compute, ...]
    height: int
    slides: bool
    whole: frozenset[Axis]


def pipelines_of(
    rw: Rewriting, kept: Set[Operation], costs: Costs, machine: Machine, free: Set[Operation] = frozenset()
) -> tuple[list[Pipeline], Costs]:
    """The pipelines of a program, and the costs of its stages where members are not computed where they are read.

    `free`: stages with cases, which may be computed anywhere, also those of several results.
    """
    found: list[Pipeline] = []
    pointwise = filter(is_pointwise, rw.stages)
    if all(is_same_point(op, read) for op in pointwise for read in op.reads):
        return found, costs  # each element is made of those at its own place: there is nothing to keep for others
    search = _Search(rw, kept, costs, machine, free)
    for op in reversed(rw.stages):
        if isinstance(op, Compute) and op not in costs.inlined and search.is_free(op):
            made = next((p for rows in op.axes[:-1] if (p := search.along(op, rows)) is not None), None)
            if made is not None:
                found.append(made)
                search.busy |= {op, *made.members}
    members = {m for p in found for m in p.members}
    if members & costs.inlined:  # which makes their readers cheaper, but roots have loops
        stored = members | {p.root for p in found}
        costs = costs_of(rw.stages, kept | stored, rw.planned, machine, costs.inlined - members)
    return found, costs


class _Search:
    """What may be computed within a loop of a stage."""

    def __init__(
        self, rw: Rewriting, kept: Set[Operation], costs: Costs, machine: Machine, free: Set[Operation]
    ) -> None:
        self.rw, self.costs, self.machine, self.free = rw, costs, machine, free
        self.busy: set[Operation] = set()  # in a pipeline already
        self.outside = {*(kept - free), *read_by_checks(rw.stages)}
        self.phased: dict[Operation, bool] = {}  # what was asked: every root asks all stages before it

    def is_free(self, op: Operation) -> bool:
        """Whether the loops of a stage may be those of a pipeline."""
        if not (isinstance(op, Compute) and is_pointwise(op) and all(number(a.extent) for a in op.axes)):
            return False
        if op in self.busy or op.name in self.rw.planned or op.name in self.rw.kinds:
            return False
        return op in self.costs.inlined or not self._has_phases(op)

    def _has_phases(self, op: Compute) -> bool:
        """Whether most of what an element of a dear stage is made of is for other remainders than its own: loops of
        its own are written out by their periods.
        """
        if self.costs.element[op] < self.machine.least.shared:
            return False
        if op not in self.phased:
            self.phased[op] = bool(self.costs.twins.ask(op, phases_of, frozenset(op.axes[:-1])))
        return self.phased[op]

    def along(self, root: Compute, rows: Axis) -> Pipeline | None:
        """The pipeline of a stage along one of its loops, where it pays."""
        extent, least = number(rows.extent) or 0, self.machine.least
        room = self.machine.l2 // 2
        own = {a: _Place(a, 0, 0, frozenset({a})) for a in root.axes}
        inside: dict[Operation, _Places] = {root: own}  # the stages all of whose readers are
        members: dict[Compute, _Place] = {}
        moves: dict[Compute, bool] = {}  # whether the window on a member slides
        for op in reversed(self.rw.stages[: self.rw.stages.index(root)]):  # users before inputs
            sites = self.costs.readers.get(op, [])
            if not sites or not self.is_free(op) or any(reader not in inside for reader, _ in sites):
                continue
            assert isinstance(op, Compute)
            places = _joined(op, [(inside[reader], read) for reader, read in sites])
            beside = [(a, p) for a, p in places.items() if rows in p.moves]
            is_along = len(beside) == 1 and beside[0][1].axis is rows
            if is_along and not _is_turned(op, places, root) and self._is_stored(op, sites):
                along, place = beside[0]
                times = points(_apart(root, rows, [places]))
                overlap, size = place.high - place.low, (place.high - place.low + 1) * _bytes(op) // (extent * times)
                is_again = op in self.costs.inlined and len({read for _, read in sites}) >= MANY_READS
                share = SHARE_OF_MANY if is_again else least.pipeline_share
                strips = -(-self.machine.cores // times) if is_again else self._strips(times)
                if overlap < extent // (share * max(2, strips)) and size <= room:
                    members[op], inside[op], room = place, places, room - size
                    moves[op] = all(_stays_inside(op, along, read) for _, read in sites)
            elif op in self.costs.inlined:
                inside[op] = places
        while members:
            made = self._pipeline(root, rows, inside, members, slides=all(moves[m] for m in members))
            if made is not None:
                return made
            members.popitem()  # what is farthest from the root
        return None

    def _pipeline(
        self, root: Compute, rows: Axis, inside: Mapping[Operation, _Places], members: Mapping[Compute, _Place], *,
        slides: bool,
    ) -> Pipeline | None:  # fmt: skip
        """The pipeline of these members, where it pays."""
        extent, least = number(rows.extent) or 0, self.machine.least
        overlap = max((p.high - p.low for p in members.values()), default=0)
        size = sum(map(_bytes, members))
        if size < least.pipeline or not (overlap or (size > self.machine.l2 and self._are_apart(members))):
            return None
        apart = _apart(root, rows, [inside[m] for m in members])
        around = tuple(a for a in apart if not any(self._is_shared(a, m, inside[m]) for m in members))
        even = -(-extent // (TASKS * self.machine.cores))
        strips = self._strips(points(around))
        height = max(
            min(even, self.machine.choose("strip", least.pipeline_strip, root.name)),
            min(least.pipeline_share * overlap, max(-(-extent // strips), SHARE_OF_MANY * overlap)),
        )
        if not slides:
            row = size // (extent * points(around))
            height = min(height, self.machine.l2 // max(1, row) - overlap)
            if 4 * height < least.pipeline_share * overlap:  # half as much again of one stage is still cheaper
                return None
        turns = max(1, extent // (max(1, height) * self.machine.cores))  # as many strips for each core
        if slides and (strips > 1 or extent >= turns * height * self.machine.cores):
            height = -(-extent // (turns * self.machine.cores))
        own = {rows, *around}
        whole = frozenset(a for m in members for a, p in inside[m].items() if own.isdisjoint(p.moves))
        return Pipeline(root, rows, around, tuple(members), max(1, height), slides, whole)

    def _strips(self, around: int) -> int:
        """How many there must be of each of the parts that stages are in, so that all cores have work."""
        return 1 if around >= self.machine.cores else self.machine.cores

    def _is_shared(self, axis: Axis, member: Compute, places: _Places) -> bool:
        """Whether most of what a member is made of is the same for all iterations of a loop of the root."""
        shared = shared_along(member, member.axes[-1], self.costs, self.machine)
        return shared is not None and axis in places[shared].moves

    def _are_apart(self, members: Iterable[Compute]) -> bool:
        """Whether some are read by other places than the outermost loop of their readers: no group has them."""
        sites = [site for m in members for site in self.costs.readers[m]]
        return any(not isinstance(r, Compute) or read.indices[0] is not r.axes[0] for r, read in sites)

    def _is_stored(self, op: Compute, sites: Sequence[tuple[Operation, Read]]) -> bool:
        """Whether a stage has memory: whether it is dearer to compute it as often as it is read."""
        if op in self.outside or (len(op.bodies) > 1 and op not in self.free):
            return False
        if op not in self.costs.inlined:
            return True
        reads = len({(reader, read) for reader, read in sites})
        return reads > 1 and pays_to_keep(self.costs.element[op], reads)


def _is_turned(op: Compute, places: _Places, root: Compute) -> bool:
    """Whether the rows of a stage go along a loop around those of the root: one element of each would be wanted."""
    own = places[op.axes[-1]].axis
    return any(own is axis for axis in root.axes[:-1])


def _stays_inside(op: Compute, axis: Axis, read: Read) -> bool:
    """Whether a read needs no bound along an axis.

    Halide 21 finds the first row that is new to a window by solving for the last one that is not. Where both are held
    at an end it may find all of the first window to be there already.
    """
    (index,) = (i for a, i in zip(op.axes, read.indices, strict=True) if a is axis)
    low, high = range_of(index)
    return affine_of(index) is not None and low >= 0 and high < (number(axis.extent) or 0)


def _apart(root: Compute, rows: Axis, places: Iterable[_Places]) -> list[Axis]:
    """The loops around the rows of which each iteration has a part of every stage to itself."""
    before = itertools.takewhile(lambda a: a is not rows, root.axes)
    return [a for a in before if all(_is_alone(a, place.values()) for place in places)]


def _is_alone(axis: Axis, places: Iterable[_Place]) -> bool:
    """Whether one place moves with a loop, and exactly so."""
    moved = [p for p in places if axis in p.moves]
    return len(moved) == 1 and moved[0].axis is axis and moved[0].low == moved[0].high


def _bytes(op: Compute) -> int:
    return points(op.axes) * sum(body.dtype.itemsize for body in op.bodies)


def _joined(op: Compute, sites: Sequence[tuple[_Places, Read]]) -> dict[Axis, _Place]:
    """Where the axes of a stage are, by all reads of it."""
    found: dict[Axis, _Place] = {}
    for places, read in sites:
        for axis, index in zip(op.axes, read.indices, strict=True):
            here, known = _place_of(index, axis, places), found.get(axis)
            found[axis] = here if known is None else _both(known, here)
    return found


def _both(a: _Place, b: _Place) -> _Place:
    axis = a.axis if a.axis is b.axis else None
    return _Place(axis, min(a.low, b.low), max(a.high, b.high), a.moves | b.moves)


def _place_of(index: Expr, own: Axis, places: _Places) -> _Place:
    """Where an index along an axis is, but at an end, where it is held or mirrored."""
    if isinstance(index, Axis):
        return places[index]
    if reads_of((index,)):
        return _Place(None, 0, 0, frozenset().union(*(p.moves for p in places.values())))
    moves = frozenset[Axis]().union(*(places[a].moves for a in free_axes(index)))
    mirrored = None if own.extent is None else unfolded(index, own.extent)
    form = affine_of(held(index) if mirrored is None else mirrored.place)
    if form is not None and len(form.axes) == 1:
        axis = form.axes[0]
        by, rest = form.coefficient(axis), form.without(axis)
        if by is not None and by.is_constant and by.constant == 1 and rest.is_constant:
            at = places[axis]
            return _Place(at.axis, at.low + rest.constant, at.high + rest.constant, moves)
    return _Place(None, 0, 0, moves)


def plan_pipelines(rw: Rewriting, pipelines: Sequence[Pipeline], costs: Costs, machine: Machine, plan: Plan) -> None:
    """Directives for the stages of pipelines, which are planned then."""
    for made in pipelines:
        group = Group(made.root, 0, list(made.members))
        _Strips(rw, group, costs, machine, plan, whole=made.whole).share(made)
        rw.planned |= {op.name for op in (made.root, *made.members)}


class _Strips(GroupLoops):
    """The loops of a pipeline."""

    def share(self, made: Pipeline) -> None:
        root, rows, names = made.root, made.rows, loop_names(made.root)
        self.say(ComputeRoot(stage=root.name))
        strip, row = f"{names[rows]}_t", f"{names[rows]}_r"
        around = [names[a] for a in made.around]
        inner_axes = [a for a in root.axes if a is not rows and names[a] not in around]
        order = [names[a] for a in inner_axes]
        self.say(Split(stage=root.name, loop=names[rows], outer=strip, inner=row, factor=made.height))
        vector = self._vector_axis(root, 0)  # of columns of one element it is the rows themselves
        inner = self._cut(root, "body", None if vector not in set(inner_axes) else vector, order)
        short = self._chosen_by(root, vector, inner_axes) if inner else None
        if short is not None:
            order.remove(names[short])
            inner = self._written_out(root, short, inner)
        loops = [*around, strip, row, *order, *inner]
        self.say(Reorder(stage=root.name, loops=tuple(loops)))
        fusing, (task,) = fused(root.name, [*around, strip], "f")
        self.say(*fusing)
        if self.machine.cores > 1 and self._work() >= self.machine.least.nest_threads:
            self.say(Parallel(stage=root.name, loop=task))
        for member in made.members:
            self.say(ComputeAt(stage=member.name, consumer=root.name, loop=row if made.slides else task))
            if made.slides:
                self.say(StoreAt(stage=member.name, consumer=root.name, loop=task))
            self._inner(member, 0)

    def _chosen_by(self, root: Compute, vector: Axis | None, axes: Sequence[Axis]) -> Axis | None:
        """A loop so short that it is written out, by which it is chosen what the root computes."""
        if vector is None or not self.costs.twins.ask(root, pays_by_cases, vector, self.machine):
            return None
        asked = self.costs.twins.ask(root, asked_by, vector)
        return next((a for a in axes if a in asked and 0 < (number(a.extent) or 0) <= FEW_UNROLLED), None)
