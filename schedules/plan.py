"""What the directives given so far amount to: a program, the loop nests of its stages, and where each is computed.

A plan is a value; `after` gives the plan with one more directive, or a ScheduleError that says why not. So a schedule
is the fold of its directives, which is also how a saved one is read back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from functools import partial
from typing import Any

from schedules.cases import condition_text, position_of, position_text
from schedules.directives import (
    AlignStorage,
    Async,
    Atomic,
    Auto,
    Bound,
    BoundExtent,
    CacheRead,
    CacheWrite,
    CloneIn,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    ComputeWith,
    CutAt,
    Definition,
    Directive,
    FoldStorage,
    Fuse,
    GpuBlocks,
    GpuSingleThread,
    GpuThreads,
    HoistStorage,
    LoopDirective,
    Pack,
    Prefetch,
    Reorder,
    ReorderStorage,
    Rfactor,
    Specialize,
    Split,
    StoreAt,
    StoreIn,
    StoreRoot,
    Unroll,
    Unswitch,
    Vectorize,
)
from schedules.loops import Nest, base_of, check_positive, definitions_of, is_rounded, nest_of, one_of, transformed
from schedules.pieces import in_order
from schedules.program import ProgramStages
from schedules.rewrites import Half, cache_read, cache_write, clone, pack, rfactor
from tedsl.analysis.bounds import bounds_of
from tedsl.analysis.terms import product_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Axis, Const, Expr, Read, Var
from tedsl.lang.extents import number
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Tensor
from tedsl.lang.traverse import substitute

__all__ = ["MEMORIES", "Plan", "Step", "call_of", "described", "dimensions", "receiver_of"]

MEMORIES = ("auto", "heap", "stack", "register", "shared")


@dataclass(frozen=True)
class Step:
    """A directive and the place in the user's code where it was given."""

    directive: Directive
    where: str
    call: str = ""  # what the user wrote, where that is not the directive itself

    def refused(self, reason: object) -> ScheduleError:
        """The error for this directive."""
        return ScheduleError(f"{self.call or described(self.directive)}, at {self.where}: {reason}")


def described(directive: Directive) -> str:
    """The directive as a call: s['C'].split('i', 32, names=('io', 'ii'))."""
    if isinstance(directive, Auto):
        return f"s.auto({directive.scheduler!r}{'' if directive.loops else ', loops=False'})"
    return f"s{receiver_of(directive)}.{call_of(directive)}"


def receiver_of(directive: Directive) -> str:
    """What of a schedule the directive is a method of: ['C'].init"""
    base, _, case = getattr(directive, "definition", "body").partition(" if ")
    return f"[{directive.stage!r}]{'.init' if base == 'init' else ''}{f'.case({case!r})' if case else ''}"


def call_of(directive: Directive) -> str:
    """The call of the method that gives just this directive."""
    return f"{directive.verb}({', '.join(_arguments(directive))})"


def _arguments(directive: Directive) -> list[str]:
    """The arguments of the method that gives this directive."""
    if isinstance(directive, Split):
        names = f"names=({directive.outer!r}, {directive.inner!r})"
        tail = [f"tail={directive.tail!r}"] if directive.tail else []
        factor = repr(directive.length) if directive.length else str(directive.factor)
        return [repr(directive.loop), factor, names, *["exact=True"] * directive.exact, *tail]
    if isinstance(directive, Pack):
        return [repr(directive.source), repr(directive.order), repr(directive.factors), repr(directive.copy)]
    if isinstance(directive, HoistStorage) and not directive.consumer:
        return []
    given: list[str] = []
    for f in fields(directive):
        value = getattr(directive, f.name)
        if f.name not in ("stage", "definition"):
            given += map(repr, value) if isinstance(value, tuple) else [repr(value)]
    return given


@dataclass(eq=False)
class _Later:
    """The loops of a definition after some steps, made when somebody asks for them: most of them nobody does."""

    start: Callable[[], Nest]
    before: Nest | _Later | None
    steps: list[Step]

    @cached_property
    def nest(self) -> Nest:
        nest = _made(self.before) or self.start()
        for step in self.steps:
            d = step.directive
            try:
                if isinstance(d, LoopDirective):
                    nest = transformed(nest, d)
                elif isinstance(d, (BoundExtent, Bound)) and d.axis in nest.names:
                    nest = nest.bounded(d.axis, d.extent)
            except ScheduleError as error:
                raise step.refused(error) from None
        return nest


