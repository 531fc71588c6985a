"""Reductions: a pure definition with the identity, and an update over the reduce axes.

The conditions of `where=` on data of the reduce axes alone skip iterations; all others select, which leaves the loops
rectangular and vectorizable. Max and min propagate NaN. Sums and products of 16-bit floats are held in float32.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

import halide as hl

from tedsl.analysis.terms import product_of
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.lowering.expressions import Scalars, is_deep
from tedsl.backend.lowering.indices import QUOTIENTS, is_plain
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import Context, Stage, elements, function, tuple_of, variables
from tedsl.backend.scalars.casts import cast
from tedsl.backend.scalars.intrinsics import DEEP, EMIT
from tedsl.backend.scalars.types import FLOATS, Expr as Halide, const, is_nan
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Reduce
from tedsl.lang.reducers import Reducer
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import conjuncts, free_axes, substitute, topological

__all__ = [
    "Accumulator", "added", "combined", "loops_over", "lower_reduction", "restrict", "split_condition",
    "where_counted",
]  # fmt: skip

COMBINE = {
    "sum": Fn.ADD, "prod": Fn.MUL, "max": Fn.MAXIMUM, "min": Fn.MINIMUM, "any": Fn.OR, "all": Fn.AND,
}  # fmt: skip
WIDE = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class Accumulator:
    """What a reduction keeps while it runs: values of `dtypes` from `identity`, by `step`, read out by `result`."""

    dtypes: tuple[str, ...]
    identity: tuple[Halide, ...]
    # step(held, values, position) with values of the reduction's own dtypes, position the ordinal in axis order
    step: Callable[[Sequence[Halide], Sequence[Halide], Halide], tuple[Halide, ...]]
    result: Callable[[int, Sequence[Halide]], Halide]
    direct: bool


def accumulator(ctx: Context, reduce: Reduce) -> Accumulator:
    """The accumulator for one reduction."""
    reducer, dtypes = reduce.reducer, tuple(v.dtype for v in reduce.values)
    if reducer.kind == "sums":
        return _sums(ctx, reducer, dtypes)
    if reducer.is_custom:
        return _custom(ctx, reducer, dtypes)
    if reducer.kind in ("argmax", "argmin"):
        return _argument(ctx, reducer, dtypes[0])
    return _builtin(ctx, reducer, dtypes[0], deep=is_deep(reduce.values[0], {}))


def _builtin(ctx: Context, reducer: Reducer, dtype: str, *, deep: bool) -> Accumulator:
    kind = reducer.kind
    table = DEEP if deep and kind in ("max", "min") else EMIT
    held = WIDE.get(dtype, dtype) if kind in ("sum", "prod") else dtype

    def step(old: Sequence[Halide], new: Sequence[Halide], position: Halide) -> tuple[Halide, ...]:
        value = cast(new[0], dtype, held)
        if kind != "sum" or held in FLOATS:
            value = ctx.opaque(value, held)
        return (table[COMBINE[kind].value](old[0], value, dtype=held),)

    identity = const(reducer.identity_of(dtype).value, held)  # type: ignore[arg-type]
    return Accumulator((held,), (identity,), step, lambda k, old: cast(old[0], held, dtype), held == dtype)


def _argument(ctx: Context, reducer: Reducer, dtype: str) -> Accumulator:
    """(best value, its position or -1): the first of equals wins, and NaN before every number."""
    held = WIDE.get(dtype, "uint8" if dtype == "bool" else dtype)
    beats = operator.gt if reducer.kind == "argmax" else operator.lt

    def step(old: Sequence[Halide], new: Sequence[Halide], position: Halide) -> tuple[Halide, ...]:
        value = ctx.opaque(cast(new[0], dtype, held), held)
        better = (old[1] < 0) | beats(value, old[0])
        if held in FLOATS:
            better = better | (is_nan(value, held) & hl.logical_not(is_nan(old[0], held)))
        return hl.select(better, value, old[0]), hl.select(better, position, old[1])

    return Accumulator(
        (held, "int32"), (const(0, held), hl.i32(-1)), step, lambda k, old: hl.max(old[1], hl.i32(0)), False
    )


def _custom(ctx: Context, reducer: Reducer, dtypes: tuple[str, ...]) -> Accumulator:
    def step(old: Sequence[Halide], new: Sequence[Halide], position: Halide) -> tuple[Halide, ...]:
        scope = ctx.scalars({})
        for formal, value in zip((*reducer.left, *reducer.right), (*old, *new), strict=True):
            scope.bind(formal, value)
        return tuple(ctx.opaque(scope.value(r), r.dtype) for r in reducer.results)

    identity = tuple(const(c.value, d) for c, d in zip(reducer.identity, dtypes, strict=True))
    return Accumulator(dtypes, identity, step, lambda k, old: old[k], True)


def _sums(ctx: Context, reducer: Reducer, dtypes: tuple[str, ...]) -> Accumulator:
    """Several sums of floats that need no wider ones. No component reads another: nothing has to be stored together."""

    def step(old: Sequence[Halide], new: Sequence[Halide], position: Halide) -> tuple[Halide, ...]:
        terms = [ctx.opaque(n, d) for n, d in zip(new, dtypes, strict=True)]
        return tuple(EMIT[Fn.ADD.value](o, n, dtype=d) for o, n, d in zip(old, terms, dtypes, strict=True))

    identity = tuple(const(c.value, d) for c, d in zip(reducer.identity, dtypes, strict=True))
    return Accumulator(dtypes, identity, step, lambda k, old: old[k], True)


def loops_over(ctx: Context, axes: Sequence[Axis], name: str) -> tuple[hl.RDom, dict[Axis, hl.RVar]]:
    """A reduction domain over the axes, the last one innermost."""
    inner_first = axes[::-1]
    extents = [a.extent for a in inner_first if a.extent is not None]
    domain = hl.RDom([(ctx.extent(a.begin), _count(ctx, e)) for a, e in zip(inner_first, extents, strict=True)], name)
    return domain, {axis: domain[d] for d, axis in enumerate(inner_first)}


def _count(ctx: Context, extent: Expr) -> Halide:
    """How many iterations there are. In a block of `n // 512` Halide would conclude that n is 512 at least, and ask for
    an array that is as large also where there is no block.
    """
    count = ctx.extent(extent)
    has_blocks = any(isinstance(n, Apply) and n.fn in QUOTIENTS for n in topological((extent,)))
    return count + ctx.opaque_zero() if has_blocks else count


def restrict(ctx: Context, domain: hl.RDom, condition: Expr, place: Mapping[Axis, Halide]) -> None:
    """Leave out the points where a condition is false; `place`: its loops.

    Halide simplifies it at once, before it looks whether the target is strict: `a - 1e8 < 0.5` as `a < 1e8 + 0.5`. And
    it goes through it as through a tree, which grows with each value that is used twice inside another, so nested
    floats are a function that Halide computes where it is asked for.
    """
    if not (is_deep(condition, {}) and any(n.dtype.is_float for n in topological(condition) if isinstance(n, Apply))):
        domain.where(hl.strict_float(ctx.scalars(place).value(condition)))
        return
    asked = set(free_axes(condition))
    axes = [axis for axis in place if axis in asked]
    dims = variables(axis.name for axis in axes)
    counts = numbered_func("counts")
    counts[dims] = ctx.scalars(dict(zip(axes, dims, strict=True))).value(condition)
    domain.where(hl.Expr(counts[tuple(place[axis] for axis in axes)]))


def split_condition(condition: Expr, uniform: set[Axis]) -> tuple[Expr, Expr]:
    """The part of an `and` that reads data by the `uniform` axes alone, and the rest.

    From a condition on the loops themselves Halide would conclude that a clamp inside is not needed, and then forget
    the condition where it infers what is read.
    """
    narrow: Expr = TRUE
    rest: Expr = TRUE
    for part in _parts(condition):
        if uniform.issuperset(free_axes(part)) and not is_plain(part):
            narrow = fn.logical_and(narrow, part)
        else:
            rest = fn.logical_and(rest, part)
    return narrow, rest


def _of_blocks(condition: Expr, uniform: set[Axis]) -> tuple[list[Expr], Expr]:
    """The comparisons in an `and` that ask of the loops of a result in which blocks these are, and the rest.

    They are the same for all elements of a tile: what is left of the sum is a loop.
    """
    blocks: list[Expr] = []
    rest: Expr = TRUE
    for part in conjuncts(condition):
        quotients = _quotients(part)
        others = free_axes(substitute(part, dict.fromkeys(quotients, Const(0, INT32))))
        if quotients and is_plain(part) and uniform.issuperset(others):
            blocks.append(part)
        else:
            rest = fn.logical_and(rest, part)
    return blocks, rest


def _quotients(condition: Expr) -> list[Apply]:
    """The numbers of blocks that stand in a condition."""
    return [
        n for n in topological(condition)
        if isinstance(n, Apply) and n.fn is Fn.FLOORDIV and isinstance(n.args[0], Axis) and isinstance(n.args[1], Const)
    ]  # fmt: skip


def _hidden(ctx: Context, place: Mapping[Axis, Halide], condition: Expr) -> Halide:
    """A condition on blocks, from which Halide concludes nothing about the loops of a tile: these stay whole.

    It would begin them at the first place that satisfies a condition, and a tile would reach beyond its end.
    """
    hidden: dict[Axis, Halide] = {}
    mapping: dict[Expr, Expr] = {}
    for node in _quotients(condition):
        axis, size = node.args
        assert isinstance(axis, Axis)
        block = Axis(axis.name, axis.extent)
        mapping[node] = block
        hidden[block] = (place[axis] / ctx.extent(size)) ^ ctx.unknown_zero()
    return ctx.scalars({**place, **hidden}).value(substitute(condition, mapping))


def _parts(condition: Expr) -> Iterator[Expr]:
    """The parts of an `and`, also where one is asked inside another: here no access leaves its tensor anyway."""
    for part in conjuncts(condition):
        if isinstance(part, Apply) and part.fn is Fn.SELECT and part.args[2] is FALSE:
            yield from _parts(part.args[0])
            yield from _parts(part.args[1])
        else:
            yield part


def position_in(ctx: Context, axes: Sequence[Axis], scope: Scalars) -> Halide:
    """The ordinal of a point of the axes in their order."""
    ordinal: Halide = hl.i32(0)
    for axis in axes:
        assert axis.extent is not None
        ordinal = ordinal * ctx.extent(axis.extent) + (scope.extent(axis) - ctx.extent(axis.begin))
    return ordinal


def lower_reduction(ctx: Context, op: Compute) -> Stage:
    """f[..] = identity; f[..] = step(f[..], values) for every point of the reduce axes where the condition holds."""
    reduce = op.reduction
    assert reduce is not None
    kept = accumulator(ctx, reduce)
    func, dims = function(op.name, len(kept.dtypes)), variables(a.name for a in op.axes)
    place = dims[::-1]
    domain, loops = loops_over(ctx, reduce.axes, identifier(reduce.axes[0].name))
    place_of: dict[Axis, Halide] = {a: hl.Expr(v) for a, v in (*zip(op.axes, dims, strict=True), *loops.items())}
    scope = ctx.scalars(place_of)
    start = ctx.onto(op.output(), place, kept.identity[0])  # only a sum is added to what is there
    func[place] = tuple_of(map(ctx.after_checks, (start, *kept.identity[1:])))
    narrow, rest = split_condition(reduce.where, set(reduce.axes))
    if narrow is not TRUE:
        restrict(ctx, domain, narrow, place_of)
    blocks, rest = _of_blocks(rest, set(reduce.axes))
    for condition in blocks:
        domain.where(_hidden(ctx, place_of, condition))
    held = elements(func, range(len(kept.dtypes)))
    old = [held(k, place) for k in range(len(kept.dtypes))]
    values, counts = combined(ctx, scope, reduce, rest)
    new = kept.step(old, values, position_in(ctx, reduce.axes, scope))
    new = where_counted(scope, counts, new, old)
    if ctx.loops_met((*reduce.values, *counts)).isdisjoint(reduce.axes):
        new = mentioning(domain, new, old)
    func[place] = tuple_of(new) if reduce.reducer.kind == "sums" else ctx.updated(new, old)

    def read(component: int, where: tuple[Halide, ...]) -> Halide:
        return kept.result(component, [held(k, where) for k in range(len(kept.dtypes))])

    return Stage(
        op, "reduction", func, dims, tuple(range(op.num_outputs)), read, kept.direct,
        dict(zip(op.axes, dims, strict=True)), dict(loops),
    )  # fmt: skip


def combined(
    ctx: Context, scope: Scalars, reduce: Reduce, condition: Expr, *, anywhere: bool = False
) -> tuple[list[Halide], tuple[Expr, ...]]:
    """What a reduction combines where a condition holds, and when each of these counts; `anywhere`: in any order."""
    if reduce.reducer.kind not in ("sum", "sums"):
        return [scope.value(v) for v in reduce.values], (condition,) * len(reduce.values)
    terms, counts = zip(
        *(added(ctx, scope, value, condition, anywhere=anywhere) for value in reduce.values), strict=True
    )
    return list(terms), counts


def where_counted(
    scope: Scalars, counts: Sequence[Expr], new: Sequence[Halide], old: Sequence[Halide]
) -> tuple[Halide, ...]:
    """The new values where they count."""
    if len(set(counts)) == 1:
        taken = [None if counts[0] is TRUE else scope.value(counts[0])] * len(new)
    else:
        taken = [None if count is TRUE else scope.value(count) for count in counts]
    return tuple(n if t is None else hl.select(t, n, o) for t, n, o in zip(taken, new, old, strict=True))


def added(ctx: Context, scope: Scalars, term: Expr, condition: Expr, *, anywhere: bool = False) -> tuple[Halide, Expr]:
    """A term of a sum where a condition holds, and that condition; a product is marked."""
    found = product_of(term)
    if found is None:
        return scope.value(term), condition
    dtype = term.dtype
    product = ctx.product(scope.value(found.value), dtype, anywhere=anywhere)
    value = EMIT[Fn.NEG.value](product, dtype=dtype) if found.negative else product
    return value, fn.logical_and(condition, found.condition)


def mentioning(domain: hl.RDom, new: Sequence[Halide], old: Sequence[Halide]) -> tuple[Halide, ...]:
    """The new values in terms of a domain: Halide only loops over one that it meets in an expression."""
    inside = hl.Expr(domain[0]) >= domain[0].min()
    return tuple(hl.select(inside, n, o) for n, o in zip(new, old, strict=True))
