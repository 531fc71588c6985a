"""Which stages a thread of its own may compute ahead of their reader, and why others are computed in turn.

Such a stage has memory for two iterations of a loop: the thread fills one while the reader empties the other, and
neither goes on before the other one has. That ends, and is right, if both run the same loop as often, without a gap,
and if nothing else is computed in it, of which one of the two would have to tell the other. What is not known to be so
is left in turn, which gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from schedules.directives import Async, ComputeAt, ComputeInline, Directive, HoistStorage, Split
from schedules.loops import Level
from schedules.placing.regions import extent_there, strides_of
from schedules.placing.sharing import shared_loops
from schedules.placing.sliding import steps_of, what_does_not_slide
from schedules.plan import Plan
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import TRUE, Apply, Axis, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import topological

__all__ = ["is_asked_ahead", "room_ahead", "why_in_turn"]


def is_asked_ahead(plan: Plan, stage: str) -> bool:
    """Whether a thread of its own was asked for."""
    return any(isinstance(step.directive, Async) for step in plan.storage.get(stage, ()))


def why_in_turn(plan: Plan, stage: str) -> str:
    """Why a stage is not computed ahead of its reader; "" where it is."""
    at, memory = plan.places.get(stage), _memory(plan, stage)
    if at is None or not isinstance(at.directive, ComputeAt):
        return "it is not computed inside a loop"
    if len(memory) != 1:
        return "its memory is to lie outside of the loop, by one hoist_storage" if not memory else "it is stored twice"
    kept = getattr(memory[0], "consumer", ""), getattr(memory[0], "loop", "")
    try:
        found = _Between(plan, stage, at.directive.consumer, at.directive.loop, kept)
        reasons = (rule(found) for rule in _RULES)
        return next(filter(None, reasons), "")
    except ScheduleError:  # of a loop that is gone, which building the kernel tells
        return "its loop is not there"


def room_ahead(plan: Plan, stage: str) -> list[int | None]:
    """How many elements along each axis one iteration needs at most, where that is known.

    Two iterations need not need as many: the last one may end at a border.
    """
    whole = [number(extent) for extent in plan.operation(stage).output().extents]
    there = [extent_there(plan, stage, axis) for axis in range(len(whole))]
    return [a if b is None else b for a, b in zip(whole, there, strict=True)]


def _memory(plan: Plan, stage: str) -> list[Directive]:
    """What says where a stage is kept."""
    stored = [plan.stores[stage].directive] if stage in plan.stores else []
    said = (step.directive for step in plan.storage.get(stage, ()))
    return stored + [d for d in said if isinstance(d, HoistStorage)]


@dataclass(frozen=True)
class _Between:
    """A stage, the loop it is computed in, and the loop around its memory: ("", "") is the root."""

    plan: Plan
    stage: str
    consumer: str
    loop: str
    kept: tuple[str, str]

    @property
    def levels(self) -> tuple[Level, ...]:
        """The loops from its memory to where it is computed."""
        nest = self.plan.nest(self.consumer, self.plan.definition(self.consumer, self.loop))
        begin = nest.position(self.kept[1]) + 1 if self.kept[0] else 0
        return nest.levels[begin : nest.position(self.loop) + 1]

    @property
    def stride(self) -> int | None:
        """How far one iteration moves along its axis, where it does so evenly."""
        return strides_of(self.plan, self.consumer).get(self.loop, 1)

    @property
    def around(self) -> Iterator[str]:
        """The stages in whose loops this one is computed."""
        name = self.consumer
        while True:
            yield name
            step = self.plan.places.get(name)
            if step is None or not isinstance(step.directive, ComputeAt):
                return
            name = step.directive.consumer


def _other_kinds(b: _Between) -> str:
    op = b.plan.operation(b.stage)
    if not isinstance(op, Compute):
        return f"it is a {type(op).__name__.lower()}"
    if op.reduction is not None:  # Halide 21 lets it read its own elements in the memory of the other iteration
        return "it is a reduction"
    if op.num_outputs > 1:
        return "it has several results"
    return "how much of it an iteration needs is no known number" if None in room_ahead(b.plan, b.stage) else ""


def _loops(b: _Between) -> str:
    root = b.kept == ("", "")
    if (root and len(list(b.around)) > 1) or (not root and b.kept[0] != b.consumer):
        return f"its memory lies outside of the loops of {b.consumer}"
    if len(b.levels) != 1:
        found = ", ".join(v.name for v in b.levels) or "none"
        return f"exactly one loop is to lie between its memory and its computation, found {found}"
    (level,) = b.levels
    if level.kind != "serial":
        return f"{b.consumer}'s loop {level.name} is {level.kind}"
    if b.stride is None:
        return f"{b.consumer}'s loop {level.name} is made of a fused one"
    # Of a loop of one iteration nothing is left in Halide 21, and the code names what is not there.
    if level.known == 1:
        return f"{b.consumer}'s loop {level.name} has one iteration"
    inside = list(b.around)[1:]
    return f"{b.consumer} is computed in the loops of {inside[0]}, which may need one iteration" if inside else ""


def _skips(b: _Between) -> str:
    """Iterations that a condition leaves out: the memory of the next one is that of the one before."""
    op = b.plan.operation(b.consumer)
    if not isinstance(op, Compute):
        return f"{b.consumer} is a {type(op).__name__.lower()}"
    nest = b.plan.nest(b.consumer, b.plan.definition(b.consumer, b.loop))
    if any("   if " in let or "minimum(" in let for let in nest.lets):
        return f"a split of {b.consumer} has a rest"
    for each in (nest, b.plan.nest(b.stage)):
        said = (step.directive for step in b.plan.loops.get((each.stage, each.definition), ()))
        if any(isinstance(d, Split) and (d.exact or d.tail) for d in said):
            return f"a split of {each} may compute more than is read"
    if op.reduction is not None and op.reduction.where is not TRUE:
        return f"{b.consumer} leaves out terms"
    readers = b.plan.program.readers[b.stage]
    if readers != [b.consumer]:
        return f"{', '.join(n for n in readers if n != b.consumer)} reads it"
    # What is needed in some iterations only is computed in these only, and Halide 21 loses the condition's loops.
    chosen = topological([n for n in topological(op.expressions) if isinstance(n, Apply) and n.fn is Fn.SELECT])
    if any(isinstance(n, Read) and n.tensor.op is b.plan.operation(b.stage) for n in chosen):
        return f"{b.consumer} reads it under a condition"
    return ""


def _layout(b: _Between) -> str:
    said = (step.directive for step in b.plan.storage.get(b.stage, ()))
    other = next((d for d in said if not isinstance(d, (Async, HoistStorage))), None)
    return "" if other is None else f"{other.verb} was said of it"


def _cases(b: _Between) -> str:
    stages = (b.stage, *b.around, *b.plan.program.readers[b.stage])
    other = next((name for name in stages if b.plan.cases(name)), None)
    if other is not None:
        return f"{other} has loops of their own in some cases"
    shared = {name for s in shared_loops(b.plan) for name in (s.directive.stage, getattr(s.directive, "consumer", ""))}
    other = next((name for name in stages if name in shared), None)
    return "" if other is None else f"{other} shares its loops"


def _nested(b: _Between) -> str:
    other = next((name for name in b.around if is_asked_ahead(b.plan, name)), None)
    return "" if other is None else f"it is computed in the loops of {other}, which has a thread of its own"


def _company(b: _Between) -> str:
    """Another stage in the same loops, of which only one of the two threads would know."""
    loops = {b.kept, *((b.consumer, v.name) for v in b.levels)}
    for name, step in b.plan.places.items():
        places = [step.directive, *_memory(b.plan, name)]
        meets = any((getattr(d, "consumer", ""), getattr(d, "loop", "")) in loops for d in places)
        if meets and name != b.stage and isinstance(step.directive, ComputeAt):
            return f"{name} is computed or kept in the same loops"
    if b.kept != ("", ""):
        return ""
    program = b.plan.program
    for name in program.stages:
        place = b.plan.places.get(name)
        root = place is None or not isinstance(place.directive, (ComputeAt, ComputeInline))
        if root and name != b.consumer and not (program.needs(b.stage, name) or program.needs(name, b.consumer)):
            return f"{name} is computed at the root as well; keep its memory inside a loop"
    return ""


def _sources(b: _Between) -> str:
    """A stage that is read in the loops: its condition, of when it is needed at all, is lost by Halide 21 there."""
    pending = [b.stage, b.consumer]
    for name in pending:
        for t in b.plan.operation(name).inputs:
            source = b.plan.program.names.get(t.op, b.stage)
            place = b.plan.places.get(source)
            if source != b.stage and not (place is not None and isinstance(place.directive, ComputeInline)):
                return f"{name} reads {source}, which is no input"
            pending += [source] * (source not in pending)
    return ""


def _reuse(b: _Between) -> str:
    """Whether store_at keeps something that later iterations read: it is computed once then, in turn."""
    if b.stage not in b.plan.stores:
        return ""
    shared = "iterations share elements, which are computed once; hoist_storage computes them afresh"
    (level,) = b.levels
    if what_does_not_slide(b.plan, b.stage, [(b.consumer, level)]) is not None or b.stride is None:
        return shared
    (origin,) = level.origin
    assert isinstance(origin, Axis)
    for axis, rate in enumerate(steps_of(b.plan, b.stage, b.consumer, origin)):
        width = extent_there(b.plan, b.stage, axis)
        if width is not None and width <= abs(rate * b.stride):
            return ""
    return shared


_RULES: tuple[Callable[[_Between], str], ...] = (
    _other_kinds, _loops, _skips, _sources, _layout, _cases, _nested, _company, _reuse
)  # fmt: skip
