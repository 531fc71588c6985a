"""A user's Schedule on Halide's functions: places first, then the loops of each definition, directive by directive.

What the schedule leaves open gets the default treatment. Everything was checked by `schedules` before; what only Halide
can refuse comes back as a ScheduleError in the user's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import halide as hl

from schedules import Schedule, directives as d
from schedules.loops import definitions_of, nest_of
from schedules.placement import ROOT, Place, around, placed
from schedules.plan import Plan, Step
from tedsl.backend.default import bound_result, plan_inlining, schedule_update, vectorize_last
from tedsl.backend.lower import Lowered
from tedsl.backend.lower_stage import Stage, identifier
from tedsl.backend.nests import readable
from tedsl.backend.targets import Machine, Target, machine_of
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Axis

__all__ = ["apply_schedule", "halide_refused", "has_gpu_directives"]

GUARD = hl.TailStrategy.GuardWithIf
MEMORY = {
    "auto": hl.MemoryType.Auto, "heap": hl.MemoryType.Heap, "stack": hl.MemoryType.Stack,
    "register": hl.MemoryType.Register, "shared": hl.MemoryType.GPUShared,
}  # fmt: skip


def apply_schedule(schedule: Schedule, target: Target, lowered: Lowered) -> None:
    """Schedule every function of a program that was lowered from `schedule.plan.program`."""
    plan, machine = schedule.plan, machine_of(target)
    _check_target(plan, target)
    names = {op: name for name, op in plan.program.stages.items()}
    default = plan_inlining(lowered)
    places = placed(plan, {names[op] for op in default.inlined if op in names})
    stages = {names[s.op]: _Loops(plan, names[s.op], s) for s in lowered.stages}
    lowered.inlined = {loops.stage.op for name, loops in stages.items() if places[name].kind == "inline"}
    consumers = {(p.consumer, p.loop) for p in places.values()} | {p.store for p in places.values() if p.store}
    for name, loops in stages.items():
        if places[name].kind == "inline":
            continue
        busy: set[str] = {plan.definition(c, loop) for c, loop in consumers if c == name}
        if _is_on_gpu(plan, places, places[name]):
            busy.update(loops.definitions)
        for definition in loops.definitions:
            _apply_definition(plan, loops, definition, definition in busy, machine, stages, lowered)
    for name, loops in stages.items():
        _place(places[name], loops, stages, plan)
        for step in plan.storage.get(name, ()):
            with halide_refused(step):
                _STORAGE[type(step.directive)](loops, step.directive)
    for result in lowered.results:
        if result.stage is None:
            vectorize_last(result.func, result.dims, 1, machine)
        bound_result(lowered, result)


def _is_on_gpu(plan: Plan, places: Mapping[str, Place], place: Place) -> bool:
    """Whether a stage is computed inside a GPU kernel, where the default vectors are of no use."""
    return place.kind == "at" and any(
        level.kind.startswith("gpu") for _, level in around(plan, places, place.consumer, place.loop)
    )


def has_gpu_directives(plan: Plan) -> Step | None:
    """The first directive for a GPU."""
    steps = (s for listed in plan.loops.values() for s in listed)
    return next((s for s in steps if isinstance(s.directive, (d.GpuBlocks, d.GpuThreads))), None)


def _check_target(plan: Plan, target: Target) -> None:
    step = has_gpu_directives(plan)
    if step is not None and target.backend == "host":
        raise step.refused("the target is the host; build with target='cuda' or 'opencl', or leave the directive out")


@contextmanager
def halide_refused(step: Step) -> Iterator[None]:
    """What Halide says about a directive, as a ScheduleError of that directive."""
    try:
        yield
    except hl.HalideError as error:
        raise step.refused(f"Halide cannot do this: {readable(error)}") from error


class _Loops:
    """The loops of a stage's definitions as Halide's variables, by name."""

    def __init__(self, plan: Plan, name: str, stage: Stage) -> None:
        self.name, self.stage, self.func = name, stage, stage.func
        self.definitions: dict[str, Any] = {}
        self.known: dict[str, dict[str, Any]] = {}
        op = plan.program.stages[name]
        for definition in definitions_of(op):
            update = definition == "body" and stage.kind != "pointwise"
            self.definitions[definition] = stage.func.update(0) if update else stage.func
            levels = nest_of(name, op, definition).levels
            self.known[definition] = {v.name: self._variable(next(iter(v.origin))) for v in levels}

    def _variable(self, origin: Axis | int) -> Any:
        if isinstance(origin, int):
            return self.stage.dims[origin]
        reduce = self.stage.reduce_axes.get(origin)
        return self.stage.axes[origin] if reduce is None else reduce

    def loop(self, definition: str, name: str) -> Any:
        return self.known[definition][name]

    def derived(self, definition: str, name: str, parent: Any) -> Any:
        """A new loop, of the same sort as the one that it comes from."""
        return hl.RVar(identifier(name)) if isinstance(parent, hl.RVar) else hl.Var(identifier(name))

    def anywhere(self, name: str) -> Any:
        """A loop by name: that of the body, if both definitions have it."""
        return next(self.known[x][name] for x in ("body", "init") if name in self.known.get(x, {}))


def _apply_definition(
    plan: Plan,
    loops: _Loops,
    definition: str,
    busy: bool,
    machine: Machine,
    stages: Mapping[str, _Loops],
    lowered: Lowered,
) -> None:
    """The directives of one definition; vectors along its last axis where there are none."""
    steps = plan.loops.get((loops.name, definition), ())
    for step in steps:
        with halide_refused(step):
            if isinstance(step.directive, d.Prefetch):
                _prefetch(loops, step, stages, lowered)
            elif isinstance(step.directive, d.Vectorize) and _is_single(plan, step.directive):
                continue  # LLVM has no masked stores of vectors of one element
            else:
                _LOOPS[type(step.directive)](loops, step.directive)
    if steps or busy:
        return
    if definition == "body" and loops.stage.kind != "pointwise":
        schedule_update(loops.stage, machine)
    else:
        itemsize = max(t.dtype.itemsize for t in loops.stage.op.outputs)
        vectorize_last(loops.func, loops.stage.dims, itemsize, machine)


def _is_single(plan: Plan, v: d.Vectorize) -> bool:
    return plan.nest(v.stage, v.definition).level(v.loop).constant == 1


def _split(loops: _Loops, s: d.Split) -> None:
    known = loops.known[s.definition]
    old = known.pop(s.loop)
    outer, inner = loops.derived(s.definition, s.outer, old), loops.derived(s.definition, s.inner, old)
    tail = hl.TailStrategy.RoundUp if s.exact and not isinstance(old, hl.RVar) else GUARD
    loops.definitions[s.definition].split(old, outer, inner, s.factor, tail)
    known.update({s.outer: outer, s.inner: inner})


def _fuse(loops: _Loops, f: d.Fuse) -> None:
    known = loops.known[f.definition]
    outer, inner = known.pop(f.outer), known.pop(f.inner)
    known[f.fused] = loops.derived(f.definition, f.fused, outer)
    loops.definitions[f.definition].fuse(inner, outer, known[f.fused])


def _reorder(loops: _Loops, r: d.Reorder) -> None:
    if len(r.loops) > 1:
        loops.definitions[r.definition].reorder(*(loops.loop(r.definition, n) for n in reversed(r.loops)))


def _simple(verb: str) -> Callable[[_Loops, Any], None]:
    def rule(loops: _Loops, directive: Any) -> None:
        getattr(loops.definitions[directive.definition], verb)(loops.loop(directive.definition, directive.loop))

    return rule


def _gpu(verb: str) -> Callable[[_Loops, Any], None]:
    def rule(loops: _Loops, directive: Any) -> None:
        listed = [loops.loop(directive.definition, n) for n in reversed(directive.loops)]
        getattr(loops.definitions[directive.definition], verb)(*listed)

    return rule


_LOOPS: dict[type, Callable[[_Loops, Any], None]] = {
    d.Split: _split, d.Fuse: _fuse, d.Reorder: _reorder, d.Vectorize: _simple("vectorize"), d.Unroll: _simple("unroll"),
    d.Parallel: _simple("parallel"), d.GpuBlocks: _gpu("gpu_blocks"), d.GpuThreads: _gpu("gpu_threads"),
}  # fmt: skip


def _prefetch(loops: _Loops, step: Step, stages: Mapping[str, _Loops], lowered: Lowered) -> None:
    p = step.directive
    assert isinstance(p, d.Prefetch)
    images = {t.name: image for t, image in lowered.inputs.items()}
    source = stages[p.source].func if p.source in stages else images.get(p.source)
    if source is None:
        raise step.refused(f"{p.source} is not part of this kernel")
    if p.source in stages and stages[p.source].stage.op in lowered.inlined:
        raise step.refused(f"{p.source} is computed inline and has no memory; compute it at the root")
    # All arguments of the very types of the overload: a conversion takes the image for a function, which has no memory.
    at, ahead = hl.VarOrRVar(loops.loop(p.definition, p.loop)), hl.Expr(p.distance)
    loops.definitions[p.definition].prefetch(source, at, at, ahead, hl.PrefetchBoundStrategy.NonFaulting)


def _place(place: Place, loops: _Loops, stages: Mapping[str, _Loops], plan: Plan) -> None:
    """Where a stage is computed; a consumer that this kernel does without leaves it at the root."""
    if place.kind == "inline":
        return
    consumer = stages.get(place.consumer)
    if place is ROOT or place.kind == "root" or consumer is None:
        loops.func.compute_root()
        return
    with halide_refused(plan.places[loops.name]):
        loops.func.compute_at(consumer.func, consumer.anywhere(place.loop))
    if place.store is None:
        return
    with halide_refused(plan.stores[loops.name]):
        outer = stages.get(place.store[0])
        if outer is None:
            loops.func.store_root()
        else:
            loops.func.store_at(outer.func, outer.anywhere(place.store[1]))


def _dimension(loops: _Loops, name: str) -> Any:
    for definition in ("init", "body"):
        if definition in loops.definitions:
            stage = loops.stage
            names = [v.name() for v in stage.dims]
            if identifier(name) in names:
                return stage.dims[names.index(identifier(name))]
    raise ScheduleError(f"{loops.name} has no axis {name!r}")


def _reorder_storage(loops: _Loops, s: d.ReorderStorage) -> None:
    if len(s.axes) > 1:
        loops.func.reorder_storage(*(_dimension(loops, n) for n in reversed(s.axes)))


_STORAGE: dict[type, Callable[[_Loops, Any], None]] = {
    d.ReorderStorage: _reorder_storage,
    d.StoreIn: lambda loops, s: loops.func.store_in(MEMORY[s.memory]),
    d.BoundExtent: lambda loops, s: loops.func.bound_extent(_dimension(loops, s.axis), s.extent),
}
