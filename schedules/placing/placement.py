"""Where every stage is computed, decided and checked once all directives are known.

A stage computed at a loop must be read inside that loop only, by the loop's own stage or by stages computed inside it.
A directive may come before the one that makes it legal, so this is asked when the kernel is built.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from schedules.directives import (
    ComputeAt,
    ComputeInline,
    Directive,
    FoldStorage,
    HoistStorage,
    Prefetch,
    StoreAt,
    StoreRoot,
)
from schedules.loops import Level, definitions_of
from schedules.placing.memory import check_fold, check_hoist
from schedules.placing.pieces import check_pieces
from schedules.placing.places import INLINE, ROOT, Placement, around
from schedules.placing.sharing import check_shared_loops
from schedules.placing.sliding import what_does_not_slide
from schedules.placing.tails import check_tails
from schedules.plan import Plan, Step
from tedsl.analysis.checks import read_to_check
from tedsl.lang.errors import ScheduleError
from tedsl.lang.tensor import Extern, Operation

__all__ = ["is_inside", "placed", "readers_of"]


def placed(plan: Plan, *, checked: bool = True, known: Container[str] | None = None) -> dict[str, Placement]:
    """The place of every stage: the root, where no directive says otherwise; `checked`: one that can hold it.

    `known`: the stages that a message may name, if not all; for another one it names what that is a part of.
    """
    ahead = [step for steps in plan.loops.values() for step in steps if isinstance(step.directive, Prefetch)]
    places = {name: _of(plan.places[name].directive) if name in plan.places else ROOT for name in plan.program.stages}
    for name, step in plan.places.items() if checked else ():
        if isinstance(step.directive, ComputeAt):
            _check(plan, places, name, step, plan.program.stages if known is None else known)
    for step in ahead:
        source = getattr(step.directive, "source", "")
        if places.get(source, ROOT).kind != "root":
            raise step.refused(
                f"{source} has no memory of its own outside; inputs and stages at the root can be prefetched"
            )
    for name, step in plan.stores.items():
        places[name] = _stored(plan, places, name, step, checked=checked)
    if checked:
        check_tails(plan, places)
        check_shared_loops(plan, places)
        check_pieces(plan, places)
    for steps in plan.storage.values() if checked else ():
        for step in steps:
            _check_memory(plan, places, step)
    return places


def _check_memory(plan: Plan, places: Mapping[str, Placement], step: Step) -> None:
    """Refuse memory of a stage that does not fit the loops around it."""
    d = step.directive
    if not isinstance(d, (FoldStorage, HoistStorage)):
        return
    place = places[d.stage]
    outside = around(plan, places, place.consumer, place.loop) if place.kind == "at" else []
    stored = place.store or (place.consumer, place.loop)
    try:
        if isinstance(d, HoistStorage):
            check_hoist(d, outside, stored)
        else:
            names = [(consumer, level.name) for consumer, level in outside]
            check_fold(plan, d, outside[names.index(stored) + 1 :] if stored in names else outside)
    except ScheduleError as error:
        raise step.refused(error) from None


def _of(directive: Directive) -> Placement:
    if isinstance(directive, ComputeAt):
        return Placement("at", directive.consumer, directive.loop)
    return INLINE if isinstance(directive, ComputeInline) else ROOT


def _check(plan: Plan, places: Mapping[str, Placement], stage: str, step: Step, known: Container[str]) -> None:
    """Refuse a compute_at whose loop is gone, cannot hold it, or does not hold all readers."""
    place = places[stage]
    if places[place.consumer].kind == "inline":
        raise step.refused(f"{place.consumer} is computed inline and has no loops; compute it somewhere")
    try:
        outside = around(plan, places, place.consumer, place.loop)
        check_cases(plan, place.consumer, place.loop)
    except ScheduleError as error:
        raise step.refused(error) from None
    for consumer, level in outside:
        if level.kind == "vectorized":
            raise step.refused(f"{consumer}'s loop {level.name!r} is {level.kind}; nothing can be computed inside it")
    for reader, definition in readers_of(plan, places, stage):
        if not is_inside(plan, places, reader, definition, place):
            while reader in plan.program.stages and reader not in known and plan.program.readers[reader]:
                reader = plan.program.readers[reader][0]
            raise step.refused(
                f"{reader} reads {stage} outside of loop {place.loop!r} of {place.consumer}; "
                f"compute {reader} inside that loop too, or {stage} farther out"
            )


def check_cases(plan: Plan, consumer: str, loop: str) -> None:
    """Refuse a loop that is not the same, with those around it, in every case of a stage."""
    definition = plan.definition(consumer, loop)
    nest = plan.nest(consumer, definition)
    outer = nest.levels[: nest.position(loop) + 1]
    for d in plan.cases(consumer, definition):
        if plan.nest(consumer, d.case).levels[: len(outer)] != outer:
            raise ScheduleError(
                f"loop {loop!r} of {consumer} and those around it are others where {d.condition}; what is computed "
                "inside needs the same loops in every case: change those inside of it only"
            )


def readers_of(plan: Plan, places: Mapping[str, Placement], stage: str) -> list[tuple[str, str]]:
    """Stage and definition of every read, those of inline stages counted where these are read; "" is the root."""
    found: dict[tuple[str, str], None] = {}
    pending, done = [stage], {stage}
    while pending:
        name = pending.pop()
        mine = plan.program.stages[name]
        if name in plan.program.final and name != stage:
            found["the output", ""] = None
        for reader in plan.program.readers[name]:
            op = plan.program.stages[reader]
            if _is_checked(op, mine):
                found["the check of indices", ""] = None
            if places[reader].kind != "inline":
                found.update(((reader, d), None) for d in _definitions_reading(op, mine))
            elif reader not in done:
                done.add(reader)
                pending.append(reader)
    return list(found)


def _definitions_reading(op: Operation, source: Operation) -> list[str]:
    if isinstance(op, Extern):
        return [""]
    init = getattr(op, "init", None)
    found = ["init"] if init is not None and init.op is source else []
    return found + (["body"] if any(r.tensor.op is source for r in op.reads) else [])


def _is_checked(op: Operation, source: Operation) -> bool:
    """Whether an index that is checked when the kernel runs reads from `source`."""
    try:
        return source in read_to_check(op)
    except (IndexError, ValueError):  # provably wrong, which is for the kernel to say
        return False


def is_inside(plan: Plan, places: Mapping[str, Placement], reader: str, definition: str, place: Placement) -> bool:
    if reader == place.consumer:
        return place.loop in plan.nest(reader, definition).names
    while definition and places[reader].kind == "at":
        own = places[reader]
        if own.consumer == place.consumer:
            nests = [plan.nest(own.consumer, d) for d in definitions_of(plan.program.stages[own.consumer])]
            holding = [n.names for n in nests if own.loop in n.names]
            return all(place.loop in names and names.index(place.loop) <= names.index(own.loop) for names in holding)
        reader = own.consumer
    return False


def _steps_beyond(plan: Plan, loop: tuple[str, Level], between: list[tuple[str, Level]]) -> bool:
    """Whether a loop is the outer one of a split that may leave a rest, and another part of it is between too.

    Halide begins both before their first iterations then, to fill the window, and reads before the data. Of a loop of
    vectors the window moves by whole vectors, the last of which may begin earlier.
    """
    consumer, level = loop
    if not any(c == consumer and v.name != level.name and set(v.origin) & set(level.origin) for c, v in between):
        return False
    lets = plan.nest(consumer, plan.definition(consumer, level.name)).lets
    made = [let.split(" = ", 1)[1] for let in lets if "   if " in let or "= minimum(" in let]
    return any(let.startswith((f"{level.name}*", f"minimum({level.name}*")) for let in made)


def _stored(plan: Plan, places: Mapping[str, Placement], stage: str, step: Step, *, checked: bool) -> Placement:
    """The place with its memory outside of it, if no loop in between runs in parallel; `checked`: if it slides."""
    place, d = places[stage], step.directive
    if place.kind != "at":
        raise step.refused(f"{stage} is not computed inside a loop; give it a compute_at first")
    outside = around(plan, places, place.consumer, place.loop)
    names = [(consumer, level.name) for consumer, level in outside]
    begin = 0
    if isinstance(d, StoreAt):
        if (d.consumer, d.loop) not in names:
            listed = ", ".join(f"{c}: {n}" for c, n in names)
            raise step.refused(
                f"loop {d.loop!r} of {d.consumer} does not lie around the place where {stage} is computed: {listed}"
            )
        begin = names.index((d.consumer, d.loop)) + 1
    else:
        assert isinstance(d, StoreRoot)
    for consumer, level in outside[begin:]:
        if level.kind not in ("serial", "unrolled"):
            raise step.refused(
                f"{consumer}'s loop {level.name!r}, which is {level.kind}, lies between the memory of {stage} and its "
                "computation; its iterations would share that memory"
            )
        if _steps_beyond(plan, (consumer, level), outside[begin:]):
            raise step.refused(
                f"{consumer}'s loop {level.name!r}, which lies between the memory of {stage} and its computation, is "
                "the outer one of a split that may leave a rest; store inside that loop"
            )
    still = what_does_not_slide(plan, stage, outside[begin:]) if checked else None
    if still is not None:
        raise step.refused(
            f"what earlier iterations computed of {stage} is of no use to later ones: {still}; store it where it is "
            "computed"
        )
    store = (d.consumer, d.loop) if isinstance(d, StoreAt) else ("", "")
    return Placement(place.kind, place.consumer, place.loop, store)
