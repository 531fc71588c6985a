"""A schedule as a readable loop nest: what runs inside what, and the statement in the middle."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from typing import Any

from schedules.directives import (
    AlwaysPartition,
    Async,
    Atomic,
    ComputeAt,
    ComputeInline,
    ComputeWith,
    GpuSingleThread,
    NeverPartition,
    Prefetch,
    ReorderStorage,
    StoreAt,
    StoreRoot,
)
from schedules.loops import Level, base_of, definitions_of, nest_of
from schedules.placing.ahead import is_asked_ahead, why_in_turn
from schedules.plan import Plan, dimensions
from schedules.written.extents import ExtentsThere, LoopCount
from schedules.written.loop_names import printed_lets, printed_names
from schedules.written.order import changed_order
from tedsl.analysis.iteration import free_dimensions
from tedsl.lang.expr import TRUE, Axis, Const, Expr
from tedsl.lang.printing import definition_text, tensor_text
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scalar_text import Names, Style, expression_text, lines_of
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Scatter

__all__ = ["difference", "left_of", "schedule_text"]

INDENT = "  "
ONCE = 1.005  # as often as all of a stage is computed, and what rounding makes of it
LEFT_OUT = " ..."
CHANGED = "its terms in another order: other bits"
_ASSIGN = {"sum": "+=", "prod": "*=", "any": "|=", "all": "&=", "add": "+=", "mul": "*="}


def schedule_text(plan: Plan, left: Container[str] | None = None) -> str:
    """The stages in order; those computed inside a loop stand there.

    Stages that are `left` to others, if not said otherwise those that nobody spoke of, have no loops yet.
    """
    return "\n".join(_Printer(plan, left_of(plan) if left is None else left).lines())


def left_of(plan: Plan) -> list[str]:
    """The stages that no directive speaks of."""
    spoken = plan.spoken()
    return [name for name in plan.program.stages if name not in spoken]


def difference(before: Plan, after: Plan, *, is_start: bool = False) -> str:
    """The lines that change, a mark where others are left out; empty if none changes.

    `is_start`: before there were loops as they are written, of the stages that are spoken of after.
    """
    left = left_of(after) if is_start else None
    old, new = schedule_text(before, left).splitlines(), schedule_text(after).splitlines()
    made: list[str] = []
    for line in list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]:
        if not line.startswith("@@"):
            made.append(line)
        elif made or not line.startswith("@@ -1"):
            made.append(LEFT_OUT)
    return "\n".join(made)


class _Printer:
    """The plan and the names of its tensors."""

    def __init__(self, plan: Plan, left: Container[str]) -> None:
        self.plan, self.left, self.extents = plan, left, ExtentsThere(plan)
        names = Names()
        for stage, op in plan.program.stages.items():
            for tensor in op.outputs:
                names.give(tensor, stage if op.num_outputs == 1 else tensor.name)
            if isinstance(op, Scan):
                for state, tensor in zip(op.states, op.outputs, strict=True):
                    names.alias(state, names.of(tensor))
        self.style = Style(prefix="", empty_index="", names=names, tidy=True)
        self.reordered = frozenset(changed_order(plan))
        self.inside: dict[tuple[str, str], list[str]] = {}
        for stage in plan.program.stages:
            step = plan.places.get(stage)
            if step is not None and isinstance(step.directive, ComputeAt):
                self.inside.setdefault((step.directive.consumer, step.directive.loop), []).append(stage)

    def lines(self) -> list[str]:
        made: list[str] = []
        for stage, op in self.plan.program.stages.items():
            place = self.plan.places.get(stage)
            if place is not None and isinstance(place.directive, ComputeAt):
                continue
            if isinstance(op, Extern):
                made += tensor_text(op.output(0)).splitlines()
            elif stage in self.left:
                changed = f", {CHANGED}" * (stage in self.reordered)
                made.append(f"{stage}: left to {self.plan.automatic or 'the default schedule'}{changed}")
                text = definition_text(op, self.style, partial(self.name_axes, stage, op))
                made += [INDENT + line for line in text.splitlines()]
            elif place is not None and isinstance(place.directive, ComputeInline):
                style = replace(self.style, names=self.style.names.inner())
                made += [f"{stage} inline: {line}" for line in _STATEMENTS[Compute](op, style, "body")]
            else:
                made += self.stage(stage, op)
        return made

    def stage(self, stage: str, op: Operation) -> list[str]:
        notes = [
            self.at(stage),
            self.stored(stage),
            *(self.storage(step.directive) for step in self.plan.storage.get(stage, ())),
            self.ahead(stage),
            *self.shared(stage, op),
            *(f"in pieces, {d.loop} cut at {' and '.join(d.positions)}" for d in self.plan.cut_loops(stage)),
            *([f"by cases, along {asked.loop}"] if (asked := self.plan.by_cases(stage)) is not None else []),
            CHANGED * (stage in self.reordered),
        ]
        listed = ", ".join(note for note in notes if note)
        made = [f"{stage}: {listed}"] if listed else []
        for definition in definitions_of(op):
            cases = self.plan.cases(stage, definition)
            for k, d in enumerate(cases):
                made.append(f"{'el' * (k > 0)}if {d.condition}:")
                made += [INDENT + line for line in self.nest(stage, op, d.case)]
            made += ["else:"] * bool(cases)
            made += [INDENT * bool(cases) + line for line in self.nest(stage, op, definition)]
        return made

    def at(self, stage: str) -> str:
        step = self.plan.places.get(stage)
        if step is None or not isinstance(step.directive, ComputeAt):
            return ""
        times, is_exact = self.extents.times(stage)
        new = "what is new of " * (stage in self.plan.stores)
        again = f", each element {'at most ' * (not is_exact)}{times:.3g} times" * (times > ONCE)
        unknown = ", how much is known at run time only" * (not self.extents.is_known(stage))
        return f"{new}what {step.directive.consumer} needs here{again}{unknown}"

    def stored(self, stage: str) -> str:
        step = self.plan.stores.get(stage)
        if step is None:
            return ""
        d = step.directive
        return (
            f"stored at {d.consumer}'s loop {self.called(d.consumer, d.loop)}"
            if isinstance(d, StoreAt)
            else "stored at the root" * isinstance(d, StoreRoot)
        )

    def shared(self, stage: str, op: Operation) -> list[str]:
        """Whose loops the stage's own are."""
        said = [s.directive for x in definitions_of(op) for s in self.plan.loops.get((stage, x), ())]
        made = []
        for d in (d for d in said if isinstance(d, ComputeWith)):
            init = "init " * (d.definition == "init")
            made.append(f"{init}in the loops of {d.consumer} through {self.called(d.consumer, d.loop)}")
        return made

    def called(self, stage: str, loop: str) -> str:
        """A loop of a stage as it is printed there."""
        nest = self.plan.nest(stage, self.plan.definition(stage, loop))
        return printed_names(nest).get(loop, loop)

    def storage(self, d: Any) -> str:
        return "" if isinstance(d, Async) else _MEMORY[d.verb](d)

    def ahead(self, stage: str) -> str:
        """Whether a thread of its own computes it, where one was asked for."""
        if not is_asked_ahead(self.plan, stage):
            return ""
        reason = why_in_turn(self.plan, stage)
        return f"computed in turn ({reason})" if reason else "computed ahead by a thread of its own"

    def nest(self, stage: str, op: Operation, definition: str) -> list[str]:
        nest = self.plan.nest(stage, definition)
        made, depth, there = [], 0, self.extents.of(stage, definition)
        given = [step.directive for step in self.plan.loops.get((stage, definition), ())]
        names = printed_names(nest)
        prefetches = [
            (d.loop, f"prefetch {d.source} for {names.get(d.loop, d.loop)} + {d.distance}")
            for d in given
            if isinstance(d, Prefetch)
        ]
        cuts = {d.loop: _CUTS[type(d)] for d in given if isinstance(d, (NeverPartition, AlwaysPartition))}
        if any(isinstance(d, GpuSingleThread) for d in given):
            made.append("on one gpu thread:")
            depth += 1
        for level in nest.levels:
            extent = self.extent(level, there.get(level.name))
            name = names.get(level.name, level.name)
            kind = f"{_kind(level)}{self.apart(stage, op, level)}{cuts.get(level.name, '')}"
            made.append(f"{INDENT * depth}for {name} < {extent}{kind}:")
            depth += 1
            made += [INDENT * depth + text for loop, text in prefetches if loop == level.name]
            for inner in self.inside.get((stage, level.name), []):
                if self.plan.definition(stage, level.name) == base_of(definition):
                    lines = self.stage(inner, self.plan.operation(inner))
                    made += [INDENT * depth + line for line in lines]
        made += [INDENT * depth + let for let in reversed(printed_lets(nest))]
        style = replace(self.style, names=self.style.names.inner())
        self.name_axes(stage, op, style.names)
        if any(isinstance(d, Atomic) for d in given):
            made.append(f"{INDENT * depth}atomically:")
            depth += 1
        return made + [INDENT * depth + line for line in _STATEMENTS[type(op)](op, style, base_of(definition))]

    def name_axes(self, stage: str, op: Operation, names: Names) -> None:
        """Axes are called as directives call their loops, though a tensor may be called so, too."""
        numbers = {names.of(t) for t in (*op.inputs, *op.outputs) if not t.ndim}
        for level in nest_of(stage, op, "body").levels:
            axis = next(iter(level.origin), None)
            if isinstance(axis, Axis) and len(level.origin) == 1 and level.name not in numbers:
                names.alias(axis, level.name)

    def apart(self, stage: str, op: Operation, level: Level) -> str:
        """How far the lanes of a vector lie from one another in what the stage stores, where they are no neighbors."""
        if level.kind != "vectorized" or len(level.origin) != 1 or not isinstance(op, (Compute, Scan)):
            return ""
        names = dimensions(stage, op)
        axis = next(iter(level.origin))
        place = axis if isinstance(axis, int) else next((d for d, a in enumerate(op.axes) if a is axis), None)
        if place is None:
            return ""
        orders = [s.directive.axes for s in self.plan.storage.get(stage, ()) if isinstance(s.directive, ReorderStorage)]
        order = list(orders[-1]) if orders else names
        inside = [op.output(0).shape[names.index(n)] for n in order[order.index(names[place]) + 1 :]]
        step = math.prod(inside)
        return "" if isinstance(step, int) and step == 1 else f", lanes {step} elements apart, each stored alone"

    def extent(self, level: Level, there: LoopCount | None) -> str:
        """How many iterations there are; `there` of them where the stage is computed."""
        whole = expression_text(level.extent, self.style)
        return whole if there is None else there.of(whole)


