"""Whether what a loop needs of a stage is a window that moves along with the loop.

A stage stored outside of the loop in which it is computed keeps what earlier iterations computed; each iteration adds
the part of its window that is new. Halide finds that part by following the ends of the window, and goes wrong where
they do not move together: it computed nothing at all where one read stands still and the other moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from schedules.loops import Level
from schedules.plan import Plan
from tedsl.analysis.affine import affine_of, quotient_apart
from tedsl.analysis.rounds import near_place
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read
from tedsl.lang.intervals import range_of
from tedsl.lang.polynomials import Affine
from tedsl.lang.scalar_text import brief
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, topological

__all__ = ["held", "moves_along", "quotient_of", "steps_of", "what_does_not_slide"]


_CHOICES = (Fn.MINIMUM, Fn.MAXIMUM)
_TURNS = (*_CHOICES, Fn.MOD, Fn.ABS)


@dataclass(frozen=True)
class _Place:
    """Where an index is: at most so far from `base`, and held at the ends or not."""

    base: Expr
    reach: int
    is_held: bool


class _Stands(Exception):
    """A read whose window does not move with a loop; the text says which and why."""


def what_does_not_slide(plan: Plan, stage: str, between: Sequence[tuple[str, Level]]) -> str | None:
    """The first read of a stage that keeps its window from moving with the loops `between`, None if there is none."""
    for consumer, level in between:
        (axis, *others) = level.origin
        if others or not isinstance(axis, Axis):
            return f"{consumer}'s loop {level.name!r} runs over more than one axis"
        try:
            _follow(plan, stage, consumer, axis)
        except _Stands as problem:
            return str(problem)
    return None


def steps_of(
    plan: Plan, stage: str, consumer: str, axis: Axis, known: dict[str, list[Fraction]] | None = None
) -> list[Fraction]:  # fmt: skip
    """How far the window on a stage moves along each of its dimensions from one step of the axis to the next.

    `known`: the same of stages that were followed before.
    """
    known = {} if known is None else known
    if stage in known:
        return known[stage]
    source = plan.program.stages[stage]
    found: list[Fraction] | None = None
    for name in plan.program.readers[stage]:
        reader = plan.program.stages[name]
        own = _ownsteps_of(plan, name, reader, consumer, axis, known)
        for read in reader.reads:
            if read.tensor.op is not source:
                continue
            rates = [_rate(row, own) for row in _places(read)]
            if None in rates or found not in (None, rates):
                earlier = "" if None in rates else ", unlike another read of it"
                way = _way_round(stage) if any(_turns_back(row, own) for row in read.indices) else ""
                raise _Stands(f"{name} reads {brief(read)}, which does not move along with {axis.name!r}{earlier}{way}")
            found = [r for r in rates if r is not None]
    known[stage] = found or []
    return known[stage]


def _places(read: Read) -> list[_Place]:
    """Where the indices of a read are, but at the ends."""
    found = []
    for index, extent in zip(read.indices, read.tensor.extents, strict=True):
        near = near_place(index, extent)
        found.append(_Place(held(index), 0, held(index) is not index) if near is None else _Place(*near, is_held=True))
    return found


def _turns_back(index: Expr, steps: Mapping[Axis, Fraction]) -> bool:
    """Whether an index is mirrored or begins anew at a border: it is chosen of two that move, or a remainder."""

    def moves(e: Expr) -> bool:
        return any(steps.get(a, 0) for a in free_axes(e))

    turns = [n for n in topological(index) if isinstance(n, Apply) and n.fn in _TURNS]
    return any(all(map(moves, n.args if n.fn in _CHOICES else n.args[:1])) for n in turns)


def _way_round(stage: str) -> str:
    return (
        f" (mode='reflect' and 'wrap' turn back at a border: let {stage} have what lies beyond it, by a larger shape "
        "and that mode in what it reads itself, and read it at plain places)"
    )


def moves_along(plan: Plan, stage: str, dim: int, between: Sequence[tuple[str, Level]]) -> bool:
    """Whether the window on a stage moves along a dimension with one of these loops, as far as one can tell."""
    for consumer, level in between:
        (axis, *others) = level.origin
        try:
            if others or not isinstance(axis, Axis) or steps_of(plan, stage, consumer, axis)[dim]:
                return True
        except _Stands:
            return True
    return False


def _ownsteps_of(
    plan: Plan, name: str, reader: Operation, consumer: str, axis: Axis, known: dict[str, list[Fraction]]
) -> dict[Axis, Fraction]:  # fmt: skip
    """How far each axis of a reader moves per step: the loop's own axis by one, others as its window does."""
    if name == consumer:
        return {axis: Fraction(1)}
    if not isinstance(reader, Compute):
        raise _Stands(f"{name} reads it in an order of its own")
    return dict(zip(reader.axes, steps_of(plan, name, consumer, axis, known), strict=True))


@dataclass(frozen=True)
class _Row:
    """One read of a stage along a dimension: how far behind the loop, and whether it is plain, held or guarded."""

    reader: str
    read: Read
    lead: Fraction
    kind: str


_Rows = tuple[_Row, ...]


