"""How much of a stage is computed at a time inside a loop of its reader, as a number where that is one.

What an iteration of the loop reads of the stage along one of its axes is a window: from the least to the largest index
of all reads, over the loops inside. Where every read moves in the same way, its width does not depend on the iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from schedules.directives import ComputeAt, Fuse, LoopDirective, Split
from schedules.loops import Level, transformed
from schedules.placing.sliding import held
from schedules.plan import Plan
from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import TRUE, Axis, Const, Expr
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes

__all__ = ["cut_short", "extent_there", "least_there", "most_there", "strides_of"]

LONGEST = 40  # stages that need one another, one after another

Measure = Callable[[Plan, str, int, str, str], int | None]


def extent_there(plan: Plan, stage: str, axis: int, loop: str = "") -> int | None:
    """The number of elements along an axis of a stage that its reader needs in one iteration of the loop that it is
    computed at, or of another loop of that reader; None where nobody can tell."""
    step = plan.places.get(stage)
    if step is None or not isinstance(step.directive, ComputeAt):
        return None
    return _once(_needed, None)(plan, stage, axis, step.directive.consumer, loop or step.directive.loop)


def most_there(plan: Plan, stage: str, axis: int) -> int | None:
    """The same where indices may be held at a bound: no iteration needs more, but those at the borders less."""
    step = plan.places.get(stage)
    if step is None or not isinstance(step.directive, ComputeAt):
        return None
    return _once(partial(_needed, form=_held_form), None)(
        plan, stage, axis, step.directive.consumer, step.directive.loop
    )


def least_there(plan: Plan, stage: str, axis: int) -> int:
    """A number of elements along an axis of a stage that its readers need at least in every iteration of the loop that
    it is computed at: what one read needs that no condition leaves out, and no bound of an index holds."""
    step = plan.places.get(stage)
    if step is None or not isinstance(step.directive, ComputeAt):
        return 0
    around = plan.places.get(step.directive.consumer)
    if around is not None and isinstance(around.directive, ComputeAt):  # of whose loops only parts are computed
        return 0
    return _once(_least, 0)(plan, stage, axis, step.directive.consumer, step.directive.loop) or 0


def _once(take: Callable[[Plan, str, int, str, str, Measure], int | None], unknown: int | None) -> Measure:
    """A measure, taken of each stage once: there are many ways through a chain; of a very long one it is unknown."""
    found: dict[tuple[str, int], int | None] = {}
    deep = 0  # stages of the chain that is being followed

    def measure(plan: Plan, stage: str, axis: int, consumer: str, loop: str) -> int | None:
        nonlocal deep
        if deep >= LONGEST:
            return unknown
        if (stage, axis) not in found:
            deep += 1
            found[stage, axis] = take(plan, stage, axis, consumer, loop, measure)
            deep -= 1
        return found[stage, axis]

    return measure


def _least(plan: Plan, stage: str, axis: int, consumer: str, loop: str, least: Measure) -> int:
    source, found = plan.program.stages[stage], 0
    for name in plan.program.readers[stage]:
        reader = plan.program.stages[name]
        if not isinstance(reader, Compute):
            continue
        spans = _spans(plan, name, reader, consumer, loop, least)
        if spans is None:
            continue
        if name == consumer:
            short = cut_short(plan, name)
            spans = {a: None if a in short else n for a, n in spans.items()}
        reads = dict.fromkeys(
            r.indices[axis] for r, g in reader.read_guards.items() if r.tensor.op is source and g is TRUE
        )
        alike: dict[frozenset[tuple[object, int]], list[Affine]] = {}
        for form in map(affine_of, reads):
            if form is not None:
                alike.setdefault(frozenset(form.terms.items()), []).append(form)
        found = max(found, *(_width(forms, spans) or 0 for forms in alike.values()), 0)
    return found


def cut_short(plan: Plan, stage: str) -> set[Axis | int]:
    """The axes along which some iterations of a split of a stage may be left out."""
    nest, found = plan.beginning(stage, "body"), set[Axis | int]()
    for step in plan.loops.get((stage, "body"), ()):
        d = step.directive
        if isinstance(d, Split) and not (d.exact or d.tail in ("shift", "round_up")):
            level = nest.level(d.loop)
            if level.known is None or d.step is None or level.known % d.step:
                found |= level.origin
        assert isinstance(d, LoopDirective)
        nest = transformed(nest, d)
    return found


def _held_form(index: Expr) -> Affine | None:
    return affine_of(held(index))


def _needed(
    plan: Plan, stage: str, axis: int, consumer: str, loop: str, needed: Measure,
    form: Callable[[Expr], Affine | None] = affine_of,
) -> int | None:  # fmt: skip
    source, readers = plan.program.stages[stage], plan.program.readers[stage]
    if len(readers) > 1:
        return None
    (name,) = readers
    reader = plan.program.stages[name]
    if not isinstance(reader, Compute):
        return None
    forms = [form(read.indices[axis]) for read in reader.reads if read.tensor.op is source]
    known = [f for f in forms if f is not None]
    if len(known) < len(forms) or not known:
        return None
    spans = _spans(plan, name, reader, consumer, loop, needed)
    width = None if spans is None else _width(known, spans)
    whole = source.output().extents[axis]
    if width is None or not isinstance(whole, Const):
        return width
    return min(width, int(whole.value))


def _spans(
    plan: Plan, name: str, reader: Compute, consumer: str, loop: str, measure: Measure
) -> Mapping[Axis, int | None] | None:
    """How many places each axis of a reader takes inside the loop; None in the place of a number that is not known."""
    if name != consumer:  # computed inside the loop itself, as far as it is needed
        own = {a: measure(plan, name, k, consumer, loop) for k, a in enumerate(reader.axes)}
        terms = () if reader.reduction is None else reader.reduction.axes
        return own | {a: int(a.extent.value) if isinstance(a.extent, Const) else None for a in terms}
    definition = plan.definition(consumer, loop)
    if definition != "body":
        return None
    nest, strides = plan.nest(consumer), strides_of(plan, consumer)
    spans: dict[Axis, int | None] = {}
    for level in nest.levels[nest.position(loop) + 1 :]:
        for axis in level.origin:
            stride = strides.get(level.name, 1)
            if not isinstance(axis, Axis) or len(level.origin) > 1 or stride is None:
                return None
            known = level.constant if level.constant is not None else _alone(level, axis)
            before = spans.get(axis, 1)
            spans[axis] = None if before is None or known is None else before + stride * (known - 1)
    return spans


def strides_of(plan: Plan, stage: str) -> dict[str, int | None]:
    """How far one iteration of each loop moves along its axis."""
    found: dict[str, int | None] = {}
    for step in plan.loops.get((stage, "body"), ()):
        d = step.directive
        if isinstance(d, Split):
            stride = found.pop(d.loop, 1)
            found[d.outer], found[d.inner] = None if stride is None or d.step is None else stride * d.step, stride
        elif isinstance(d, Fuse):
            found[d.fused] = None
    return found


def _alone(level: Level, axis: Axis) -> int | None:
    """The extent of a loop that is all of its axis."""
    return level.known if level.extent is axis.extent else None


def _width(forms: list[Affine], spans: Mapping[Axis, int | None]) -> int | None:
    """The width of the window of all reads, which must move alike."""
    first = forms[0]
    if any(form.terms != first.terms for form in forms):
        return None
    width = max(f.constant for f in forms) - min(f.constant for f in forms) + 1
    for axis in first.axes:
        factor, span = first.coefficient(axis), spans.get(axis, 1)
        if factor is None or not factor.is_constant or span is None:
            return None
        width += abs(factor.constant) * (span - 1)
    return None if any(not isinstance(a, Axis) and _moves(a) for a in first.atoms) else width


def _moves(atom: Expr) -> bool:
    """Whether an atom is made of axes, whose places inside the loop nobody follows."""
    return bool(free_axes(atom))
