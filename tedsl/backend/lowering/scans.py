"""Scans: an update over the axes of its steps whose right-hand side reads the function itself at earlier ones.

Where the body stays at one place of the other axes, those remain pure loops, free to be vectorized or run in parallel;
otherwise they run inside each time step. A reduction over the state runs innermost, inside the step: its accumulators
are further components of the function, and the last iteration stores the new state. When every reduction of a step is
over axes that no other one uses, they follow one another, those that a later one reads first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import halide as hl

from tedsl.analysis.checks import read_checks
from tedsl.analysis.iteration import is_stepped
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.indices import is_plain
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.reductions import Accumulator, accumulator, combined
from tedsl.backend.lowering.stages import Context, Place, Stage, function, tuple_of, variables
from tedsl.backend.lowering.together import exposed_reads, together
from tedsl.backend.scalars.types import TYPES, Expr as Halide
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Reduce
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["can_lower_scan", "lower_scan"]


@dataclass(frozen=True, eq=False)
class _Inner:
    """One reduction inside a step: its accumulator, the components that hold it, and its turn."""

    reduce: Reduce  # component 0
    kept: Accumulator
    first: int  # its first component of the function
    phase: int


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
    inner = _inner_reductions(ctx, op)
    states = len(op.bodies)
    types = [TYPES[b.dtype] for b in op.bodies] + [TYPES[d] for i in inner for d in i.kept.dtypes]
    func, dims = function(op.name, len(types)), variables(a.name for a in op.axes)
    empty = hl.undef if ctx.token is None else (lambda t: ctx.after_checks(hl.cast(t, 0)))
    func[dims[::-1]] = tuple_of(map(empty, types))
    stepped = is_stepped(op)
    others = [a for d, a in enumerate(op.axes) if d not in op.dims] if stepped else []
    looped = [*op.steps, *others][::-1]  # the fastest first
    total = _iterations(ctx, inner)
    ranges = [(0, total)] if inner else []
    ranges += [(0, ctx.extent(_extent(a))) for a in looped]
    domain = hl.RDom(ranges, identifier(op.steps[0].name))
    loops: dict[Axis, hl.RVar] = {axis: domain[d + len(ranges) - len(looped)] for d, axis in enumerate(looped)}
    place: dict[Axis, Halide] = {a: hl.Expr(v) for a, v in zip(op.axes, dims, strict=True)}
    place.update((a, hl.Expr(v)) for a, v in loops.items())
    if op.reverse:
        place.update((a, ctx.extent(_extent(a)) - 1 - loops[a]) for a in op.steps)
    at = _stored(ctx, op, tuple(place[a] for a in op.axes))[::-1]
    several = len(types) > 1
    positions = {id(state): k for k, state in enumerate(op.states)}

    def element(component: int, where: Place) -> Halide:
        return hl.Expr(func[where][component]) if several else hl.Expr(func[where])

    def read(tensor: Tensor, indices: Place) -> Halide:
        position = positions.get(id(tensor))
        return ctx.read(tensor, indices) if position is None else element(position, _stored(ctx, op, indices)[::-1])

    scope = ctx.scalars(place, read)
    held = [
        value
        for phase in sorted({i.phase for i in inner})
        for value in _phase(ctx, scope, [i for i in inner if i.phase == phase], domain, element, at, inner)
    ]
    new = [_steady(op, scope, b) for b in op.bodies]
    if inner:
        waiting = hl.likely(hl.Expr(domain[0]) < total - 1)
        new = [hl.select(waiting, element(k, at), value) for k, value in enumerate(new)]
    values = (*new, *held)
    old = [element(k, at) for k in range(len(values))]
    exposed = [] if inner else exposed_reads(ctx, op, range(states))
    dtypes = [b.dtype for b in op.bodies]
    func[at] = together(ctx, scope, values, old, dtypes, exposed) if exposed else ctx.updated(values, old)
    at_once = not inner and ctx.token is None and (states == 1 or bool(exposed))
    axes: dict[Axis, hl.Var | hl.RVar] = dict(zip(op.axes, dims, strict=True))
    axes.update(loops)
    return Stage(op, "scan", func, dims, tuple(range(states)), element, not inner, axes, together=at_once)


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


def _inner_reductions(ctx: Context, op: Scan) -> list[_Inner]:
    """Every reduction of the bodies once, with a turn after those that it contains."""
    found: dict[Reduce, _Inner] = {}
    first = len(op.bodies)
    for reduce in _reductions(op.bodies):
        whole = _whole(reduce)
        if whole in found:
            continue
        inside = [found[_whole(r)].phase for r in _reductions(reduce.children)]
        made = _Inner(whole, accumulator(ctx, whole), first, max(inside, default=-1) + 1)
        first += len(made.kept.dtypes)
        found[whole] = made
    return list(found.values())


def _points(ctx: Context, reduce: Reduce) -> Halide:
    total: Halide = hl.i32(1)
    for axis in reduce.axes:
        total = total * ctx.extent(_extent(axis))
    return total


def _phase_length(ctx: Context, members: Sequence[_Inner]) -> Halide:
    """Iterations of one turn: at least one, which sets the accumulators to their identity."""
    length: Halide = hl.i32(1)
    for member in members:
        length = hl.max(length, _points(ctx, member.reduce))
    return length


def _start(ctx: Context, inner: Sequence[_Inner], phase: int) -> Halide:
    start: Halide = hl.i32(0)
    for earlier in range(phase):
        start = start + _phase_length(ctx, [i for i in inner if i.phase == earlier])
    return start


def _iterations(ctx: Context, inner: Sequence[_Inner]) -> Halide:
    return _start(ctx, inner, max((i.phase for i in inner), default=-1) + 1)


def _phase(
    ctx: Context,
    scope: Scalars,
    members: Sequence[_Inner],
    domain: hl.RDom,
    element: object,
    at: Place,
    inner: Sequence[_Inner],
) -> list[Halide]:
    """The new accumulators of one turn's reductions; binds the reductions to their values so far."""
    start = _start(ctx, inner, members[0].phase)
    alone = len(members) == len(inner) == 1
    new: list[Halide] = []
    for member in members:
        reduce, kept, count = member.reduce, member.kept, len(member.kept.dtypes)
        points = _points(ctx, reduce)
        tick = hl.Expr(domain[0]) - start
        counted = alone and all(isinstance(a.extent, Const) and a.extent.value > 0 for a in reduce.axes)
        ordinal = tick if counted else hl.max(hl.min(tick, points - 1), 0)
        for axis, value in _decoded(ctx, reduce, ordinal).items():
            scope.bind_loop(axis, value)
        old = [element(member.first + k, at) for k in range(count)]  # type: ignore[operator]
        base = [hl.select(tick == 0, i, o) for i, o in zip(kept.identity, old, strict=True)]
        terms, holds = combined(ctx, scope, reduce, reduce.where)
        step = kept.step(base, terms, ordinal)
        taken = None if counted else (tick >= 0) & (tick < points)
        if holds is not TRUE:
            condition = scope.value(holds)
            taken = condition if taken is None else taken & condition
        values = list(step) if taken is None else [hl.select(taken, s, b) for s, b in zip(step, base, strict=True)]
        for k in range(len(reduce.values) if reduce.reducer.is_custom else 1):
            component = Reduce(reduce.reducer, reduce.values, reduce.axes, reduce.where, k)
            scope.bind(component, kept.result(k, values))
        new += values
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
