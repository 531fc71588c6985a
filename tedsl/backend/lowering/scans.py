"""Scans: an update over the axes of its steps whose right-hand side reads the function itself at earlier ones.

Where the body stays at one place of the other axes, those remain pure loops, free to be vectorized or run in parallel;
otherwise they run inside each time step. A reduction over the state runs innermost, inside the step: its accumulators
are further components of the function. Reductions take turns, those that a later one reads first, and the last turn,
of one iteration, stores the new state. The turns are iterations of a loop that is always unrolled, so that each is a
loop of its own with nothing of the others in it; so are the phases of a packed scan, each with its own body, and the
first step, where others choose by the step what they begin with.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import halide as hl

from tedsl.analysis.checks import read_checks
from tedsl.analysis.iteration import is_stepped
from tedsl.backend.lowering.beginnings import bodies_at, told_by_the_first_step
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.indices import is_plain
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import UNPLANNED, Context, Place, Stage, function, tuple_of, variables
from tedsl.backend.lowering.tiles import StepTile, tile_of, tiles_along
from tedsl.backend.lowering.together import exposed_reads, together
from tedsl.backend.lowering.turns import (
    Inner,
    Turn,
    accumulated,
    added_lanes,
    extent_of,
    inner_reductions,
    product_of_extents,
    promised,
    reductions,
    results_of,
    turn_of,
)
from tedsl.backend.scalars.types import TYPES, Expr as Halide
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Var
from tedsl.lang.extents import number, same_extent
from tedsl.lang.phases import phases_of
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["can_lower_scan", "lower_scan"]


@dataclass(frozen=True, eq=False)
class _Phase:
    """What one iteration of the phases computes: by output its body, over axes of its own in place of some others.

    `number` is None for a scan that has no phases.
    """

    number: int | None
    places: dict[Axis, Axis]
    bodies: dict[int, Expr]
    inner: list[Inner]

    @property
    def turns(self) -> int:
        """Those of its reductions, before the one that stores what it computes."""
        return max((i.turn + 1 for i in self.inner), default=0)


def can_lower_scan(op: Scan) -> bool:
    """Whether no reduction of the body lies inside another one and uses its axes, or in an index that needs a check."""
    nested = any(
        set(outer.axes).intersection(free_axes(inner))
        for outer in reductions(op.bodies)
        for inner in reductions(outer.children)
    )
    return not nested and not any(c.status == "run" and reductions((c.index, c.guard)) for c in read_checks(op))


def lower_scan(ctx: Context, op: Scan) -> Stage:
    """f[..] is undefined at first; f[.., t, ..] = bodies for every step t in order."""
    types = [TYPES[b.dtype] for b in op.bodies]
    phases = _phases(ctx, op, types)
    states = len(op.bodies)
    func, dims = function(op.name, len(types)), variables(a.name for a in op.axes)
    empty = hl.undef if ctx.token is None else (lambda t: ctx.after_checks(hl.cast(t, 0)))
    func[dims[::-1]] = tuple_of(map(empty, types))
    planned = ctx.loops.get(op.name, UNPLANNED)
    others = [a for d, a in enumerate(op.axes) if d not in op.dims] if is_stepped(op) else []
    looped = [*op.steps, *(planned.order or others)][::-1]  # the fastest first
    turns = max(phase.turns for phase in phases)
    inside = len(planned.tiles)
    ranges = [(0, count) for count in planned.tiles.values()]
    ranges += [(0, _most_ticks(ctx, phases))] if turns else []
    ranges += [(0, tiles_along(ctx, a, planned.tiles)) for a in looped]
    lanes = _lanes_of_sums(ctx, op, phases)
    turning = inside + 1 + (len(looped) - len(op.steps) if lanes > 1 else 0)  # lanes wait for each other after a turn
    ranges[turning:turning] = [(0, 2 * turns + 1)] if turns else []
    told = told_by_the_first_step(op) if others else {}
    ranges += [(0, 2)] if told else []  # the first step, and the others
    domain = hl.RDom(ranges, identifier(op.steps[0].name))
    places = [d for d in range(inside + bool(turns), len(ranges) - bool(told)) if not turns or d != turning]
    loops: dict[Axis, hl.RVar] = {axis: domain[d] for d, axis in zip(places, looped, strict=True)}
    clock = _Clock(hl.Expr(domain[inside]), hl.Expr(domain[turning])) if turns else None
    place: dict[Axis, Halide] = {a: hl.Expr(v) for a, v in zip(op.axes, dims, strict=True)}
    place.update((a, hl.Expr(v)) for a, v in loops.items())
    tiles = {a: tile_of(a, count, loops[a], domain[d]) for d, (a, count) in enumerate(planned.tiles.items())}
    place.update((a, tile.place) for a, tile in tiles.items())
    if op.reverse:
        place.update((a, ctx.extent(extent_of(a)) - 1 - loops[a]) for a in op.steps)
    turns_of = {phase: _turns(ctx, op, place, phase, loops, tiles, lanes) for phase in phases}
    for limit in _limits(ctx, op, turns_of, place, clock):
        domain.where(limit)
    at_first = hl.Expr(domain[len(ranges) - 1]) < 1 if told else None
    if at_first is not None:
        domain.where(at_first == (hl.Expr(loops[op.steps[0]]) < 1))
    at = _stored(ctx, op, tuple(place[a] for a in op.axes))[::-1]
    several = len(types) > 1
    positions = {id(state): k for k, state in enumerate(op.states)}

    def element(component: int, where: Place) -> Halide:
        return hl.Expr(func[where][component]) if several else hl.Expr(func[where])

    def read(tensor: Tensor, indices: Place) -> Halide:
        position = positions.get(id(tensor))
        return ctx.read(tensor, indices) if position is None else element(position, _stored(ctx, op, indices)[::-1])

    def kept_at(inner: Inner, lanes: int) -> list[Halide]:
        here = {**place, **dict.fromkeys(inner.across, hl.i32(0))}
        held = []
        for lane in range(lanes):
            if lanes > 1:
                here[op.axes[-1]] = hl.i32(lane)
            there = _stored(ctx, op, tuple(here[a] for a in op.axes))[::-1]
            held.append([element(slot, there) for slot in inner.slots])
        return held[0] if lanes == 1 else added_lanes(inner, held)

    old = [element(k, at) for k in range(len(types))]
    values = old
    exposed: list[Expr] = []
    for phase in phases:
        placed = _placed(ctx, place, phase)
        values_of = partial(_values, ctx, op, partial(ctx.scalars, placed, read))
        new = values_of(_at(phase, told, first=False), turns_of[phase], clock, old, kept_at, place)
        if at_first is not None:
            begun = values_of(_at(phase, told, first=True), turns_of[phase], clock, old, kept_at, place)
            new = [a if a is b else hl.select(at_first, a, b) for a, b in zip(begun, new, strict=True)]
        if phase.number is None:
            values = new
            exposed = [] if turns else exposed_reads(ctx, op, range(states))
        else:
            now = place[op.steps[-1]] == phase.number
            values = [v if n is o else hl.select(now, n, v) for n, o, v in zip(new, old, values, strict=True)]
    if exposed:
        scope, dtypes = ctx.scalars(place, read), [b.dtype for b in op.bodies]
        func[at] = together(ctx, scope, values, old, dtypes, exposed)
    elif turns and all(len(i.slots) == 1 for phase in phases for i in phase.inner):
        func[at] = tuple_of(values)  # none reads what another one stores in its turn
    else:
        func[at] = ctx.updated(values, old)
    at_once = not turns and not op.parts and ctx.token is None and (states == 1 or bool(exposed))
    axes: dict[Axis, hl.Var | hl.RVar] = dict(zip(op.axes, dims, strict=True))
    axes.update(loops)
    written_out = ((domain[turning],) if turns else ()) + ((domain[len(ranges) - 1],) if told else ())
    held = tuple(range(states))
    again = any((number(extent_of(a)) or 1) % tile.count for a, tile in tiles.items())
    within = {a: tile.loop for a, tile in tiles.items()}
    return Stage(
        op, "scan", func, dims, held, element, not turns, axes, together=at_once, written_out=written_out,
        within=within, is_again=again,
    )  # fmt: skip


def _turns(
    ctx: Context, op: Scan, place: Mapping[Axis, Halide], phase: _Phase, loops: Mapping[Axis, hl.RVar],
    tiles: Mapping[Axis, StepTile], of_sums: int,
) -> list[Turn]:  # fmt: skip
    """The turns of a phase's reductions; `of_sums`: lanes of which each adds terms of its own."""
    placed, own = _placed(ctx, place, phase), set(map(id, op.states))

    def read_at(atom: Expr, *, largest: bool) -> Halide | None:
        """The least, or the largest, that data say at the places of a vector."""
        axes = free_axes(atom)
        boxes = [phase.places.get(a, a) for a in axes]
        if any(a not in placed or b not in loops or b in tiles for a, b in zip(axes, boxes, strict=True)):
            return None
        at: list[dict[Axis, Halide]] = [{}]
        for axis, box in zip(axes, boxes, strict=True):
            lanes = _lanes(ctx, op, box)
            places = [placed[axis]]
            if lanes > 1:
                first = placed[axis] / lanes * lanes + ctx.opaque_zero()
                places = [hl.min(first + lane, ctx.extent(extent_of(axis)) - 1) for lane in range(lanes)]
            at = [{**known, axis: p} for known in at for p in places]
        ends = [ctx.scalars(known).value(atom) for known in at]
        return functools.reduce(hl.max if largest else hl.min, ends)

    def ends(form: Affine, *, largest: bool) -> Halide | None:
        total: Halide = hl.i32(form.constant)
        for (atom, *others), factor in form.terms.items():
            if others:
                return None
            if not isinstance(atom, (Axis, Var)):  # read, or made of what is read, before the first step
                if not own.isdisjoint(id(r.tensor) for r in reads_of((atom,))):
                    return None
                end = read_at(atom, largest=(factor > 0) == largest)
                if end is None:
                    return None
                total = total + end * factor
                continue
            if isinstance(atom, Var):
                total = total + ctx.extent(atom) * factor
                continue
            at, axis = placed.get(atom), phase.places.get(atom, atom)
            if at is None or axis not in loops:
                return None
            lanes = _lanes(ctx, op, axis)
            if axis in tiles:
                at = tiles[axis].start + (tiles[axis].count - 1 if (factor > 0) == largest else 0)
            elif lanes > 1:
                at = at / lanes * lanes + ctx.opaque_zero() + (lanes - 1 if (factor > 0) == largest else 0)
            total = total + at * factor
        return total

    planned = ctx.loops.get(op.name, UNPLANNED)
    singly = planned.regrouped and not planned.tiles and not planned.lanes
    made = []
    for turn in range(phase.turns):
        members = [i for i in phase.inner if i.turn == turn]
        firsts = [_is_first(ctx, op, place, i, tiles) for i in members]
        made.append(turn_of(ctx, members, ends, firsts, singly=singly, lanes=of_sums))
    return made


