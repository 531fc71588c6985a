"""Programs to Halide: one function per operation, the last axis innermost, every construct in normal form.

The result keeps the maps from operations and axes to Halide's functions and loops, so that a schedule can be applied to
it and texts can be translated back. Inputs may be any tensors: what lies above them is not part of the kernel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import field
from types import MappingProxyType
from typing import Any

import halide as hl

from schedules.pieces import Piece
from tedsl.analysis.checks import ReadCheck
from tedsl.analysis.facts import Facts
from tedsl.analysis.hazards import Order
from tedsl.analysis.idle_places import idle_places
from tedsl.analysis.places import are_places
from tedsl.analysis.sizes import sizes_of_operations
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.lowering.finite_checks import operations_below
from tedsl.backend.lowering.index_checks import Checks, checks_of, lower_checks, operations_checked, undecided
from tedsl.backend.lowering.names import identifier, size_names, unused
from tedsl.backend.lowering.natives import lower_native
from tedsl.backend.lowering.reductions import WIDE, loops_over, lower_reduction, restrict
from tedsl.backend.lowering.scans import lower_scan
from tedsl.backend.lowering.scatters import lower_scatter
from tedsl.backend.lowering.stages import (
    ANY_ARRAYS,
    Arrays,
    Context,
    PlannedLoops,
    Stage,
    elements,
    function,
    tuple_of,
    variables,
)
from tedsl.backend.lowering.together import exposed_reads, together
from tedsl.backend.lowering.turns import extent_of
from tedsl.backend.scalars.intrinsics import EMIT
from tedsl.backend.scalars.types import TYPES, Expr as Halide
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between, substitute_all

__all__ = ["Lowered", "Result", "lower"]


@dataclass(eq=False)
class Result:
    """A function of the pipeline whose components are outputs, by their positions in the list of outputs."""

    func: hl.Func
    dims: tuple[hl.Var, ...]
    positions: tuple[int, ...]
    stage: Stage | None  # None for a function of its own, which copies what a stage holds


@dataclass(eq=False)
class Lowered:
    """A program as Halide sees it."""

    inputs: dict[Tensor, hl.ImageParam]
    previous: dict[int, hl.ImageParam]  # what the outputs in mode "add" held before, by position
    sizes: dict[Var, hl.Param]
    zero: hl.Param | None  # see Context.updated
    hides: bool  # whether numbers are hidden from Halide by it
    stages: list[Stage]
    results: list[Result]
    sites: list[ReadCheck]  # the accesses in question, which failed requirements name by number
    checks: Checks | None  # of those that are not decided by what is known of the arrays
    outputs: tuple[Tensor, ...]
    may_round: bool = False  # whether a loop over a result may go on behind its end; filled in by the schedule
    nesting: Order | None = None  # filled in by the schedule; None where only Halide knows
    inlined: set[Operation] = field(default_factory=set)  # filled in by Halide's own schedules

    @property
    def pipeline(self) -> hl.Pipeline:
        return hl.Pipeline([r.func for r in self.results])

    @property
    def functions(self) -> list[hl.Func]:
        """What has loops."""
        checks = [] if self.checks is None else self.checks.funcs
        return [*(s.func for s in self.stages), *checks, *(r.func for r in self.results if r.stage is None)]

    @property
    def arguments(self) -> list[Any]:
        """The parameters of the compiled function, without its outputs."""
        zero = [] if self.zero is None else [self.zero]
        return [*self.inputs.values(), *self.previous.values(), *self.sizes.values(), *zero]

    @property
    def temporaries(self) -> list[Operation]:
        """The operations whose results live in a buffer that is no output."""
        outputs = {r.stage for r in self.results}
        return [s.op for s in self.stages if s not in outputs and s.op not in self.inlined]

    def written_only(self, result: Result, least: int) -> list[str]:
        """Halide's names for the buffers of a result that nobody reads, where each has so many bytes."""
        stage = result.stage
        read = {t.op for s in self.stages for t in s.op.inputs}
        if (stage is not None and (stage.kind != "pointwise" or stage.op in read)) or self.previous:
            return []
        for tensor in (self.outputs[p] for p in result.positions):
            extents = [e.value for e in tensor.extents if isinstance(e, Const)]
            if len(extents) < tensor.ndim or math.prod(extents) * tensor.dtype.itemsize < least:
                return []
        name, count = result.func.name(), len(result.positions)
        return [name] if count == 1 else [f"{name}.{k}" for k in range(count)]

    @property
    def order(self) -> tuple[int, ...]:
        """The position in the list of outputs for each buffer of the pipeline, in order."""
        return tuple(p for r in self.results for p in r.positions)


