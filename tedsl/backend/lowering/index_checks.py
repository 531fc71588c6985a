"""Checks of data-dependent indices inside the kernel, before any output is written.

Each access that could not be decided at build is looked at once: whether an index leaves the bounds where the access's
guard holds, and the least and greatest that do. A requirement makes the call return an error, and every output depends
on it. The access itself is clamped, so that nothing is read or written elsewhere, whatever the data. Accesses at the
same places, as of a lookup and of its gradient, have one check; so have those that ask under more conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import halide as hl

from tedsl.analysis.checks import ReadCheck, holds, read_checks
from tedsl.analysis.facts import Facts
from tedsl.analysis.messages import Overrun
from tedsl.analysis.pointwise import Array
from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.host.runtime import NOT_FINITE
from tedsl.backend.lowering.finite_checks import check_finite
from tedsl.backend.lowering.flat_checks import along_rows
from tedsl.backend.lowering.index_flags import HIGHEST, LOWEST, IndexFlags, expressions_of, loops_of
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import Context
from tedsl.backend.scalars.types import Expr as Halide
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Const, Expr, Var
from tedsl.lang.intervals import Range
from tedsl.lang.tensor import Operation, ScanState, Tensor
from tedsl.lang.traverse import asked_parts, free_axes, reads_of, substitute_all
from tedsl.reference import found_overrun

__all__ = ["Checks", "checks_of", "failed", "lower_checks", "operations_checked", "undecided"]


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
    return holds(check, check.index, check.guard, Facts(tuple(loops_of(check)), dict(ranges or {})))


def operations_checked(operations: Sequence[Operation], checks: Iterable[ReadCheck]) -> set[Operation]:
    """The operations whose results the checks read, with all that those read."""
    reads = [(c.op, read.tensor.op) for c in checks for read in reads_of(expressions_of(c))]
    # The state of a scan is read from its results, so the scan itself comes first.
    wanted = {reader if isinstance(op, ScanState) else op for reader, op in reads}
    for op in reversed(operations):
        if op in wanted:
            wanted.update(t.op for t in op.inputs)
    return wanted.intersection(operations)


def lower_checks(ctx: Context, pending: Mapping[int, ReadCheck], finite: Sequence[Tensor]) -> Checks:
    """The functions that check those accesses that are pending, by number, and that tables hold finite numbers."""
    total: Halide = hl.i32(0)
    funcs: list[hl.Func] = []
    for table in finite:
        zero, made = check_finite(ctx, table)
        total = total | zero
        funcs += made
    for number, check in _once(pending).items():
        walked = along_rows(check, ctx.images) if ctx.arrays.are_flat else check
        outside, made = IndexFlags(ctx, walked).any_outside()
        low, high, worst = IndexFlags(ctx, check).extremes(outside)
        ok = numbered_func(f"check_{identifier(check.op.name)}")
        ok[()] = hl.require(~outside, hl.i32(0), hl.i32(number), low, high, ctx.extent(check.site.extent))
        total = total | hl.Expr(ok[()])
        funcs += [*made, worst, ok]
    token = numbered_func("checks")
    token[()] = total
    for func in (*funcs, token):
        func.compute_root()
    return Checks(token, funcs)


def _once(pending: Mapping[int, ReadCheck]) -> dict[int, ReadCheck]:
    """The checks without those that another one has made, by loops of other names: wherever they ask, it asks too."""
    loops: dict[tuple[int, Expr | None, Expr | None], Axis] = {}
    places: dict[tuple[Expr, ...], list[tuple[frozenset[Expr], int]]] = {}
    for number, check in pending.items():
        used = free_axes(expressions_of(check))
        alike: dict[Expr, Expr] = {a: loops.setdefault((k, a.begin, a.extent), a) for k, a in enumerate(used)}
        unused = [a.extent for a in loops_of(check) if a not in set(used) and not isinstance(a.extent, Const)]
        index, guard, lower, upper = substitute_all(expressions_of(check), alike)
        asking = frozenset((*asked_parts(guard), *(extent for extent in unused if extent is not None)))
        places.setdefault((index, lower, upper), []).append((asking, number))
    needed = sorted(number for found in places.values() for number in _widest(found))
    return {number: pending[number] for number in needed}


def _widest(found: Sequence[tuple[frozenset[Expr], int]]) -> Iterator[int]:
    """Of checks of one place those that ask under the fewest conditions: the others ask nothing more."""
    kept: list[frozenset[Expr]] = []
    for asking, number in sorted(found, key=lambda one: (len(one[0]), one[1])):
        if not any(wide <= asking for wide in kept):
            kept.append(asking)
            yield number
