"""The program of one step of a scan: its stages, from what steps before left, each a stage like any other.

What goes along time is read at the step in hand: earlier steps of the scan itself, steps of others, rows of tensors. A
stage before the scan that moves elements alone, and that nobody else reads, is written for one step, too. Where a
condition fixes a place, as `j == t` does, a sum is made for that place only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import Facts
from tedsl.backend.sequence.step_stages import Columns
from tedsl.backend.sequence.timeline import offset_of
from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.folding import select_node
from tedsl.lang.intervals import range_of
from tedsl.lang.lift import lift_reductions
from tedsl.lang.phases import decided_all, unpacked
from tedsl.lang.tensor import Compute, Scan, Shape, Tensor
from tedsl.lang.traverse import (
    asked_inside,
    conjuncts,
    free_axes,
    reads_of,
    rebuild_all,
    substitute_all,
    topological,
)

__all__ = ["Member", "StepInput", "StepProgram", "StepWriter", "members_of", "with_fixed_places"]


@dataclass(frozen=True, eq=False)
class Member:
    """What each step of a scan computes under one name: its handle, the axes beside that of the steps, its body over
    these, which reads others by their handles; and a tensor of all its steps.
    """

    scan: Scan
    handle: Tensor
    axes: tuple[Axis, ...]
    body: Expr
    stack: Tensor

    @property
    def shape(self) -> Shape:
        """Of one step."""
        return self.handle.extents[1:]


@dataclass(frozen=True)
class StepInput:
    """What a step is given: a tensor (`whole`), its element along the first dimension so many steps away (`row`), what
    another step of a member made (`step`), that with a number of its own (`at`), or the number of the step (`now`).
    """

    kind: str
    of: Tensor | None = None
    step: int = 0


@dataclass(frozen=True, eq=False)
class StepProgram:
    """A program over inputs that are given; what it makes of each member, by its handle, and of columns before."""

    inputs: dict[StepInput, Tensor]
    made: dict[Tensor, Tensor]
    columns: list[Tensor]


def members_of(op: Scan) -> list[Member]:
    """What the steps of a scan compute, in the order of a step."""
    found = (
        [(u.tensor, u.axes[1:], u.body) for u in unpacked(op)]
        if op.parts
        else [(s, op.axes[1:], b) for s, b in zip(op.states, op.bodies, strict=True)]
    )
    bodies = with_fixed_places([body for _, _, body in found], op.axes[0])
    return [
        Member(op, handle, axes, body, placeholder(handle.extents, handle.dtype, name=handle.name))
        for (handle, axes, _), body in zip(found, bodies, strict=True)
    ]


class StepWriter:
    """The program of the step `now`, which is a number or a value with a range.

    `member`: the member that a read is of, and its indices there. `moves`: whether a stage is written for single steps.
    `exists`: whether a dimension of so many elements has one so many steps from here.
    """

    def __init__(
        self,
        now: Expr,
        member: Callable[[Read], tuple[Member, tuple[Expr, ...]] | None],
        moves: Callable[[Tensor], bool],
        exists: Callable[[int, int], bool],
    ) -> None:
        self.now, self.member, self.moves, self.exists = now, member, moves, exists
        self.inputs: dict[StepInput, Tensor] = {}
        self.made: dict[Tensor, Tensor] = {}
        self.moved: dict[tuple[Compute, int, int], Compute] = {}

    def program(self, members: Sequence[Member]) -> StepProgram:
        columns = Columns()
        for _, alike in groupby(members, lambda m: tuple(map(id, m.axes))):
            together = list(alike)
            name, own = together[0].handle.name, together[0].axes
            axes = tuple(Axis(a.name, a.extent) for a in own)
            bodies = self._at_step([m.body for m in together], together[0].scan.axes[0], 0)
            bodies = columns.of(substitute_all(bodies, dict(zip(own, axes, strict=True))), axes, name)
            bodies = lift_reductions(bodies, axes, name)
            names = tuple(m.handle.name for m in together)
            made = Compute(name=name, axes=axes, bodies=bodies, names=names if len(names) > 1 else None)
            self.made.update(zip((m.handle for m in together), made.outputs, strict=True))
        return StepProgram(self.inputs, self.made, list(columns.made.values()))

    def _at_step(self, roots: Sequence[Expr], axis: Axis, away: int) -> tuple[Expr, ...]:
        """Expressions over an axis so many steps from here."""
        here: Expr = self.now + away if away else self.now
        new: dict[Expr, Expr] = {axis: simplify_extent(here) if isinstance(self.now, Const) else here}
        for node in topological(roots):
            if node in new:
                continue
            children = tuple([new[c] for c in node.children])
            same = all(a is b for a, b in zip(children, node.children, strict=True))
            made = node if same else node.with_children(children)
            new[node] = (
                self._read(node, made, axis, away) if isinstance(node, Read) and isinstance(made, Read) else made
            )
        return decided_all([new[r] for r in roots])

    def _read(self, before: Read, read: Read, axis: Axis, away: int) -> Expr:
        """A read of what there is at this step."""
        found, moved = self.member(before), self.member(read)
        if found is not None and moved is not None:
            (member, (time, *_)), (_, indices) = found, moved
            step, fixed = offset_of(time, axis), number(simplify_extent(time))
            if step is not None:
                return self._step(member, step + away, indices[1:])
            if fixed is not None:
                return Read(self._given(StepInput("at", member.handle, fixed), member.shape, member.stack), indices[1:])
            return Read(self._whole(member.stack), indices)
        tensor, steps = before.tensor, [offset_of(i, axis) for i in before.indices]
        dim = next((d for d, s in enumerate(steps) if s is not None), -1)
        if dim < 0 or (dim > 0 and not self.moves(tensor)):
            return Read(self._whole(tensor), read.indices)
        step = (steps[dim] or 0) + away
        rest = (*read.indices[:dim], *read.indices[dim + 1 :])
        extent = number(tensor.extents[dim])
        if extent is None or not self.exists(extent, step):
            return _zero(read)
        if self.moves(tensor):
            return self._moved(tensor, dim, step, rest)
        return Read(self._given(StepInput("row", tensor, step), tensor.extents[1:], tensor), rest)

    def _step(self, member: Member, step: int, indices: tuple[Expr, ...]) -> Expr:
        if step == 0 and member.handle in self.made:
            return Read(self.made[member.handle], indices)
        if not self.exists(number(member.handle.extents[0]) or 0, step):
            return _zero(Read(member.stack, (Const(0, INT32), *indices)))
        return Read(self._given(StepInput("step", member.handle, step), member.shape, member.stack), indices)

    def _moved(self, tensor: Tensor, dim: int, step: int, indices: tuple[Expr, ...]) -> Expr:
        """An element of a stage that is written for one step."""
        op = tensor.op
        assert isinstance(op, Compute)
        key = op, dim, step
        if key not in self.moved:
            bodies = self._at_step(op.bodies, op.axes[dim], step)
            axes = tuple(a for d, a in enumerate(op.axes) if d != dim)
            self.moved[key] = Compute(name=op.name, axes=axes, bodies=bodies, where=op.where)
        made = self.moved[key]
        body = made.bodies[tensor.index]
        return body if isinstance(body, Const) else Read(made.output(tensor.index), indices)

    def _whole(self, tensor: Tensor) -> Tensor:
        return self._given(StepInput("whole", tensor), tensor.extents, tensor)

    def _given(self, given: StepInput, shape: Shape, like: Tensor) -> Tensor:
        if given not in self.inputs:
            self.inputs[given] = placeholder(shape, like.dtype, name=like.name)
        return self.inputs[given]


def _zero(read: Read) -> Expr:
    """What stands where nothing is read: a condition keeps it from being used."""
    dtype = read.dtype
    return Const(False if dtype.is_bool else 0.0 if dtype.is_float else 0, dtype)


# Places that a condition fixes.


def with_fixed_places(bodies: Iterable[Expr], time: Axis) -> tuple[Expr, ...]:
    """Bodies in which a sum is asked for under its conditions on places, and made for those that the time fixes.

    rewrites   sum(k: A[j, k], where=(j == t) & (k < i))   ->   select(j == t, sum(k: A[t, k], where=k < i), 0)
               sum(k: A[k], where=k == t)                  ->   select((0 <= t) & (t < n), A[t], 0)
               sum(k: select(k < t, a, 0) + b)             ->   sum(k: a, where=k < t) + sum(k: b)
    """
    return decided_all(rebuild_all(bodies, lambda node: _asked_outside(node, time)))


def _asked_outside(node: Expr, time: Axis) -> Expr:
    if not isinstance(node, Reduce) or node.reducer.kind != "sum":
        return node
    terms = _terms(node.values[0], node.where)
    if not any(_fixed(part, time) for _, where in terms for part in conjuncts(where)):
        terms = [(node.values[0], node.where)]
    if len(terms) == 1 and terms[0][1] is TRUE:
        return node
    total: Expr | None = None
    for value, where in terms:
        made = _sum_of(node, value, where, time)
        total = made if total is None else total + made
    assert total is not None
    return total


def _terms(value: Expr, where: Expr) -> list[tuple[Expr, Expr]]:
    """What a sum adds up, and where: a choice between something and zero is a condition."""
    zero = _zero_of(value)
    if isinstance(value, Apply) and value.fn is Fn.SELECT and value.args[2] is zero:
        return _terms(value.args[1], asked_inside(where, value.args[0]))
    if isinstance(value, Apply) and value.fn is Fn.ADD and value.dtype.is_float and any(map(_is_choice, value.args)):
        return [term for a in value.args for term in _terms(a, where)]
    return [(value, where)]


def _is_choice(value: Expr) -> bool:
    """Whether a value is something under a condition, or a sum with such a term."""
    if not isinstance(value, Apply):
        return False
    if value.fn is Fn.ADD:
        return any(map(_is_choice, value.args))
    return value.fn is Fn.SELECT and value.args[2] is _zero_of(value)


def _zero_of(value: Expr) -> Expr:
    return Const(False if value.dtype.is_bool else 0.0 if value.dtype.is_float else 0, value.dtype)


def _sum_of(node: Reduce, value: Expr, where: Expr, time: Axis) -> Expr:
    """A sum, asked for under its conditions on places, over the loops that no condition fixes."""
    own = set(node.axes)
    parts, fixed = conjuncts(where), dict[Expr, Expr]()
    while found := next((f for p in substitute_all(parts, fixed) for f in _fixed(p, time)), None):
        fixed[found[0]] = found[1]
    within = [c for a, p in fixed.items() if isinstance(a, Axis) and not _lies_in(p, a) for c in (p >= 0, p < a.extent)]
    outside = [p for p in parts if own.isdisjoint(free_axes(p))]
    loops = tuple(a for a in node.axes if a not in fixed)
    value, *inner = substitute_all((value, *(p for p in parts if p not in set(outside))), fixed)
    inner = _unimplied([p for p in decided_all(inner) if p is not TRUE])
    asked = [p for p in (*within, *inner) if set(loops).isdisjoint(free_axes(p))]
    left = [p for p in inner if not set(loops).isdisjoint(free_axes(p))]
    made = Reduce(node.reducer, (value,), loops, _both([*within, *left]), 0) if loops else value
    return select_node(_both([*outside, *asked]), made, _zero_of(value))


def _unimplied(parts: list[Expr]) -> list[Expr]:
    """Conditions without those, made of several cases, that follow from the others."""
    facts = Facts(free_axes(parts))
    for part in [p for p in parts if isinstance(p, Apply) and p.fn is Fn.OR and not reads_of((p,))]:
        others = [p for p in parts if p is not part]
        if facts.refutes(_both([*others, Expr._apply(Fn.NOT, part)])):
            parts = others
    return parts


def _both(parts: Sequence[Expr]) -> Expr:
    found: Expr = TRUE
    for part in parts:
        found = asked_inside(found, part)
    return found


def _lies_in(place: Expr, axis: Axis) -> bool:
    low, high = range_of(place)
    extent = number(axis.extent)
    return extent is not None and low >= 0 and high < extent


def _fixed(part: Expr, time: Axis) -> list[tuple[Axis, Expr]]:
    """The axis that an equation fixes, and where."""
    if not isinstance(part, Apply) or part.fn is not Fn.EQ or any(a.dtype is not INT32 for a in part.args):
        return []
    form = affine_of(part.args[0] - part.args[1])
    places = [] if form is None else [m for m in form.terms if not (len(m) == 1 and m[0] is time)]
    if form is None or len(places) != 1 or len(places[0]) != 1:
        return []
    (axis,), factor = places[0], form.terms[places[0]]
    if not isinstance(axis, Axis) or number(axis.begin) != 0 or abs(factor) != 1:
        return []
    rest = replace(form, terms={m: c for m, c in form.terms.items() if m is not places[0]})
    return [(axis, (rest * -factor).to_expr())]
