"""The pieces in which a plan computes its stages, judged once all directives are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from schedules.cases import position_of
from schedules.directives import ComputeWith, CutAt
from schedules.pieces import Piece, pieces_of, written_out
from schedules.plan import Plan
from tedsl.lang.errors import ScheduleError
from tedsl.lang.tensor import Compute, Operation

__all__ = ["check_pieces", "planned_pieces"]


class _Place(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def consumer(self) -> str: ...


def check_pieces(plan: Plan, places: Mapping[str, _Place]) -> None:
    """Refuse pieces of a stage whose loops somebody else needs to be whole."""
    for (stage, _), steps in plan.loops.items():
        for step in steps:
            if isinstance(step.directive, CutAt):
                try:
                    _check(plan, places, stage)
                except ScheduleError as error:
                    raise step.refused(error) from None


def _check(plan: Plan, places: Mapping[str, _Place], stage: str) -> None:
    if places[stage].kind != "root":
        raise ScheduleError(f"{stage} is not computed at the root; leave its loops whole, or compute it there")
    inside = [name for name, place in places.items() if place.kind == "at" and place.consumer == stage]
    if inside:
        raise ScheduleError(f"{inside[0]} is computed inside the loops of {stage}, which must be whole then")
    for steps in plan.loops.values():
        for d in (step.directive for step in steps):
            if isinstance(d, ComputeWith) and stage in (d.stage, d.consumer):
                raise ScheduleError(f"{d.stage} and {d.consumer} share loops, which must be whole then")


def planned_pieces(plan: Plan, places: Mapping[str, _Place]) -> dict[Operation, list[Piece]]:
    """The pieces of the stages that are cut, with the choices of what is inlined into them."""
    stages = plan.program.stages
    inlined = {stages[name] for name, place in places.items() if place.kind == "inline"}
    found: dict[Operation, list[Piece]] = {}
    for name, op in stages.items():
        said = plan.cut_loops(name) if isinstance(op, Compute) and op.reduction is None else []
        if said:
            assert isinstance(op, Compute)
            cuts = {plan.axis_of(name, d.loop): [position_of(p, plan.sizes) for p in d.positions] for d in said}
            found[op] = pieces_of(op.axes, written_out(op, inlined) or op.bodies, cuts)
    return {op: pieces for op, pieces in found.items() if pieces}
