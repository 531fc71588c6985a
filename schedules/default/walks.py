"""Sums over the same loops that read the same arrays, made in one walk.

    s[c] = sum over i of g[c, i]                        s[c], t[c] = sums over i of (g[c, i], g[c, i] * x[c, i])
    t[c] = sum over i of g[c, i] * x[c, i]      ->

As stages of their own they would bring `g` from memory, or the cache, once each; so would sums over the corners of a
cell that is looked up, which are written out. What patterns make of such sums (vectors of partial results, blocks, the
trees over them) is alike as well, so it becomes one stage with several results, step by step. Each result is what it
would be by itself, to the bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from functools import cache
from typing import Any

from schedules.cutting.repetition import Definition, over_shared_loops
from schedules.default.costs import costs_of, is_costly, is_pointwise
from schedules.default.groups import groups_of
from schedules.default.needs import Needs, ReadsBehind
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from schedules.program import inputs_first, reading
from schedules.thresholds import Thresholds
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.reducers import sums_of
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, reads_of, substitute_all

__all__ = ["company_of", "in_one_walk"]

MOST = 8  # sums of a walk, whose results have to stay in registers
SHARE = 2  # of the largest array that is read: what is not as large is not worth a walk
MOST_READS = 64  # of a term, through the stages that it is made of
COSTLY = 16  # times that a term with a function counts, which may be one of several sums
OF_PARTS = ("folded", "tree")  # kinds of stages that combine partial results
Place = tuple[Hashable, tuple[int, ...]]


@dataclass(eq=False)
class _Walk:
    """Stages that are to be one, over the same loops, and what they read there."""

    members: list[Compute]
    definitions: list[Definition]
    reads: set[Place]
    own: int = 0  # as bits (`Needs`)
    needed: int = 0


def company_of(operations: Sequence[Operation], least: Thresholds) -> dict[Operation, int]:
    """How many sums may be made in one walk with each."""
    found = _Search(operations, {}, least, dict).walks(frozenset())
    return {op: len(walk.members) for walk in found for op in walk.members}


class _Search:
    """Walks found so far."""

    def __init__(
        self,
        stages: Sequence[Operation],
        kinds: Mapping[str, str],
        least: Thresholds,
        ends: Callable[[], Mapping[Operation, Operation]],
        written: Set[str] = frozenset(),
    ) -> None:
        self.order, self.kinds, self.least, self.ends, self.written = stages, kinds, least, ends, written
        self.needs = Needs(stages)
        self.behind = ReadsBehind(self._is_open)
        self.joined: dict[_Walk, None] = {}  # those of several stages
        self.loops: dict[Any, Axis] = {}
        self.found: list[_Walk] = []
        self.alike: dict[Hashable, list[_Walk]] = {}
        self.of: dict[Operation, _Walk] = {}
        self.inside: dict[Expr, list[Axis]] = {}  # loops of indices
        self.at: dict[Read, tuple[tuple[int, ...], list[Axis], int]] = {}  # which keeps what is numbered

    def walks(self, alone: Set[str]) -> list[_Walk]:
        """The stages that can be one, inputs before users; none of those named in `alone`."""
        keyed = [
            (op, *self._key(op))
            for op in self.order
            if isinstance(op, Compute) and op.name not in alone and self._may(op)
        ]
        company = Counter(key for _, key, _ in keyed)
        for op, key, definition in keyed:
            if company[key] > 1:  # what is read matters where others have the same loops
                self.add(op, key, definition)
        return [walk for walk in self.found if len(walk.members) > 1]

    def _key(self, op: Compute) -> tuple[tuple[Hashable, ...], Definition]:
        """What stages have alike that may be one, and the stage over loops that such stages share."""
        axes, bodies = definition = over_shared_loops(op, self.loops)
        body = bodies[0]
        key: list[Hashable] = [self.kinds.get(op.name, ""), *map(id, axes), str(body.dtype)]
        if isinstance(body, Reduce):
            key += [*map(id, body.axes), id(body.where)]
        return tuple(key), definition

    def add(self, op: Compute, key: Hashable, definition: Definition) -> None:
        """Let a stage be part of a walk that reads what it reads, or the first of one."""
        body = definition[1][0]
        value, sums = (body.values[0], set(body.axes)) if isinstance(body, Reduce) else (body, set[Axis]())
        if self._is_written(op):
            sums.update(definition[0])
        reads = self._places(value, sums)
        for walk in self.alike.setdefault(key, []):
            if len(walk.members) < MOST and _meet(walk.reads, reads) and self._is_apart(walk, op):
                walk.members.append(op)
                walk.definitions.append(definition)
                walk.reads |= reads
                self.joined[walk] = None
                break
        else:
            walk = _Walk([op], [definition], reads)
            self.alike[key].append(walk)
            self.found.append(walk)
        self.of[op] = walk
        walk.own |= self.needs.bits([op])
        walk.needed |= self.needs.of([op])

    def _may(self, op: Compute) -> bool:
        """Whether a stage is a sum of floats, or what combines the parts of one, or looks around one place of data."""
        is_written = self._is_written(op)
        if len(op.bodies) != 1 or (op.looks_up and not is_written):
            return False
        axes, reduce = list(op.axes), op.reduction
        if reduce is not None:
            axes += reduce.axes
            if reduce.reducer.kind != "sum" or str(op.bodies[0].dtype) not in ("float32", "float64"):
                return False
        known = all(number(a.extent) and number(a.begin) is not None for a in axes)
        weight = COSTLY if any(isinstance(n, Apply) and is_costly(n) for n in op.nodes) else 1
        is_sum = reduce is not None or is_written
        large = not is_sum or _points(axes) * op.bodies[0].dtype.itemsize * weight >= self.least.walks
        return known and large and self.kinds.get(op.name, "") in (("", "partial") if is_sum else OF_PARTS)

    def _is_written(self, op: Compute) -> bool:
        """Whether a stage is a sum of what it looks up, written out: elements at the same places are brought once."""
        return op.name in self.written and op.looks_up and is_pointwise(op)

    def _places(self, value: Expr, sums: Set[Axis]) -> set[Place]:
        """Where most of what terms are made of is read, through pointwise stages, too; and results of one walk."""
        walks: set[Place] = set()
        arrays: dict[Place, int] = {}
        pending = list(reads_of((value,)))
        for count, read in enumerate(pending):
            at, loops, size = self._at(read)
            inner = read.tensor.op
            if inner in self.of:
                walks.add((self.of[inner], at))
            if not sums:
                continue
            arrays[read.tensor, at] = 0 if sums.isdisjoint(loops) else size
            if count < MOST_READS:
                pending += self.behind.of(read)
        most = max(arrays.values(), default=0)
        return walks | {place for place, size in arrays.items() if size and SHARE * size >= most}

    def _at(self, read: Read) -> tuple[tuple[int, ...], list[Axis], int]:
        """Where something is read: its indices by number, their loops, and how many points these have."""
        found = self.at.get(read)
        if found is None:
            loops = list(dict.fromkeys(a for index in read.indices for a in self._loops_of(index)))
            found = self.at[read] = tuple(map(id, read.indices)), loops, _points(loops)
        return found

    def _loops_of(self, index: Expr) -> list[Axis]:
        """The loops of an index, of which many reads have the same."""
        if index not in self.inside:
            self.inside[index] = free_axes(index)
        return self.inside[index]

    def _is_apart(self, walk: _Walk, op: Compute) -> bool:
        """Whether neither needs the other, what is one stage already taken together, nor is part of other rows."""
        ends = self.ends()
        here, there = (ends.get(o, o) for o in (op, walk.members[0]))
        if here is not there and any(is_pointwise(o) and self.kinds.get(o.name) not in OF_PARTS for o in (here, there)):
            return False
        own = self.needs.bits([op])
        return not self._needed(self.needs.of([op])) & walk.own and not self._needed(walk.needed) & own

    def _needed(self, found: int) -> int:
        """What is needed with what stages need, where all that is one stage already is needed together."""
        before = -1
        while found != before:
            before = found
            for walk in self.joined:
                if found & walk.own and found & walk.own != walk.own:
                    found |= walk.own | walk.needed
        return found

    def _is_open(self, op: Operation) -> bool:
        """Whether a read of a stage is looked through."""
        return is_pointwise(op) and self.kinds.get(op.name) not in OF_PARTS and op in self.needs.own


def in_one_walk(rw: Rewriting, outputs: Sequence[Tensor], alone: Set[str], machine: Machine) -> tuple[Tensor, ...]:
    """The outputs, with sums that read the same arrays over the same loops as one stage each."""

    @cache
    def ends() -> dict[Operation, Operation]:
        """Row by row with which stage others are computed."""
        finals = {t.op for t in outputs}
        costs = costs_of(rw.stages, finals, rw.planned, machine)
        groups = groups_of(rw.stages, finals, rw.planned, costs, machine)
        return {op: group.root for group in groups for op in group.members}

    found = _Search(rw.stages, rw.kinds, machine.least, ends, rw.in_order).walks(alone)
    if not found:
        return tuple(outputs)
    walks: dict[Operation, _Walk] = {op: walk for walk in found for op in walk.members}
    every = set(rw.stages)

    def stage_of(op: Operation) -> Operation:
        return walks[op].members[0] if op in walks else op

    def needed(op: Operation) -> list[Operation]:
        together = walks[op].members if op in walks else [op]
        return [stage_of(t.op) for member in together for t in member.inputs if t.op in every]

    new: dict[Tensor, Tensor] = {}
    stages: list[Operation] = []
    for op in inputs_first(map(stage_of, rw.stages), needed):
        walk = walks.get(op)
        if walk is None:
            made = reading(op, new)
            new.update((old, now) for old, now in zip(op.outputs, made.outputs, strict=True) if old is not now)
        else:
            made = _together(rw, walk, new)
            new.update((member.output(), made.output(k)) for k, member in enumerate(walk.members))
        stages.append(made)
    rw.stages = stages
    for old, now in rw.new.items():
        rw.new[old] = new.get(now, now)
    rw.new.update((old, now) for old, now in new.items() if old not in rw.new)
    rw.finite = [new.get(t, t) for t in rw.finite]
    return tuple(new.get(t, t) for t in outputs)


def _together(rw: Rewriting, walk: _Walk, new: Mapping[Tensor, Tensor]) -> Compute:
    """One stage with the results of several."""
    first, bodies = walk.members[0], [bodies[0] for _, bodies in walk.definitions]
    axes = tuple(Axis(a.name, a.extent) for a in first.axes)
    fresh: dict[Expr, Expr] = dict(zip(walk.definitions[0][0], axes, strict=True))
    if first.reduction is not None:
        shared = bodies[0]
        assert isinstance(shared, Reduce)
        loops = [Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in shared.axes]
        every = fresh | dict(zip(shared.axes, loops, strict=True))
        *values, where = substitute_all((*map(_term, bodies), shared.where), every)
        reducer = sums_of(tuple(v.dtype for v in values))
        bodies = [Reduce(reducer, tuple(values), tuple(loops), where, k) for k in range(len(values))]
    else:
        bodies = list(substitute_all(tuple(bodies), fresh))
    names = [op.name for op in walk.members]
    made = Compute(
        name=rw.name("_and_".join(names[:3])),
        axes=axes,
        bodies=tuple(bodies),
        names=tuple(names),
        where=first.where,
    )
    made = reading(made, new)  # type: ignore[assignment]
    if first.name in rw.kinds:
        rw.kinds[made.name] = rw.kinds[first.name]
    if first.name in rw.widths:
        rw.widths[made.name] = rw.widths[first.name]
    if not rw.regrouped.isdisjoint(names):
        rw.regrouped.add(made.name)
    return made


def _meet(some: Set[Place], others: Set[Place]) -> bool:
    """Whether two stages read one array, or results of one walk."""
    return any(not isinstance(what, _Walk) or len(what.members) > 1 for what, _ in some & others)


def _term(body: Expr) -> Expr:
    """The term of a sum."""
    assert isinstance(body, Reduce)
    return body.values[0]


def _points(axes: Iterable[Axis]) -> int:
    return math.prod(number(a.extent) or 0 for a in axes)
