"""Scans: an update over the axes of its steps whose right-hand side reads the function itself at earlier ones.

Where the body stays at one place of the other axes, those remain pure loops, free to be vectorized or run in parallel;
otherwise they run inside each time step. A reduction over the state runs innermost, inside the step: its accumulators
are further components of the function, and the last iteration stores the new state. When every reduction of a step is
over axes that no other one uses, they follow one another, those that a later one reads first.

The phases of a packed scan are iterations of one loop. Each has a body, accumulators and iterations of its own; once
that loop is unrolled, so that a phase is a number, nothing of the others is left in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import halide as hl

from tedsl.analysis.checks import read_checks
from tedsl.analysis.iteration import is_stepped
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.indices import is_plain
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.reductions import Accumulator, accumulator
from tedsl.backend.lowering.stages import Context, Place, Stage, function, tuple_of, variables
from tedsl.backend.lowering.together import exposed_reads, together
from tedsl.backend.scalars.types import TYPES, Expr as Halide
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.phases import phases_of
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["can_lower_scan", "lower_scan"]


@dataclass(frozen=True, eq=False)
class _Inner:
    """One reduction inside a step: its accumulator, the components that hold it, and its turn."""

    reduce: Reduce  # component 0
    kept: Accumulator
    slots: tuple[int, ...]  # of the components of the function
    turn: int


@dataclass(frozen=True, eq=False)
class _Phase:
    """What one iteration of the phases computes: by output its body, over axes of its own in place of some others.

    `number` is None for a scan that has no phases.
    """

    number: int | None
    places: dict[Axis, Axis]
    bodies: dict[int, Expr]
    inner: list[_Inner]


def can_lower_scan(op: Scan) -> bool:
    """Whether no reduction of the body lies inside another one and uses its axes, or in an index that needs a check."""
    nested = any(
        set(outer.axes).intersection(free_axes(inner))
        for outer in _reductions(op.bodies)
        for inner in _reductions(outer.children)
    )
    return not nested and not any(c.status == "run" and _reductions((c.index, c.guard)) for c in read_checks(op))


def _reductions(roots: Sequence[Expr]) -> list[Reduce]:
    return [node for node in topological(roots) if isinstance(node, Reduce)]


def _whole(reduce: Reduce) -> Reduce:
    """The first component, which stands for all of one reduction."""
    return Reduce(reduce.reducer, reduce.values, reduce.axes, reduce.where, 0)


def lower_scan(ctx: Context, op: Scan) -> Stage:
    """f[..] is undefined at first; f[.., t, ..] = bodies for every step t in order."""
    types = [TYPES[b.dtype] for b in op.bodies]
    phases = _phases(ctx, op, types)
    states = len(op.bodies)
    func, dims = function(op.name, len(types)), variables(a.name for a in op.axes)
    empty = hl.undef if ctx.token is None else (lambda t: ctx.after_checks(hl.cast(t, 0)))
    func[dims[::-1]] = tuple_of(map(empty, types))
    others = [a for d, a in enumerate(op.axes) if d not in op.dims] if is_stepped(op) else []
    looped = [*op.steps, *others][::-1]  # the fastest first
    inner = [i for phase in phases for i in phase.inner]
    totals = [_iterations(ctx, phase.inner) if phase.inner else hl.i32(1) for phase in phases]
    ranges = [(0, _largest(totals))] if inner else []
    ranges += [(0, ctx.extent(_extent(a))) for a in looped]
    domain = hl.RDom(ranges, identifier(op.steps[0].name))
    loops: dict[Axis, hl.RVar] = {axis: domain[d + len(ranges) - len(looped)] for d, axis in enumerate(looped)}
    place: dict[Axis, Halide] = {a: hl.Expr(v) for a, v in zip(op.axes, dims, strict=True)}
    place.update((a, hl.Expr(v)) for a, v in loops.items())
    if op.reverse:
        place.update((a, ctx.extent(_extent(a)) - 1 - loops[a]) for a in op.steps)
    tick = hl.Expr(domain[0]) if inner else None
    _narrow(ctx, domain, phases, place, op, tick, totals)
    at = _stored(ctx, op, tuple(place[a] for a in op.axes))[::-1]
    several = len(types) > 1
    positions = {id(state): k for k, state in enumerate(op.states)}

    def element(component: int, where: Place) -> Halide:
        return hl.Expr(func[where][component]) if several else hl.Expr(func[where])

    def read(tensor: Tensor, indices: Place) -> Halide:
        position = positions.get(id(tensor))
        return ctx.read(tensor, indices) if position is None else element(position, _stored(ctx, op, indices)[::-1])

    old = [element(k, at) for k in range(len(types))]
    values = old
    exposed: list[Expr] = []
    for phase, total in zip(phases, totals, strict=True):
        scope = ctx.scalars(_placed(ctx, place, phase), read)
        new = _values(ctx, op, scope, phase, domain, old, total)
        if phase.number is None:
            exposed = [] if inner else exposed_reads(ctx, op, range(states))
            values = new
        else:
            now = place[op.steps[-1]] == phase.number
            values = [v if n is o else hl.select(now, n, v) for n, o, v in zip(new, old, values, strict=True)]
    dtypes = [b.dtype for b in op.bodies]
    func[at] = together(ctx, scope, values, old, dtypes, exposed) if exposed else ctx.updated(values, old)
    at_once = not inner and ctx.token is None and (states == 1 or bool(exposed)) and not op.parts
    axes: dict[Axis, hl.Var | hl.RVar] = dict(zip(op.axes, dims, strict=True))
    axes.update(loops)
    return Stage(op, "scan", func, dims, tuple(range(states)), element, not inner, axes, together=at_once)


def _phases(ctx: Context, op: Scan, types: list[Any]) -> list[_Phase]:
    """The phases; accumulators are added to the types of the function's components, those of phases share some."""
    if not op.parts:
        return [_Phase(None, {}, dict(enumerate(op.bodies)), _inner_reductions(ctx, op.bodies, types, set()))]
    found = []
    for phase in phases_of(op):
        free = set(range(len(op.bodies), len(types)))
        inner = _inner_reductions(ctx, tuple(phase.bodies.values()), types, free)
        box = op.axes[len(op.axes) - len(phase.axes) :]
        found.append(_Phase(phase.number, dict(zip(phase.axes, box, strict=True)), phase.bodies, inner))
    return found


