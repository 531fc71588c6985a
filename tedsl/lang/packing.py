"""States of different shapes, and stages of a step, as one scan.

What a step computes is put in an order of phases: stages before those that read them, and in one phase what has one
shape. The phase is a further axis of the recurrence, the fastest one, and each part lies at the end of a box that holds
the largest of them:

    z[j] = f(h[t - 1, ...])   ->   s[t, p, j] = select(p == 0, f(s[t - 1, 1, ...]), g(s[t, 0, ...]))
    h[t, i] = g(z[...])

A stage that costs little more where it is read than once for all is written out there, and needs no phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import is_

from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, DType
from tedsl.lang.errors import user_location
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number, same_extent, simplify_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.lift import lift_reductions, without
from tedsl.lang.operators import NEGATED
from tedsl.lang.rows import in_order, rows_of
from tedsl.lang.tensor import AUTHOR_RULES, Scan, ScanState, Shape, StepPart, StepStage, Tensor
from tedsl.lang.traverse import (
    free_axes,
    operations_between,
    reads_of,
    rebuild_all,
    substitute_all,
    topological,
)

__all__ = ["CHEAP", "Lying", "StepState", "scan_of"]

CHEAP = frozenset(NEGATED) | {
    Fn.ADD, Fn.SUB, Fn.MUL, Fn.NEG, Fn.ABS, Fn.SIGN, Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.RELU, Fn.SELECT, Fn.CAST,
    Fn.AND, Fn.OR, Fn.NOT, Fn.STOP,
}  # fmt: skip
FEW = 12
"""So many cheap operations may be written out where they are read, and done again for an element that is not stored."""
UNKNOWN = 64
"""What an extent counts that is not known."""


@dataclass(frozen=True, eq=False)
class StepState:
    """A state of a scan as its function gave it: its handle, the dimensions of the steps, the other axes, the body."""

    name: str
    tensor: Tensor
    dims: tuple[int, ...]
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    @property
    def bodies(self) -> tuple[Expr, ...]:
        return (self.body,)


@dataclass(frozen=True, eq=False)
class _Stage:
    """A stage of the step that is stored; its bodies are 0 at steps at which nobody asks for it, as `guard` says."""

    tensors: tuple[Tensor, ...]
    axes: tuple[Axis, ...]
    bodies: tuple[Expr, ...]
    guard: Expr

    @property
    def unguarded(self) -> tuple[Expr, ...]:
        """What the bodies are where they are asked for."""
        return tuple(b.args[1] if isinstance(b, Apply) and self._is_guarded(b) else b for b in self.bodies)

    def _is_guarded(self, body: Apply) -> bool:
        return body.fn is Fn.SELECT and body.args[0] is self.guard and body.args[2] is _zero(body.dtype)


@dataclass(frozen=True, eq=False)
class _Place:
    """Where a tensor of the step lies: an output and a phase of the scan; `dims` are the steps of its own indices."""

    output: int
    phase: int
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Lying:
    """Where a state lies: an output, and a phase where the scan is packed; the order that its axes then have."""

    tensor: Tensor
    phase: int = -1
    order: tuple[int, ...] | None = None


def scan_of(
    name: str,
    steps: tuple[Axis, ...],
    states: Sequence[StepState],
    reverse: bool,
    names: tuple[str, ...] | None,
    what: str,
) -> tuple[Scan, dict[Tensor, Lying]]:
    """The scan, and for each handle where its state lies."""
    written = _stages_of(states, what)
    ruled = tuple(f"{op.name!r} ({op.where})" for op in written if AUTHOR_RULES in vars(op))
    states, stages = _without_cheap(name, steps, tuple(states), written, what)
    first = states[0]
    if not stages and all(_are_alike(s, first) for s in states):
        handles = tuple(s.tensor for s in states)
        axes = _in_place(steps, first.axes, first.dims)
        bodies = tuple(s.body for s in states)
        made = Scan(
            name=name, axes=axes, states=handles, bodies=bodies, dims=first.dims, reverse=reverse, names=names,
            ruled=ruled,
        )  # fmt: skip
        return made, {h: Lying(t) for h, t in zip(handles, made.outputs, strict=True)}
    ordered, orders = _with_rows_last(states, stages)
    made, places = _Packing(name, steps, *ordered, reverse, ruled).scan()
    return made, {h: Lying(t, phase, orders.get(h)) for h, (t, phase) in places.items()}


def _are_alike(a: StepState, b: StepState) -> bool:
    """Whether two states are computed by the same axes."""
    return a.dims == b.dims and len(a.axes) == len(b.axes) and all(map(is_, a.axes, b.axes))


def _in_place(steps: Sequence[Axis], axes: Sequence[Axis], dims: Sequence[int]) -> tuple[Axis, ...]:
    """Axes of steps and others in the order of a shape."""
    at, rest = dict(zip(dims, steps, strict=True)), iter(axes)
    return tuple(at[d] if d in at else next(rest) for d in range(len(steps) + len(axes)))


# Stages that are written out where they are read.


def _without_cheap(
    name: str, steps: tuple[Axis, ...], states: tuple[StepState, ...], stages: Sequence[StepStage], what: str
) -> tuple[tuple[StepState, ...], list[_Stage]]:
    """The states, and the stages that are left to be stored: one at most if all others can be written out. Else those
    are stored too that would be computed again in many places, above all those that a reduction walks through.
    """
    every = _written_out(stages, lambda op, nodes: True)
    found = _with(every, name, steps, states, stages, what)
    if len(found[1]) < 2:
        return found
    walked = _walked(states, stages)

    def is_worth(op: StepStage, nodes: Sequence[Expr]) -> bool:
        own = len(op.outputs) * _size(op.axes)
        count = sum(not _is_alike_within(steps, node) for node in nodes)
        return count * (sum(walked[t] for t in op.outputs) - own) <= FEW * len(op.outputs) * own

    some = _written_out(stages, is_worth)
    return found if some.known.keys() == every.known.keys() else _with(some, name, steps, states, stages, what)


def _with(
    writing: _Writing, name: str, steps: tuple[Axis, ...], states: tuple[StepState, ...], stages: Sequence[StepStage],
    what: str,
) -> tuple[tuple[StepState, ...], list[_Stage]]:  # fmt: skip
    """The states and the other stages with some written out, reductions of what is known before the scan lifted."""
    needed = _needed(steps, states, stages)
    members = [s.tensor for s in states]
    kept: list[_Stage] = []
    for op in (s for s in stages if s.outputs[0] not in writing.known):
        guard = needed[op]
        guarded = tuple(fn.select_node(guard, b, _zero(b.dtype)) for b in writing.of(op.bodies))
        lifted = lift_reductions(guarded, (*steps, *op.axes), f"{name}_{op.name}", (*members, *op.outputs))
        kept.append(_Stage(op.outputs, op.axes, lifted, guard))
        members += op.outputs
    states = _lifted(name, steps, states, writing, tuple(members))
    stored: list[_Stage] = []
    for stage in reversed(kept):
        users = [(s.axes, s.bodies) for s in _both(states, stored)]
        if not _is_written_out(stage, _element_axes(stage, steps), users, what):
            stored.insert(0, stage)
            continue
        writing = _Writing()
        writing.write_out(stage.tensors, stage.axes, stage.unguarded)
        states = tuple(StepState(s.name, s.tensor, s.dims, s.axes, writing.of(s.bodies)[0]) for s in states)
        stored = [replace(s, bodies=writing.of(s.bodies)) for s in stored]
    return states, stored


def _lifted(
    name: str, steps: tuple[Axis, ...], states: tuple[StepState, ...], writing: _Writing, members: tuple[Tensor, ...]
) -> tuple[StepState, ...]:
    """The states with stages written out and reductions lifted; those of equal axes share what is lifted."""
    done: dict[Tensor, Expr] = {}
    for first in states:
        if first.tensor not in done:
            alike = [s for s in states if _are_alike(s, first)]
            axes = _in_place(steps, first.axes, first.dims)
            bodies = writing.of([s.body for s in alike])
            lifted = lift_reductions(bodies, axes, name if len(alike) == len(states) else first.name, members)
            done.update(zip([s.tensor for s in alike], lifted, strict=True))
    return tuple(StepState(s.name, s.tensor, s.dims, s.axes, done[s.tensor]) for s in states)


def _stages_of(states: Sequence[StepState], what: str) -> list[StepStage]:
    """The stages that the states need, each before its readers."""
    own = {s.tensor for s in states}
    read = [r.tensor for r in reads_of(s.body for s in states)]
    found: list[StepStage] = []
    for op in operations_between(own, read):
        if isinstance(op, StepStage):
            found.append(op)
        elif any(t in own or isinstance(t.op, StepStage) for t in op.inputs):
            raise ValueError(
                f"{what} at {user_location()}: {type(op).__name__.lower()} {op.name!r} ({op.where}) reads what a step "
                "computes; the stages of a step are written with te.compute, or as operations on whole tensors"
            )
    return found


def _needed(steps: Sequence[Axis], states: Sequence[StepState], stages: Sequence[StepStage]) -> dict[StepStage, Expr]:
    """At which steps each stage is read, by any element: of `t > 0 & i == 0 | t > 0 & i == 1` that is `t > 0`."""
    known = set(steps)
    needed: dict[StepStage, Expr] = dict.fromkeys(stages, FALSE)

    def use(bodies: Sequence[Expr], condition: Expr) -> None:
        asked: dict[StepStage, dict[Expr, None]] = {}
        for node, guard in guards_of(bodies, (condition,) * len(bodies)).items():
            if isinstance(node, Read) and isinstance(node.tensor.op, StepStage):
                of_elements = {n for n in topological(guard) if isinstance(n, (Axis, Read)) and n not in known}
                asked.setdefault(node.tensor.op, {})[without(guard, of_elements)] = None
        for op, conditions in asked.items():
            needed[op] = reduce(fn.logical_or, conditions, needed[op])

    use([s.body for s in states], TRUE)
    for op in reversed(stages):
        use(op.bodies, needed[op])
    return {op: needed[op] for op in stages}


def _is_alike_within(steps: Sequence[Axis], node: Expr) -> bool:
    """Whether a node does the same for all elements of a step: a question about the step, and a choice by that."""
    asked = node.args[0] if isinstance(node, Apply) and node.fn is Fn.SELECT else node
    return asked.dtype.is_bool and set(steps).issuperset(free_axes((asked,))) and not reads_of((asked,))


def _written_out(stages: Sequence[StepStage], is_worth: Callable[[StepStage, Sequence[Expr]], bool]) -> _Writing:
    """Stages of few cheap operations, counted with others written out in them, where the number is worth it."""
    writing = _Writing()
    for op in stages:
        bodies = writing.of(op.bodies)
        nodes = [node for node in topological(bodies) if isinstance(node, (Apply, Reduce))]
        is_cheap = len(nodes) <= FEW * len(bodies) and all(isinstance(n, Apply) and n.fn in CHEAP for n in nodes)
        if is_cheap and is_worth(op, nodes):
            writing.write_out(op.outputs, op.axes, bodies)
    return writing


def _walked(states: Sequence[StepState], stages: Sequence[StepStage]) -> dict[Tensor, int]:
    """How many elements of each stage a step computes if it is written out in all places where it is read."""
    counts = {t: 0 for op in stages for t in op.outputs}
    seen: set[tuple[tuple[Axis, ...], Read]] = set()
    users: list[StepState | StepStage] = [*states, *stages]
    for user in users:
        for read, inside in _reductions_around(user.bodies, tuple(counts)).items():
            if (user.axes, read) not in seen:
                seen.add((user.axes, read))
                loops, used = (*user.axes, *inside), set(free_axes(read.indices))
                last = max((k for k, axis in enumerate(loops) if axis in used), default=-1)
                counts[read.tensor] += _size(loops[: last + 1])  # loops within these do not compute it again
    return counts


def _size(axes: Iterable[Axis]) -> int:
    numbers = [number(a.extent) for a in axes]
    return math.prod(UNKNOWN if n is None else n for n in numbers)


def _element_axes(stage: _Stage, steps: Sequence[Axis]) -> list[Axis]:
    """The axes of the element that is computed, on which a stage depends beside its own."""
    return [a for a in free_axes(stage.bodies) if a not in {*steps, *stage.axes}]


def _is_written_out(
    stage: _Stage, others: Sequence[Axis], users: Sequence[tuple[tuple[Axis, ...], tuple[Expr, ...]]], what: str
) -> bool:
    """Whether a stage is computed for all its reads with no more work than for its own elements; one that depends on
    the element that is computed cannot be stored.
    """
    own, total = _points(stage.axes), Const(0, INT32) + 0
    seen: set[tuple[tuple[Axis, ...], Read]] = set()
    nested = any(isinstance(node, Reduce) for node in topological(stage.bodies))
    for axes, bodies in users:
        around = _reductions_around(bodies, stage.tensors)
        for read, inside in around.items():
            if inside and nested:
                _check_elements(stage, others, what)
                return False
            if (axes, read) not in seen:
                seen.add((axes, read))
                total = total + _points((*axes, *inside))
    gap = number(simplify_extent(own - total))
    return bool(others) or (gap is not None and gap >= 0)


def _check_elements(stage: _Stage, others: Sequence[Axis], what: str) -> None:
    if others:
        op, axis = stage.tensors[0].op, others[0]
        raise ValueError(
            f"{what} at {user_location()}: stage {op.name!r} of the step ({op.where}) is a reduction that depends on "
            f"axis {axis.name!r} of the element that is computed, and it is read in another reduction; give it that "
            f"axis: te.compute((..., {axis.extent}), lambda ..., {axis.name}: ...)"
        )


def _points(axes: Iterable[Axis]) -> Expr:
    """The number of elements; beyond what an extent may be, as many as that."""
    sizes = [a.extent for a in axes]
    known = [number(n) for n in sizes]
    numbers = [n for n in known if n is not None]
    points: Expr = Const(min(math.prod(numbers), 1 << 28), INT32)
    for size, n in zip(sizes, known, strict=True):
        points = points if n is not None or size is None else points * size
    return points


def _reductions_around(bodies: Sequence[Expr], tensors: Sequence[Tensor]) -> dict[Read, dict[Axis, None]]:
    """The reads of some tensors, and the axes that are reduced around each."""
    own = set(tensors)
    around: dict[Expr, dict[Axis, None]] = {b: {} for b in bodies}
    for node in reversed(topological(bodies)):
        here = around[node]
        inside = {**here, **dict.fromkeys(node.axes)} if isinstance(node, Reduce) else here
        for child in node.children:
            around[child] = {**around.get(child, {}), **inside}
    return {node: axes for node, axes in around.items() if isinstance(node, Read) and node.tensor in own}


class _Writing:
    """Stages by what is written where they are read."""

    def __init__(self) -> None:
        self.known: dict[Tensor, tuple[tuple[Axis, ...], Expr]] = {}

    def write_out(self, tensors: Sequence[Tensor], axes: tuple[Axis, ...], bodies: Sequence[Expr]) -> None:
        self.known.update((t, (axes, b)) for t, b in zip(tensors, bodies, strict=True))

    def of(self, bodies: Sequence[Expr]) -> tuple[Expr, ...]:
        """The bodies with all these stages written out."""
        return rebuild_all(bodies, self._rule)

    def _rule(self, node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor not in self.known:
            return node
        axes, body = self.known[node.tensor]
        place: dict[Expr, Expr] = dict(zip(axes, node.indices, strict=True))
        outside = set(free_axes(node.indices))
        for inner in topological(body):
            if isinstance(inner, Reduce):  # an axis reduced here may be one of those around
                bound = [a for a in inner.axes if a in outside]
                place.update((a, Axis(a.name, a.extent, begin=a.begin, is_reduce=True)) for a in bound)
        return substitute_all((body,), place)[0]


# What is left, as phases of one scan.


def _with_rows_last(
    states: Sequence[StepState], stages: Sequence[_Stage]
) -> tuple[tuple[list[StepState], list[_Stage]], dict[Tensor, tuple[int, ...]]]:
    """The parts with the axes last that all share, where their box is smaller then; the orders by their tensors."""
    every = _both(states, stages)
    dims = [p.dims if isinstance(p, StepState) else () for p in every]
    rows = rows_of([(p.tensors, at, p.axes, p.bodies) for p, at in zip(every, dims, strict=True)])
    orders = [(*(d for d in range(len(p.axes)) if d not in own), *own) for p, own in zip(every, rows, strict=True)]
    moved = [[p.axes[d] for d in order] for p, order in zip(every, orders, strict=True)]
    if not rows[0] or _box_size(moved) >= _box_size([p.axes for p in every]):
        return ([*states], [*stages]), {}
    known = {t: (at, order) for p, at, order in zip(every, dims, orders, strict=True) for t in p.tensors}

    def rule(node: Expr) -> Expr:
        return in_order(node, *known[node.tensor]) if isinstance(node, Read) and node.tensor in known else node

    places = {p: tuple(axes) for p, axes in zip(every, moved, strict=True)}
    return (
        [
            replace(s, dims=tuple(range(len(s.dims))), axes=places[s], body=rebuild_all((s.body,), rule)[0])
            for s in states
        ],
        [replace(s, axes=places[s], bodies=rebuild_all(s.bodies, rule)) for s in stages],
    ), {t: order for t, (_, order) in known.items()}


def _box_size(shapes: Sequence[Sequence[Axis]]) -> int:
    """How many elements the box of some shapes has, each at its end."""
    rank = max(map(len, shapes))
    sizes = [[1] * (rank - len(axes)) + [_size((a,)) for a in axes] for axes in shapes]
    return math.prod(map(max, zip(*sizes, strict=True)))


class _Packing:
    """A scan over phases, put together."""

    def __init__(
        self,
        name: str,
        steps: tuple[Axis, ...],
        states: Sequence[StepState],
        stages: Sequence[_Stage],
        reverse: bool,
        ruled: tuple[str, ...],
    ) -> None:
        self.name, self.steps, self.reverse, self.ruled = name, steps, reverse, ruled
        self.phases = _phases(states, stages)
        rank = max(len(c.axes) for c in _both(states, stages))
        self.box = tuple(Axis(*_widest(rank - d, self.phases)) for d in range(rank))
        self.phase = Axis("phase", Const(len(self.phases), INT32))
        self.dtypes: list[DType] = []
        self.places: dict[Tensor, _Place] = {}
        for turn, phase in enumerate(self.phases):
            free = list(range(len(self.dtypes)))
            for part in phase:
                for tensor in part.tensors:
                    output = next((k for k in free if self.dtypes[k] is tensor.dtype), len(self.dtypes))
                    if output in free:
                        free.remove(output)
                    else:
                        self.dtypes.append(tensor.dtype)
                    number_of_phase = len(self.phases) - 1 - turn if reverse else turn
                    dims = part.dims if isinstance(part, StepState) else ()
                    self.places[tensor] = _Place(output, number_of_phase, dims)

    def scan(self) -> tuple[Scan, dict[Tensor, tuple[Tensor, int]]]:
        axes = (*self.steps, self.phase, *self.box)
        shape = tuple(a.extent for a in axes if a.extent is not None)
        handles = tuple(
            ScanState(name=f"{self.name}_{k}" if len(self.dtypes) > 1 else self.name, shape=shape, dtype=d).output()
            for k, d in enumerate(self.dtypes)
        )
        bodies: list[Expr] = [_zero(d) for d in self.dtypes]
        parts: list[StepPart] = []
        for phase in self.phases[::-1]:
            for part in phase:
                inside = self._inside(part.axes, self.places[part.tensors[0]].phase)
                for tensor, value in zip(part.tensors, self._moved(part, handles), strict=True):
                    place = self.places[tensor]
                    bodies[place.output] = fn.select_node(inside, value, bodies[place.output])
                    extents = tuple(a.extent for a in part.axes if a.extent is not None)
                    title = part.name if isinstance(part, StepState) else tensor.name
                    parts.insert(0, StepPart(title, place.output, place.phase, extents))
        made = Scan(
            name=self.name, axes=axes, states=handles, bodies=tuple(bodies), dims=tuple(range(len(self.steps) + 1)),
            reverse=self.reverse, parts=tuple(parts), ruled=self.ruled,
        )  # fmt: skip
        return made, {t: (made.output(p.output), p.phase) for t, p in self.places.items()}

    def _inside(self, axes: Sequence[Axis], phase: int) -> Expr:
        """Where in the box of all phases a part lies."""
        inside: Expr = Expr._apply(Fn.EQ, self.phase, Const(phase, INT32))
        for axis, extent in zip(self.box, _aligned([a.extent for a in axes], len(self.box)), strict=True):
            if axis.extent is not None and not same_extent(axis.extent, extent):
                inside = fn.logical_and(inside, axis < extent)
        return inside

    def _moved(self, part: StepState | _Stage, handles: Sequence[Tensor]) -> tuple[Expr, ...]:
        """Bodies over the axes of the box that read where their tensors lie."""
        box = self.box[len(self.box) - len(part.axes) :]
        place: dict[Expr, Expr] = dict(zip(part.axes, box, strict=True))

        def rule(node: Expr) -> Expr:
            if not isinstance(node, Read) or node.tensor not in self.places:
                return place.get(node, node)
            there = self.places[node.tensor]
            at = [node.indices[d] for d in there.dims] or self.steps
            rest = [index for d, index in enumerate(node.indices) if d not in there.dims]
            zeros = (Const(0, INT32),) * (len(self.box) - len(rest))
            return Read(handles[there.output], (*at, Const(there.phase, INT32), *zeros, *rest))

        return rebuild_all(part.bodies, rule)


def _both(first: Sequence[StepState | _Stage], then: Sequence[StepState | _Stage]) -> list[StepState | _Stage]:
    return [*first, *then]


def _phases(states: Sequence[StepState], stages: Sequence[_Stage]) -> list[list[StepState | _Stage]]:
    """What has one shape and reads nothing of its own step that is not there, phase after phase."""
    level: dict[Tensor, int] = {}
    turn: dict[StepState | _Stage, int] = {}
    for part in _both(stages, states):
        turn[part] = max([level[r.tensor] + 1 for r in reads_of(part.bodies) if r.tensor in level], default=0)
        if isinstance(part, _Stage):
            level.update(dict.fromkeys(part.tensors, turn[part]))
    for state in states:  # read by later steps only, they may come as late as others like them
        turn[state] = max(turn[s] for s in states if _same_shape(s.axes, state.axes))
    phases: list[tuple[int, list[StepState | _Stage]]] = []
    for part, when in sorted(turn.items(), key=lambda item: item[1]):
        found = next((p for w, p in phases if w == when and _same_shape(p[0].axes, part.axes)), None)
        if found is None:
            phases.append((when, [part]))
        else:
            found.append(part)
    return [phase for _, phase in phases]


def _same_shape(a: Sequence[Axis], b: Sequence[Axis]) -> bool:
    extents = [(x.extent, y.extent) for x, y in zip(a, b, strict=False)]
    return len(a) == len(b) and all(x is not None and y is not None and same_extent(x, y) for x, y in extents)


def _aligned(extents: Sequence[Expr | None], rank: int) -> Shape:
    """A shape at the end of one of a higher rank."""
    return (*(Const(1, INT32),) * (rank - len(extents)), *(e for e in extents if e is not None))


def _widest(from_end: int, phases: Sequence[Sequence[StepState | _Stage]]) -> tuple[str, Expr]:
    """The name and the extent of an axis of the box, counted from the last one; parts without it lie at its first."""
    parts = [p for phase in phases for p in phase]
    own = [p.axes[-from_end] for p in parts if len(p.axes) >= from_end]
    name, widest = own[0].name, own[0].extent
    others = [(a.name, a.extent) for a in own[1:]] + [("", Const(1, INT32))] * (len(own) < len(parts))
    for label, extent in others:
        assert extent is not None
        assert widest is not None
        gap = number(simplify_extent(extent - widest))
        if gap is None:
            widest = simplify_extent(fn.maximum(widest, extent))
        elif gap > 0:
            name, widest = label or name, extent
    assert widest is not None
    return name, widest


def _zero(dtype: DType) -> Expr:
    return Const(False if dtype.is_bool else 0.0 if dtype.is_float else 0, dtype)
