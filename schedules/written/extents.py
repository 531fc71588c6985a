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

__all__ = ["ExtentsThere"]


class ExtentsThere:
    """How much of a stage is computed inside the loop of its reader, found once for each stage.

    A schedule is printed while it is written: where a directive waits for another one, nothing is known.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._found: dict[str, list[int | None]] = {}

    def of(self, stage: str, definition: str) -> dict[str, int]:
        """The loops of a stage that are shorter there, with their extents as far as they are known."""
        names = dimensions(stage, self.plan.program.stages[stage])
        found = {names[k]: n for k, n in enumerate(self._needed(stage)) if n is not None}
        for loop in self.plan.loops.get((stage, definition), ()) if found else ():
            d = loop.directive
            if isinstance(d, Split) and d.loop in found:
                found[d.outer] = -(-found.pop(d.loop) // d.factor)
            elif isinstance(d, Fuse):
                outer, inner = found.pop(d.outer, None), found.pop(d.inner, None)
                if outer is not None and inner is not None:
                    found[d.fused] = outer * inner
        return found

    def times(self, stage: str) -> float:
        """How often each element of a stage is computed on the average; 0 if nobody can tell.

        Of what is kept between iterations only what is new is computed.
        """
        needed, step = self._needed(stage), self.plan.places.get(stage)
        if not needed or step is None or not isinstance(d := step.directive, ComputeAt):
            return 0
        if stage in self.plan.stores or d.consumer in self.plan.places:
            return 0
        nest = self.plan.nest(d.consumer, self.plan.definition(d.consumer, d.loop))
        outer = [level.known for level in nest.levels[: nest.position(d.loop) + 1]]
        extents = self.plan.program.stages[stage].output().extents
        whole = [int(n.value) if isinstance(n, Const) else None for n in extents]
        counts = [*needed, *outer]
        if None in counts or None in whole or 0 in whole:
            return 0
        return math.prod(n for n in counts if n) / math.prod(n for n in whole if n)

    def _needed(self, stage: str) -> list[int | None]:
        """Along each axis; nothing of a stage that is not computed inside a loop."""
        if stage not in self._found:
            op, step = self.plan.program.stages[stage], self.plan.places.get(stage)
            is_inside = step is not None and isinstance(step.directive, ComputeAt) and isinstance(op, Compute)
            try:
                self._found[stage] = _needed(self.plan, stage) if is_inside else []
            except (ScheduleError, KeyError):
                self._found[stage] = []
        return self._found[stage]


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