def _largest(totals: Sequence[Halide]) -> Halide:
    most = totals[0]
    for total in totals[1:]:
        most = hl.max(most, total)
    return most


def _narrow(
    ctx: Context,
    domain: hl.RDom,
    phases: Sequence[_Phase],
    place: Mapping[Axis, Halide],
    op: Scan,
    tick: Halide | None,
    totals: Sequence[Halide],
) -> None:
    """Let each phase have the iterations of its parts only."""
    if not op.parts:
        return
    inside: Halide = hl.Expr(False)
    for phase, total in zip(phases, totals, strict=True):
        within: Halide = place[op.steps[-1]] == phase.number
        if tick is not None:
            within = within & (tick < total)
        own = {box: axis for axis, box in phase.places.items()}
        for box in op.axes[op.dims[-1] + 1 :]:
            extent = _extent(own[box]) if box in own else Const(1, INT32)
            if not same_extent(extent, _extent(box)):
                within = within & (place[box] < ctx.extent(extent))
        inside = inside | within
    domain.where(inside)


def _placed(ctx: Context, place: Mapping[Axis, Halide], phase: _Phase) -> dict[Axis, Halide]:
    """Where loops are, and the axes of a phase within those of all."""
    placed = dict(place)
    for axis, box in phase.places.items():
        most = hl.max(ctx.extent(_extent(axis)) - 1, 0) + ctx.unknown_zero()
        whole = same_extent(_extent(axis), _extent(box))
        placed[axis] = place[box] if whole else hl.unsafe_promise_clamped(place[box], 0, most)
    return placed


def _values(
    ctx: Context,
    op: Scan,
    scope: Scalars,
    phase: _Phase,
    domain: hl.RDom,
    old: Sequence[Halide],
    total: Halide,
) -> list[Halide]:
    """The new values of all components in one phase; those it leaves alone are the old ones."""
    new = list(old)
    for turn in sorted({i.turn for i in phase.inner}):
        members = [i for i in phase.inner if i.turn == turn]
        for slot, value in _turn(
            ctx, scope, members, domain, old, phase.inner, is_narrowed=phase.number is not None
        ).items():
            new[slot] = value
    for k, body in phase.bodies.items():
        value = _steady(op, scope, body)
        if phase.inner:
            waiting = hl.likely(hl.Expr(domain[0]) < total - 1)
            value = hl.select(waiting, old[k], value)
        new[k] = value
    return new


def _stored(ctx: Context, op: Scan, place: Place) -> Place:
    """Where a step lies: where only the last are kept, each takes the place of one that nobody asks for any more."""
    if op.kept is None:
        return place
    (dim,) = op.dims
    first = hl.i32(0) if op.reverse else ctx.extent(_extent(op.axes[dim])) - op.kept
    return *place[:dim], (place[dim] - first) % op.kept, *place[dim + 1 :]


def _steady(op: Scan, scope: Scalars, body: Expr) -> Halide:
    """A body; where its first steps are a branch of their own, Halide is told to give them a loop of their own."""
    if isinstance(body, Apply) and body.fn is Fn.SELECT:
        condition, *branches = body.args
        own = set(map(id, op.states))
        recurs = [any(id(r.tensor) in own for r in reads_of((b,))) for b in branches]
        asked = set(free_axes(condition))
        if asked and asked <= set(op.steps) and is_plain(condition) and recurs[0] != recurs[1]:
            holds = scope.value(condition)
            first, second = (scope.value(b) for b in branches)
            return (
                hl.select(hl.likely(holds), first, second)
                if recurs[0]
                else hl.select(hl.likely(hl.logical_not(holds)), second, first)
            )
    return scope.value(body)


