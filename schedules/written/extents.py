"""How many iterations the loops of a stage have where it is computed: what a reader needs there, not all of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from schedules.directives import ComputeAt, Fuse, Split, StoreAt
from schedules.loops import Level
from schedules.placing.placement import placed
from schedules.placing.places import around
from schedules.placing.regions import extent_there, most_there, strides_of
from schedules.placing.sliding import moves_along, steps_of, what_does_not_slide
from schedules.plan import Plan, dimensions
from schedules.written.boxes import Boxes, Count
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Axis
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute

__all__ = ["ExtentsThere", "LoopCount"]


@dataclass(frozen=True)
class LoopCount:
    """How many iterations a loop has, `least` and `most` in different places; None where nobody knows.

    Not `exact`: there may be fewer.
    """

    least: int | None = None
    most: int | None = None
    exact: bool = False

    def of(self, whole: str) -> str:
        """In words, of a loop that has `whole` iterations in all."""
        if self.most is None or self.least is None:
            return f"at most {whole}"
        few = f"{self.least} to {self.most}" if self.exact and self.least < self.most else str(self.most)
        return f"{'at most ' * (not self.exact)}{few}{f' of {whole}' * (str(self.most) != whole)}"

    def apply(self, change: Callable[[int], int]) -> LoopCount:
        """What a loop has that is made of this one."""
        if self.least is None or self.most is None:
            return self
        return replace(self, least=change(self.least), most=change(self.most))


UNKNOWN = LoopCount()


def _parts(whole: LoopCount, step: int | None) -> LoopCount:
    """How many parts of so many iterations a loop has."""
    return UNKNOWN if step is None else whole.apply(lambda n: -(-n // step))


class ExtentsThere:
    """How much of a stage is computed inside the loop of its reader, found once for each stage.

    A schedule is printed while it is written: where a directive waits for another one, nothing is known.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._found: dict[str, list[LoopCount | None]] = {}
        self._boxes: Boxes | None = None

    def of(self, stage: str, definition: str) -> dict[str, LoopCount]:
        """The loops of a stage of which a number is known there, or that may be shorter; the others go through all."""
        names = dimensions(stage, self.plan.program.stages[stage])
        found = {names[k]: n for k, n in enumerate(self._needed(stage)) if n is not None}
        for loop in self.plan.loops.get((stage, definition), ()) if found else ():
            d = loop.directive
            if isinstance(d, Split) and d.loop in found:
                found[d.outer] = _parts(found.pop(d.loop), d.step)
            elif isinstance(d, Fuse) and not found.keys().isdisjoint((d.outer, d.inner)):
                found[d.fused] = _product(found.pop(d.outer, UNKNOWN), found.pop(d.inner, UNKNOWN))
        return found

    def is_known(self, stage: str) -> bool:
        """Whether it is a number for each axis, or all."""
        return all(n is None or n.most is not None for n in self._needed(stage))

    def times(self, stage: str) -> tuple[float, bool]:
        """How often each element of a stage is computed on the average, and whether that is it, or the most it can be.

        Nobody knows where it is 0. Of what is kept between iterations only what is new is computed.
        """
        count = None if stage in self.plan.stores else self._count(stage)
        whole = [number(n) for n in self.plan.program.stages[stage].output().extents]
        if count is None or count.total is None or None in whole or 0 in whole:
            return 0, False
        return count.total / math.prod(n for n in whole if n), all(count.exact)

    def _count(self, stage: str) -> Count | None:
        try:
            self._boxes = self._boxes or Boxes(self.plan)
            return self._boxes.count(stage)
        except (ScheduleError, KeyError):
            return None

    def _needed(self, stage: str) -> list[LoopCount | None]:
        """Along each axis of a stage that is computed inside a loop; None where it takes all of it."""
        if stage not in self._found:
            op, step = self.plan.program.stages[stage], self.plan.places.get(stage)
            is_inside = step is not None and isinstance(step.directive, ComputeAt) and isinstance(op, Compute)
            try:
                self._found[stage] = self._there(stage) if is_inside else []
            except (ScheduleError, KeyError):
                self._found[stage] = [UNKNOWN] * len(op.output().extents)
        return self._found[stage]

    def _there(self, stage: str) -> list[LoopCount | None]:
        places = placed(self.plan, checked=False)
        outside = around(self.plan, places, places[stage].consumer, places[stage].loop)
        whole = [number(extent) for extent in self.plan.program.stages[stage].output().extents]
        count = None if stage in self.plan.stores else self._count(stage)
        found: list[LoopCount | None] = []
        for k, all_of_it in enumerate(whole):
            there = None if count is None else count.extents[k]
            if count is not None and there is not None:
                found.append(LoopCount(*there, count.exact[k]))
            elif (n := extent_there(self.plan, stage, k)) is not None:
                found.append(LoopCount(n, n, True))
            elif (most := most_there(self.plan, stage, k)) is not None:
                found.append(LoopCount(1, most))
            elif moves_along(self.plan, stage, k, outside):
                found.append(UNKNOWN)
            else:
                found.append(None if all_of_it is None else LoopCount(all_of_it, all_of_it, True))
        return self._new_of(stage, found, outside) if stage in self.plan.stores else found

    def _new_of(
        self, stage: str, needed: list[LoopCount | None], outside: list[tuple[str, Level]]
    ) -> list[LoopCount | None]:
        """What is new of it where earlier iterations are kept."""
        d = self.plan.stores[stage].directive
        names = [(consumer, level.name) for consumer, level in outside]
        begin = names.index((d.consumer, d.loop)) + 1 if isinstance(d, StoreAt) else 0
        nothing: list[LoopCount | None] = [UNKNOWN] * len(needed)
        if what_does_not_slide(self.plan, stage, outside[begin:]) is not None:  # refused when it is built
            return nothing
        found = list(needed)
        for consumer, level in outside[begin:]:
            (axis,) = level.origin
            stride = strides_of(self.plan, consumer).get(level.name, 1)
            if not isinstance(axis, Axis) or stride is None:
                return nothing
            for k, rate in enumerate(steps_of(self.plan, stage, consumer, axis)):
                if rate and (n := found[k]) is not None:
                    new = abs(rate * stride)  # of a fraction sometimes less, sometimes more
                    is_even = new.denominator == 1
                    found[k] = n.apply(functools.partial(min, int(new))) if is_even else UNKNOWN
        return found


def _product(outer: LoopCount, inner: LoopCount) -> LoopCount:
    if outer.least is None or outer.most is None or inner.least is None or inner.most is None:
        return UNKNOWN
    return LoopCount(outer.least * inner.least, outer.most * inner.most, outer.exact and inner.exact)