def _lanes_of_sums(ctx: Context, op: Scan, phases: Sequence[_Phase]) -> int:
    """How many lanes add terms of their own: those of the vectors, if no sum depends on the place along them."""
    planned, last = ctx.loops.get(op.name, UNPLANNED), op.axes[-1]
    if not op.parts or not planned.regrouped or planned.tiles:
        return 1
    for phase in phases:
        own = next((a for a, box in phase.places.items() if box is last), None)
        if phase.inner and own is not None and number(extent_of(own)) != 1:
            return 1
    return _lanes(ctx, op, last)


def _is_first(
    ctx: Context, op: Scan, place: Mapping[Axis, Halide], inner: Inner, tiles: Mapping[Axis, StepTile]
) -> Halide | None:
    """Whether this is where a reduction is computed that many places share, or a vector with it."""
    found: Halide | None = None
    for axis in inner.across:
        lanes = _lanes(ctx, op, axis)
        at = place[axis] if lanes == 1 else place[axis] / lanes * lanes + ctx.opaque_zero()
        at = tiles[axis].start if axis in tiles else at
        found = at < 1 if found is None else found & (at < 1)
    return found


def _lanes(ctx: Context, op: Scan, axis: Axis) -> int:
    return ctx.loops.get(op.name, UNPLANNED).lanes.get(axis, 1)