def lower(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, added: Iterable[int] = (), finite: Sequence[Tensor] = (),
    promised: bool = False, in_place: bool = False, arrays: Arrays = ANY_ARRAYS, fuses: bool = False,
    pieces: Mapping[Operation, Sequence[Piece]] = MappingProxyType({}),
    loops: Mapping[str, PlannedLoops] = MappingProxyType({}), twice: AbstractSet[Operation] = frozenset(),
    held: Mapping[Read, Collection[int]] = MappingProxyType({}),
    windows: Mapping[Operation, Collection[int]] = MappingProxyType({}),
    inlined: AbstractSet[Operation] | None = None,
) -> Lowered:  # fmt: skip
    """The functions that compute `outputs` from `inputs`; those at the positions `added` are summed to what is there.

    The kernel fails before it writes anything when a tensor of `finite` holds an inf or NaN. `promised`: Halide is told
    that indices of inputs and outputs lie within them. Under a schedule of the user's its own reasoning may say that
    they do not, as where loops are fused whose ends change with a loop around them. `in_place`: outputs of one stage
    may lie in memory that it reads, so all of them are computed before any is stored. Of flat `arrays` Halide sees one
    axis with all elements. It checks every axis of every buffer, and carries these checks through all that it does:
    for kernels of little else a third of its time. `fuses`: the passes over the assembly will see the code, which make
    fused multiply-adds of the products in sums that are marked for them. `pieces`: of the stages that are computed so.
    `loops`: what is planned for those of a stage, by its name. `twice`: stages that compute some elements twice, which
    must not be added to what is there as they are computed. `held`: reads that are also made beyond what is there, and
    their dimensions. `windows`: stages of which a part is there at a time, and the dimensions along which it moves.
    `inlined`: stages that are written out where they are read; None where Halide says which.
    """
    operations, added = operations_between(inputs, outputs), tuple(added)
    given = tuple(dict.fromkeys(inputs))
    symbols = sizes_of_operations(given, operations)
    # Halide tells its functions apart by itself, but not parameters, from each other or from functions.
    used = {"opaque_zero", *(identifier(op.name) for op in operations)}
    names = {t: unused(identifier(t.name), used) for t in given}
    images = {t: hl.ImageParam(TYPES[t.dtype], min(t.ndim, 1) if arrays.are_flat else t.ndim, names[t]) for t in given}
    sizes = {v: hl.Param(hl.Int(32), name) for v, name in size_names(symbols, operations, used).items()}
    own = outputs if in_place and not added else ()
    seen = (*given, *outputs) if promised else ()
    ctx = Context(
        images, sizes, seen, arrays=arrays, in_place=own, fuses=fuses, loops=loops, held=held, windows=windows,
        inlined=inlined,
    )  # fmt: skip
    ctx.needed, ctx.pieces, ctx.idle = _needed(operations, outputs), pieces, idle_places(operations)
    places = {p: unused(f"previous_{p}", used) for p in sorted(set(added))}
    previous = {p: hl.ImageParam(TYPES[outputs[p].dtype], outputs[p].ndim, name) for p, name in places.items()}
    ctx.added = {
        outputs[p]: image
        for p, image in previous.items()
        if outputs[p].op not in twice and _can_start(outputs[p], operations, outputs)
    }
    sites = checks_of(operations)
    checks = _define(ctx, operations, undecided(sites, ctx.ranges), finite)
    results = _results(ctx, outputs, previous)
    stages = [ctx.stages[op] for op in operations]
    return Lowered(
        images, previous, sizes, ctx.zero, ctx.hides, stages, results, sites, checks, tuple(outputs),
        inlined=set(inlined or ()),
    )  # fmt: skip