_CUTS = {NeverPartition: ", in one piece", AlwaysPartition: ", cut"}
_MEMORY: dict[str, Callable[[Any], str]] = {
    "reorder_storage": lambda d: f"laid out as [{', '.join(d.axes)}]",
    "store_in": lambda d: f"in {d.memory} memory",
    "bound_extent": lambda d: f"{d.extent} along {d.axis} at a time",
    "bound": lambda d: f"{d.axis} from {d.begin} to {d.begin + d.extent}",
    "align_storage": lambda d: f"rows along {d.axis} in multiples of {d.multiple}",
    "fold_storage": lambda d: f"the last {d.factor} along {d.axis}",
    "hoist_storage": lambda d: f"allocated at {d.consumer}'s loop {d.loop}" if d.consumer else "allocated at the root",
}


def _kind(level: Level) -> str:
    return "" if level.kind == "serial" else f", {level.kind}"


def _element(op: Operation, index: int, places: list[str], style: Style) -> str:
    name = style.names.of(op.output(index))
    return f"{name}[{', '.join(places)}]" if places else name


def _places(axes: tuple[Axis, ...], style: Style) -> list[str]:
    return [style.names.of(a) for a in axes]


def _compute(op: Compute, style: Style, definition: str) -> list[str]:
    places = _places(op.axes, style)
    heads = ", ".join(_element(op, k, places, style) for k in range(op.num_outputs))
    reduce = op.reduction
    if reduce is None:
        *lets, last = _joined(op.bodies, style)
        return [*lets, f"{heads} = {last}"]
    for axis in reduce.axes:
        style.names.of(axis)
    if definition == "init":
        identity = [expression_text(reduce.reducer.identity_of(b.dtype, k), style) for k, b in enumerate(op.bodies)]
        return [f"{heads} = {', '.join(identity)}"]
    guard = [] if reduce.where is TRUE else [f"if {expression_text(reduce.where, style)}"]
    *lets, value = _joined(reduce.values, style)
    kind = reduce.reducer.kind
    sign = _ASSIGN.get("sum" if kind == "sums" else kind)
    text = (
        f"{heads} {sign} {value}" if sign else f"{heads} = {'combine' if kind == 'custom' else kind}({heads}, {value})"
    )
    return _guarded(guard, [*lets, text])


