"""Loops under quotients and remainders, as loops over the whole and the rest: what is left of the indices is affine.

A transposed convolution reads `x[(i + p) // 2]` and `w[(i + p) % 2 + 2 a]`: with `i = 2 q + r` there is a sum for each
remainder r, with indices in q alone. A grouped one reads `x[o // 4]`: with `o = 4 q + r` the quotient is q, whatever r
is, and r stays a loop. Loops of the sum are split alike, where one of their remainders meets the conditions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce as folded
from itertools import product

from schedules.conditions import tidied
from schedules.default.canonical.indices import QUOTIENTS, plain
from schedules.default.canonical.stages import Parts, over, sum_of, summed
from schedules.default.products.contraction import Contraction, contraction_of
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import apply, logical_and, select_node
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, rebuild_all, substitute_all, topological

__all__ = ["split"]

MOST_PHASES = 16


@dataclass(frozen=True, eq=False)
class _Cut:
    """A loop as `step * whole + rest`."""

    axis: Axis
    step: int

    @property
    def extent(self) -> int:
        extent = number(self.axis.extent)
        assert extent is not None
        return extent

    @property
    def divides(self) -> bool:
        return self.extent % self.step == 0

    def whole(self, rest: int) -> Axis:
        """The loop over those that leave a rest."""
        return self._axis("q", -(-(self.extent - rest) // self.step))

    def rest(self) -> Axis:
        return self._axis("r", self.step)

    def _axis(self, suffix: str, extent: int) -> Axis:
        return Axis(f"{self.axis.name}_{suffix}", Const(extent, INT32), is_reduce=self.axis.is_reduce)


def split(op: Compute, least: Thresholds) -> Parts | None:
    """The sum with such loops split: a stage, or one for each combination of the remainders that indices hang on."""
    reduce = sum_of(op)
    cuts = _cuts((*reduce.values, reduce.where), (*op.axes, *reduce.axes))
    if not cuts:
        return None
    rests = {c: c.rest() for c in cuts if c.divides}
    bound = _Split(op, {c: (c.whole(0), rest) for c, rest in rests.items()}).under_quotients()
    kept = [c for c, rest in rests.items() if rest not in bound]
    phases = [c for c in cuts if c not in kept and not c.axis.is_reduce]
    taps = [c for c in cuts if c not in kept and c.axis.is_reduce]
    if math.prod(c.step for c in phases) > MOST_PHASES or not (kept or phases):
        return None
    made = []
    for which, left in enumerate(product(*(range(c.step) for c in phases))):
        fixed = dict(zip(phases, left, strict=True))
        part = _phase(op, kept, fixed, taps, f"{op.name}_phase{which}" if phases else f"{op.name}_split")
        known = None if part is None else contraction_of(part, least)
        if part is None or known is None or (phases and not _is_worth_phases(known, least)):
            return None
        made.append((fixed, part))
    return Parts(tuple(part for _, part in made), _element(op, kept, phases, made))


def _is_worth_phases(known: Contraction, least: Thresholds) -> bool:
    """Whether packing, and writing the elements of several stages in turn, is paid back by what they are made of."""
    return known.points(known.row_axes) * known.terms >= least.phase_terms


def _cuts(roots: tuple[Expr, ...], loops: tuple[Axis, ...]) -> list[_Cut]:
    """The loops of known extents that stand under quotients or remainders, with the least step that frees them."""
    steps: dict[Axis, int] = {}
    for node in topological(roots):
        if not isinstance(node, Apply) or node.fn not in QUOTIENTS or node.dtype is not INT32:
            continue
        by, form = number(node.args[1]), affine_of(node.args[0])
        if by is None or by < 2 or form is None:
            continue
        for axis in form.axes:
            factor = form.coefficient(axis)
            if factor is not None and factor.is_constant and factor.constant % by:
                step = by // math.gcd(by, factor.constant)
                steps[axis] = math.lcm(steps.get(axis, 1), step)
    return [
        _Cut(a, steps[a])
        for a in loops
        if a in steps and number(a.begin) == 0 and (number(a.extent) or 0) >= (1 if a.is_reduce else 2) * steps[a]
    ]


class _Split:
    """The value and the condition of a sum with loops replaced: (whole, rest) for each, the rest may be a number."""

    def __init__(self, op: Compute, loops: Mapping[_Cut, tuple[Axis, Axis | int]]) -> None:
        reduce = sum_of(op)
        mapping: dict[Expr, Expr] = {c.axis: whole * c.step + rest for c, (whole, rest) in loops.items()}
        roots = substitute_all((*reduce.values, reduce.where), mapping)
        self.value, self.where = tidied(rebuild_all(roots, plain))

    def under_quotients(self) -> set[Axis]:
        """The loops that still stand under quotients and remainders."""
        nodes = topological((self.value, self.where))
        return {a for n in nodes if isinstance(n, Apply) and n.fn in QUOTIENTS for a in free_axes(n)}


def _phase(op: Compute, kept: list[_Cut], fixed: Mapping[_Cut, int], taps: list[_Cut], name: str) -> Compute | None:
    """The stage of the elements whose loops leave these rests; None where quotients are left."""
    reduce = sum_of(op)
    loops: dict[_Cut, tuple[Axis, Axis | int]] = {c: (c.whole(0), c.rest()) for c in kept}
    loops.update((c, (c.whole(rest), rest)) for c, rest in fixed.items())
    only = list(_that_count(op, loops, taps))
    if len(only) == 1:
        loops.update((c, (c.whole(rest), rest)) for c, rest in only[0].items())
    by_axis = {c.axis: pair for c, pair in loops.items()}

    def made(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        found: list[Axis] = []
        for axis in axes:
            whole, rest = by_axis.get(axis, (axis, 0))
            found += [whole, rest] if isinstance(rest, Axis) else [whole]
        return tuple(found)

    found = _Split(op, loops)
    if found.under_quotients():
        return None
    return over(made(op.axes), summed(reduce, found.value, made(reduce.axes), found.where), op, name)


def _that_count(
    op: Compute, loops: Mapping[_Cut, tuple[Axis, Axis | int]], taps: list[_Cut]
) -> Iterator[Mapping[_Cut, int]]:
    """The rests of the loops of the sum for which its condition can hold, and its value is not 0."""
    for rests in product(*(range(c.step) for c in taps)):
        fixed = dict(zip(taps, rests, strict=True))
        found = _Split(op, {**loops, **{c: (c.whole(rest), rest) for c, rest in fixed.items()}})
        if found.where is not FALSE and not (isinstance(found.value, Const) and found.value.value == 0):
            yield fixed


def _element(op: Compute, kept: list[_Cut], phases: list[_Cut], made: list[tuple[dict[_Cut, int], Compute]]) -> Expr:
    """An element of the result, out of the stage that its place leaves a rest for."""
    by_axis = {c.axis: c for c in (*kept, *phases)}

    def read(part: Compute) -> Expr:
        place: list[Expr] = []
        for axis in op.axes:
            cut = by_axis.get(axis)
            place += [axis] if cut is None else [axis // cut.step]
            if cut in kept:
                assert cut is not None
                place.append(axis % cut.step)
        return Read(part.output(), tuple(place))

    *others, last = made
    body = read(last[1])
    for fixed, part in reversed(others):
        here = [apply(Fn.EQ, cut.axis % cut.step, rest) for cut, rest in fixed.items()]
        body = select_node(folded(logical_and, here), read(part), body)
    return body