def _can_start(tensor: Tensor, operations: Sequence[Operation], outputs: Sequence[Tensor]) -> bool:
    """Whether the stage of an output can start from what is there: nobody else reads it, and sums go on from there."""
    op = tensor.op
    if sum(t is tensor for t in outputs) > 1 or any(tensor in set(other.inputs) for other in operations):
        return False
    if tensor.dtype in WIDE and not (isinstance(op, Compute) and op.reduction is None):
        return False
    if isinstance(op, Compute):
        reduce = op.reduction
        return op in set(operations) and (reduce is None or reduce.reducer.kind == "sum")
    return isinstance(op, Scatter) and op in set(operations) and op.kind == "add"


def _define(
    ctx: Context, operations: Sequence[Operation], pending: Mapping[int, ReadCheck], finite: Sequence[Tensor]
) -> Checks | None:
    """Every operation as a stage: those that the checks of indices read, then the checks, then what waits for them."""
    first = operations_checked(operations, pending.values()) | operations_below(finite, operations)
    ctx.before_checks = first
    for op in (o for o in operations if o in first):
        ctx.stages[op] = RULES[type(op)](ctx, op)
    checks = lower_checks(ctx, pending, finite) if pending or finite else None
    ctx.token = None if checks is None else checks.token
    for op in (o for o in operations if o not in first):
        ctx.stages[op] = RULES[type(op)](ctx, op)
    return checks


def _needed(operations: Sequence[Operation], outputs: Sequence[Tensor]) -> dict[Operation, tuple[int, ...]]:
    """The components of each operation that somebody reads."""
    wanted: dict[Operation, set[int]] = {op: set() for op in operations}
    for tensor in (*outputs, *(t for op in operations for t in op.inputs)):
        if tensor.op in wanted:
            wanted[tensor.op].add(tensor.index)
    return {op: tuple(sorted(indices)) for op, indices in wanted.items()}


def lower_pointwise(ctx: Context, op: Compute) -> Stage:
    """f[..] = bodies, those that somebody needs."""
    exposed = exposed_reads(ctx, op, ctx.needed[op])
    if op in ctx.pieces and not exposed:
        return lower_pieces(ctx, op, ctx.pieces[op])
    dims, components = variables(a.name for a in op.axes), ctx.needed[op]
    func = function(op.name, len(components))
    axes: dict[Axis, Any] = dict(zip(op.axes, dims, strict=True))
    scope = ctx.scalars(axes)
    place = dims[::-1]
    values = [ctx.onto(op.output(k), place, scope.value(op.bodies[k])) for k in components]
    ctx.written.update((op.output(k), size) for k in components if (size := scope.size(op.bodies[k])))
    if ctx.inlined is None or op in ctx.inlined:
        whole = [k for k in components if op.bodies[k].dtype.is_integer]
        ctx.others.update(op.output(k) for k in whole if scope.is_of_other_numbers(op.bodies[k]))
    if are_places(op):
        values = [_opaque(v) for v in values]
    values = list(map(ctx.after_checks, values))
    read = elements(func, components)
    if exposed:
        dtypes = [op.bodies[k].dtype for k in components]
        func[place] = tuple_of(hl.undef(TYPES[d]) for d in dtypes)
        func[place] = together(ctx, scope, values, [read(k, place) for k in components], dtypes, exposed)
    else:
        func[place] = tuple_of(values)
    return Stage(op, "pointwise", func, dims, components, read, True, axes, together=bool(exposed))


