"""Bounds of every access, decided when a kernel is built: in bounds, in bounds where guarded, wrong, or to be checked.

The order is from quick to thorough: numeric intervals, linear inequalities without and then with the guard, enumeration
of small boxes. An access is refused only where a point is shown at which it leaves its tensor and its guard holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Literal, NoReturn

import numpy as np

from tedsl.analysis.bounds import bounds_of
from tedsl.analysis.facts import Facts
from tedsl.analysis.messages import Overrun, describe
from tedsl.analysis.points import box_size, is_data_free, static_range, values_at
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sites import Site, sites_of
from tedsl.lang.answers import answers_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import simplify_extent
from tedsl.lang.intervals import range_of
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import conjuncts, free_axes, reads_of, substitute_all, topological

__all__ = [
    "ReadCheck", "Status", "checked_as", "checked_in_part", "has_given_checks", "holds", "read_checks", "read_to_check",
    "refuse_present_steps",
]  # fmt: skip

Status = Literal["safe", "guarded", "run"]

ENUMERATE = 10**6  # points of a box that are tried one by one
CORNERS = 6  # axes of which first and last values are tried


@dataclass(frozen=True, eq=False)
class ReadCheck:
    """What is known of one dimension of one access.

    safe     `lower <= index <= upper` at every point of the loops: needs neither clamp nor check
    guarded  so wherever `guard` holds: outside it the index must be clamped, a check is not needed
    run      unknown: to be clamped, and checked where `guard` holds

    `read` is None for the target row of a scatter. For a scan's own state along its axis, `lower` and `upper` end at
    the step before (after, in reverse) the present one.
    """

    site: Site
    lower: Expr
    upper: Expr
    status: Status

    @property
    def op(self) -> Operation:
        return self.site.op

    @property
    def read(self) -> Read | None:
        return self.site.read

    @property
    def tensor(self) -> Tensor:
        return self.site.tensor

    @property
    def index(self) -> Expr:
        return self.site.index

    @property
    def guard(self) -> Expr:
        return self.site.guard


# Where an operation has its own: a check names the operation, so that no table outside would ever let go of it.
_OWN = "_read_checks"
_GIVEN = "_given_read_checks"


def read_checks(op: Operation) -> tuple[ReadCheck, ...]:
    """The status of every access of an operation; IndexError (for a scan's own steps ValueError) where one is wrong."""
    done: tuple[ReadCheck, ...] | None = vars(op).get(_OWN)
    if done is None:
        scopes: dict[tuple[Axis, ...], Facts] = {}  # shared by the accesses of one scope, as they remember forms
        done = vars(op)[_OWN] = tuple(
            _Deciding(site, scopes.setdefault(site.axes, Facts(site.axes))).check() for site in sites_of(op)
        )
    return done


def refuse_present_steps(op: Scan) -> None:
    """ValueError where the body reads a step of its own that is not computed by then, whatever the sizes are."""
    scopes: dict[tuple[Axis, ...], Facts] = {}
    for site in sites_of(op):
        facts = scopes.setdefault(site.axes, Facts(site.axes))
        if _is_ahead(site, facts) and not (deciding := _Deciding(site, facts)).is_safe():
            raise deciding.not_yet("")


def _is_ahead(site: Site, facts: Facts) -> bool:
    """Whether a scan reads its own present or a coming step wherever it reads, which is wrong for every size."""
    if site.step is None:
        return False
    ahead = facts.form(site.index) - facts.form(site.step)
    ahead = ahead * -1 if site.reverse else ahead
    if ahead.is_constant and ahead.constant < 0:  # most are: `t - 1`, of which conditions say nothing
        return False
    return facts.proves(ahead, site.guard) and not facts.refutes(site.guard)


def holds(check: ReadCheck, index: Expr, guard: Expr, facts: Facts) -> bool:
    """Whether an access at `index` where `guard` holds is in bounds, or its tensor empty: such calls end before."""
    filled = guard
    for extent in check.tensor.extents:
        if not isinstance(extent, Const) or extent.value < 1:
            filled = Expr._apply(Fn.AND, filled, extent >= 1)
    form = facts.form(index)
    gaps = form - facts.form(check.lower), facts.form(check.upper) - form
    return all(facts.proves(gap, filled) for gap in gaps)


def read_to_check(op: Operation) -> set[Operation]:
    """The operations whose results decide, when a kernel runs, whether an access of `op` is in bounds.

    They are read as a whole before anything else is computed.
    """
    deciding = [n for n in op.nodes if n.children and (n.dtype.is_bool or isinstance(n, Read))]
    written = op.index if isinstance(op, Scatter) else ()
    conditions = [n for n in deciding if n.dtype.is_bool]  # also one that is read as it is
    if not reads_of((*written, *conditions, *(c for n in deciding for c in n.children))):
        return set()
    checks = [c for c in read_checks(op) if c.status == "run"]
    return {r.tensor.op for c in checks for r in reads_of((c.index, c.guard, c.lower, c.upper))}


def checked_as(op: Operation, originals: Iterable[Operation]) -> None:
    """Let the checks of `op`, which makes the same accesses as `originals`, be theirs: as the user wrote them."""
    vars(op)[_OWN] = tuple(check for original in originals for check in read_checks(original))
    vars(op)[_GIVEN] = True


def checked_in_part(op: Operation, original: Operation) -> None:
    """Let the checks of `op`, a table of what `original` reads, be those that `original` makes of the same tensors.

    A table may have elements that no point of the original reads, at which the guards do not hold or say nothing.
    """
    vars(op)[_OWN] = tuple(check for check in read_checks(original) if check.tensor in set(op.inputs))
    vars(op)[_GIVEN] = True


def has_given_checks(op: Operation) -> bool:
    """Whether the checks of an operation are those of others."""
    return _GIVEN in vars(op)


def _extent_is_not_zero(extent: Expr) -> bool:
    return not (isinstance(extent, Const) and extent.value == 0)


def _before(extent: Expr) -> Expr:
    """The last index below an extent; most are numbers, for which no algebra is needed."""
    if isinstance(extent, Const):
        return Const(int(extent.value) - 1, extent.dtype)
    return simplify_extent(extent - Const(1, extent.dtype))


class _Deciding:
    """One access on its way to a status."""

    def __init__(self, site: Site, facts: Facts) -> None:
        self.site = site
        self.facts = facts
        one = Const(1, site.extent.dtype)
        self.lower: Expr = Const(0, site.extent.dtype)
        self.upper: Expr = _before(site.extent)
        if site.step is not None:
            if site.reverse:
                self.lower = simplify_extent(site.step + one)
            else:
                self.upper = simplify_extent(site.step - one)

    def check(self) -> ReadCheck:
        site = self.site
        if self._is_empty() or self._fits_numerically():
            return ReadCheck(site, self.lower, self.upper, "safe")
        if site.step is not None or not isinstance(site.index, Apply):
            return ReadCheck(site, self.lower, self.upper, self._status())
        answers = answers_of(site.index)  # stages that are made of one another make the same accesses
        key = (_Deciding, site.axes, self.upper, site.guard)
        if key not in answers:
            answers[key] = self._status()
        return ReadCheck(site, self.lower, self.upper, answers[key])

    def is_safe(self) -> bool:
        """Whether it is in bounds at every point."""
        return self._is_empty() or self._fits_numerically() or self._holds(TRUE)

    def _status(self) -> Status:
        if self._holds(TRUE):
            return "safe"
        if self.site.guard is not TRUE and self._holds(self.site.guard):
            return "guarded"
        if _is_ahead(self.site, self.facts):
            raise self.not_yet("")
        decided = self._enumerated() if self._is_small() else self._tried_at_corners()
        return decided or "run"

    def _is_empty(self) -> bool:
        """Whether there is no point at all."""
        return not all(a.extent is None or _extent_is_not_zero(a.extent) for a in self.site.axes)

    def _fits_numerically(self) -> bool:
        if self.site.step is not None or not isinstance(self.upper, Const):
            return False
        low, high = range_of(self.site.index, self.facts.known)
        return low >= 0 and high <= self.upper.value

    def _holds(self, condition: Expr) -> bool:
        index = self.facts.form(self.site.index)
        gaps = (index - self.facts.form(self.lower), self.facts.form(self.upper) - index)
        return all(self.facts.proves(gap, condition) for gap in gaps) or self._goes_before(condition)

    def _goes_before(self, condition: Expr) -> bool:
        """Whether of several axes of steps the first in which the place differs is behind the present step."""
        site = self.site
        if site.along is None or site.read is None or not isinstance(site.op, Scan):
            return False
        for dim in site.along:
            behind = self.facts.form(site.op.axes[dim]) - self.facts.form(site.read.indices[dim])
            behind = behind * -1 if site.reverse else behind
            if self.facts.proves(behind - 1, condition):
                return True
            if not self.facts.proves(behind, condition):
                return False
        return False

    def not_yet(self, at: str) -> ValueError:
        """That a step is read before it is computed."""
        site = self.site
        side, sign = ("later", "+") if site.reverse else ("earlier", "-")
        there, now, advice = str(site.index), str(site.step), f"read `{site.step} {sign} 1`"
        if site.along is not None and isinstance(site.op, Scan) and site.read is not None:
            dims = site.along[:-1] if site.part is not None else site.along
            there, now = (_place(indices, dims) for indices in (site.read.indices, site.op.axes))
            if len(dims) > 1:
                advice = f"`{site.op.steps[0]}` goes slowest, as `axis=` says"
            else:
                advice = f"read `{site.op.steps[0]} {sign} 1`"
        advice += self._other_steps()
        called = repr(site.tensor) if site.part is None else site.part.name
        return ValueError(
            f"{describe(site.op)}: step `{there}` of {called} is read while step `{now}` is computed{at}; only "
            f"{side} steps are known: {advice}"
        )

    def _other_steps(self) -> str:
        """Advice where it is another axis along which the read goes to an earlier place."""
        op, read = self.site.op, self.site.read
        if not isinstance(op, Scan) or read is None or len(op.dims) > 1 or len(read.indices) != len(op.axes):
            return ""
        for dim, (axis, index) in enumerate(zip(op.axes, read.indices, strict=True)):
            behind = self.facts.form(axis) - self.facts.form(index)
            if dim not in op.dims and self.facts.proves(behind * (-1 if op.reverse else 1) - 1, self.site.guard):
                return f", or write axis=({op.dims[0]}, {dim}) to walk `{axis}` step by step too"
        return ""

    # What inequalities did not show: points are tried.

    @property
    def _condition(self) -> Expr:
        """The part of the guard that depends on no data; it may hold at more points than the guard."""
        found: Expr = TRUE
        for part in conjuncts(self.site.guard):
            if is_data_free((part,)):
                found = Expr._apply(Fn.AND, found, part)
        return found

    @property
    def _exprs(self) -> tuple[Expr, Expr, Expr, Expr]:
        return self.site.index, self.lower, self.upper, self._condition

    @property
    def _involved(self) -> list[Axis]:
        used = set(free_axes(self._exprs))
        return [a for a in self.site.axes if a in used]

    def _is_small(self) -> bool:
        size = box_size(self._involved)
        return self._is_static() and size is not None and size <= ENUMERATE

    def _is_static(self) -> bool:
        """Whether index, bounds and condition are numbers once the axes are."""
        known = all(static_range(a) is not None for a in self._involved)
        return known and is_data_free(self._exprs) and not any(_is_size(e) for e in topological(self._exprs))

    def _enumerated(self) -> Status | None:
        ranges = {a: static_range(a) for a in self._involved}
        grid = {a: np.arange(*r, dtype=np.int32) for a, r in ranges.items() if r is not None}
        outside, used = self._outside(grid)
        if not (outside & used).any():
            return "guarded" if outside.any() else "safe"
        if self._guard_is_known():
            self._refused(grid, outside & used, used)
        return None

    def _outside(self, grid: dict[Axis, Array]) -> tuple[Array, Array]:
        index, low, high, condition = values_at(self._exprs, grid)
        shape = tuple(len(v) for v in grid.values()) or (1,)
        outside = np.broadcast_to((index < low) | (index > high), shape)
        return outside, np.broadcast_to(condition, shape)

    def _guard_is_known(self) -> bool:
        return is_data_free((self.site.guard,))

    def _refused(self, grid: dict[Axis, Array], wrong: Array, used: Array) -> NoReturn:
        first = tuple(int(p) for p in np.argwhere(wrong)[0])
        index, low, high, _ = (np.broadcast_to(v, wrong.shape) for v in values_at(self._exprs, grid))
        point = {a.name: int(values[first[d]]) for d, (a, values) in enumerate(grid.items())}
        step = None
        if self.site.step is not None:
            step = int(low[first]) - 1 if self.site.reverse else int(high[first]) + 1
        self._raise(int(index[first]), point, int(index[used].min()), int(index[used].max()), step)

    def _raise(
        self,
        value: int | Expr,
        point: Mapping[str, int | Expr],
        low: int | Expr | None,
        high: int | Expr | None,
        step: int | None,
    ) -> NoReturn:
        site = self.site
        if site.along is not None:
            raise self.not_yet(f", at {', '.join(f'{name} = {here}' for name, here in point.items())}")
        extent = int(site.extent.value) if isinstance(site.extent, Const) else site.extent
        overrun = Overrun(
            site.op, site.tensor, site.dim, site.index, value, extent, dict(point), low, high,
            writes=site.read is None, step=step, reverse=site.reverse, part=site.part,
        )  # fmt: skip
        inside = isinstance(value, int) and value >= 0 and not (isinstance(extent, int) and value >= extent)
        if site.step is not None and (step is None or inside):
            raise ValueError(str(overrun))
        raise overrun.error()

    def _tried_at_corners(self) -> Status | None:
        """Refuse where the first or last values of the axes make an overrun that no size can mend."""
        if not (is_data_free(self._exprs) and self._guard_is_known()) or len(self._involved) > CORNERS:
            return None
        for corner in self._corners():
            index, low, high, condition = (simplify_extent(e) if e.dtype.is_integer else e for e in self._at(corner))
            below, above = self.facts.form(low) - self.facts.form(index), self.facts.form(index) - self.facts.form(high)
            overruns = self._is_positive(below) or self._is_positive(above)
            if overruns and self.facts.refutes(Expr._apply(Fn.NOT, condition)):
                point = {a.name: simplify_extent(v) for a, v in corner.items()}
                self._raise_symbolic(index, point, low, high)
        return None

    def _corners(self) -> Iterator[dict[Axis, Expr]]:
        ends = []
        for axis in self._involved:
            assert axis.extent is not None
            ends.append((axis.begin, axis.begin + axis.extent - 1))
        for choice in product(*ends):
            yield dict(zip(self._involved, choice, strict=True))

    def _at(self, corner: dict[Axis, Expr]) -> tuple[Expr, ...]:
        mapping: dict[Expr, Expr] = dict(corner.items())
        return substitute_all(self._exprs, mapping)

    def _is_positive(self, gap: Affine) -> bool:
        return self.facts.proves(gap - 1)

    def _raise_symbolic(self, index: Expr, point: dict[str, Expr], low: Expr, high: Expr) -> NoReturn:
        numbers = {name: int(v.value) if isinstance(v, Const) else v for name, v in point.items()}
        value = int(index.value) if isinstance(index, Const) else index
        around = bounds_of(self.site.index, self._condition)
        beside = simplify_extent(low - 1 if self.site.reverse else high + 1)
        step = int(beside.value) if self.site.step is not None and isinstance(beside, Const) else None
        self._raise(value, numbers, around.lower, around.upper, step)


def _place(indices: Sequence[Expr], dims: Sequence[int]) -> str:
    if len(dims) == 1:
        return str(indices[dims[0]])
    return f"({', '.join(str(indices[d]) for d in dims)})"


def _is_size(node: Expr) -> bool:
    return not isinstance(node, (Const, Axis, Apply))