def _shared(ctx: Context, op: Scan, inner: list[Inner], places: Mapping[Axis, Axis]) -> list[Inner]:
    """Reductions with the loops over places (by the axes of a phase) that they do not depend on, where loops run in
    order.
    """
    if not ctx.loops.get(op.name, UNPLANNED).in_order:
        return inner
    found = []
    for one in inner:
        used = set(free_axes(one.reduce))
        across = [box for own, box in places.items() if own not in used and number(extent_of(own)) != 1]
        found.append(replace(one, across=tuple(across)))
    return found


@dataclass(frozen=True, eq=False)
class _Clock:
    """The iteration of a turn, and the turn."""

    tick: Halide
    turn: Halide


def _phases(ctx: Context, op: Scan, types: list[Any]) -> list[_Phase]:
    """The phases; accumulators are added to the types of the function's components, those of phases share some."""
    if not op.parts:
        places = {a: a for d, a in enumerate(op.axes) if d not in op.dims}
        inner = _shared(ctx, op, inner_reductions(ctx, op.bodies, types, set()), places)
        return [_Phase(None, {}, dict(enumerate(op.bodies)), inner)]
    found = []
    for phase in phases_of(op):
        free = set(range(len(op.bodies), len(types)))
        inner = inner_reductions(ctx, tuple(phase.bodies.values()), types, free)
        box = op.axes[len(op.axes) - len(phase.axes) :]
        places = dict(zip(phase.axes, box, strict=True))
        found.append(_Phase(phase.number, places, phase.bodies, _shared(ctx, op, inner, places)))
    return found


