"""Loops under quotients and remainders, as loops over the whole and the rest: what is left of the indices is affine.

A transposed convolution reads `x[(i + p) // 2]` and `w[(i + p) % 2 + 2 a]`: with `i = 2 q + r` there is a sum for each
remainder r, with indices in q alone. A grouped one reads `x[o // 4]`: with `o = 4 q + r` the quotient is q, whatever r
is, and r stays a loop. Loops of the sum are split alike, where one of their remainders meets the conditions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce as folded
from itertools import permutations, product

from schedules.conditions import tidied
from schedules.default.canonical.factors import grouped
from schedules.default.canonical.indices import QUOTIENTS, is_apart, plain
from schedules.default.canonical.stages import Parts, over, sum_of, summed
from schedules.default.copies import reads_inside
from schedules.default.products.contraction import FILLED, Contraction, contraction_of
from schedules.program import reading
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import apply, logical_and, select_node
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import asked_inside, free_axes, rebuild_all, substitute_all, topological

__all__ = ["split"]

MOST_PHASES = 16
FEW_PHASES = 4  # a stage for each is better than elements that nobody asks for
LEAST_WHOLE = 8
LEAST_LANES = 16
LANES, FEW_TERMS = 8, 64  # of elements that share vectors

_Loops = dict["_Cut", tuple[Axis, Axis | int]]


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

    @property
    def may_run_over(self) -> bool:
        """Whether a box of whole and rest, larger than a loop of the result, costs little, and phases too much."""
        return not self.axis.is_reduce and self.step > FEW_PHASES and self.extent >= LEAST_WHOLE * self.step

    def whole(self, rest: int) -> Axis:
        """The loop over those that leave a rest."""
        return self._axis("q", -(-(self.extent - rest) // self.step))

    def rest(self) -> Axis:
        return self._axis("r", self.step)

    def _axis(self, suffix: str, extent: int) -> Axis:
        return Axis(f"{self.axis.name}_{suffix}", Const(extent, INT32), is_reduce=self.axis.is_reduce)


def split(op: Compute, least: Thresholds, *, plain: bool = False) -> Parts | None:
    """The sum with such loops split: a stage, or one for each combination of the remainders that indices hang on.

    Terms of a factor that is 0 for a remainder are left out, unless `plain`: that holds where the other factor is
    finite.
    """
    reduce = sum_of(op)
    roots, loops = (*reduce.values, reduce.where), (*op.axes, *reduce.axes)
    cuts = _cuts(roots, loops)
    long = [c for c in cuts if c.axis.is_reduce or c.extent >= 2 * c.step]
    found = _split(op, cuts, least, plain=plain) if not plain or cuts == long else None
    if found is not None and (found.leaves_out or cuts == long):
        return found.parts
    found = _split(op, long, least, plain=plain) if len(long) < len(cuts) else None
    return None if found is None else found.parts


@dataclass(frozen=True, eq=False)
class _Found:
    """What a sum is split into, and whether terms are left out because a factor is 0."""

    parts: Parts
    leaves_out: bool


def _split(op: Compute, cuts: Sequence[_Cut], least: Thresholds, *, plain: bool) -> _Found | None:
    """The sum with some loops split."""
    rests = {c: c.rest() for c in cuts if c.divides or c.may_run_over}
    bound = _Split(op, {c: (c.whole(0), rest) for c, rest in rests.items()}).under_quotients()
    kept = [c for c, rest in rests.items() if rest not in bound]
    phases = [c for c in cuts if c not in kept and not c.axis.is_reduce]
    taps = [c for c in cuts if c not in kept and c.axis.is_reduce]
    if math.prod(c.step for c in phases) > MOST_PHASES or not (kept or phases):
        return None
    tied = None if plain else _tied(op, kept, phases, taps, least)
    if tied is not None:
        return tied
    made: list[tuple[dict[_Cut, int], Compute]] = []
    taken, leave_out, are_guarded = set[tuple[int, ...]](), False, True
    for which, left in enumerate(product(*(range(c.step) for c in phases))):
        fixed = dict(zip(phases, left, strict=True))
        loops: _Loops = {c: (c.whole(0), c.rest()) for c in kept} | {c: (c.whole(r), r) for c, r in fixed.items()}
        counts, leaves_out = _that_count(op, loops, taps, plain=plain)
        name = f"{op.name}_phase{which}" if phases else f"{op.name}_split"
        only = dict(zip(taps, counts[0], strict=True)) if len(counts) == 1 else {}
        part = _phase(op, loops, only, name, is_asked=leaves_out)
        known = None if part is None else contraction_of(grouped(part, least), least)
        if part is None or known is None or (phases and not _is_worth_phases(known, least)):
            return None
        if _leaves_lanes(op, loops, known) and contraction_of(op, least) is None:
            return None
        if not all(c.divides for c in kept) and not reads_inside(part):
            return None
        leave_out, are_guarded = leave_out | leaves_out, are_guarded and known.guarded
        taken.update(counts)
        made.append((fixed, part))
    if leave_out and not (are_guarded and len(taken) == math.prod(c.step for c in taps)):
        return _with_copy(op, kept, phases, made)  # else each of the sums looks at its own numbers, together at all
    return _Found(Parts(tuple(part for _, part in made), _element(op, kept, phases, made)), leave_out)


def _leaves_lanes(op: Compute, loops: _Loops, known: Contraction) -> bool:
    """Whether vectors lay along the last loop, and lie along another one that fills few of them where it is split.

    Filters of single channels, some for each and channels last: see `bordered`. What is a product as it is would be one
    with a table for each element of the last loop.
    """
    cut = next((c for c in loops if c.axis is op.axes[-1]), None)
    if cut is None or cut.extent < LEAST_LANES:
        return False
    made = sum(isinstance(loop, Axis) for loop in loops[cut])  # of the last loop, the last ones of the sum
    if _shares_vectors(op, cut) and not _is_moved(known.op, known.op.axes[-made]):
        return True
    return known.lane not in set(known.op.axes[-made:]) and known.sizes[known.lane] < FILLED


def _shares_vectors(op: Compute, cut: _Cut) -> bool:
    """Whether a vector of the last loop holds some whole rests, or is part of one, and each element has few terms.

    Of groups of channels, channels last: what a group reads is one number for its lanes, and no element is moved.
    """
    sums = [number(a.extent) for a in sum_of(op).axes]
    if None in sums or math.prod(n or 1 for n in sums) > FEW_TERMS:
        return False
    return cut.divides and (cut.step <= LANES or cut.step % LANES == 0) and len(op.axes) > 1


def _is_moved(op: Compute, whole: Axis) -> bool:
    """Whether a window moves along a loop: its terms are other elements for each, as in a transposed convolution."""
    return any(whole in set(free_axes(i)) and not is_apart(i) for read in op.reads for i in read.indices)


def _tied(op: Compute, kept: list[_Cut], phases: list[_Cut], taps: list[_Cut], least: Thresholds) -> _Found | None:
    """One sum for all remainders, where those of its own loops that count are those of its place, loop by loop."""
    if len(taps) != len(phases) or not all(c.divides for c in (*phases, *taps)):
        return None
    around: _Loops = {c: (c.whole(0), c.rest()) for c in kept}
    for order in permutations(phases):
        if any(c.step != t.step for c, t in zip(order, taps, strict=True)):
            continue
        own: dict[_Cut, Axis] = {c: c.rest() for c in phases}
        loops: _Loops = around | {c: (c.whole(0), own[c]) for c in phases}
        loops |= {t: (t.whole(0), own[c]) for c, t in zip(order, taps, strict=True)}
        if _Split(op, loops).under_quotients():
            continue
        for rests in product(*(range(c.step) for c in order)):
            fixed: _Loops = {c: (c.whole(0), r) for c, r in zip(order, rests, strict=True)}
            counts, leaves_out = _that_count(op, around | fixed, taps, plain=False)
            if counts != [rests] or not leaves_out:
                return None
        part = _phase(op, loops, {}, f"{op.name}_split", is_asked=True)
        if part is None or contraction_of(grouped(part, least), least) is None:
            return None
        return _with_copy(op, [*kept, *phases], [], [({}, part)])
    return None


def _with_copy(
    op: Compute, kept: list[_Cut], phases: list[_Cut], made: list[tuple[dict[_Cut, int], Compute]]
) -> _Found | None:
    """The sums of a copy of the factor that must be finite."""
    value = sum_of(op).values[0]
    read = next((f for f in value.children if not _may_be_zero(f)), None)
    if not isinstance(read, Read) or any(number(n) is None for n in read.tensor.extents):
        return None
    axes = tuple(Axis(f"d{d}", n) for d, n in enumerate(read.tensor.extents))
    copy = Compute(name=f"{op.name}_finite", axes=axes, bodies=(Read(read.tensor, axes),), where="")
    parts = [(fixed, reading(part, {read.tensor: copy.output()})) for fixed, part in made]
    known = [(fixed, part) for fixed, part in parts if isinstance(part, Compute)]
    return _Found(Parts(tuple(p for _, p in known), _element(op, kept, phases, known), (copy,)), leaves_out=True)


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
        _Cut(a, steps[a]) for a in loops if a in steps and number(a.begin) == 0 and (number(a.extent) or 0) >= steps[a]
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


def _phase(op: Compute, loops: _Loops, taps: Mapping[_Cut, int], name: str, *, is_asked: bool) -> Compute | None:
    """The stage of the elements whose loops leave these rests; None where quotients are left.

    `is_asked`: where a factor is 0, there is no term.
    """
    reduce = sum_of(op)
    loops = loops | {c: (c.whole(rest), rest) for c, rest in taps.items()}
    by_axis = {c.axis: pair for c, pair in loops.items()}

    def made(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        found: list[Axis] = []
        for axis in axes:
            whole, rest = by_axis.get(axis, (axis, 0))
            own = isinstance(rest, Axis) and rest.is_reduce == axis.is_reduce  # else a loop of the result
            found += [whole, rest] if own and isinstance(rest, Axis) else [whole]
        return tuple(found)

    found = _Split(op, loops)
    if found.under_quotients():
        return None
    value, where = _asked(found.value, found.where) if is_asked else (found.value, found.where)
    return over(made(op.axes), summed(reduce, value, made(reduce.axes), where), op, name)


def _asked(value: Expr, where: Expr) -> tuple[Expr, Expr]:
    """A product whose factors are chosen, else 0, as one under that condition."""
    assert isinstance(value, Apply)
    factors: list[Expr] = []
    for factor in value.args:
        while isinstance(factor, Apply) and factor.fn is Fn.SELECT and _is_zero(factor.args[2]):
            where, factor = asked_inside(where, factor.args[0]), factor.args[1]
        factors.append(factor)
    return value.with_children(tuple(factors)), where


def _that_count(op: Compute, loops: _Loops, taps: Sequence[_Cut], *, plain: bool) -> tuple[list[tuple[int, ...]], bool]:
    """The rests of the loops of the sum for which its condition can hold, and its value is not 0; whether some are left
    out because a factor is 0 there.
    """
    value, counts, leaves_out = sum_of(op).values[0], list[tuple[int, ...]](), False
    is_chosen = isinstance(value, Apply) and value.fn is Fn.MUL and sum(map(_may_be_zero, value.args)) == 1
    for rests in product(*(range(c.step) for c in taps)):
        found = _Split(op, loops | {c: (c.whole(rest), rest) for c, rest in zip(taps, rests, strict=True)})
        if found.where is FALSE or _is_zero(found.value):
            continue
        if not plain and is_chosen and any(map(_is_zero, found.value.children)):
            leaves_out = True
        else:
            counts.append(rests)
    return counts, leaves_out


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0


def _may_be_zero(factor: Expr) -> bool:
    """Whether a factor is chosen, else 0."""
    return isinstance(factor, Apply) and factor.fn is Fn.SELECT and _is_zero(factor.args[2])


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
