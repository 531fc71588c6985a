"""Two stages in one loop nest: whether the loops that they share are alike, judged when the schedule is complete.

The stages must not need one another, since their iterations take turns; and the loops they share must be the same
loops: as many iterations, run in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Protocol

from schedules.directives import ComputeWith, Fuse, HoistStorage, Split
from schedules.loops import Level, definitions_of, nest_of, one_of
from schedules.plan import Plan, Step
from tedsl.lang.errors import ScheduleError
from tedsl.lang.extents import same_extent

__all__ = ["check_shared_loops", "shared_loops"]


class _Place(Protocol):
    """Where a stage is computed."""

    @property
    def kind(self) -> str: ...
    @property
    def consumer(self) -> str: ...
    @property
    def loop(self) -> str: ...


def shared_loops(plan: Plan) -> list[Step]:
    """The steps that let stages share loops."""
    return [s for steps in plan.loops.values() for s in steps if isinstance(s.directive, ComputeWith)]


def check_shared_loops(plan: Plan, places: Mapping[str, _Place]) -> None:
    """Refuse stages that cannot take turns in one loop nest."""
    steps = shared_loops(plan)
    seen: dict[tuple[str, str], Step] = {}
    for step in steps:
        d = step.directive
        assert isinstance(d, ComputeWith)
        try:
            _check(plan, places, d)
            if (d.stage, d.definition) in seen:
                raise ScheduleError(f"{d.stage} shares loops already, by {seen[d.stage, d.definition].where}")
            seen[d.stage, d.definition] = step
            if any(
                (d.consumer, d.definition) == (s.directive.stage, getattr(s.directive, "definition", "")) for s in steps
            ):
                raise ScheduleError(f"{d.consumer} shares the loops of another stage itself; name that one")
        except ScheduleError as error:
            raise step.refused(error) from None


def _check(plan: Plan, places: Mapping[str, _Place], d: ComputeWith) -> None:
    one_of(d.consumer, plan.program.stages, "stage", "stages")
    mine, other = places[d.stage], places[d.consumer]
    if d.stage == d.consumer:
        raise ScheduleError(f"{d.stage} has these loops already; name another stage")
    if d.definition not in definitions_of(plan.operation(d.consumer)):
        raise ScheduleError(f"{d.consumer} has no init whose loops could be shared")
    if "inline" in (mine.kind, other.kind) or (mine.kind, mine.consumer, mine.loop) != (
        other.kind,
        other.consumer,
        other.loop,
    ):
        raise ScheduleError(
            f"{d.stage} and {d.consumer} are not computed at the same place, found {_where(mine)} and {_where(other)}; "
            "compute both at the root, or at one loop"
        )
    for stage in (d.stage, d.consumer):
        if plan.cases(stage):
            raise ScheduleError(
                f"{stage} has loops of their own in some cases, which cannot be shared; leave specialize out"
            )
    for first, second in ((d.stage, d.consumer), (d.consumer, d.stage)):
        if plan.program.needs(first, second):
            raise ScheduleError(f"{first} needs {second}, which must be there before it begins; use compute_at instead")
    _check_levels(plan, d)
    _check_inside(plan, places, d)


def _where(place: _Place) -> str:
    return (
        f"loop {place.loop!r} of {place.consumer}" if place.kind == "at" else f"the {place.kind}".replace("the i", "i")
    )


def _shared(plan: Plan, d: ComputeWith) -> tuple[tuple[Level, ...], tuple[Level, ...]]:
    """The loops of both stages that become one, outermost first."""
    mine, other = plan.nest(d.stage, d.definition), plan.nest(d.consumer, d.definition)
    count = other.position(d.loop) + 1
    return mine.levels[:count], other.levels[:count]


def _origins(plan: Plan, stage: str, definition: str) -> dict[str, tuple[str, ...]]:
    """The names of a loop and of those that it comes from, the axis first; of loops that were fused, none."""
    levels = nest_of(stage, plan.operation(stage), definition).levels
    found: dict[str, tuple[str, ...]] = {level.name: (level.name,) for level in levels}
    for step in plan.loops.get((stage, definition), ()):
        d = step.directive
        if isinstance(d, Split):
            before = found.pop(d.loop)
            found[d.outer], found[d.inner] = (*before, d.outer), (*before, d.inner)
        elif isinstance(d, Fuse):
            found[d.fused] = ()
    return found


def _check_levels(plan: Plan, d: ComputeWith) -> None:
    mine, other = (_origins(plan, stage, d.definition) for stage in (d.stage, d.consumer))
    for a, b in zip_longest(*_shared(plan, d)):
        if a is None:
            raise ScheduleError(f"{d.stage} has no loop beside {d.consumer}'s {b.name!r}; share fewer loops")
        if not mine[a.name] or mine[a.name] != other[b.name]:
            raise ScheduleError(
                f"loops are shared under one name: expected {_path(other[b.name])} of {d.stage}, as of {d.consumer}, "
                f"found {_path(mine[a.name])}; call axes alike in the program, and halves by names="
            )
        if (a.kind, a.constant) != (b.kind, b.constant) or not same_extent(a.extent, b.extent):
            raise ScheduleError(
                f"loop {a.name!r} of {d.stage} is not like loop {b.name!r} of {d.consumer}: expected {b.extent} "
                f"iterations, {b.kind}, found {a.extent}, {a.kind}; split and mark both alike"
            )
        for stage, level in ((d.stage, a), (d.consumer, b)):
            if level.carried != "free" or level.kind not in ("serial", "parallel"):
                raise ScheduleError(
                    f"loop {level.name!r} of {stage} cannot be shared: expected one whose iterations are independent "
                    f"and which is no vector, found {level.kind}, {level.carried}; share the loops outside of it"
                )


def _path(names: tuple[str, ...]) -> str:
    return " of ".join(map(repr, names[::-1])) or "no fused loop"


def _check_inside(plan: Plan, places: Mapping[str, _Place], d: ComputeWith) -> None:
    """Refuse stages that are computed or kept at a loop that is shared."""
    names = [(d.stage, v.name) for v in _shared(plan, d)[0]] + [(d.consumer, v.name) for v in _shared(plan, d)[1]]
    at = [(name, (p.consumer, p.loop)) for name, p in places.items() if p.kind == "at"]
    steps = [*plan.stores.values(), *(s for steps in plan.storage.values() for s in steps)]
    for step in steps:
        kept = step.directive
        if isinstance(kept, HoistStorage) or step in plan.stores.values():
            at.append((kept.stage, (getattr(kept, "consumer", ""), getattr(kept, "loop", ""))))
    for name, place in at:
        if place in names:
            raise ScheduleError(
                f"{name} is computed or kept at loop {place[1]!r} of {place[0]}, which is shared; take a loop inside, "
                "or share fewer loops"
            )
