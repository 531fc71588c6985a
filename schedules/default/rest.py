"""What no pattern plans: scans and scatters, and what the directives of a stage leave open.

Vectors lie along the last axis, where its iterations are independent and memory is read that way.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from schedules.default.gpu.kernels import spread
from schedules.default.neighbors import along
from schedules.directives import ComputeRoot, ComputeWith, Definition, Directive, Reorder, Split, Vectorize
from schedules.loops import Nest, definitions_of
from schedules.machine import Machine
from schedules.placing.placement import placed
from schedules.placing.places import Placement, around
from schedules.placing.sharing import shared_loops
from schedules.plan import Plan
from tedsl.lang.expr import Axis
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Extern, Operation, Scan

__all__ = ["left_open", "plan_rest"]


def plan_rest(
    stages: Sequence[Operation], plan: Plan, spoken: set[str], known: Container[str], machine: Machine
) -> list[Directive]:
    """Directives for scans and scatters, and for the definitions without any of the stages that are `spoken` of.

    `known` are the stages that there were before anything was rewritten, of which messages speak.
    """
    made: list[Directive] = []
    places = placed(plan, known=known) if spoken else {}
    busy = _loops_in_use(plan, places)
    for op in stages:
        if isinstance(op, Extern) or op.name in plan.complete:
            continue
        if op.name in spoken:
            made += _left_open(plan, op.name, op, places, busy, machine)
        elif not isinstance(op, Compute) and op.name not in plan.places:
            made.append(ComputeRoot(stage=op.name))
            made += [d for x in definitions_of(op) for d in _filled(plan.nest(op.name, x), op, machine)]
    return made


def left_open(plan: Plan, machine: Machine) -> list[Directive]:
    """Directives for the loops that nobody said anything about, of the stages that somebody spoke of."""
    places, program = placed(plan, checked=False), plan.program.stages
    busy = _loops_in_use(plan, places)
    said = plan.spoken() - plan.complete
    return [d for name in program if name in said for d in _left_open(plan, name, program[name], places, busy, machine)]


def _left_open(
    plan: Plan, stage: str, op: Operation, places: Mapping[str, Placement], busy: set[tuple[str, Definition]],
    machine: Machine,
) -> list[Directive]:  # fmt: skip
    place = places[stage]
    if place.kind == "inline" or (machine.gpu is not None and _is_on_gpu(plan, places, place)):
        return []
    own = [x for x in definitions_of(op) if (stage, x) not in busy and (stage, x) not in plan.loops]
    return [d for x in own for d in _filled(plan.nest(stage, x), op, machine)]


def _loops_in_use(plan: Plan, places: Mapping[str, Placement]) -> set[tuple[str, Definition]]:
    """The definitions with loops at which other stages are computed or stored."""
    used = {(p.consumer, p.loop) for p in places.values() if p.kind == "at"}
    used |= {p.store for p in places.values() if p.store is not None and p.store[0]}
    shared = {(x.consumer, x.definition) for s in shared_loops(plan) if isinstance(x := s.directive, ComputeWith)}
    return shared | {(consumer, plan.definition(consumer, loop)) for consumer, loop in used}


def _is_on_gpu(plan: Plan, places: Mapping[str, Placement], place: Placement) -> bool:
    """Whether a stage is computed inside a GPU kernel, which has spread its loops already."""
    return place.kind == "at" and any(
        level.kind.startswith("gpu") for _, level in around(plan, places, place.consumer, place.loop)
    )


def _filled(nest: Nest, op: Operation, machine: Machine) -> list[Directive]:
    """The loops of a definition that nobody has said anything about."""
    return spread(nest) if machine.gpu is not None else _vectors(nest, op, machine)


def _vectors(nest: Nest, op: Operation, machine: Machine) -> list[Directive]:
    """Vectors along the last axis of the result, inside of the loops that keep their order."""
    free = [v for v in nest.levels if v.carried == "free"]
    ordered = [v.name for v in nest.levels if v.carried != "free"]
    last = _last_axis(op) if nest.definition == "body" else op.outputs[0].ndim - 1
    level = next((v for v in free if v.origin == {last}), None)
    if level is None or (isinstance(last, Axis) and ordered and not along(op, last)):
        return []
    lanes = machine.vector_bytes // max(4, *(t.dtype.itemsize for t in op.outputs))
    extent = number(level.extent)
    while extent is not None and lanes > extent and lanes > 1:
        lanes //= 2
    if lanes < 2:
        return []
    where = {"stage": nest.stage, "definition": nest.definition}
    outer, vector = nest.fresh(f"{level.name}_o"), nest.fresh(f"{level.name}_v")
    made: list[Directive] = [
        Split(**where, loop=level.name, outer=outer, inner=vector, factor=lanes),  # type: ignore[arg-type]
        Vectorize(**where, loop=vector),
    ]
    if ordered:
        made.insert(1, Reorder(**where, loops=(outer, *ordered, vector)))
    return made


def _last_axis(op: Operation) -> Axis | int | None:
    """Where the loops of the body have the last axis of the result."""
    if isinstance(op, (Compute, Scan)):
        return op.axes[-1] if op.axes else None
    index = getattr(op, "index", ())
    return index[-1] if index and isinstance(index[-1], Axis) else None
