"""Along which dimensions that part of a stage moves which is computed inside loops of others."""

from __future__ import annotations

from collections.abc import Mapping

from schedules.placing.places import Placement, around
from schedules.placing.sliding import moves_along
from schedules.plan import Plan
from tedsl.analysis.rounds import near_place
from tedsl.lang.expr import Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Operation

__all__ = ["mirrored_windows"]


def mirrored_windows(plan: Plan, places: Mapping[str, Placement]) -> dict[Operation, frozenset[int]]:
    """The stages of which less than all is there, and read at mirrored places along dimensions that move: these.

    What is written out where it is read moves with whatever its readers do, along rows. Of known sizes one knows just
    what a part needs, so that only what slides has to move evenly.
    """
    if all(place.kind != "at" for place in places.values()):
        return {}
    found: dict[Operation, frozenset[int]] = {}
    for name, place in places.items():
        op = plan.program.stages[name]
        mirrored = set() if place.kind == "root" else _mirrored(plan, name)
        if mirrored and place.kind == "at":
            loops = around(plan, places, place.consumer, place.loop)
            if place.store is None:
                mirrored = {dim for dim in mirrored if number(op.outputs[0].extents[dim]) is None}
            alone = [(consumer, level) for consumer, level in loops if len(level.origin) == 1]
            mirrored = {dim for dim in mirrored if any(moves_along(plan, name, dim, [loop]) for loop in alone)}
        elif mirrored:
            mirrored -= {op.outputs[0].ndim - 1}
        if mirrored:
            found[op] = frozenset(mirrored)
    return found


def _mirrored(plan: Plan, stage: str) -> set[int]:
    """The dimensions of a stage along which a read of it is mirrored."""
    op, found = plan.program.stages[stage], set[int]()
    for name in plan.program.readers[stage]:
        reads: list[Read] = [read for read in plan.program.stages[name].reads if read.tensor.op is op]
        for read in reads:
            pairs = enumerate(zip(read.indices, read.tensor.extents, strict=True))
            found |= {dim for dim, (index, extent) in pairs if near_place(index, extent) is not None}
    return found
