"""Whether what a loop needs of a stage is a window that moves along with the loop.

A stage stored outside of the loop in which it is computed keeps what earlier iterations computed; each iteration adds
the part of its window that is new. Halide finds that part by following the ends of the window, and goes wrong where
they do not move together: it computed nothing at all where one read stands still and the other moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schedules.loops import Level
from schedules.plan import Plan
from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import Apply, Axis, Expr, Fn
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes

__all__ = ["held", "steps_of", "what_does_not_slide"]


class _Stands(Exception):
    """A read whose window does not move with a loop; the text says which and why."""


def what_does_not_slide(plan: Plan, stage: str, between: Sequence[tuple[str, Level]]) -> str | None:
    """The first read of a stage that keeps its window from moving with the loops `between`, None if there is none."""
    for consumer, level in between:
        (axis, *others) = level.origin
        if others or not isinstance(axis, Axis):
            return f"{consumer}'s loop {level.name!r} runs over more than one axis"
        try:
            steps_of(plan, stage, consumer, axis)
        except _Stands as problem:
            return str(problem)
    return None


def steps_of(plan: Plan, stage: str, consumer: str, axis: Axis) -> list[int]:
    """How far the window on a stage moves along each of its dimensions from one step of the axis to the next."""
    source = plan.program.stages[stage]
    found: list[int] | None = None
    for name in plan.program.readers[stage]:
        reader = plan.program.stages[name]
        own = _ownsteps_of(plan, name, reader, consumer, axis)
        for read in reader.reads:
            if read.tensor.op is not source:
                continue
            rates = [_rate(row, own) for row in read.indices]
            if None in rates or found not in (None, rates):
                earlier = "" if None in rates else ", unlike another read of it"
                raise _Stands(f"{name} reads {read}, which does not move along with {axis.name!r}{earlier}")
            found = [r for r in rates if r is not None]
    return found or []


def _ownsteps_of(plan: Plan, name: str, reader: Operation, consumer: str, axis: Axis) -> dict[Axis, int]:
    """How far each axis of a reader moves per step: the loop's own axis by one, others as its window does."""
    if name == consumer:
        return {axis: 1}
    if not isinstance(reader, Compute):
        raise _Stands(f"{name} reads it in an order of its own")
    return dict(zip(reader.axes, steps_of(plan, name, consumer, axis), strict=True))


def _rate(row: Expr, steps: Mapping[Axis, int]) -> int | None:
    """How far an index moves per step, apart from where it is held at a bound; None where that varies."""
    moving = [a for a in free_axes(row) if steps.get(a, 0)]
    if not moving:
        return 0
    form = affine_of(held(row))
    total = 0
    for axis in moving:
        factor = None if form is None else form.coefficient(axis)
        if factor is None or not factor.is_constant:
            return None
        total += factor.constant * steps[axis]
    return total


def held(index: Expr) -> Expr:
    """What an index is where it is not held at a bound."""
    while isinstance(index, Apply) and index.fn in (Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP):
        inner = [a for a in index.args if free_axes(a)]
        if len(inner) != 1 or (index.fn is Fn.CLIP and inner[0] is not index.args[0]):
            return index
        index = inner[0]
    return index
