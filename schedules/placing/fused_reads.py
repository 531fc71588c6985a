"""Reads of whole stages by others inside loops, whose own loops are fused.

    for each row y of out                                           for each row y of out
        for each ij of what out needs of s:                 ->          for each ij of what out needs of s:
            s[ij // 17, ij % 17] = b[ij // 17, ij % 17]                     s[...] = b[clip(ij // 17, 0, rows - 1), ...]

Of how many columns are needed Halide does not know the sign, and so not where rows end: it would ask for rows that `b`
has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from schedules.directives import Fuse
from schedules.placing.places import Placement
from schedules.plan import Plan
from tedsl.lang.expr import Read
from tedsl.lang.tensor import Operation
from tedsl.lang.traverse import free_axes

__all__ = ["reads_in_fused_loops"]


def reads_in_fused_loops(plan: Plan, places: Mapping[str, Placement]) -> dict[Read, tuple[int, ...]]:
    """Such reads, and the dimensions along which they move."""
    found: dict[Read, tuple[int, ...]] = {}
    stages = plan.program.stages
    whole = {stages[name] for name, place in places.items() if place.kind == "root"}
    for name, place in places.items():
        if place.kind == "at" and any(isinstance(said, Fuse) for said in plan.said_of_loops(name)):
            for read in _reads(plan, places, stages[name]):
                if read.tensor.op in whole:
                    found[read] = tuple(dim for dim, index in enumerate(read.indices) if free_axes(index))
    return found


def _reads(plan: Plan, places: Mapping[str, Placement], root: Operation) -> Iterator[Read]:
    """What a stage reads, also in stages that are written out in it."""
    inlined = {plan.program.stages[name] for name, place in places.items() if place.kind == "inline"}
    seen, pending = {root}, [root]
    while pending:
        reads = pending.pop().reads
        yield from reads
        fresh = {read.tensor.op for read in reads if read.tensor.op in inlined} - seen
        seen |= fresh
        pending.extend(fresh)
