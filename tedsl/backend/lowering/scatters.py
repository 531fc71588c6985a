"""Scatters: a pure definition with the start values, and an update at computed indices.

Points that land on one element combine in the order of the axes, one after another, so a result is the same in every
run. An axis that is the whole of a dimension cannot collide with itself: it stays a pure loop, free to be vectorized or
run in parallel.
"""

from __future__ import annotations

import halide as hl

from tedsl.analysis.iteration import free_dimensions
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.lowering.expressions import is_deep
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.reductions import WIDE, added, loops_over, mentioning, restrict, split_condition
from tedsl.backend.lowering.stages import Context, Stage, variables
from tedsl.backend.scalars.casts import cast
from tedsl.backend.scalars.intrinsics import DEEP, EMIT
from tedsl.backend.scalars.types import FLOATS, Expr as Halide, const
from tedsl.lang.expr import TRUE, Axis, Fn
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.tensor import Scatter

__all__ = ["lower_scatter"]

MEET = {"add": Fn.ADD, "mul": Fn.MUL, "max": Fn.MAXIMUM, "min": Fn.MINIMUM}


def lower_scatter(ctx: Context, op: Scatter) -> Stage:
    """f[..] = init; f[index] = meet(f[index], value) for every point of the axes where the guard holds."""
    dtype = op.value.dtype
    held = WIDE.get(dtype, dtype) if op.kind in ("add", "mul") else dtype
    func = numbered_func(identifier(op.name))
    free = free_dimensions(op)
    dims = variables(free[d].name if d in free else f"d{d}" for d in range(len(op.shape)))
    place = dims[::-1]
    if op.init is None:
        start = const(BUILTIN[SCATTER_KINDS[op.kind]].identity_of(dtype).value, held)
    else:
        start = cast(ctx.read(op.init, tuple(map(hl.Expr, dims))), op.init.dtype, held)
    func[place] = ctx.after_checks(ctx.onto(op.output(), place, start))
    loops: dict[Axis, hl.Var | hl.RVar] = {axis: dims[d] for d, axis in free.items()}
    bound = [axis for axis in op.axes if axis not in loops]
    domain = None
    inner: dict[Axis, hl.RVar] = {}
    if bound:
        domain, inner = loops_over(ctx, bound, identifier(bound[0].name))
    place_of: dict[Axis, Halide] = {axis: hl.Expr(v) for axis, v in {**loops, **inner}.items()}
    scope = ctx.scalars(place_of)
    narrow, rest = split_condition(op.guard, set(bound)) if domain is not None else (TRUE, op.guard)
    if domain is not None and narrow is not TRUE:
        restrict(ctx, domain, narrow, place_of)
    target = tuple(
        dims[d] if d in free else scope.index(row, extent)
        for d, (row, extent) in enumerate(zip(op.index, op.shape, strict=True))
    )[::-1]
    old: Halide = hl.Expr(func[target])
    if op.kind == "add":
        found, rest = added(ctx, scope, op.value, rest)
    else:
        found = scope.value(op.value)
    value = cast(found, dtype, held)
    if op.kind != "add" or held in FLOATS:
        value = ctx.opaque(value, held)
    table = DEEP if op.kind in ("max", "min") and is_deep(op.value, {}) else EMIT
    new = table[MEET[op.kind].value](old, value, dtype=held)
    if rest is not TRUE:
        new = hl.select(scope.value(rest), new, old)
    if domain is not None and ctx.loops_met((*op.index, op.value, rest)).isdisjoint(bound):
        (new,) = mentioning(domain, (new,), (old,))
    func[target] = new
    if op.unique:
        func.update(0).allow_race_conditions()  # there are none: Halide cannot know
    return Stage(
        op, "scatter", func, dims, (0,), lambda component, at: cast(hl.Expr(func[at]), held, dtype), held == dtype,
        loops, dict(inner),
    )  # fmt: skip
