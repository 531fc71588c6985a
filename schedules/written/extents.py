"""How many iterations the loops of a stage have where it is computed: what a reader needs there, not all of it."""

from __future__ import annotations

import math

from schedules.directives import ComputeAt, Fuse, Split, StoreAt
from schedules.loops import Level
from schedules.placing.placement import placed
from schedules.placing.places import around
from schedules.placing.regions import extent_there, strides_of
from schedules.placing.sliding import moves_along, steps_of, what_does_not_slide
from schedules.plan import Plan, dimensions
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Axis, Const
from tedsl.lang.tensor import Compute

__all__ = ["extents_there", "times_computed"]


def extents_there(plan: Plan, stage: str, definition: str) -> dict[str, int]:
    """The loops of a stage that are shorter inside the loop of its reader, with their extents as far as they are known.

    A schedule is printed while it is written: where a directive waits for another one, nothing is known.
    """
    op, step = plan.program.stages[stage], plan.places.get(stage)
    if step is None or not isinstance(step.directive, ComputeAt) or not isinstance(op, Compute):
        return {}
    try:
        needed = _needed(plan, stage)
    except (ScheduleError, KeyError):
        return {}
    names = dimensions(stage, op)
    found = {names[k]: n for k, n in enumerate(needed) if n is not None}
    for loop in plan.loops.get((stage, definition), ()):
        d = loop.directive
        if isinstance(d, Split) and d.loop in found:
            found[d.outer] = -(-found.pop(d.loop) // d.factor)
        elif isinstance(d, Fuse):
            outer, inner = found.pop(d.outer, None), found.pop(d.inner, None)
            if outer is not None and inner is not None:
                found[d.fused] = outer * inner
    return found


def _needed(plan: Plan, stage: str) -> list[int | None]:
    """Along each axis what one iteration needs, or what is new of it where earlier iterations are kept."""
    places = placed(plan, checked=False)
    outside = around(plan, places, places[stage].consumer, places[stage].loop)
    whole = plan.program.stages[stage].output().extents
    found = [extent_there(plan, stage, k) for k in range(len(whole))]
    for k, extent in enumerate(whole):
        if found[k] is None and isinstance(extent, Const) and not moves_along(plan, stage, k, outside):
            found[k] = int(extent.value)
    return _new_of(plan, stage, found, outside) if stage in plan.stores else found


def _new_of(plan: Plan, stage: str, needed: list[int | None], outside: list[tuple[str, Level]]) -> list[int | None]:
    d = plan.stores[stage].directive
    names = [(consumer, level.name) for consumer, level in outside]
    begin = names.index((d.consumer, d.loop)) + 1 if isinstance(d, StoreAt) else 0
    if what_does_not_slide(plan, stage, outside[begin:]) is not None:  # refused when it is built
        return [None] * len(needed)
    found = list(needed)
    for consumer, level in outside[begin:]:
        (axis,) = level.origin
        stride = strides_of(plan, consumer).get(level.name, 1)
        if not isinstance(axis, Axis) or stride is None:
            return [None] * len(found)
        for k, rate in enumerate(steps_of(plan, stage, consumer, axis)):
            if rate and (n := found[k]) is not None:
                found[k] = min(n, abs(rate * stride))
    return found


def times_computed(plan: Plan, stage: str) -> float:
    """How often each element of a stage is computed on the average inside the loop of its reader; 0 if nobody can tell.

    Of what is kept between iterations only what is new is computed.
    """
    op, step = plan.program.stages[stage], plan.places.get(stage)
    if (
        step is None
        or not isinstance(step.directive, ComputeAt)
        or stage in plan.stores
        or step.directive.consumer in plan.places
    ):
        return 0
    consumer, loop = step.directive.consumer, step.directive.loop
    try:
        needed = _needed(plan, stage)
        nest = plan.nest(consumer, plan.definition(consumer, loop))
        outer = [level.known for level in nest.levels[: nest.position(loop) + 1]]
    except (ScheduleError, KeyError):
        return 0
    whole = [int(n.value) if isinstance(n, Const) else None for n in op.output().extents]
    counts = [*needed, *outer]
    if None in counts or None in whole or 0 in whole:
        return 0
    return math.prod(n for n in counts if n) / math.prod(n for n in whole if n)