def _made(nest: Nest | _Later | None) -> Nest | None:
    return nest.nest if isinstance(nest, _Later) else nest


@dataclass(frozen=True, eq=False)
class Plan:
    """The state of a schedule."""

    program: ProgramStages
    nests: Mapping[tuple[str, str], Nest | _Later] = field(default_factory=dict)  # those that directives changed
    loops: Mapping[tuple[str, str], tuple[Step, ...]] = field(default_factory=dict)
    places: Mapping[str, Step] = field(default_factory=dict)
    stores: Mapping[str, Step] = field(default_factory=dict)
    storage: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    made: frozenset[str] = frozenset()  # stages that rewrites added
    regrouped: frozenset[str] = frozenset()  # stages whose terms rewrites combine in groups
    complete: frozenset[str] = frozenset()  # stages that have all their directives
    finite: tuple[str, ...] = ()  # results are those of the program given where these stages hold no inf or NaN
    automatic: str = ""  # the autoscheduler of Halide that does it all

    def nest(self, stage: str, definition: str = "body") -> Nest:
        """The loops of one definition as they are now."""
        return _made(self.nests.get((stage, definition))) or nest_of(stage, self.operation(stage), definition)

    def cases(self, stage: str, definition: str = "") -> list[Specialize]:
        """The cases of a stage, or of one of its definitions, that have loops of their own."""
        wanted = (definition,) if definition else definitions_of(self.operation(stage))
        said = (s.directive for x in wanted for s in self.loops.get((stage, x), ()))
        return [d for d in said if isinstance(d, Specialize)]

    def definitions(self, stage: str) -> list[str]:
        """All that has loops in a stage, cases after what they are cases of."""
        own = definitions_of(self.operation(stage))
        return [name for x in own for name in (x, *(d.case for d in self.cases(stage, x)))]

    def said_of_loops(self, stage: str) -> list[Directive]:
        """The directives of the loops of all definitions of a stage."""
        return [step.directive for name in self.definitions(stage) for step in self.loops.get((stage, name), ())]

    def beginning(self, stage: str, definition: str) -> Nest:
        """The loops of a definition before its own directives; bounds are promised before."""
        base = base_of(definition)
        nest = nest_of(stage, self.operation(stage), base)
        for bound in self.bounds(stage):
            nest = nest.bounded(bound.axis, bound.extent) if bound.axis in nest.names else nest
        for step in self.loops.get((stage, base), ()) if base != definition else ():
            d = step.directive
            assert isinstance(d, LoopDirective)
            if isinstance(d, Specialize) and d.case == definition:
                break
            nest = transformed(nest, d)
        return replace(nest, definition=definition)

    @property
    def sizes(self) -> dict[str, Var]:
        """The symbolic sizes of the program, by names that only one has."""
        return self.program.sizes

    def operation(self, stage: str) -> Operation:
        known = self.program.stages
        return known[stage] if stage in known else known[one_of(stage, known, "stage", "stages")]

    @property
    def is_begun(self) -> bool:
        """Whether any directive was given."""
        return bool(self.loops or self.places or self.stores or self.storage or self.made or self.complete)

    @property
    def promises(self) -> tuple[Step, ...]:
        """What was promised of extents, which a call may break: exact splits and bounds."""
        said = [step for steps in (*self.loops.values(), *self.storage.values()) for step in steps]
        promised = (BoundExtent, Bound)
        return tuple(s for s in said if isinstance(s.directive, promised) or getattr(s.directive, "exact", False))

    def bounds(self, stage: str) -> list[BoundExtent | Bound]:
        """What was promised of the extents of a stage."""
        return [s.directive for s in self.storage.get(stage, ()) if isinstance(s.directive, (BoundExtent, Bound))]

    def lanes(self, stage: str) -> dict[Axis, int]:
        """How wide the vectors along an axis of a stage are."""
        found: dict[Axis, int] = {}
        said = self._said_of_body(stage)
        vectors = {d.loop for d in said if isinstance(d, Vectorize)}
        splits = {d.loop: d.step for d in said if isinstance(d, Split) and d.step and d.inner in vectors}
        for level in nest_of(stage, self.program.stages[stage], "body").levels if splits else ():
            if level.name in splits:
                found.update((a, splits[level.name]) for a in level.origin if isinstance(a, Axis))
        return found

    def is_in_order(self, stage: str) -> bool:
        """Whether the loops of a stage start at their first iterations, one after another."""
        return all(isinstance(d, (Split, Fuse, Reorder, Vectorize, Unroll)) for d in self._said_of_body(stage))

    def _said_of_body(self, stage: str) -> list[LoopDirective]:
        said = [step.directive for step in self.loops.get((stage, "body"), ())]
        return [d for d in said if isinstance(d, LoopDirective)]

    def scheduled_by(self, autoscheduler: str) -> Plan:
        """The plan that leaves everything to one of Halide's autoschedulers."""
        return replace(self, automatic=autoscheduler)

    def is_touched(self, stage: str) -> bool:
        """Whether a directive speaks of the loops or the place of a stage."""
        return stage in self.places or any((stage, d) in self.loops for d in ("init", "body"))

    def spoken(self) -> set[str]:
        """The stages that some directive names: as its own, as the place of another one, or to be prefetched."""
        found = {name for name in self.program.stages if self.is_touched(name)} | set(self.storage) | set(self.complete)
        for step in (*self.places.values(), *self.stores.values()):
            found.add(getattr(step.directive, "consumer", ""))
        for steps in self.loops.values():
            found.update(s.directive.source for s in steps if isinstance(s.directive, Prefetch))
            found.update(s.directive.consumer for s in steps if isinstance(s.directive, ComputeWith))
        return found & set(self.program.stages)

    def over(self, program: ProgramStages) -> Plan:
        """The same directives for a program that has these stages, or some of them, under the same names."""
        stages, final = set(program.stages), program.final
        for name, step in self.places.items():
            self._check_whole(name, step)

        def stays(step: Step) -> bool:
            d = step.directive
            known = d.stage in stages and (getattr(d, "consumer", "") or d.stage) in stages
            return known and (d.stage not in final or isinstance(d, (LoopDirective, ComputeRoot, BoundExtent, Bound)))

        places = {name: step for name, step in self.places.items() if stays(step)}
        storage = {name: tuple(filter(stays, steps)) for name, steps in self.storage.items() if name in stages}
        return replace(
            self,
            program=program,
            nests={key: nest for key, nest in self.nests.items() if key[0] in stages},
            loops={key: steps for key, steps in self.loops.items() if key[0] in stages},
            places=places,
            stores={n: s for n, s in self.stores.items() if stays(s) and (n in places or n not in self.places)},
            storage=storage,
        )

    def _check_whole(self, stage: str, step: Step) -> None:
        """Refuse a place inside a loop for what a Python function between kernels reads."""
        d = step.directive
        outside = [r for r in self.program.readers[stage] if isinstance(self.program.stages[r], Extern)]
        if isinstance(d, ComputeAt) and outside:
            raise step.refused(
                f"{outside[0]} reads {stage} outside of loop {d.loop!r} of {d.consumer}; compute {stage} at the root"
            )

    def definition(self, stage: str, loop: str) -> Definition:
        """The definition that has a loop of this name: the body, if both have."""
        op = self.operation(stage)
        for definition in ("body", "init"):
            if definition in definitions_of(op) and loop in self.nest(stage, definition).names:
                return definition
        nest = self.nest(stage)
        one_of(loop, nest.names, "loop", f"loops of {stage}")
        raise AssertionError

    def after(self, step: Step) -> Plan:
        """The plan with one more directive."""
        directive = step.directive
        try:
            op = self.operation(directive.stage)
            if isinstance(directive, LoopDirective):
                return self._looped(step, op)
            return _RULES[type(directive)](self, step, op)
        except ValueError as error:  # of ours, or of an extent that no int32 holds
            raise step.refused(error) from None

    def after_all(self, steps: Iterable[Step]) -> Plan:
        """The plan with more directives of loops, places and layouts, as a program has thousands of them.

        They are gathered in place; loops are made of them, and places looked at, when these are asked for.
        """
        later: dict[tuple[str, str], _Later] = {}
        loops, places, stores = dict(self.loops), dict(self.places), dict(self.stores)
        storage = dict(self.storage)
        plan = replace(self, loops=loops, places=places, stores=stores, storage=storage)
        for step in steps:
            d = step.directive
            try:
                op = plan.operation(d.stage)
                changed: Iterable[str] = ()
                if isinstance(d, LoopDirective):
                    plan._check_loops(d, op)
                    loops[d.stage, d.definition] = (*loops.get((d.stage, d.definition), ()), step)
                    changed = (d.definition,)
                elif _RULES[type(d)] is Plan._placed:
                    plan._check_place(d, op)
                    places[d.stage] = step
                elif _RULES[type(d)] is Plan._stored:
                    plan._check_store(d)
                    stores[d.stage] = step
                else:
                    assert _RULES[type(d)] is Plan._laid_out, f"{d.verb} changes the program"
                    plan._check_layout(d, op)
                    storage[d.stage] = (*storage.get(d.stage, ()), step)
                    changed = definitions_of(op) if isinstance(d, (BoundExtent, Bound)) else ()
            except ScheduleError as error:
                raise step.refused(error) from None
            for definition in changed:
                key = (d.stage, definition)
                if key not in later:
                    later[key] = _Later(partial(nest_of, d.stage, op, definition), self.nests.get(key), [])
                later[key].steps.append(step)
            if isinstance(d, Specialize):
                later[d.stage, d.case] = _Later(partial(plan.beginning, d.stage, d.case), None, [])
        return replace(plan, nests={**self.nests, **later})

    def _looped(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        assert isinstance(d, LoopDirective)
        self._check_loops(d, op)
        key, nest = (d.stage, d.definition), transformed(self.nest(d.stage, d.definition), d)
        nests = {**self.nests, key: nest}
        if isinstance(d, Specialize):
            nests[d.stage, d.case] = replace(nest, definition=d.case)
        return replace(self, nests=nests, loops={**self.loops, key: (*self.loops.get(key, ()), step)})

    def _check_loops(self, d: LoopDirective, op: Operation) -> None:
        """Refuse a directive of loops that the stage does not have."""
        if isinstance(op, Extern):
            raise ScheduleError("a Python function has no loops")
        if d.definition != base_of(d.definition):
            self._check_case(d)
        elif d.definition not in definitions_of(op):
            raise ScheduleError(f"{d.stage} has no init: nothing is filled in before its body")
        place = self.places.get(d.stage)
        if place is not None and isinstance(place.directive, ComputeInline):
            raise ScheduleError(f"{d.stage} is computed inline (at {place.where}) and has no loops")
        if isinstance(d, Specialize):
            self._check_condition(d)
        if isinstance(d, CutAt):
            self._check_cut(d, op)
        if isinstance(d, Unswitch):
            self._check_cases(d, op)
        if isinstance(d, ComputeWith):
            self.nest(one_of(d.consumer, self.program.stages, "stage", "stages"), d.definition).level(d.loop)
        if isinstance(d, Prefetch) and self._source(d.stage, op, d.source).ndim == 0:
            raise ScheduleError(f"{d.source} is one element, so there is nothing ahead of it")

    def _check_case(self, d: LoopDirective) -> None:
        """Refuse a directive of a case that there is not, or that a case cannot have."""
        known = {c.case: c.condition for c in self.cases(d.stage)}
        if d.definition not in known:
            asked = d.definition.partition(" if ")[2]
            there = ", ".join(known.values()) or "none"
            raise ScheduleError(
                f"{d.stage} has no loops of their own where {asked}; conditions: {there}; specialize it first"
            )
        if isinstance(d, (Specialize, ComputeWith, CutAt, Unswitch, Atomic, GpuBlocks, GpuThreads, GpuSingleThread)):
            raise ScheduleError(f"{d.verb} is said of a stage, not of one of its cases")

    def _check_cut(self, d: CutAt, op: Operation) -> None:
        """Refuse positions that are not known to be in order within an axis of a pointwise stage."""
        if not isinstance(op, Compute) or op.reduction is not None:
            raise ScheduleError(f"{d.stage} is not pointwise; only stages that are can be computed in pieces")
        texts = tuple(position_text(p, self.sizes) for p in d.positions)
        if texts != d.positions or not texts:
            raise ScheduleError(f"expected positions, written {texts}, found {d.positions}")
        if any(other.loop == d.loop for other in self.cut_loops(d.stage)):
            raise ScheduleError(f"loop {d.loop!r} is cut already; give all positions at once")
        axis = self.axis_of(d.stage, one_of(d.loop, dimensions(d.stage, op), "loop", f"axes of {d.stage}"))
        if not in_order(axis, [position_of(p, self.sizes) for p in texts]):
            raise ScheduleError(
                f"expected positions in order, from 0 to {axis.extent} whatever the sizes are, found {', '.join(texts)}"
            )

    def _check_cases(self, d: Unswitch, op: Operation) -> None:
        """Refuse cases of a stage that is not pointwise, or has some."""
        if not isinstance(op, Compute) or op.reduction is not None:
            raise ScheduleError(f"{d.stage} is not pointwise; only stages that are can be computed by cases")
        if self.by_cases(d.stage) is not None:
            raise ScheduleError(
                f"{d.stage} is computed by cases already; name one loop, along all of which they are the same"
            )

    def by_cases(self, stage: str) -> Unswitch | None:
        """The loop all along which the cases of a stage are the same."""
        said = (s.directive for s in self.loops.get((stage, "body"), ()))
        return next((d for d in said if isinstance(d, Unswitch)), None)

    def cut_loops(self, stage: str) -> list[CutAt]:
        """What a stage is cut at, loop by loop."""
        return [s.directive for s in self.loops.get((stage, "body"), ()) if isinstance(s.directive, CutAt)]

    def axis_of(self, stage: str, name: str) -> Axis:
        """The axis of a stage whose loop had this name at first."""
        op = self.operation(stage)
        axis: Axis = getattr(op, "axes", ())[dimensions(stage, op).index(name)]
        return axis

    def _check_condition(self, d: Specialize) -> None:
        text = condition_text(d.condition, self.sizes)
        if text != d.condition:
            raise ScheduleError(f"the condition is written {text!r}, found {d.condition!r}")
        if d.case in {c.case for c in self.cases(d.stage)}:
            raise ScheduleError(
                f"{d.stage} has loops of its own where {text} already; s[{d.stage!r}].case({text!r}) has them"
            )

    def _placed(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        self._check_place(d, op)
        if isinstance(d, ComputeAt):
            self._check_at(d.stage, d.consumer, d.loop)
        return replace(self, places={**self.places, step.directive.stage: step})

    def _check_place(self, d: Directive, op: Operation) -> None:
        if isinstance(op, Extern):
            raise ScheduleError("a Python function is computed between kernels")
        if d.stage in self.program.final and not isinstance(d, ComputeRoot):
            raise ScheduleError(f"{d.stage} is an output, which is computed at the root")
        if isinstance(d, ComputeInline):
            self._check_inline(d, op)

    def _check_inline(self, d: ComputeInline, op: Operation) -> None:
        if not isinstance(op, Compute) or op.reduction is not None:
            kind = "reduction" if isinstance(op, Compute) else type(op).__name__.lower()
            raise ScheduleError(
                f"{d.stage} is a {kind}; only pointwise stages can be computed inline; s[{d.stage!r}].compute_at("
                "s[reader], loop) computes what each iteration of a loop of its reader needs"
            )
        if (d.stage, "body") in self.loops:
            given = self.loops[d.stage, "body"][0]
            raise ScheduleError(
                f"{d.stage} has loops with directives (at {given.where}), which inline it would not have"
            )

    def _check_at(self, stage: str, consumer: str, loop: str) -> None:
        one_of(consumer, self.program.stages, "stage", "stages")
        if not self.program.needs(consumer, stage):
            readers = ", ".join(self.program.readers[stage]) or "nobody"
            raise ScheduleError(f"{consumer} does not need {stage}, which is read by {readers}")
        self.definition(consumer, loop)

    def _stored(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        self._check_store(d)
        if isinstance(d, StoreAt):
            self._check_at(d.stage, d.consumer, d.loop)
        return replace(self, stores={**self.stores, d.stage: step})

    def _check_store(self, d: Directive) -> None:
        if d.stage in self.program.final:
            raise ScheduleError(f"{d.stage} is an output; its memory is given")

    def _laid_out(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        self._check_layout(d, op)
        # The last word on where and how it lies holds, axis by axis; promises of extents add up.
        before = [
            s for s in self.storage.get(d.stage, ()) if isinstance(d, BoundExtent) or not _is_replaced(s.directive, d)
        ]
        made = replace(self, storage={**self.storage, d.stage: (*before, step)})
        return made._bounded(d, op) if isinstance(d, (BoundExtent, Bound)) else made

    def _check_layout(self, d: Directive, op: Operation) -> None:
        names = dimensions(d.stage, op)
        if d.stage in self.program.final and not isinstance(d, (BoundExtent, Bound)):
            given = "nobody waits for it" if isinstance(d, Async) else "its memory is given"
            raise ScheduleError(f"{d.stage} is an output; {given}")
        if isinstance(d, HoistStorage):
            if d.consumer:
                self._check_at(d.stage, d.consumer, d.loop)
        elif isinstance(d, (AlignStorage, FoldStorage)):
            one_of(d.axis, names, "axis", f"axes of {d.stage}")
            check_positive(d.multiple if isinstance(d, AlignStorage) else d.factor, _NUMBER[type(d)])
        elif isinstance(d, Bound):
            self._check_bound(d, op, names)
        elif isinstance(d, ReorderStorage):
            if sorted(d.axes) != sorted(names):
                raise ScheduleError(f"expected all axes of {d.stage}, {', '.join(names)}, in some order")
        elif isinstance(d, StoreIn):
            one_of(d.memory, MEMORIES, "memory", "kinds of memory")
        elif isinstance(d, BoundExtent):
            one_of(d.axis, names, "axis", f"axes of {d.stage}")
            check_positive(d.extent, "extent")

    def _check_bound(self, d: Bound, op: Operation, names: list[str]) -> None:
        """Refuse a promise that leaves out what is known to be needed, or takes in what does not exist."""
        one_of(d.axis, names, "axis", f"axes of {d.stage}")
        check_positive(d.extent, "extent")
        place = names.index(d.axis)
        whole, end = op.output().extents[place], d.begin + d.extent
        size = int(whole.value) if isinstance(whole, Const) else None
        if d.begin < 0 or (size is not None and end > size):
            raise ScheduleError(
                f"{d.stage} has elements from 0 to {whole} along {d.axis!r}, found {d.begin} to {end}; give a begin "
                "and an extent inside"
            )
        if d.stage in self.program.final and (d.begin, end) != (0, size if size is not None else end):
            raise ScheduleError(f"{d.stage} is an output, all of which is needed: {d.axis!r} from 0 to {whole}")
        for name in self.program.readers[d.stage]:
            for read in self.program.stages[name].reads:
                if read.tensor.op is op:
                    _check_promise(d, name, read, read.indices[place])
        if isinstance(op, Scan) and place not in op.dims:  # of its own elements it reads those of the steps before
            promised = Axis(d.axis, Const(d.extent, INT32), begin=Const(d.begin, INT32))
            for read in op.reads:
                if any(read.tensor is state for state in op.states):
                    own = substitute(read.indices[place], {op.axes[place]: promised})
                    _check_promise(d, d.stage, read, own)

    def _bounded(self, d: BoundExtent | Bound, op: Operation) -> Plan:
        """The loops over that axis, where nothing has been made of them yet, have the extent that is promised."""
        nests = dict(self.nests)
        for definition in definitions_of(op):
            nest = self.nest(d.stage, definition)
            if d.axis in nest.names:
                nests[d.stage, definition] = nest.bounded(d.axis, d.extent)
        return replace(self, nests=nests)

    def _added(self, name: str, stage: str, made: tuple[Operation, Operation]) -> Plan:
        taken = self.program.fresh(name)
        if taken != name:
            raise ScheduleError(f"the name {name!r} is taken; {taken!r} is free")
        program = self.program.rewritten({stage: made[0]}, {name: (stage, made[1])})
        return replace(self, program=program, made=self.made | {name})

    def _check_untouched(self, stage: str, verb: str) -> None:
        for definition in ("init", "body"):
            if (stage, definition) in self.loops:
                given = self.loops[stage, definition][0]
                raise ScheduleError(f"{verb} comes before other directives; {stage} has one from {given.where}")

    def _cache_write(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        assert isinstance(d, CacheWrite)
        self._check_untouched(d.stage, "cache_write")
        return self._added(d.local, d.stage, cache_write(op, d.stage, d.local))._regrouped_as(d.stage, d.local)

    def _source(self, stage: str, op: Operation, name: str) -> Tensor:
        """The tensor that a stage reads under this name."""
        known: dict[str, Tensor] = {}
        for t in op.inputs:
            known[t.name if t.op not in self.program.names or t.op.num_outputs > 1 else self.program.names[t.op]] = t
        return known[one_of(name, known, "tensor", f"{stage} reads")]

    def _cache_read(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        assert isinstance(d, CacheRead)
        return self._added(d.copy, d.stage, cache_read(op, self._source(d.stage, op, d.source), d.copy))

    def _pack(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        assert isinstance(d, Pack)
        source = self._source(d.stage, op, d.source)
        return self._added(d.copy, d.stage, pack(op, source, d.copy, d.order, d.factors))

    def _clone_in(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        assert isinstance(d, CloneIn)
        one_of(d.consumer, self.program.stages, "stage", "stages")
        readers = self.program.readers[d.stage]
        if d.consumer not in readers:
            raise ScheduleError(
                f"{d.consumer} does not read {d.stage}, which is read by {', '.join(readers) or 'nobody'}"
            )
        reader = self.program.stages[d.consumer]
        if isinstance(op, Extern) or isinstance(reader, Extern):
            raise ScheduleError("a Python function is called once, and reads what is stored")
        if len(readers) == 1 and d.stage not in self.program.final:
            raise ScheduleError(
                f"nobody but {d.consumer} reads {d.stage}: schedule that itself, a clone would replace it"
            )
        return self._added(d.clone, d.consumer, clone(op, reader, d.clone))._regrouped_as(d.stage, d.clone)

    def _regrouped_as(self, stage: str, other: str) -> Plan:
        """The plan in which another stage combines its terms as this one did."""
        return replace(self, regrouped=self.regrouped | ({other} if stage in self.regrouped else frozenset()))

    def _rfactor(self, step: Step, op: Operation) -> Plan:
        d = step.directive
        assert isinstance(d, Rfactor)
        if not isinstance(op, Compute) or op.reduction is None:
            raise ScheduleError(f"{d.stage} is no reduction")
        nest, splits = self.nest(d.stage), self.loops.get((d.stage, "body"), ())
        level = nest.level(d.loop)
        own = {a for a in op.reduction.axes if level.origin == {a}}
        if not own:
            free = [v.name for v in nest.levels if v.origin <= set(op.reduction.axes)]
            raise ScheduleError(f"{d.loop!r} is no reduce axis; those are {', '.join(free)}")
        (axis,) = own
        half, others = _half_of(d, nest, splits)
        total, partial = made = rfactor(op, axis, d.loop, half, d.partial)
        plan = self._added(d.partial, d.stage, made)
        if is_rounded(op) and _terms(total) != 1 and (_terms(partial) != 1 or _adds_products(op)):
            plan = replace(plan, regrouped=plan.regrouped | {d.stage})
        keep = {k: v for k, v in plan.nests.items() if k != (d.stage, "body")}
        plan = replace(plan, nests=keep, loops={k: v for k, v in plan.loops.items() if k != (d.stage, "body")})
        for other in others:
            plan = plan.after(replace(other, directive=replace(other.directive, stage=d.partial)))
        return plan


def _check_promise(d: Bound, reader: str, read: Read, index: Expr) -> None:
    """Refuse a read that is known to leave what is promised."""
    (low, high), last = bounds_of(index).numbers, d.begin + d.extent - 1
    if (low is not None and low < d.begin) or (high is not None and high > last):
        raise ScheduleError(
            f"{reader} reads {read}, whose index is from {low} to {high}, expected within {d.begin} to {last}; promise "
            "no less than what is read"
        )


def _terms(op: Operation) -> int | None:
    """How many terms a stage combines for each element, where that is known."""
    reduce = op.reduction if isinstance(op, Compute) else None
    counts = [number(axis.extent) for axis in (reduce.axes if reduce is not None else ())]
    return None if None in counts else math.prod(n for n in counts if n is not None)


def _adds_products(op: Compute) -> bool:
    """Whether the terms are products, which are rounded once more where they are stored before they are added."""
    reduce = op.reduction
    return reduce is not None and reduce.reducer.kind == "sum" and product_of(reduce.values[0]) is not None


def _half_of(d: Rfactor, nest: Nest, steps: tuple[Step, ...]) -> tuple[Half | None, list[Step]]:
    """The split that made the loop, if one did, and those of other axes, which the partial stage takes over."""
    mine: list[Split] = []
    others: list[Step] = []
    names = {d.loop}
    for step in reversed(steps):
        split = step.directive
        if not isinstance(split, Split):
            raise ScheduleError(
                f"rfactor comes before other directives; {nest.stage} has {split.verb!r} from {step.where}"
            )
        if names & {split.outer, split.inner}:
            mine.append(split)
            names |= {split.outer, split.inner, split.loop}
        else:
            others.insert(0, step)
    if len(mine) > 1:
        raise ScheduleError(f"{d.loop!r} comes from {len(mine)} splits; rfactor after the first")
    if any(isinstance(s.directive, Split) and s.directive.loop in names for s in others):
        raise ScheduleError(f"the other half of {d.loop!r} is split further; do that in the partial stage")
    if not mine:
        return None, others
    (split,) = mine
    if split.step is None:
        raise ScheduleError(f"{d.loop!r} comes from a split by {split.length}; rfactor needs one by a number")
    is_outer = split.outer == d.loop
    return Half(is_outer, split.step, split.inner if is_outer else split.outer), others


_NUMBER: dict[type[Directive], str] = {AlignStorage: "multiple", FoldStorage: "factor"}


def _is_replaced(before: Directive, now: Directive) -> bool:
    """Whether a directive of memory takes the place of an earlier one."""
    return before.verb == now.verb and getattr(before, "axis", "") == getattr(now, "axis", "")


def dimensions(stage: str, op: Operation) -> list[str]:
    """The names of the axes of a stage's result: those of its loops, since two axes may be called alike."""
    definitions = definitions_of(op)
    if not definitions:
        return []
    if len(definitions) == 2:
        return nest_of(stage, op, "init").names
    names = {axis: v.name for v in nest_of(stage, op, "body").levels for axis in v.origin}
    return [names[a] for a in getattr(op, "axes", ())]


_RULES: dict[type, Callable[[Plan, Step, Any], Plan]] = {
    ComputeAt: Plan._placed, ComputeRoot: Plan._placed, ComputeInline: Plan._placed, StoreAt: Plan._stored,
    StoreRoot: Plan._stored, ReorderStorage: Plan._laid_out, StoreIn: Plan._laid_out, BoundExtent: Plan._laid_out,
    Bound: Plan._laid_out, AlignStorage: Plan._laid_out, FoldStorage: Plan._laid_out, HoistStorage: Plan._laid_out,
    Async: Plan._laid_out,
    CacheWrite: Plan._cache_write, CacheRead: Plan._cache_read, Pack: Plan._pack, Rfactor: Plan._rfactor,
    CloneIn: Plan._clone_in,
}  # fmt: skip
