"""The pieces in which a plan computes its stages, judged once all directives are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from schedules.cases import position_of
from schedules.choices import cases_of
from schedules.directives import ComputeWith, CutAt, Unswitch
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
            if isinstance(step.directive, (CutAt, Unswitch)):
                try:
                    _check(plan, places, stage)
                except ScheduleError as error:
                    raise step.refused(error) from None


def _check(plan: Plan, places: Mapping[str, _Place], stage: str) -> None:
    if places[stage].kind != "root" and plan.cut_loops(stage):
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
        if not isinstance(op, Compute) or op.reduction is not None:
            continue
        said, by_cases = plan.cut_loops(name), plan.by_cases(name)
        if said or by_cases is not None:
            cuts = {plan.axis_of(name, d.loop): [position_of(p, plan.sizes) for p in d.positions] for d in said}
            pieces = pieces_of(op.axes, written_out(op, inlined) or op.bodies, cuts)
            if by_cases is not None:
                along = plan.axis_of(name, by_cases.loop)
                loops = [dict(zip(op.axes, piece.loops, strict=True))[along] for piece in pieces]
                pieces = [case for piece, loop in zip(pieces, loops, strict=True) for case in cases_of(piece, loop)]
            found[op] = pieces
    return {op: pieces for op, pieces in found.items() if pieces and (len(pieces) > 1 or plan.cut_loops(op.name))}
