"""Stages that nobody spoke of, computed where a stage that they read is.

The default schedule may write a stage as several, such as the partial sums of a long sum, of which a user does not
know and which differ from size to size. A stage that the user computes inside a loop takes those along that read it,
so that a schedule says the same of every size.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from schedules.directives import ComputeAt
from schedules.placing.placement import is_inside, placed, readers_of
from schedules.placing.places import Placement
from schedules.plan import Plan, Step

__all__ = ["followers", "with_followers"]

FOLLOWING = "the default schedule, as what it reads is computed there"


def with_followers(plan: Plan) -> Plan:
    """The plan in which stages that `s.auto(loops=False)` made are computed inside the loops in which they read."""
    if not plan.complete:
        return plan
    said = {name: step for name, step in plan.places.items() if step.where is not FOLLOWING}
    plan = plan if len(said) == len(plan.places) else replace(plan, places=said)
    written = {name for name, _ in plan.program.handles.values()}
    found = followers(plan, plan.complete - written - plan.made - said.keys())
    return replace(plan, places={**said, **{d.stage: Step(d, FOLLOWING) for d in found}}) if found else plan


def followers(plan: Plan, free: Set[str]) -> list[ComputeAt]:
    """Places of stages at the root, of those that are free, inside the loops at which stages that they read are."""
    found: dict[str, ComputeAt] = {}
    leaders = [s.directive for s in plan.places.values() if isinstance(s.directive, ComputeAt)] if free else []
    places = placed(plan, checked=False) if leaders else {}
    for leader in leaders:
        if led := _led(plan, places, leader, free):
            changed = replace(plan, places={**plan.places, **{d.stage: Step(d, FOLLOWING) for d in led}})
            there = placed(changed, checked=False)
            if all(_is_read_inside(changed, there, name) for name in (leader.stage, *(d.stage for d in led))):
                plan, places = changed, there
                found.update((d.stage, d) for d in led)
    return list(found.values())


def _led(plan: Plan, places: Mapping[str, Placement], leader: ComputeAt, free: Set[str]) -> list[ComputeAt]:
    """Places for the free stages at the root that read a stage, or one another, or hold those that do."""
    found: dict[str, ComputeAt] = {}
    pending = [leader.stage]
    while pending:
        for reader, _ in readers_of(plan, places, pending.pop()):
            while reader in places and places[reader].kind == "at":
                reader = places[reader].consumer  # the place of which holds for what is computed inside
            if reader in free and reader not in found:
                found[reader] = ComputeAt(stage=reader, consumer=leader.consumer, loop=leader.loop)
                pending.append(reader)
    return list(found.values())


def _is_read_inside(plan: Plan, places: Mapping[str, Placement], stage: str) -> bool:
    return all(is_inside(plan, places, *reader, places[stage]) for reader in readers_of(plan, places, stage))