def lower_pieces(ctx: Context, op: Compute, pieces: Sequence[Piece]) -> Stage:
    """f[..] is not defined; f[..] = bodies in a box, for one box after another."""
    dims, components = variables(a.name for a in op.axes), ctx.needed[op]
    func = function(op.name, len(components))
    func[dims[::-1]] = tuple_of(hl.undef(TYPES[op.bodies[k].dtype]) for k in components)
    updates, boxes = [], []
    for piece in pieces:
        is_all = piece.condition is not TRUE and all(map(operator.is_, piece.loops, op.axes))
        once, whole = hl.RDom([(0, 1)], "once"), dict(zip(op.axes, dims, strict=True))
        domain, loops = (once, whole) if is_all else loops_over(ctx, piece.loops, identifier(op.axes[0].name))
        if piece.condition is not TRUE:
            # Of a condition on loops Halide would conclude that a bound is not needed, and ask for all of the inputs
            # without that condition. It is asked in iterations, too, that a split has beyond the end.
            asked = [a for a in loops if a in set(free_axes(piece.condition))]
            last = {a: ctx.extent(a.begin) + ctx.extent(extent_of(a)) - 1 for a in asked}
            hidden = {a: hl.min(hl.Expr(loops[a]) + ctx.unknown_zero(), last[a]) for a in asked}
            restrict(ctx, domain, piece.condition, hidden)
        scope = ctx.scalars(loops, facts=Facts(piece.loops, dict(ctx.ranges)))
        place = tuple(map(scope.extent, map(_within, op.axes, piece.loops, piece.places)))[::-1]
        values = [ctx.onto(op.output(k), place, scope.value(piece.bodies[k])) for k in components]
        values = list(map(ctx.after_checks, values))
        if is_all:  # Halide takes the condition from the domain of a loop that is in the update
            values[0] = hl.select(once[0] == 0, values[0], hl.cast(values[0].type(), 0))
        func[place] = tuple_of(values)
        updates.append({axis: loops[a] for axis, a in zip(op.axes, piece.loops, strict=True)})
        boxes.append(substitute_all(piece.bodies, dict(zip(piece.loops, op.axes, strict=True))))
    return Stage(
        op, "pointwise", func, dims, components, elements(func, components), axes=dict(updates[0]),
        pieces=tuple(updates), boxes=tuple(boxes),
    )  # fmt: skip


def _within(axis: Axis, loop: Axis, place: Expr) -> Expr:
    """Where a piece writes along an axis. One that sizes may leave empty begins behind the last element then, which
    Halide would take for one that is written where loops are fused.
    """
    if place is loop or number(loop.extent) is not None:
        return place
    assert axis.extent is not None
    return loop + fn.minimum(simplify_extent(place - loop), axis.begin + axis.extent - 1)


def _opaque(value: Halide) -> Halide:
    """A place of which Halide knows no bounds: it would clamp what is read at it once more, number by number."""
    kind = value.type()
    return hl.reinterpret(kind, hl.reinterpret(hl.Float(32), value)) if kind == hl.Int(32) else value


def _lower_compute(ctx: Context, op: Compute) -> Stage:
    return lower_pointwise(ctx, op) if op.reduction is None else lower_reduction(ctx, op)


RULES: dict[type, Callable[[Context, Any], Stage]] = {
    Compute: _lower_compute, Scatter: lower_scatter, Scan: lower_scan, Extern: lower_native,
}  # fmt: skip


def _results(ctx: Context, outputs: Sequence[Tensor], previous: dict[int, hl.ImageParam]) -> list[Result]:
    """A function for every output: the stage itself where it holds just these outputs, else a copy of its elements."""
    first: dict[Tensor, int] = {}
    for position, tensor in enumerate(outputs):
        first.setdefault(tensor, position)
    results: list[Result] = []
    covered: set[int] = set()
    for stage in ctx.stages.values():
        tensors = [stage.op.output(k) for k in stage.components]
        positions = tuple(first[t] for t in tensors if t in first)
        if stage.op in ctx.before_checks:
            continue  # computed before the checks, which must come before the output is written
        apart = covered.union(p for p in previous if outputs[p] not in ctx.added)
        if stage.direct and len(positions) == len(tensors) and not apart.intersection(positions):
            results.append(Result(stage.func, stage.dims, positions, stage))
            covered.update(positions)
    for position, tensor in enumerate(outputs):
        if position not in covered:
            results.append(_copied(ctx, tensor, position, previous.get(position)))
    return results


def _copied(ctx: Context, tensor: Tensor, position: int, previous: hl.ImageParam | None) -> Result:
    func = numbered_func(f"out_{identifier(tensor.name)}")
    dims = tuple(hl.Var(f"d{d}") for d in range(tensor.ndim))
    value = ctx.read(tensor, tuple(map(hl.Expr, dims)))
    if previous is not None:
        fn = Fn.OR if tensor.dtype.is_bool else Fn.ADD
        value = EMIT[fn.value](previous[dims[::-1]], value, dtype=tensor.dtype)
    func[dims[::-1]] = ctx.after_checks(value)
    return Result(func, dims, (position,), None)
