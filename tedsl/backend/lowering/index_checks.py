"""Checks of data-dependent indices inside the kernel, before any output is written.

Each access that could not be decided at build is scanned once: the least and greatest index outside the bounds, where
the access's guard holds. A requirement on the two makes the call return an error, and every output depends on it. The
access itself is clamped, so that nothing is read or written elsewhere, whatever the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import halide as hl

from tedsl.analysis.checks import ReadCheck, read_checks
from tedsl.analysis.facts import Facts
from tedsl.analysis.messages import Overrun
from tedsl.analysis.pointwise import Array
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.host.runtime import NOT_FINITE
from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.finite_checks import check_finite
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import Context, Place
from tedsl.backend.scalars.types import Expr as Halide, const
from tedsl.lang.dtypes import integer_bounds
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Fn, Var
from tedsl.lang.intervals import Range
from tedsl.lang.tensor import Operation, Scan, ScanState, Tensor
from tedsl.lang.traverse import free_axes, reads_of
from tedsl.reference import found_overrun

__all__ = ["Checks", "checks_of", "failed", "lower_checks", "operations_checked", "undecided"]

LANES = 16
# What is found saturates here: Halide's simplifier moves constants around, and overflows on the very last integers.
LOWEST, HIGHEST = -(1 << 30), 1 << 30


@dataclass(eq=False)
class Checks:
    """The checks of a kernel as functions: one of no dimensions, whose 0 says that they hold, and those it calls."""

    token: hl.Func
    funcs: list[hl.Func]

    @staticmethod
    def found_infinity(requirement: Sequence[str] | None) -> bool:
        """Whether a requirement of finite numbers failed, so that another form of the program must answer."""
        return requirement is not None and int(requirement[-4]) == NOT_FINITE


def failed(
    sites: Sequence[ReadCheck], requirement: Sequence[str], known: Mapping[Tensor, Array], sizes: Mapping[Var, int],
    defined: Sequence[Operation],
) -> str:  # fmt: skip
    """What a failed requirement on one of the accesses means, in a call on these arrays.

    It is said of the stages that the user `defined` between them, not of those that a schedule makes of them.
    """
    number, low, high, extent = map(int, requirement[-4:])
    own = checks_of(defined)
    for check in (*own, sites[number]):
        told = found_overrun(check, known, sizes)
        if told is not None:
            return str(told)
    site = sites[number].site
    alike = [c.site for c in own if c.site.dim == site.dim and c.site.tensor.name == site.tensor.name]
    site = alike[0] if len(alike) == 1 else site
    found, least, most = map(_told, (low if low < 0 else high, low, high))
    return str(Overrun(
        site.op, site.tensor, site.dim, site.index, found, extent, {}, least, most, writes=site.read is None,
        step=None if site.step is None else str(site.step), reverse=site.reverse, part=site.part,
        only_outside=True,
    ))  # fmt: skip


def _told(found: int) -> int | str:
    return f"{found} or beyond" if found in (LOWEST, HIGHEST) else found


def checks_of(operations: Iterable[Operation]) -> list[ReadCheck]:
    """The accesses to be checked at run time; IndexError for one that is provably wrong."""
    found = dict.fromkeys(c for op in operations for c in read_checks(op) if c.status == "run")  # two may share one
    return [c for c in found if not _holds_unless_empty(c)]


def undecided(checks: Iterable[ReadCheck], ranges: Mapping[Expr, Range]) -> dict[int, ReadCheck]:
    """Those by number that are still open where extents are in these ranges: `2*i` may then be no more than it is."""
    return {k: check for k, check in enumerate(checks) if not (ranges and _holds_unless_empty(check, ranges))}


def _holds_unless_empty(check: ReadCheck, ranges: Mapping[Expr, Range] | None = None) -> bool:
    """Whether an access can only be wrong where its tensor is empty; its calls end before (`SingleKernel.run`)."""
    facts = Facts(tuple(_loops(check)), dict(ranges or {}))
    filled = check.guard
    for extent in check.tensor.extents:
        filled = Expr._apply(Fn.AND, filled, extent >= 1)
    index = facts.form(check.index)
    gaps = (index - facts.form(check.lower), facts.form(check.upper) - index)
    return all(facts.proves(gap, filled) for gap in gaps)


def operations_checked(operations: Sequence[Operation], checks: Iterable[ReadCheck]) -> set[Operation]:
    """The operations whose results the checks read, with all that those read."""
    reads = [(c.op, read.tensor.op) for c in checks for read in reads_of(_expressions(c))]
    # The state of a scan is read from its results, so the scan itself comes first.
    wanted = {reader if isinstance(op, ScanState) else op for reader, op in reads}
    for op in reversed(operations):
        if op in wanted:
            wanted.update(t.op for t in op.inputs)
    return wanted.intersection(operations)


def _expressions(check: ReadCheck) -> tuple[Expr, ...]:
    return check.index, check.guard, check.lower, check.upper


def lower_checks(ctx: Context, pending: Mapping[int, ReadCheck], finite: Sequence[Tensor]) -> Checks:
    """The functions that check those accesses that are pending, by number, and that tables hold finite numbers."""
    total: Halide = hl.i32(0)
    funcs: list[hl.Func] = []
    for table in finite:
        zero, made = check_finite(ctx, table)
        total = total | zero
        funcs += made
    for number, check in pending.items():
        worst, made = _worst(ctx, check)
        low, high = hl.Expr(worst[()][0]), hl.Expr(worst[()][1])
        fine = (low == HIGHEST) & (high == LOWEST)
        ok = numbered_func(f"check_{identifier(check.op.name)}")
        ok[()] = hl.require(fine, hl.i32(0), hl.i32(number), low, high, ctx.extent(check.site.extent))
        total = total | hl.Expr(ok[()])
        funcs += [*made, worst, ok]
    token = numbered_func("checks")
    token[()] = total
    for func in (*funcs, token):
        func.compute_root()
    return Checks(token, funcs)


def _worst(ctx: Context, check: ReadCheck) -> tuple[hl.Func, list[hl.Func]]:
    """Least and greatest index outside the bounds: per lane, then over the lanes.

    The last axis is walked in steps of a vector. Past its end the last element is looked at again, which changes
    neither.
    """
    used = set(free_axes(_expressions(check)))
    around = _loops(check)
    axes = _long_last([a for a in around if a in used])
    lane = hl.Var("lane")
    lanes, worst = (
        numbered_func(f"lanes_{identifier(check.op.name)}"),
        numbered_func(f"worst_{identifier(check.op.name)}"),
    )
    nothing = (hl.i32(HIGHEST), hl.i32(LOWEST))
    lanes[lane] = hl.Tuple(nothing)
    steps = [(ctx.extent(a.begin), ctx.extent(_extent(a))) for a in axes]
    last = (ctx.extent(_extent(axes[-1])) + LANES - 1) / LANES if axes else hl.i32(1)
    others, ranges = axes[:-1][::-1], steps[:-1][::-1]
    inner = len(list(itertools.takewhile(_is_short, others)))  # inside, so that what it needs is read once
    domain = hl.RDom([*ranges[:inner], (0, last), *ranges[inner:]], "r")
    loops: dict[Axis, Halide] = {a: hl.Expr(domain[d + (d >= inner)]) for d, a in enumerate(others)}
    if axes:
        begin, extent = steps[-1]
        loops[axes[-1]] = begin + hl.min(hl.likely(hl.Expr(domain[inner]) * LANES + lane), extent - 1)
    filled = [ctx.extent(_extent(a)) > 0 for a in around if a not in used and not _is_positive(_extent(a))]
    scope = ctx.scalars(loops, _reading_scans(ctx, check.op))
    outside = _outside(ctx, check, scope.value(check.index), scope)
    for some in filled:
        outside = outside & some
    if check.guard is not TRUE:
        outside = outside & scope.value(check.guard)
    found = _saturated(scope.value(check.index), check.index.dtype)
    lanes[lane] = hl.Tuple([
        hl.min(hl.Expr(lanes[lane][0]), hl.select(outside, found, nothing[0])),
        hl.max(hl.Expr(lanes[lane][1]), hl.select(outside, found, nothing[1])),
    ])  # fmt: skip
    lanes.bound(lane, 0, LANES).vectorize(lane)
    lanes.update(0).vectorize(lane)
    every = hl.RDom([(0, LANES)], "lane")
    worst[()] = hl.Tuple(nothing)
    worst[()] = hl.Tuple([
        hl.min(hl.Expr(worst[()][0]), hl.Expr(lanes[every[0]][0])),
        hl.max(hl.Expr(worst[()][1]), hl.Expr(lanes[every[0]][1])),
    ])  # fmt: skip
    return worst, [lanes]


def _long_last(axes: list[Axis]) -> list[Axis]:
    """The axes, in an order whose last one fills the lanes, if one does: the last of those."""
    extents = {a: _extent(a) for a in axes}
    long = [a for a, e in extents.items() if not isinstance(e, Const) or e.value >= LANES]
    return [*(a for a in axes if a is not long[-1]), long[-1]] if long else axes


def _is_short(axis: Axis) -> bool:
    return isinstance(axis.extent, Const) and axis.extent.value < LANES


def _loops(check: ReadCheck) -> list[Axis]:
    """The loops around an access, with those of the reductions in its scan."""
    op = check.op
    reduction = getattr(op, "reduction", None)
    loops = [*getattr(op, "axes", ()), *(reduction.axes if reduction is not None else ())]
    return [*loops, *(a for a in free_axes(_expressions(check)) if a not in set(loops))]


def _extent(axis: Axis) -> Expr:
    assert axis.extent is not None
    return axis.extent


def _is_positive(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value > 0


def _reading_scans(ctx: Context, op: Operation) -> Callable[[Tensor, Place], Halide]:
    """Reads in which the states of a scan stand for its results: the same values, once all steps are done."""
    states = {id(s): k for k, s in enumerate(op.states)} if isinstance(op, Scan) else {}

    def read(tensor: Tensor, indices: Place) -> Halide:
        position = states.get(id(tensor))
        return ctx.read(tensor, indices) if position is None else ctx.stages[op].read(position, indices[::-1])

    return read


def _outside(ctx: Context, check: ReadCheck, index: Halide, scope: Scalars) -> Halide:
    """Whether an index leaves its bounds.

    Compared as unsigned numbers, of which negative ones are the largest: of signed ones Halide's simplifier turns
    `n - 1 < i` into `n < i + 1`, which wraps.
    """
    unsigned = hl.UInt(max(32, check.index.dtype.bits))
    lower, upper = scope.extent(check.lower), scope.extent(check.upper)
    least, most = (hl.cast(unsigned, hl.max(bound, 0)) for bound in (lower, upper))
    place = hl.cast(unsigned, index)
    return (place < least) | (upper < 0) | (place > most)


def _saturated(index: Halide, dtype: str) -> Halide:
    low, high = integer_bounds(dtype)  # type: ignore[arg-type]
    if low < LOWEST:
        index = hl.max(index, const(LOWEST, dtype))
    if high > HIGHEST:
        index = hl.min(index, const(HIGHEST, dtype))
    return hl.cast(hl.Int(32), index)