def _most_ticks(ctx: Context, phases: Sequence[_Phase]) -> Halide:
    most: Halide = hl.i32(1)
    for points in dict.fromkeys(tuple(extent_of(a) for a in i.reduce.axes) for p in phases for i in p.inner):
        most = hl.max(most, product_of_extents(ctx, points))
    return most


def _limits(
    ctx: Context, op: Scan, phases: Mapping[_Phase, Sequence[Turn]], place: Mapping[Axis, Halide], clock: _Clock | None
) -> Iterator[Halide]:
    """Which iterations there are: of each phase those of its parts, of each turn those of its reductions.

    Each is a condition of its own, so that Halide asks it outside of the loops that it does not depend on.
    """
    for phase, turns in phases.items():
        other: Halide = hl.Expr(False) if phase.number is None else place[op.steps[-1]] != phase.number
        own = {box: axis for axis, box in phase.places.items()}
        for box in op.axes[op.dims[-1] + 1 :] if phase.number is not None else ():
            extent = extent_of(own[box]) if box in own else Const(1, INT32)
            if not same_extent(extent, extent_of(box)):
                yield other | hl.likely(_within(ctx, op, box, place[box], extent))
        if clock is not None:
            yield other | (clock.turn <= 2 * phase.turns)
            yield other | (clock.turn != 2 * phase.turns) | (clock.tick < 1)
            for number_of_turn, turn in enumerate(turns):
                yield other | (clock.turn != 2 * number_of_turn) | (clock.tick < turn.begin)
                yield other | (clock.turn != 2 * number_of_turn + 1) | (clock.tick < turn.length)


def _at(phase: _Phase, told: Mapping[Expr, bool], *, first: bool) -> _Phase:
    return replace(phase, bodies=bodies_at(phase.bodies, told, first=first)) if told else phase


def _within(ctx: Context, op: Scan, box: Axis, at: Halide, extent: Expr) -> Halide:
    """Whether a part has an element there. One that has a single element has as many, all alike, as a vector has lanes:
    Halide would mask whole vectors instead of leaving them out.
    """
    if number(extent) == 1:
        lanes = _lanes(ctx, op, box)
        at = at / lanes * lanes + ctx.opaque_zero() if lanes > 1 else at
    return at < ctx.extent(extent)


