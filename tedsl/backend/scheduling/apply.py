"""A complete plan on Halide's functions: places first, then the loops of each definition, directive by directive.

Everything was checked by `schedules` before; what only Halide can refuse comes back as a ScheduleError in the user's
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import halide as hl

from schedules import directives as d
from schedules.cases import condition_of
from schedules.loops import Level, base_of, factor_of, nest_of
from schedules.machine import Machine
from schedules.placing.ahead import is_asked_ahead, room_ahead, why_in_turn
from schedules.placing.placement import placed
from schedules.placing.places import ROOT, Placement, around
from schedules.placing.sharing import shared_loops
from schedules.plan import Plan, Step, described, dimensions
from tedsl.analysis.hazards import Order, StageLoop
from tedsl.analysis.iteration import is_stepped
from tedsl.analysis.sizes import vars_of
from tedsl.backend.arguments.layouts import row_length
from tedsl.backend.halide_text.errors import readable
from tedsl.backend.host.loaders import LOADER_VARIABLE, loads_objects
from tedsl.backend.lowering.indices import plain
from tedsl.backend.lowering.pipeline import Lowered, Result
from tedsl.backend.lowering.stages import Stage
from tedsl.backend.scheduling.loops import Loops
from tedsl.backend.scheduling.partition import computed_inside, halves_floats, joined, keep_around, keep_whole
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Const, Expr
from tedsl.lang.tensor import Operation, Scan, Scatter

__all__ = ["apply_plan", "check_atomics", "check_target", "fix_sizes", "halide_refused", "shifts"]

GUARD = hl.TailStrategy.GuardWithIf
SHIFT = hl.TailStrategy.ShiftInwards
PREDICATE = hl.TailStrategy.Predicate
EXACT = hl.TailStrategy.RoundUp  # never rounds: the factor divides
MEMORY = {
    "auto": hl.MemoryType.Auto, "heap": hl.MemoryType.Heap, "stack": hl.MemoryType.Stack,
    "register": hl.MemoryType.Register, "shared": hl.MemoryType.GPUShared,
}  # fmt: skip


def apply_plan(plan: Plan, lowered: Lowered, machine: Machine, *, in_turn: bool = False) -> None:
    """Schedule every function of the program of a plan; `in_turn`: no stage has a thread of its own."""
    names = plan.program.names
    places = placed(plan)
    # Halide 21 writes OpenCL that does not compile for vectors of anything but plain arithmetic.
    vectors = machine.gpu != "opencl"
    width = machine.vector_bytes
    stages = {names[s.op]: Loops(plan, names[s.op], s, width, vectors=vectors) for s in lowered.stages}
    for result in lowered.results if lowered.previous else ():
        for loops in stages.values():
            loops.writes_once |= loops.stage is result.stage  # what is added to must not be added to twice
    many, inside = joined(places, stages, machine), computed_inside(places, stages)
    for name, loops in stages.items():
        if places[name].kind != "inline":
            for definition in plan.definitions(name):
                if definition in loops.definitions:  # a kernel without the sizes that a case asks for has no such case
                    _apply_definition(plan, loops, definition, stages, lowered)
                    within = inside.get(name, set())
                    keep_whole(plan, loops, definition, lowered.inlined, within, is_joined=name in many)
    # Where objects are not loaded the tasks are run by Halide's pool, which may wait for ever.
    possible = not in_turn and machine.gpu is None and loads_objects()
    for name, loops in stages.items():
        is_empty = _has_no_iteration(plan, places, places[name])
        if possible and is_asked_ahead(plan, name) and not why_in_turn(plan, name) and not is_empty:
            _place_ahead(places[name], loops, stages, plan)
        else:
            _place(places[name], loops, stages, plan)
        keep_around(plan, places[name], loops, stages)
        for step in plan.storage.get(name, ()):
            with halide_refused(step):
                if isinstance(step.directive, d.HoistStorage):
                    if not is_empty:
                        _hoist(loops, step.directive, places[name], stages)
                elif not isinstance(step.directive, d.Async):
                    _STORAGE[type(step.directive)](loops, step.directive)
    for step in shared_loops(plan):
        _share(plan, step, stages)
    for result in lowered.results:
        if result.stage is None:
            _copied(result, machine)
    whole = {loops.stage.op for loops in stages.values() if _goes_beyond(plan, loops)} | _read_in_pieces(lowered)
    for name, loops in stages.items():
        always = loops.stage.op in whole or bool(loops.tiles)  # tiles then know how far apart their rows lie
        if places[name].kind == "root" and (_has_fused(plan, loops) or always):
            bounded = {s.directive.axis for s in plan.storage.get(name, ()) if isinstance(s.directive, d.Bound)}
            _compute_whole(loops.stage, lowered, {_dimension(loops, axis).name() for axis in bounded}, always=always)
        if places[name].kind == "root" and loops.stage.begins_undefined and _is_on_gpu(plan, name):
            _one_thread_each(loops.stage.func, loops.stage.dims)
    fix_sizes(lowered)
    results = {result.stage for result in lowered.results}
    lowered.may_round = any(loops.stage in results and _may_round(plan, loops) for loops in stages.values())
    lowered.nesting = _nesting(plan, places, stages, lowered)


def _read_in_pieces(lowered: Lowered) -> set[Operation]:
    """The stages that others read in pieces, of which Halide would see that some elements are not needed.

    Tiles begin at 0, and what is computed for the last one ends where it does if all of a stage is computed.
    """
    found: set[Operation] = set()
    pending = [stage.op for stage in lowered.stages if stage.is_cut]
    for op in pending:
        fresh = {t.op for t in op.inputs} - found
        found |= fresh
        pending += fresh & lowered.inlined
    return found


def _said(plan: Plan, loops: Loops) -> list[d.Directive]:
    """The directives of the loops that a stage has in this kernel."""
    return [step.directive for definition in loops.definitions for step in plan.loops.get((loops.name, definition), ())]


def _has_fused(plan: Plan, loops: Loops) -> bool:
    return any(isinstance(said, d.Fuse) for said in _said(plan, loops))


def _goes_beyond(plan: Plan, loops: Loops) -> bool:
    """Whether a split computes more than is read where that is less than the factor, or no multiple of it.

    An exact one does where readers need a part of an axis, unless the stage says how much of it is computed at a time.
    """
    splits = [said for said in _said(plan, loops) if isinstance(said, d.Split)]
    own = not any(isinstance(s.directive, d.BoundExtent) for s in plan.storage.get(loops.name, ()))
    exact = any(s.exact and not loops.is_update(s.definition) for s in splits)
    return (exact and own) or any(s.tail in ("shift", "round_up") for s in splits)


def _compute_whole(stage: Stage, lowered: Lowered, bounded: AbstractSet[str], *, always: bool) -> None:
    """All of a stage, whatever its readers need of it, but along dimensions of which the user says how much.

    Of two fused loops the outer one is `fused // extent`. Where the extent is what readers need, as far as Halide can
    tell, its sign is not known, and the outer loop reaches from minus all to all. That is so of symbolic extents, and
    where a reader's place holds a number that is hidden from Halide.
    """
    extents = stage.op.output(stage.components[0]).extents
    if not always and not lowered.hides and all(isinstance(extent, Const) for extent in extents):
        return
    symbols: dict[Expr, Any] = {v: hl.Expr(p) for v, p in lowered.sizes.items()}
    for dim, extent in zip(stage.dims, extents, strict=True):
        if dim.name() not in bounded:
            stage.func.bound(dim, 0, plain(extent, symbols))


def _may_round(plan: Plan, loops: Loops) -> bool:
    """Whether an exact split leaves a rest, as far as one can see: Halide would round its loop up."""
    for definition in loops.definitions:
        if definition != base_of(definition) and _is_exact(plan, loops.name, definition):
            return True
        levels = nest_of(loops.name, loops.stage.op, base_of(definition)).levels
        known: dict[str, int | None] = {level.name: level.known for level in levels}
        for step in plan.loops.get((loops.name, definition), ()):
            said = step.directive
            if isinstance(said, d.Split):
                extent = known.pop(said.loop, None)
                if said.exact and (extent is None or said.step is None or extent % said.step):
                    return True
                known.update({said.outer: None, said.inner: said.step})
            elif isinstance(said, d.Fuse):
                known.update(dict.fromkeys((said.outer, said.inner, said.fused)))
    return False


def _is_exact(plan: Plan, name: str, definition: str) -> bool:
    """Whether a split promises that its factor divides."""
    return any(getattr(s.directive, "exact", False) for s in plan.loops.get((name, definition), ()))


def _nesting(plan: Plan, places: Mapping[str, Placement], stages: Mapping[str, Loops], lowered: Lowered) -> Order:
    """The order in which the stages run, for the proof that an output may lie on an input."""
    order = Order(set(lowered.inlined), together={stage.op for stage in lowered.stages if stage.together})
    for name, loops in stages.items():
        if (not loops.writes_once and shifts(plan, name)) or loops.stage.is_again:
            order.again.add(loops.stage.op)
        levels = plan.nest(name, "body").levels
        in_turn = not plan.cases(name) and _goes_on(plan, name, levels)
        order.loops[loops.stage.op] = tuple(StageLoop(v.origin, v.kind == "serial" and in_turn) for v in levels)
        place = places[name]
        if place.kind == "at" and place.consumer in stages:
            nest = plan.nest(place.consumer, plan.definition(place.consumer, place.loop))
            order.places[loops.stage.op] = stages[place.consumer].stage.op, nest.position(place.loop) + 1
    return order


def _goes_on(plan: Plan, name: str, levels: Sequence[Level]) -> bool:
    """Whether each piece of a stage goes on where the one before ended: those of the outermost loop alone do.

    Cases go through all iterations one after another.
    """
    if plan.by_cases(name) is not None:
        return False
    cut = [{plan.axis_of(name, d.loop)} for d in plan.cut_loops(name)]
    return not cut or (len(cut) == 1 and levels[0].origin == cut[0])


def shifts(plan: Plan, name: str) -> bool:
    """Whether some elements of a stage are computed twice."""
    return any(isinstance(said, d.Split) and said.tail == "shift" for said in plan.said_of_loops(name))


def check_target(plan: Plan, backend: str) -> None:
    """Refuse directives for a GPU where there is none."""
    steps = (step for listed in plan.loops.values() for step in listed)
    step = next((s for s in steps if isinstance(s.directive, (d.GpuBlocks, d.GpuThreads, d.GpuSingleThread))), None)
    if step is not None and backend == "host":
        raise step.refused("the target is the host; build with target='cuda' or 'opencl', or leave the directive out")
    apart = (d.CutAt, d.Unswitch)
    cut = next((s for listed in plan.loops.values() for s in listed if isinstance(s.directive, apart)), None)
    if cut is not None and backend != "host":
        raise cut.refused("on a GPU each thread computes one element; leave the directive out")


def check_atomics(plan: Plan, target: str, *, deterministic: bool) -> None:
    """Refuse atomic updates in which the order shows, if that is forbidden, and those that Halide 21 gets wrong."""
    for (name, _), steps in plan.loops.items():
        op = plan.program.stages[name]
        step = next((s for s in steps if isinstance(s.directive, d.Atomic)), None)
        if step is None or not isinstance(op, Scatter):
            continue
        dtype, adds = op.value.dtype, op.kind in ("add", "mul")
        if deterministic and dtype.is_float and adds:
            raise step.refused(
                "floats that meet in another order in every run are rounded to other results; build with "
                "deterministic=False, or leave the directive out"
            )
        exact = dtype in ("uint32", "uint64") if op.kind == "add" else dtype.is_integer and dtype.itemsize >= 4
        if target == "host" and not loads_objects() and (op.kind == "mul" or not exact):
            raise step.refused(
                f"where objects are not loaded ({LOADER_VARIABLE}=jit), an element of {dtype} is read twice, and what "
                "was added in between may be lost; leave it out, and the points combine in order"
            )
        if target != "host" and (op.kind == "mul" or not exact):
            raise step.refused(
                f"on a GPU, Halide 21 does this right for sums of uint32 and uint64 and for max and min of integers of "
                f"32 and 64 bits, found {op.kind} of {dtype}; leave it out, and the points combine in order"
            )


def _copied(result: Result, machine: Machine) -> None:
    """Loops of a function that copies what a stage holds into an output."""
    if machine.gpu is not None:
        _one_thread_each(result.func, result.dims)
    elif result.dims and machine.vector_bytes >= 8:
        result.func.vectorize(result.dims[-1], machine.vector_bytes // 4, GUARD)


def _is_on_gpu(plan: Plan, name: str) -> bool:
    return any(isinstance(said, (d.GpuBlocks, d.GpuThreads, d.GpuSingleThread)) for said in plan.said_of_loops(name))


def _one_thread_each(func: hl.Func, dims: Sequence[hl.Var]) -> None:
    """The loops of a pure definition.

    One that stores nothing has none in the end, but on the CPU it would count as an access to memory there.
    """
    loops = list(dims)
    while len(loops) > 1:
        fused = hl.Var(f"{loops[0].name()}_{loops[1].name()}")
        func.fuse(loops[1], loops[0], fused)
        loops[:2] = [fused]
    if loops:
        block, thread = hl.Var("block"), hl.Var("thread")
        func.gpu_tile(loops[0], block, thread, 256, GUARD)
    else:
        func.gpu_single_thread()


def fix_sizes(lowered: Lowered) -> None:
    """Tell Halide where every dimension begins and ends, in numbers and in the sizes that are arguments.

    Loops over what is known need no tests for their ends; and bounds that are said in a few sizes stay short, where
    Halide would carry the first element and the extent of every dimension of every buffer along.
    """
    symbols: dict[Expr, Any] = {v: hl.Expr(p) for v, p in lowered.sizes.items()}

    def known(extent: Expr) -> Any:
        if isinstance(extent, Const):
            return int(extent.value) or None  # nothing is computed of what is empty
        return plain(extent, symbols)

    for tensor, image in lowered.inputs.items():
        is_flat = image.dimensions() < tensor.ndim
        ends = [Const(row_length(tensor), INT32)] if is_flat else tensor.extents[::-1]
        for dim, extent in enumerate(map(known, ends)):
            if extent is not None:
                image.dim(dim).set_bounds(0, extent)
    for result in lowered.results:
        if result.stage is None:
            continue
        extents = map(known, result.stage.op.output(result.stage.components[0]).extents)
        for var, extent in zip(result.dims, extents, strict=True):
            if extent is not None:
                result.func.bound(var, 0, extent)


@contextmanager
def halide_refused(step: Step) -> Iterator[None]:
    """What Halide says about a directive, as a ScheduleError of that directive."""
    try:
        yield
    except hl.HalideError as error:
        raise step.refused(f"Halide cannot do this: {readable(error)}") from error


def _apply_definition(plan: Plan, loops: Loops, definition: str, stages: Mapping[str, Loops], lowered: Lowered) -> None:
    """The directives of one definition."""
    for step in plan.loops.get((loops.name, definition), ()):
        with halide_refused(step):
            if isinstance(step.directive, d.Prefetch):
                _prefetch(loops, step, stages, lowered)
            elif isinstance(step.directive, d.Specialize):
                _specialize(plan, loops, step.directive, lowered)
            elif isinstance(step.directive, d.Split):
                _split(loops, step.directive, _factor(plan, step.directive, lowered))
            elif isinstance(step.directive, (d.ComputeWith, d.CutAt, d.Unswitch)):
                continue  # when all stages have their loops; when they were lowered
            elif isinstance(step.directive, d.Vectorize) and _is_single(plan, step.directive):
                continue  # LLVM has no masked stores of vectors of one element
            elif isinstance(step.directive, d.Vectorize) and _is_taken_apart(plan, loops, step.directive, lowered):
                _LOOPS[d.Unroll](loops, step.directive)
            else:
                _LOOPS[type(step.directive)](loops, step.directive)


def _specialize(plan: Plan, loops: Loops, s: d.Specialize, lowered: Lowered) -> None:
    """A case of a definition, where the sizes that it asks for are arguments of this kernel."""
    symbols: dict[Expr, Any] = {v: hl.Expr(p) for v, p in lowered.sizes.items()}
    condition = condition_of(s.condition, plan.sizes)
    if all(v in symbols for v in vars_of(condition)):
        loops.add_case(s.definition, s.case, plain(condition, symbols))


def _is_single(plan: Plan, v: d.Vectorize) -> bool:
    return plan.nest(v.stage, v.definition).level(v.loop).constant == 1


def _is_taken_apart(plan: Plan, loops: Loops, v: d.Vectorize, lowered: Lowered) -> bool:
    """Whether Halide computes the two elements of a vector one by one.

    So Halide 21 does where something is divided by two, and makes them a vector again as a and a + (b - a): of floats
    that is another number than b, and none where one is infinite.
    """
    return plan.nest(v.stage, v.definition).level(v.loop).known == 2 and halves_floats(loops.stage, lowered.inlined)


def _factor(plan: Plan, s: d.Split, lowered: Lowered) -> Any:
    """The factor of a split; one that is made of sizes that are no arguments of this kernel is one."""
    if not s.length:
        return s.factor
    symbols: dict[Expr, Any] = {v: hl.Expr(p) for v, p in lowered.sizes.items()}
    found = factor_of(plan.beginning(s.stage, s.definition), s.length)
    return plain(found, symbols) if all(v in symbols for v in vars_of(found)) else 1


def _split(loops: Loops, s: d.Split, factor: Any) -> None:
    known = loops.known[s.definition]
    old = known.pop(s.loop)
    if s.loop in loops.tiles:
        within = loops.derived(s.definition, s.inner, old)
        loops.definitions[s.definition].rename(loops.tiles[s.loop], within)
        known.update({s.outer: old, s.inner: within})
        return
    outer, inner = loops.derived(s.definition, s.outer, old), loops.derived(s.definition, s.inner, old)
    # A guard around vectors would be taken apart lane by lane; a predicate masks them.
    tail = PREDICATE if id(s) in loops.masked else GUARD
    if s.exact and not loops.is_update(s.definition):
        tail = EXACT
    if s.tail:
        tail = _tail(loops, s)
    loops.definitions[s.definition].split(old, outer, inner, factor, tail)
    known.update({s.outer: outer, s.inner: inner})


def _tail(loops: Loops, s: d.Split) -> Any:
    """The tail that was asked for, as Halide has it."""
    if s.tail == "predicate" and loops.vectors and id(s) not in loops.masked:
        raise ScheduleError(
            f"{described(s)}: tail='predicate' would leave one element over beside whole vectors, which LLVM cannot "
            "mask; take another factor, or tail='guard'"
        )
    if s.tail == "predicate" and loops.vectors:
        return PREDICATE
    if s.tail == "shift" and not loops.is_update(s.definition) and not loops.writes_once:
        return SHIFT
    if s.tail == "round_up" and not loops.is_update(s.definition):
        return EXACT  # what it divides was checked
    return GUARD


def _fuse(loops: Loops, f: d.Fuse) -> None:
    known = loops.known[f.definition]
    outer, inner = known.pop(f.outer), known.pop(f.inner)
    known[f.fused] = loops.derived(f.definition, f.fused, outer)
    loops.definitions[f.definition].fuse(inner, outer, known[f.fused])


def _reorder(loops: Loops, r: d.Reorder) -> None:
    if len(r.loops) > 1 and not loops.tiles:  # else lowering has put them in their order
        loops.definitions[r.definition].reorder(*(loops.loop(r.definition, n) for n in reversed(r.loops)))


def _simple(verb: str) -> Callable[[Loops, Any], None]:
    def rule(loops: Loops, directive: Any) -> None:
        getattr(loops.definitions[directive.definition], verb)(loops.loop(directive.definition, directive.loop))

    return rule


def _gpu(verb: str) -> Callable[[Loops, Any], None]:
    def rule(loops: Loops, directive: Any) -> None:
        _trusted(loops, directive)
        listed = [loops.loop(directive.definition, n) for n in reversed(directive.loops)]
        getattr(loops.definitions[directive.definition], verb)(*listed)

    return rule


def _vectorize(loops: Loops, v: d.Vectorize) -> None:
    _trusted(loops, v)
    _simple("vectorize" if loops.vectors else "unroll")(loops, v)


def _parallel(loops: Loops, p: d.Parallel) -> None:
    _trusted(loops, p)
    _simple("parallel")(loops, p)


def _trusted(loops: Loops, directive: d.Vectorize | d.Parallel | d.GpuBlocks | d.GpuThreads) -> None:
    """Halide sees one update of all steps, and not that the places of a step are independent."""
    if isinstance(loops.stage.op, Scan) and is_stepped(loops.stage.op):
        loops.definitions[directive.definition].allow_race_conditions()


def _atomic(loops: Loops, a: d.Atomic) -> None:
    loops.definitions[a.definition].atomic(True)  # Halide's own test knows no guarded sums


def _partition(policy: Any) -> Callable[[Loops, Any], None]:
    def rule(loops: Loops, directive: Any) -> None:
        loops.definitions[directive.definition].partition(loops.loop(directive.definition, directive.loop), policy)

    return rule


_LOOPS: dict[type, Callable[[Loops, Any], None]] = {
    d.Fuse: _fuse, d.Reorder: _reorder, d.Vectorize: _vectorize, d.Unroll: _simple("unroll"),
    d.Parallel: _parallel, d.Atomic: _atomic,
    d.NeverPartition: _partition(hl.Partition.Never), d.AlwaysPartition: _partition(hl.Partition.Auto),
    d.GpuBlocks: _gpu("gpu_blocks"), d.GpuThreads: _gpu("gpu_threads"),
    d.GpuSingleThread: lambda loops, s: loops.definitions[s.definition].gpu_single_thread(),
}  # fmt: skip


def _prefetch(loops: Loops, step: Step, stages: Mapping[str, Loops], lowered: Lowered) -> None:
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


def _place(place: Placement, loops: Loops, stages: Mapping[str, Loops], plan: Plan) -> None:
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


def _place_ahead(place: Placement, loops: Loops, stages: Mapping[str, Loops], plan: Plan) -> None:
    """A stage that a thread of its own computes into memory for two iterations, which lies outside of their loop."""
    _place(replace(place, store=None), loops, stages, plan)
    if place.consumer not in stages:
        return
    if place.store is not None:
        consumer, loop = place.store
        _hoist(loops, d.HoistStorage(stage=loops.name, consumer=consumer, loop=loop), place, stages)
    loops.func.async_().ring_buffer(2)
    for dim, most in zip(loops.stage.dims, room_ahead(plan, loops.name), strict=True):
        loops.func.bound_storage(dim, most)  # else Halide 21 lays the second iteration's memory where the first ends


def _dimension(loops: Loops, name: str) -> Any:
    return loops.stage.dims[dimensions(loops.name, loops.stage.op).index(name)]


def _reorder_storage(loops: Loops, s: d.ReorderStorage) -> None:
    if len(s.axes) > 1:
        loops.func.reorder_storage(*(_dimension(loops, n) for n in reversed(s.axes)))


def _bound_extent(loops: Loops, s: d.BoundExtent) -> None:
    """All of an axis, from 0 on, or as much of it from wherever the readers begin."""
    dim = _dimension(loops, s.axis)
    whole = [a.extent for a, v in loops.stage.axes.items() if v is dim or v.name() == dim.name()]
    if any(isinstance(e, Const) and e.value == s.extent for e in whole):
        loops.func.bound(dim, 0, s.extent)
    else:
        loops.func.bound_extent(dim, s.extent)


def _share(plan: Plan, step: Step, stages: Mapping[str, Loops]) -> None:
    """The loops of a stage together with those of another one, where this kernel computes both."""
    w = step.directive
    assert isinstance(w, d.ComputeWith)
    mine, other = stages.get(w.stage), stages.get(w.consumer)
    if mine is None or other is None:
        return
    shared = plan.nest(w.consumer, w.definition)
    for name in shared.names[: shared.position(w.loop) + 1]:
        own, theirs = mine.loop(w.definition, name).name(), other.loop(w.definition, name).name()
        if own != theirs:
            raise step.refused(
                f"loop {name!r} is {own!r} inside of {w.stage} and {theirs!r} of {w.consumer}; rename it"
            )
    with halide_refused(step):
        last = other.loop(w.definition, w.loop)
        level = hl.LoopLevel(other.func, last, int(other.is_update(w.definition)))
        mine.definitions[w.definition].compute_with(level)


def _has_no_iteration(plan: Plan, places: Mapping[str, Placement], place: Placement) -> bool:
    """Whether a stage is computed in a loop known to be empty: Halide drops that, and then asks for the memory."""
    loops = around(plan, places, place.consumer, place.loop) if place.kind == "at" else []
    return any(level.known == 0 for _, level in loops)


def _hoist(loops: Loops, h: d.HoistStorage, place: Placement, stages: Mapping[str, Loops]) -> None:
    """The memory outside of a loop, where the stage is computed inside one of this kernel."""
    if place.kind != "at" or place.consumer not in stages:
        return
    outer = stages.get(h.consumer)
    if outer is None:
        loops.func.hoist_storage_root()
    else:
        loops.func.hoist_storage(outer.func, outer.anywhere(h.loop))


def _bound(loops: Loops, s: d.Bound) -> None:
    if loops.stage.is_cut:  # whose boxes are all of it
        return
    loops.func.bound(_dimension(loops, s.axis), s.begin, s.extent)


_STORAGE: dict[type, Callable[[Loops, Any], None]] = {
    d.ReorderStorage: _reorder_storage,
    d.StoreIn: lambda loops, s: loops.func.store_in(MEMORY[s.memory]),
    d.BoundExtent: _bound_extent,
    d.Bound: _bound,
    d.AlignStorage: lambda loops, s: loops.func.align_storage(_dimension(loops, s.axis), s.multiple),
    d.FoldStorage: lambda loops, s: loops.func.fold_storage(_dimension(loops, s.axis), s.factor),
}
