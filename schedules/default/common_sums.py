"""Sums over one array along more or fewer of its axes, made of sums that they have in common.

    b[c] = sum over n, i of g[n, c, i]                        p[n, c] = sum over i of g[n, c, i]
    m[n] = sum over c, i of (g[n, c, i] w[c]) / s[n]   ->     b[c] = sum over n of p[n, c]
                                                              m[n] = sum over c of p[n, c] w[c] / s[n]

The gradient of a norm has five sums over all of its input, by channel and by group, of a few products with factors that
do not change within a channel. As written each is a walk through memory. Terms are taken apart as far as they are sums
of products, and what does not change along the axes that all of them sum is multiplied with the sums. What is common is
then one walk (`walks`).

Floats are added up in another order then, as a schedule may, and multiplied by a common factor after they are added. A
difference such as `x - mean` is never taken apart: of two sums that nearly cancel nothing would be left. Where terms
are products they were rounded before they were added, so that there is nothing to lose.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field, replace

from schedules.conditions import tidied
from schedules.default.costs import is_function, is_pointwise
from schedules.default.needs import Needs, ReadsBehind
from schedules.default.walks import MOST
from schedules.program import ProgramStages, inputs_first, reading
from schedules.thresholds import Thresholds
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.functions import const
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, reads_of, replaced_all, substitute_all

__all__ = ["with_common_sums"]

MOST_TERMS = 4  # that one sum is taken apart into
MOST_ARRAYS = 32  # that a sum is said to walk through
MOST_STAGES = 6  # one behind the other, that a term is looked for in
FEW = 4  # least terms of a common sum, for which it is worth an array of its own


@dataclass(frozen=True, eq=False)
class _Term:
    """A product in a sum: of what does not change along the axes of the sum, of what does, and a sign."""

    sign: int
    outside: Expr | None
    inside: tuple[Expr, ...]

    @property
    def is_rounded(self) -> bool:
        return len(self.inside) + (self.outside is not None) > 1

    def times(self, other: _Term) -> _Term:
        outside = self.outside if other.outside is None else other.outside
        if self.outside is not None and other.outside is not None:
            outside = self.outside * other.outside
        return _Term(self.sign * other.sign, outside, (*self.inside, *other.inside))


@dataclass(frozen=True, eq=False)
class _Sum:
    """A sum over an array: at `places`, in terms of its own loops, of a value in terms of the `frame`."""

    op: Compute
    frame: tuple[Axis, ...]
    places: tuple[Expr, ...]
    value: Expr
    along: frozenset[Axis]  # those of the frame that it sums from end to end
    reads: frozenset[Tensor]  # arrays that it walks through


@dataclass(eq=False)
class _Group:
    """Sums with something in common: the axes that all of them sum, and the terms of each."""

    members: list[_Sum]
    along: frozenset[Axis]
    terms: list[list[_Term]] = field(default_factory=list)
    number: int = 0

    @property
    def inside(self) -> dict[tuple[Expr, ...], None]:
        """What is summed, each once."""
        return dict.fromkeys(t.inside for terms in self.terms for t in terms if t.inside)

    @property
    def is_new(self) -> bool:
        """Whether anything but the sums as they are comes of it."""
        plain = all(len(t) == 1 and t[0].outside is None and t[0].sign > 0 for t in self.terms)
        return not plain or any(s.along != self.along for s in self.members)


def with_common_sums(
    program: ProgramStages, operations: Sequence[Operation], alone: Set[str], least: Thresholds
) -> ProgramStages:
    """The program, in which sums of the operations are made of common ones; the same where none are.

    alone: the stages that nothing is to become of.
    """
    search = _Search(program, operations, alone, least)
    for op in operations:
        if isinstance(op, Compute) and program.names[op] not in alone:
            search.add(op)
    groups = [g for g in search.groups if len(g.members) > 1 and g.is_new]
    return _rewritten(program, operations, groups) if groups else program


class _Search:
    """Groups of sums found so far."""

    def __init__(
        self, program: ProgramStages, operations: Sequence[Operation], alone: Set[str], least: Thresholds
    ) -> None:
        self.open = {op for op in operations if program.names[op] not in alone}
        self.least = least
        self.frames: dict[tuple[int, ...], tuple[Axis, ...]] = {}
        self.groups: list[_Group] = []
        self.reading: dict[Tensor, dict[_Group, None]] = {}  # the groups that walk through an array
        self.needs = Needs(operations)
        self.behind = ReadsBehind(lambda op: is_pointwise(op) and op in self.needs.own)
        self.apart: dict[tuple[Expr, frozenset[Axis], int], list[_Term]] = {}  # what was taken apart before

    def add(self, op: Compute) -> None:
        """Let a sum be part of the first group that it has something in common with, or of one of its own."""
        found = self._sum(op)
        if found is None:
            return
        group = next((g for g in self._near(found) if self._join(g, found)), None)
        if group is None:
            group = _Group([found], found.along, number=len(self.groups))
            self.groups.append(group)
        for array in found.reads:
            self.reading.setdefault(array, {})[group] = None

    def _near(self, found: _Sum) -> list[_Group]:
        """The groups that walk through an array that a sum walks through, the first one first."""
        near = {group for array in found.reads for group in self.reading.get(array, ())}
        return sorted(near, key=lambda group: group.number)

    def _join(self, group: _Group, found: _Sum) -> bool:
        """Let a sum be part of a group, if it can be."""
        joined = self._joined(group, found)
        if joined is not None:
            group.members, group.along, group.terms = joined.members, joined.along, joined.terms
        return joined is not None

    def _sum(self, op: Compute) -> _Sum | None:
        """A stage as a sum over an array that it walks through once."""
        reduce = op.reduction
        if reduce is None or len(op.bodies) != 1 or reduce.reducer.kind != "sum":
            return None
        units: dict[Expr, Expr] = {a: const(0) for a in (*op.axes, *reduce.axes) if number(a.extent) == 1}
        if reduce.where is not TRUE and tidied(substitute_all((reduce.where,), units))[0] is not TRUE:
            return None
        loops = [a for a in (*op.axes, *reduce.axes) if number(a.extent) != 1]
        sizes = [number(a.extent) or 0 for a in loops]
        if str(reduce.dtype) not in ("float32", "float64") or any(number(a.begin) != 0 for a in loops):
            return None
        if math.prod(sizes) * reduce.dtype.itemsize < self.least.walks:
            return None
        for read in reads_of(reduce.values):
            digits = [_digits(i) for i in read.indices]
            used = [a for found in digits for a in found]
            if len(used) == len(set(used)) and set(used) == set(loops):
                return self._over(op, reduce, read, digits, units)
        return None

    def _over(
        self, op: Compute, reduce: Reduce, read: Read, digits: Sequence[tuple[Axis, ...]], units: Mapping[Expr, Expr]
    ) -> _Sum | None:
        extents = tuple(math.prod(number(a.extent) or 0 for a in found) for found in digits)
        if extents != tuple(number(e) for e in read.tensor.extents):
            return None
        frame = self.frames.setdefault(extents, tuple(Axis(f"d{k}", const(n)) for k, n in enumerate(extents)))
        whole: dict[Expr, Expr] = dict(zip(read.indices, frame, strict=True))
        parts: dict[Expr, Expr] = {}
        for place, found in zip(frame, digits, strict=True):
            if len(found) == 2:
                n = number(found[1].extent) or 1
                parts |= {found[0]: place // n, found[1]: place % n}
        value = substitute_all(replaced_all(reduce.values, whole), {**parts, **units})[0]
        sums = set(reduce.axes)
        along = {d for d, found in zip(frame, digits, strict=True) if len(found) == 1 and found[0] in sums}
        reads = self._arrays(value, frame)
        if not along or not set(frame).issuperset(free_axes(value)):
            return None
        return _Sum(op, frame, read.indices, value, frozenset(along), reads)

    def _arrays(self, value: Expr, frame: tuple[Axis, ...]) -> frozenset[Tensor]:
        """What is read at the places of a frame, through pointwise stages."""
        found: dict[Tensor, None] = {}
        pending = list(reads_of((value,)))
        for read in pending:
            if _is_at(read, frame) and read.tensor not in found and len(found) < MOST_ARRAYS:
                found[read.tensor] = None
                pending += self.behind.of(read)
        return frozenset(found)

    def _joined(self, group: _Group, found: _Sum) -> _Group | None:
        """The group with another sum; None where it has too little in common, or needs what the group makes."""
        along = group.along & found.along
        first = group.members[0]
        if first.frame is not found.frame or math.prod(number(a.extent) or 0 for a in along) < FEW:
            return None
        if found.frame[-1] not in along:
            return None
        members = [*group.members, found]
        terms = [self._terms(m.value, m.frame, along) for m in members]
        made = _Group(members, along, terms)
        if len(made.inside) > min(MOST, 2 * len(members)):
            return None
        read = [r.tensor.op for i in made.inside for r in reads_of(i)]
        needed = self.needs.bits(read) | self.needs.of(read)
        return None if needed & self.needs.bits(m.op for m in members) else made

    def _terms(
        self, value: Expr, frame: tuple[Axis, ...], along: frozenset[Axis], stages: int = MOST_STAGES
    ) -> list[_Term]:
        """A value as a sum of products, as far as it may be taken apart."""
        key = value, along, stages
        if key not in self.apart:
            self.apart[key] = self._taken_apart(value, frame, along, stages)
        return self.apart[key]

    def _taken_apart(self, value: Expr, frame: tuple[Axis, ...], along: frozenset[Axis], stages: int) -> list[_Term]:
        if along.isdisjoint(free_axes(value)):
            return [_Term(1, value, ())]
        whole = [_Term(1, None, (value,))]
        if isinstance(value, Read):
            inner = value.tensor.op
            if stages == 0 or not _is_at(value, frame) or inner not in self.open or not is_pointwise(inner):
                return whole
            assert isinstance(inner, Compute)
            if len(inner.bodies) > 1 or any(isinstance(n, Apply) and is_function(n) for n in inner.nodes):
                return whole
            found = self._terms(inner.written_at(value), frame, along, stages - 1)
            return whole if len(found) == 1 and found[0].outside is None and found[0].sign > 0 else found
        if not isinstance(value, Apply) or value.dtype is not value.args[0].dtype:
            return whole
        if value.fn not in (Fn.ADD, Fn.SUB, Fn.NEG, Fn.MUL, Fn.DIV):
            return whole
        if value.fn is Fn.DIV and not along.isdisjoint(free_axes(value.args[1])):
            return whole
        parts = [self._terms(arg, frame, along, stages) for arg in value.args]
        if value.fn is Fn.MUL:
            ((a, *more), (b, *others)) = parts
            return whole if more or others else [a.times(b)]
        if value.fn is Fn.DIV:
            by = value.args[1]
            return [replace(t, outside=(const(1, by.dtype) if t.outside is None else t.outside) / by) for t in parts[0]]
        signs = {Fn.ADD: (1, 1), Fn.SUB: (1, -1), Fn.NEG: (-1,)}[value.fn]
        terms = [replace(t, sign=t.sign * s) for s, part in zip(signs, parts, strict=True) for t in part]
        exact = sum(not t.is_rounded for t in terms)
        return whole if len(terms) > MOST_TERMS or (len(terms) > 1 and exact > 1) else terms


def _is_at(read: Read, frame: tuple[Axis, ...]) -> bool:
    return len(read.indices) == len(frame) and all(map(operator.is_, read.indices, frame))


def _digits(index: Expr) -> tuple[Axis, ...]:
    """The loops of an index `q n + r`, r of n iterations, or that is one; none of any other."""
    if isinstance(index, Axis):
        return (index,)
    if isinstance(index, Apply) and index.fn is Fn.ADD:
        for high, low in (index.args, index.args[::-1]):
            if isinstance(high, Apply) and high.fn is Fn.MUL and isinstance(low, Axis):
                loop, by = high.args
                if isinstance(loop, Axis) and isinstance(by, Const) and by.value == number(low.extent):
                    return (loop, low)
    return ()


def _rewritten(program: ProgramStages, operations: Sequence[Operation], groups: Sequence[_Group]) -> ProgramStages:
    """The program with what groups have in common as stages, and their members made of these."""
    made: dict[Operation, Compute] = {}
    names: dict[Operation, str] = {}
    taken = set(program.taken)
    for group in groups:
        shared = {inside: _common(group, inside) for inside in group.inside}
        for k, stage in enumerate(shared.values()):
            name = f"{group.members[0].op.name}_each" if k == 0 else f"{group.members[0].op.name}_each_{k}"
            while name in taken:
                name += "_"
            taken.add(name)
            names[stage] = name
        for member, terms in zip(group.members, group.terms, strict=True):
            made[member.op] = _member(group, member, terms, shared)
    new: dict[Tensor, Tensor] = {}
    stages: dict[str, Operation] = {}
    every = {*operations, *names}
    for op in inputs_first(operations, lambda op: [t.op for t in made.get(op, op).inputs if t.op in every]):
        source = made.get(op, op)
        now = reading(source, new)
        if now is not op:
            new.update(zip(op.outputs, now.outputs, strict=True))
        stages[program.names[op] if op in program.names else names[op]] = now
    others = {name: op for name, op in program.stages.items() if name not in stages}
    outputs = tuple(new.get(t, t) for t in program.outputs)
    return ProgramStages(outputs, {**others, **stages}, program.handles)


def _common(group: _Group, inside: tuple[Expr, ...]) -> Compute:
    """The sum of a product over the axes that all members sum."""
    first = group.members[0]
    named = {d: i.name if isinstance(i, Axis) else d.name for d, i in zip(first.frame, first.places, strict=True)}
    loops = [Axis(named[d], d.extent, is_reduce=d in group.along) for d in first.frame]
    product = inside[0]
    for factor in inside[1:]:
        product = product * factor
    (value,) = substitute_all((product,), dict(zip(first.frame, loops, strict=True)))
    reducer = first.op.reduction.reducer  # type: ignore[union-attr]
    sums, axes = (tuple(a for a in loops if a.is_reduce is kind) for kind in (True, False))
    body = Reduce(reducer, (value,), sums, TRUE, 0)
    return replace(first.op, name=f"{first.op.name}_each", axes=axes, bodies=(body,), names=None, _outputs={})


def _member(group: _Group, member: _Sum, terms: Iterable[_Term], shared: Mapping[tuple[Expr, ...], Compute]) -> Compute:
    """A sum made of common ones."""
    reduce = member.op.reduction
    assert reduce is not None
    kept = tuple(d for d in member.frame if d not in group.along)
    total: Expr | None = None
    for term in terms:
        count = const(math.prod(number(d.extent) or 1 for d in group.along), reduce.dtype)
        one: Expr = Read(shared[term.inside].output(), kept) if term.inside else count
        one = one if term.outside is None else term.outside * one
        if total is None:
            total = one if term.sign > 0 else -one
        else:
            total = total + one if term.sign > 0 else total - one
    assert total is not None
    (value,) = substitute_all((total,), dict(zip(member.frame, member.places, strict=True)))
    along = {p for d, p in zip(member.frame, member.places, strict=True) if d in group.along}
    rest = tuple(a for a in reduce.axes if a not in along and number(a.extent) != 1)
    body = Reduce(reduce.reducer, (value,), rest, TRUE, 0) if rest else value
    return replace(member.op, bodies=(body,), _outputs={})
