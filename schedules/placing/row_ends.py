"""The last iterations of loops of which nobody said what they do: they begin earlier where that is known to be right.

A vector without masks that is not full is computed element by element, and a window does not slide into a loop whose
last iterations are left out. So the last iterations are moved inwards (`tail="shift"`) where as many are left in every
place that the stage is computed: of what is computed for a reader as many as the reader needs, of a result all there
are. Elements are computed twice then, from the same values: bits stay.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Set as AbstractSet
from dataclasses import replace

from schedules.directives import ComputeWith, LoopDirective, Split
from schedules.loops import Level, transformed
from schedules.machine import Machine
from schedules.placing.placement import placed
from schedules.placing.places import Placement
from schedules.placing.tails import becomes_vectors, is_long
from schedules.plan import Plan, Step, dimensions
from tedsl.lang.expr import Apply, Fn
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["may_lie_on", "with_row_ends"]

MOST_TWICE = 1 / 8  # of a result that is computed twice so that a window slides along it


def with_row_ends(plan: Plan, machine: Machine) -> Plan:
    """The plan in which the last iterations of vectors, and of strips that windows slide along, begin earlier."""
    if machine.gpu is not None or machine.has_masks:
        return plan
    places = placed(plan, checked=False)
    shared = {name for steps in plan.loops.values() for s in steps if isinstance(d := s.directive, ComputeWith)
              for name in (d.stage, d.consumer)}  # fmt: skip
    for name in reversed(list(plan.program.stages)):  # readers first: what they need depends on their own ends
        op = plan.program.stages[name]
        is_plain = isinstance(op, Compute) and op.reduction is None
        is_whole = not plan.cut_loops(name) and plan.by_cases(name) is None
        if is_plain and is_whole and name not in shared and places[name].kind != "inline" and not plan.cases(name):
            plan = _of_stage(plan, name, places, repeats=_points(op) >= machine.least.shifted)
    return plan


def _points(op: Operation) -> int:
    """How many elements a stage has, as far as that is known."""
    assert isinstance(op, Compute)
    return math.prod([number(a.extent) or 1 for a in op.axes])


def _of_stage(plan: Plan, name: str, places: Mapping[str, Placement], *, repeats: bool) -> Plan:
    """The plan with the ends of one stage; `repeats`: elements of a result may be computed twice."""
    steps = plan.loops.get((name, "body"), ())
    begun = nest = plan.beginning(name, "body")
    made: list[Step] = []
    for step in steps:
        d = step.directive
        assert isinstance(d, LoopDirective)
        is_open = isinstance(d, Split) and not d.tail and not d.exact and (repeats or places[name].kind == "at")
        if isinstance(d, Split) and is_open and _may_shift(plan, d, nest.level(d.loop), places):
            step = replace(step, directive=replace(d, tail="shift"))
        made.append(step)
        nest = transformed(nest, d)
    if tuple(made) == steps:
        return plan
    nest = begun
    for step in made:
        nest = transformed(nest, step.directive)  # type: ignore[arg-type]
    key = name, "body"
    return replace(plan, loops={**plan.loops, key: tuple(made)}, nests={**plan.nests, key: nest})


def _may_shift(plan: Plan, d: Split, level: Level, places: Mapping[str, Placement]) -> bool:
    """Whether the last iterations of a split can begin earlier, and something is gained."""
    known, names = level.known, dimensions(d.stage, plan.program.stages[d.stage])
    step = d.step
    if d.loop not in names or step is None:
        return False
    is_vector = becomes_vectors(plan.loops[d.stage, "body"], d)
    if places[d.stage].kind == "at":
        return is_vector and is_long(plan, d, places)
    if d.stage not in plan.program.final or known is None or known < step or known % step == 0:
        return False
    if not _may_be_repeated(plan, d.stage, places):
        return False
    return is_vector or (_slides_inside(plan, d, places) and (-known % step) <= MOST_TWICE * known)


def _slides_inside(plan: Plan, d: Split, places: Mapping[str, Placement]) -> bool:
    """Whether a stage is kept for the iterations of a split and computed inside of these."""
    return any(p.store == (d.stage, d.outer) and p.loop != d.outer for p in places.values())


def _may_be_repeated(plan: Plan, name: str, places: Mapping[str, Placement]) -> bool:
    """Whether elements of a result may be computed again from another beginning: not where it may lie in the memory of
    an input, so that what was written must not be read again, nor where it reads by blocks, which begin at multiples.
    """
    result, stages = plan.program.stages[name], plan.program.stages
    assert isinstance(result, Compute)
    inside = {stages[n] for n, p in places.items() if n in stages and p.kind in ("inline", "at")}
    return not may_lie_on(result, inside) and not _reads_by_blocks(result, inside)


def _reads_by_blocks(root: Compute, inside: AbstractSet[Operation]) -> bool:
    """Whether a stage, or one of the stages `inside` that it is made of, reads at a quotient or a remainder."""
    made: dict[Operation, None] = {root: None}
    pending: list[Operation] = [root]
    for op in pending:
        new = [t.op for t in op.inputs if t.op in inside and t.op not in made]
        made.update(dict.fromkeys(new))
        pending += dict.fromkeys(new)
    indices = topological(index for op in made for read in op.reads for index in read.indices)
    return any(isinstance(node, Apply) and node.fn in (Fn.FLOORDIV, Fn.MOD) for node in indices)


def may_lie_on(root: Compute, inside: AbstractSet[Operation]) -> bool:
    """Whether a result may lie on a tensor that is as large, from which its elements, with the stages `inside` that
    they are made of, read nothing but the element at their own place: others may be written by then.
    """
    own: set[Tensor] = set()
    others: set[Tensor] = set()
    pending: list[tuple[Operation, bool]] = [(root, True)]
    for op, is_own in pending:
        axes = getattr(op, "axes", ())
        for read in op.reads:
            here = is_own and len(axes) == len(read.indices) and all(map(operator.is_, axes, read.indices))
            (own if here else others).add(read.tensor)
            if read.tensor.op in inside and (read.tensor.op, here) not in pending:
                pending.append((read.tensor.op, here))
    return any(_is_alike(root, t) for t in own - others if t.op not in inside)


def _is_alike(op: Compute, tensor: Tensor) -> bool:
    """Whether the results of a stage are as large as a tensor along every axis."""
    return len(op.axes) == len(tensor.extents) and all(
        a.extent is e for a, e in zip(op.axes, tensor.extents, strict=True)
    )