def _extent(axis: Axis) -> Expr:
    assert axis.extent is not None
    return axis.extent


def _inner_reductions(ctx: Context, bodies: tuple[Expr, ...], types: list[Any], free: set[int]) -> list[_Inner]:
    """Every reduction of the bodies once, with a turn after those that it contains.

    Accumulators lie in `free` components of their types, else in new ones.
    """
    found: dict[Reduce, _Inner] = {}
    for reduce in _reductions(bodies):
        whole = _whole(reduce)
        if whole in found:
            continue
        inside = [found[_whole(r)].turn for r in _reductions(reduce.children)]
        kept = accumulator(ctx, whole)
        slots = []
        for dtype in kept.dtypes:
            slot = next((k for k in sorted(free) if types[k] == TYPES[dtype]), len(types))
            free.discard(slot)
            if slot == len(types):
                types.append(TYPES[dtype])
            slots.append(slot)
        found[whole] = _Inner(whole, kept, tuple(slots), max(inside, default=-1) + 1)
    return list(found.values())


def _points(ctx: Context, reduce: Reduce) -> Halide:
    total: Halide = hl.i32(1)
    for axis in reduce.axes:
        total = total * ctx.extent(_extent(axis))
    return total


def _turn_length(ctx: Context, members: Sequence[_Inner]) -> Halide:
    """Iterations of one turn: at least one, which sets the accumulators to their identity."""
    length: Halide = hl.i32(1)
    for member in members:
        length = hl.max(length, _points(ctx, member.reduce))
    return length


def _start(ctx: Context, inner: Sequence[_Inner], turn: int) -> Halide:
    start: Halide = hl.i32(0)
    for earlier in range(turn):
        start = start + _turn_length(ctx, [i for i in inner if i.turn == earlier])
    return start


def _iterations(ctx: Context, inner: Sequence[_Inner]) -> Halide:
    return _start(ctx, inner, max((i.turn for i in inner), default=-1) + 1)


def _turn(
    ctx: Context,
    scope: Scalars,
    members: Sequence[_Inner],
    domain: hl.RDom,
    current: Sequence[Halide],
    inner: Sequence[_Inner],
    *,
    is_narrowed: bool,
) -> dict[int, Halide]:
    """The new accumulators of one turn's reductions; binds the reductions to their values so far.

    `is_narrowed`: the loop has more iterations than these take, which are left out.
    """
    start = _start(ctx, inner, members[0].turn)
    alone = len(members) == len(inner) == 1
    new: dict[int, Halide] = {}
    for member in members:
        reduce, kept = member.reduce, member.kept
        points = _points(ctx, reduce)
        tick = hl.Expr(domain[0]) - start
        counted = alone and all(isinstance(a.extent, Const) and a.extent.value > 0 for a in reduce.axes)
        ordinal = tick if counted else hl.max(hl.min(tick, points - 1), 0)
        if counted and is_narrowed:
            ordinal = hl.unsafe_promise_clamped(tick, 0, points - 1 + ctx.unknown_zero())
        for axis, value in _decoded(ctx, reduce, ordinal).items():
            scope.bind_loop(axis, value)
        old = [current[slot] for slot in member.slots]
        base = [hl.select(tick == 0, i, o) for i, o in zip(kept.identity, old, strict=True)]
        step = kept.step(base, [scope.value(v) for v in reduce.values], ordinal)
        taken = None if counted else (tick >= 0) & (tick < points)
        if reduce.where is not TRUE:
            condition = scope.value(reduce.where)
            taken = condition if taken is None else taken & condition
        values = list(step) if taken is None else [hl.select(taken, s, b) for s, b in zip(step, base, strict=True)]
        for k in range(len(reduce.values) if reduce.reducer.is_custom else 1):
            component = Reduce(reduce.reducer, reduce.values, reduce.axes, reduce.where, k)
            scope.bind(component, kept.result(k, values))
        new.update(zip(member.slots, values, strict=True))
    return new


def _decoded(ctx: Context, reduce: Reduce, ordinal: Halide) -> dict[Axis, Halide]:
    """The values of the reduce axes at a position in their order."""
    found: dict[Axis, Halide] = {}
    rest = ordinal
    for axis in reduce.axes[::-1]:
        begin = ctx.extent(axis.begin)
        if axis is reduce.axes[0]:
            found[axis] = begin + rest
        else:
            extent = ctx.extent(_extent(axis))
            found[axis] = begin + rest % extent
            rest = rest / extent
    return found