def _follow(plan: Plan, stage: str, consumer: str, axis: Axis) -> None:
    """Refuse a window whose end is a plain read, beside one that is held or guarded at the beginning.

    Halide takes the end of the window before the first iteration for what has been computed. A guarded read is held
    where its guard begins to be true, so that this end may lie within the first window, which is then left out.
    """
    steps: dict[str, list[Fraction]] = {}
    steps_of(plan, stage, consumer, axis, steps)
    for rows in _rows_of(plan, stage, consumer, axis, steps, {}):
        last = max((r.lead for r in rows), default=0) - 1  # of quotients those farther on may be the end of a window
        others = [r for r in rows if r.kind == "guarded" or (r.kind == "held" and r.lead > last)]
        kinds = {r.kind for r in rows if r.lead > last}
        if others and "plain" in kinds and "guarded" not in kinds:
            said = f"{others[0].reader}'s read {brief(others[0].read)} is {others[0].kind}"
            raise _Stands(f"{said} at an end, where Halide loses the first window")


def _rows_of(
    plan: Plan, stage: str, consumer: str, axis: Axis, steps: dict[str, list[Fraction]], known: dict[str, list[_Rows]]
) -> list[_Rows]:  # fmt: skip
    """The reads of a stage along each of its dimensions that moves with a loop, of those that are alike the first."""
    if stage in known:
        return known[stage]
    source = plan.program.stages[stage]
    found: list[dict[tuple[Fraction, str], _Row]] = [{} for _ in source.outputs[0].extents]
    for name in plan.program.readers[stage]:
        reader = plan.program.stages[name]
        own = _ownsteps_of(plan, name, reader, consumer, axis, steps)
        above = None if name == consumer else _rows_of(plan, name, consumer, axis, steps, known)
        for read, guard in reader.read_guards.items():
            if read.tensor.op is source:
                for dim, row in enumerate(_places(read)):
                    for r in _rows(name, read, row, guard, own, reader, above):
                        found[dim].setdefault((r.lead, r.kind), r)
    known[stage] = [tuple(rows.values()) for rows in found]
    return known[stage]


def _rows(
    name: str, read: Read, row: _Place, guard: Expr, steps: Mapping[Axis, Fraction], reader: Operation,
    above: Sequence[_Rows] | None,
) -> list[_Row]:  # fmt: skip
    """A read along one dimension, by every way in which its reader is read in turn."""
    form = affine_of(row.base)
    along = [] if form is None else [a for a in free_axes(form.to_expr()) if steps.get(a, 0)]
    if len(along) != 1 or form is None:
        return []
    (moving,) = along
    found = _line(form, moving)
    if found is None:
        return []
    factor, (low, high) = found
    turned = 1 if factor * steps[moving] > 0 else -1
    lead = row.reach + (high if turned > 0 else -low)
    asked = any(steps.get(a, 0) for a in free_axes(guard))
    kind = "guarded" if asked else "held" if row.is_held else "plain"
    if above is None:
        return [_Row(name, read, lead, kind)]
    assert isinstance(reader, Compute)
    scale, place = abs(factor), next(k for k, a in enumerate(reader.axes) if a is moving)
    return [
        replace(r, lead=lead + scale * r.lead) if r.kind != "plain" else _Row(name, read, lead + scale * r.lead, kind)
        for r in above[place]
    ]


def _line(form: Affine, axis: Axis) -> tuple[Fraction, tuple[Fraction, Fraction]] | None:
    """(f, (low, high)) of a form that is f times an axis and something from low to high, quotients not cut off."""
    moving, rest = form.split(lambda atom: any(a is axis for a in free_axes(atom)))
    low, high = range_of(rest.to_expr())
    if not moving.is_linear:
        apart = quotient_of(moving)
        inside = None if apart is None else _line(apart[0], axis)
        if apart is None or inside is None:
            return None
        factor, (first, last) = inside
        return factor / apart[1], (first / apart[1] + low, last / apart[1] + high)
    return Fraction(moving.terms[axis,]), (Fraction(low), Fraction(high))


def quotient_of(form: Affine) -> tuple[Affine, int] | None:
    """What a form divides, and by which number, where it is one quotient."""
    ((atom, *others), factor), *more = form.terms.items()
    if others or more or factor != 1 or form.constant or not isinstance(atom, Apply) or atom.fn is not Fn.FLOORDIV:
        return None
    apart = quotient_apart(atom)
    return None if apart is None else (apart[0] * Affine({}, apart[2]) + apart[1], apart[2])


def _rate(row: _Place, steps: Mapping[Axis, Fraction]) -> Fraction | None:
    """How far an index moves per step, apart from where it is held at a bound; None where that varies."""
    if not any(steps.get(a, 0) for a in free_axes(row.base)):
        return Fraction(0)
    form = affine_of(row.base)
    return None if form is None else _slope(form, steps)


def _slope(form: Affine, steps: Mapping[Axis, Fraction]) -> Fraction | None:
    """How far a form moves per step; a quotient, which is all that moves then, by one every so many steps.

    Of a window that moves by one and by two in turn Halide loses rows, where another window lies between.
    """
    moving = form.split(lambda atom: any(steps.get(a, 0) for a in free_axes(atom)))[0]
    if moving.is_linear:
        return sum((Fraction(moving.terms[axis,]) * steps[axis] for axis in moving.axes), Fraction(0))
    apart = quotient_of(moving)
    inside = None if apart is None else _slope(apart[0], steps)
    if apart is None or inside is None:
        return None
    found = inside / apart[1]
    return found if 1 in (abs(found.numerator), found.denominator) else None


def held(index: Expr) -> Expr:
    """What an index is where it is not held at a bound."""
    while isinstance(index, Apply) and index.fn in (Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP):
        inner = [a for a in index.args if free_axes(a)]
        if len(inner) != 1 or (index.fn is Fn.CLIP and inner[0] is not index.args[0]):
            return index
        index = inner[0]
    return index