def _placed(ctx: Context, place: Mapping[Axis, Halide], phase: _Phase) -> dict[Axis, Halide]:
    """Where loops are, and the axes of a phase within those of all."""
    placed = dict(place)
    for axis, box in phase.places.items():
        if same_extent(extent_of(axis), extent_of(box)):
            placed[axis] = place[box]
        elif number(extent_of(axis)) == 1:
            placed[axis] = hl.i32(0)
        else:
            placed[axis] = promised(place[box], ctx.extent(extent_of(axis)))
    return placed


def _values(
    ctx: Context,
    op: Scan,
    scope: Callable[[], Scalars],
    phase: _Phase,
    turns: Sequence[Turn],
    clock: _Clock | None,
    old: Sequence[Halide],
    kept_at: Callable[[Inner, int], list[Halide]],
    place: Mapping[Axis, Halide],
) -> list[Halide]:
    """The new values of all components in one phase; those it leaves alone are the old ones. `kept_at`: what the
    accumulators of a reduction hold once its turn is over.
    """

    def mark(scope: Scalars, term: Expr) -> None:
        for node in _outside_sums(term):
            if _begins_apart(op, node):
                scope.bind(node, _steady(op, scope, node))

    planned = ctx.loops.get(op.name, UNPLANNED)
    anywhere = planned.regrouped and not planned.lanes
    new = list(old)
    results: dict[Expr, Halide] = {}
    for number_of_turn, turn in enumerate(turns):
        for member in turn.members:
            assert clock is not None
            inner = scope()
            for component, value in results.items():
                inner.bind(component, value)
            held, lane = [old[slot] for slot in member.slots], place[op.axes[-1]]
            made = accumulated(ctx, inner, member, turn, clock.tick, held, mark, lane, anywhere=anywhere)
            for slot, first, value in zip(member.slots, member.kept.identity, made, strict=True):
                stored = hl.select(clock.turn == 2 * number_of_turn + 1, value, new[slot])
                new[slot] = hl.select(clock.turn == 2 * number_of_turn, first, stored)
        for member in turn.members:
            results.update(results_of(member, kept_at(member, turn.lanes)))
    last = scope()
    for component, value in results.items():
        last.bind(component, value)
    for k, body in phase.bodies.items():
        value = _steady(op, last, body)
        new[k] = value if clock is None else hl.select(clock.turn == 2 * phase.turns, value, old[k])
    return new


def _stored(ctx: Context, op: Scan, place: Place) -> Place:
    """Where a step lies: where only the last are kept, each takes the place of one that nobody asks for any more."""
    if op.kept is None:
        return place
    dim = op.dims[0]
    first = hl.i32(0) if op.reverse else ctx.extent(extent_of(op.axes[dim])) - op.kept
    return *place[:dim], (place[dim] - first) % op.kept, *place[dim + 1 :]


def _steady(op: Scan, scope: Scalars, body: Expr) -> Halide:
    """A value; where its first steps are a branch of their own, Halide is told to give them a loop of their own."""
    if not _begins_apart(op, body):
        return scope.value(body)
    assert isinstance(body, Apply)
    condition, *branches = body.args
    holds = scope.value(condition)
    first, second = (scope.value(b) for b in branches)
    # Halide looks for this mark in the values, not in the condition.
    marked = (hl.likely(first), second) if _recurs(op, branches[0]) else (first, hl.likely(second))
    return hl.select(holds, *marked)


def _begins_apart(op: Scan, node: Expr) -> bool:
    """Whether a value is chosen by the step alone, between one that reads earlier steps and one that does not."""
    if not isinstance(node, Apply) or node.fn is not Fn.SELECT:
        return False
    asked = set(free_axes(node.args[0]))
    chosen_by_step = bool(asked) and asked <= set(op.steps) and is_plain(node.args[0])
    return chosen_by_step and _recurs(op, node.args[1]) != _recurs(op, node.args[2])


def _outside_sums(root: Expr) -> list[Expr]:
    """The nodes of an expression but for those inside its reductions, operands first."""
    inside = {n for r in reductions((root,)) for c in r.children for n in topological((c,))}
    return [n for n in topological((root,)) if n not in inside]


def _recurs(op: Scan, value: Expr) -> bool:
    own = set(map(id, op.states))
    return any(id(r.tensor) in own for r in reads_of((value,)))