def _guarded(guard: list[str], lines: list[str]) -> list[str]:
    return [f"{guard[0]}:", *(INDENT + line for line in lines)] if guard else lines


def _joined(roots: tuple[Expr, ...], style: Style) -> list[str]:
    lines = lines_of(roots, style)
    count = len(lines) - len(roots)
    return [*lines[:count], ", ".join(lines[count:])]


def _scatter(op: Scatter, style: Style, definition: str) -> list[str]:
    if definition == "init":
        free = free_dimensions(op)
        dims = [free[d].name if d in free else f"d{d}" for d in range(len(op.shape))]
        if op.init is not None:
            start = f"{style.names.of(op.init)}[{', '.join(dims)}]"
        else:
            identity: Const = BUILTIN[SCATTER_KINDS[op.kind]].identity_of(op.value.dtype)
            start = expression_text(identity, style)
        return [f"{_element(op, 0, dims, style)} = {start}"]
    *lets, value = _joined((op.value,), style)
    target = _element(op, 0, [expression_text(i, style) for i in op.index], style)
    guard = [] if op.guard is TRUE else [f"if {expression_text(op.guard, style)}"]
    sign = _ASSIGN.get(op.kind)
    return _guarded(guard, [*lets, f"{target} {sign} {value}" if sign else f"{target} = {op.kind}({target}, {value})"])


def _scan(op: Scan, style: Style, definition: str) -> list[str]:
    places = _places(op.axes, style)
    heads = ", ".join(_element(op, k, places, style) for k in range(op.num_outputs))
    *lets, last = _joined(op.bodies, style)
    downward = f"   ({', '.join(a.name for a in op.steps)} downward)" if op.reverse else ""
    kept = ""
    if op.kept is not None:
        kept = f"   (the last {op.kept} steps are kept)" if op.kept > 1 else "   (one step is kept)"
    return [*lets, f"{heads} = {last}{downward}{kept}"]


_STATEMENTS: dict[type, Callable[[Any, Style, str], list[str]]] = {Compute: _compute, Scatter: _scatter, Scan: _scan}
