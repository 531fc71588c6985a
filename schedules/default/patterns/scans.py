"""Scans whose other axes are independent: many recurrences side by side, blocks of them on different threads.

One recurrence waits for each of its own steps, so a row at a time leaves the processor idle. Along columns the rows
of a step are vectors; where time itself lies along memory, a few steps of a few rows are written out. Not of many: rows
that are a power of two apart share the same few lines of the first cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from schedules.default.costs import is_function, value_cost
from schedules.default.neighbors import along, is_along, last_of
from schedules.default.patterns.across import goes_along, turned_table
from schedules.default.patterns.nests import TASKS
from schedules.default.patterns.own_parts import has_own_parts
from schedules.default.rewriting import Rewriting, fused
from schedules.directives import ComputeRoot, Directive, Parallel, Reorder, Split, Unroll, Vectorize
from schedules.loops import Level, Nest, nest_of
from schedules.machine import Machine
from schedules.sizes import typical
from tedsl.analysis.affine import affine_of
from tedsl.analysis.iteration import is_stepped
from tedsl.analysis.terms import product_of
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.intervals import range_of
from tedsl.lang.phases import part_shown, phases_of, read_through
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, topological

__all__ = ["adds_one_by_one", "along_memory", "parts_read_through", "plan_scan", "rows_summed_alike", "steps_asked_for"]

T = TypeVar("T")

ROWS, STEPS = 4, 8
FEW_STEPS = 4  # where each may be the last one
ALL = 1 << 62  # steps
WIDE = 4  # vectors of a step
AT_ONCE = 16  # vectors of a step, one behind another
BESIDE = (8, 4, 2, 1)  # vectors of a step that are summed side by side
ROWS_BESIDE = 6  # and rows
FREE, LATENCY = 4, 4  # registers beside those that hold the sums; cycles until a sum can take its next term
BLOCKS = 4  # rows for each core, from which on a step is shared out
ALONE, FEW_OPERATIONS = 32, 12  # steps of a recurrence that has nothing beside it


def parts_read_through(operations: Sequence[Operation], outputs: Iterable[Tensor]) -> dict[Tensor, Compute]:
    """Stages that are a part of a packed scan and nothing else, where they are read element by element alone."""
    final = {tensor.op for tensor in outputs}
    whole = {t for op in operations if isinstance(op, Extern) for t in op.args}
    whole |= {op.init for op in operations if isinstance(op, Scatter) and op.init is not None}
    parts = [op for op in operations if isinstance(op, Compute) and op not in final and part_shown(op)]
    return {op.output(): op for op in parts if op.output() not in whole}


def steps_asked_for(
    operations: Sequence[Operation], outputs: Iterable[Tensor], parts: Mapping[Tensor, Compute] = MappingProxyType({})
) -> dict[Operation, int]:
    """How many of its last steps a scan has to keep, where that is not most of them: for its readers and itself.

    Its `parts` are no readers of their own.
    """
    final = {tensor.op for tensor in outputs}
    scans = [op for op in operations if isinstance(op, Scan) and op not in final and len(op.dims) == 1 + bool(op.parts)]
    most = {op: _looked_back(op) for op in scans}
    for op in operations:
        if isinstance(op, Compute) and op.output() in parts:
            continue
        reads = [read_through(r, parts) for r in reads_of(op.expressions)] if not isinstance(op, Extern) else []
        for tensor in dict.fromkeys((*op.inputs, *(r.tensor for r in reads))):
            scan, own = tensor.op, [r for r in reads if r.tensor is tensor]
            if isinstance(scan, Scan) and scan in most:
                init = isinstance(op, Scatter) and op.init is tensor
                most[scan] = max([most[scan], *(_from_the_end(scan, r) for r in own)]) if own and not init else ALL
    return {op: steps for op, steps in most.items() if 2 * steps <= (number(op.steps[0].extent) or 0)}


def _looked_back(op: Scan) -> int:
    """How many steps a scan needs at a time: those that it reads, and the one that is made.

    Where each place is made of itself alone, that takes the place of the oldest of them.
    """
    if op.kept is not None:
        return ALL
    dim, step = op.dims[0], op.steps[0]
    own, deepest = set(map(id, op.states)), 0
    for read in op.reads:
        if id(read.tensor) in own:
            back = affine_of(step - read.indices[dim])
            if back is None or not back.is_constant:
                return ALL
            deepest = max(deepest, -back.constant if op.reverse else back.constant)
    return max(1, deepest + is_stepped(op))


def _from_the_end(scan: Scan, read: Read) -> int:
    """How far from its last step a scan is read."""
    dim, steps = scan.dims[0], number(scan.steps[0].extent)
    low, high = range_of(read.indices[dim])
    end = high + 1 if scan.reverse else None if steps is None else steps - low
    return int(end) if end is not None and end < ALL else ALL


def along_memory(rw: Rewriting, op: Scan) -> Scan:
    """A scan whose vectors lie along its last axis: what lies across that is turned before the first step."""
    last = op.axes[-1]
    if len(op.axes) - 1 in op.dims or any(number(a.extent) is None for a in op.axes):
        return op
    own = set(map(id, op.states))
    inner = [math.prod(number(a.extent) or 1 for a in n.axes) for n in op.nodes if isinstance(n, Reduce)]
    points = math.prod(number(a.extent) or 0 for a in op.axes) * max(inner, default=1)
    turned: dict[tuple[Tensor, int], Tensor] = {}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or id(node.tensor) in own:
            return node
        if not _is_turned(node, last):
            return node
        key = node.tensor, next(d for d, index in enumerate(node.indices) if goes_along(index, last))
        if key not in turned:
            size = math.prod(number(n) or points for n in node.tensor.extents)
            if size > points * value_cost(op.bodies):
                return node
            turned[key] = turned_table(rw, op.name, *key)
        return Read(turned[key], last_of(node.indices, key[1]))

    bodies = rebuild_all(op.bodies, rule)
    return replace(op, bodies=bodies, _outputs={}) if turned else op


def _is_turned(read: Read, last: Axis) -> bool:
    """Whether a read goes along an axis across memory."""
    across = [d for d, index in enumerate(read.indices[:-1]) if goes_along(index, last)]
    return len(across) == 1 and sum(last in set(free_axes(i)) for i in read.indices) == 1


def plan_scan(op: Scan, machine: Machine) -> list[Directive]:
    """Directives for a scan, none where its steps need all of the step before or its places are few."""
    nest = nest_of(op.name, op, "body")
    every = [v for v in nest.levels if v.carried == "free"]
    free = [v for v in every if v.known != 1] or every
    units = [v.name for v in every if v not in free]
    time = [v.name for v in nest.levels if v.carried != "free"]
    sizes = [typical(v.extent) for v in nest.levels]
    if is_stepped(op):
        return _within_steps(op, nest, machine)
    if 0 in sizes:
        return []
    if not free or free[-1].known == 1:
        return _alone(op, nest)
    chosen = free[-1]
    width = machine.vector_bytes // max(4, *(t.dtype.itemsize for t in op.outputs))
    say: list[Directive] = [ComputeRoot(stage=op.name)]
    if chosen.origin == {op.axes[-1]}:
        if not along(op, op.axes[-1]) or width < 2:
            return []
        inner = _columns(say, op, chosen, width, time, machine)
    else:
        inner = _rows(say, op, chosen, time)
    if not inner:
        return []
    counts = {v.name: typical(v.extent) for v in free[:-1]} | {f"{chosen.name}_o": _blocks(say, chosen)}
    say.append(Reorder(stage=op.name, loops=(*counts, *units, *time, *inner)))
    if machine.cores > 1 and math.prod(sizes) >= machine.least.scan_threads:
        say += _in_tasks(op, nest, counts, machine)
    return say


def adds_one_by_one(op: Scan, say: Sequence[Directive]) -> bool:
    """Whether its steps have sums of products and no vectors, or vectors of which all lanes would sum the same: a term
    waits for another unless their order is free.
    """
    if any(isinstance(d, Vectorize) for d in say):
        return _sums_in_one_place(op)
    sums = [n for n in op.nodes if isinstance(n, Reduce) and n.reducer.kind in ("sum", "sums")]
    return any(product_of(v) is not None for n in sums for v in n.values)


def _sums_in_one_place(op: Scan) -> bool:
    """Whether all sums are of phases that have one place along the vectors."""
    found = False
    for phase in phases_of(op):
        sums = [n for n in topological(tuple(phase.bodies.values())) if isinstance(n, Reduce)]
        if sums and phase.axes and number(phase.axes[-1].extent) != 1:
            return False
        found = found or any(n.reducer.kind == "sum" and n.dtype.is_float for n in sums)
    return found


def _alone(op: Scan, nest: Nest) -> list[Directive]:
    """Many steps written out, between which the state stays in a register; through memory each would take longer.

    The order of terms is as it was, and so are the bits. The few rows that there may be follow one another.
    """
    steps = nest.levels[-1]
    most = ALONE if _is_small(op) else STEPS
    if steps.carried == "free" or typical(steps.extent) < 2 * most or any(isinstance(n, Reduce) for n in op.nodes):
        return []
    outer, inner = nest.fresh(f"{steps.name}_o"), nest.fresh(f"{steps.name}_i")
    split = Split(stage=op.name, loop=steps.name, outer=outer, inner=inner, factor=most)
    return [ComputeRoot(stage=op.name), split, Unroll(stage=op.name, loop=inner)]


def _is_small(op: Scan) -> bool:
    return sum(isinstance(n, Apply) for n in topological(op.bodies)) <= FEW_OPERATIONS


def _blocks(say: Sequence[Directive], level: Level) -> int:
    """How many iterations are left of a loop that was split."""
    left = typical(level.extent)
    for split in say:
        if isinstance(split, Split) and split.loop in (level.name, f"{level.name}_o"):
            left = -(-left // (split.step or 1))
    return left


def _in_tasks(op: Scan, nest: Nest, counts: Mapping[str, int], machine: Machine) -> list[Directive]:
    """The outermost loops, as few of them as there are tasks in, cut into pieces for threads: rows may be short."""
    tasks, points, loops = machine.choose("tasks", TASKS, op.name) * machine.cores, 1, list[str]()
    for name, count in counts.items():
        loops.append(name)
        points *= count
        if points >= tasks:
            break
    say, (task,) = fused(op.name, loops)
    if points <= tasks:
        return [*say, Parallel(stage=op.name, loop=task)]
    outer, inner = nest.fresh("task"), nest.fresh("row")
    split = Split(stage=op.name, loop=task, outer=outer, inner=inner, factor=-(-points // tasks))
    return [*say, split, Parallel(stage=op.name, loop=outer)]


def _within_steps(op: Scan, nest: Nest, machine: Machine) -> list[Directive]:
    """Vectors along memory within each step, which needs all of the step before; sums over states run inside them."""
    say: list[Directive] = [ComputeRoot(stage=op.name)]
    if op.parts:  # each phase is loops of its own then
        phase = next(v.name for v in nest.levels if v.origin == {op.steps[-1]})
        say.append(Unroll(stage=op.name, loop=phase))
    last = next((v for v in nest.levels if v.carried == "within" and v.origin == {op.axes[-1]}), None)
    width = machine.vector_bytes // max(4, *(t.dtype.itemsize for t in op.outputs))
    if last is None or width < 2 or not _is_along(op) or (last.known or 0) < 2 or _has_own_parts(op):
        return say if op.parts else []
    while width > (last.known or 0):
        width //= 2
    sums, lane = sum(isinstance(n, Reduce) for n in op.nodes), f"{last.name}_v"
    row = _shared_row(op, nest, last) if sums and not op.parts else None
    beside, rows = 1, 1
    if sums and not op.parts:
        counts = (last.known or 0) / width, 1 if row is None else row.known or 1
        beside, rows = _tile(*counts, sums, machine.vector_registers - FREE)
    say.append(Split(stage=op.name, loop=last.name, outer=f"{last.name}_o", inner=lane, factor=width * beside))
    if row is not None and rows > 1:
        say += _rows_within(op, nest, last, row, rows)
        return [*say, Vectorize(stage=op.name, loop=lane)]
    vectors = -(-(last.known or 0) // (width * beside))
    return [*say, Vectorize(stage=op.name, loop=lane), *_threads_within(op, nest, last, vectors, machine)]


def _has_own_parts(op: Scan) -> bool:
    """Whether places along memory sum parts of their own, as long as data say."""
    return any(isinstance(n, Reduce) and has_own_parts(n.where, op.axes[-1]) for n in op.nodes)


def _threads_within(op: Scan, nest: Nest, last: Level, vectors: int, machine: Machine) -> list[Directive]:
    """The places of a step in blocks, one for each core, where a step is long enough to wait for the last of them.

    What sums share along the rows would be computed by each thread.
    """
    if op.parts or machine.cores < 2 or any(v.known is None for v in nest.levels):
        return []
    sums, inside = [n for n in op.nodes if isinstance(n, Reduce)], [v for v in nest.levels if v.carried == "within"]
    terms = max([math.prod(number(a.extent) or 1 for a in s.axes) for s in sums], default=1)
    if math.prod(v.known or 1 for v in inside) * terms * value_cost(op.expressions) < machine.least.step_threads:
        return []
    loops, count = list[str](), 1
    for level in inside:
        if any(level.origin.isdisjoint(free_axes(s)) for s in sums):
            return []
        loops.append(f"{last.name}_o" if level is last else level.name)
        count *= vectors if level is last else level.known or 1
        if count >= BLOCKS * machine.cores:
            break
    if count < BLOCKS * machine.cores:
        return []
    fusing, (places,) = fused(op.name, loops)
    outer, inner = nest.fresh("task"), nest.fresh("row")
    split = Split(stage=op.name, loop=places, outer=outer, inner=inner, factor=-(-count // machine.cores))
    return [*fusing, split, Parallel(stage=op.name, loop=outer)]


def _tile(vectors: float, rows: int, sums: int, registers: int) -> tuple[int, int]:
    """How many vectors of how many rows a step sums side by side: what takes the least of the processor's time.

    Two terms of a sum a cycle, and two loads: a vector for each of the sums, which all rows share and which may come
    from the second cache, and a number of each row. One sum alone waits four cycles for each of its own terms.
    """

    def cycles(tile: tuple[int, int]) -> float:
        beside, most = tile
        held = sums * beside * most
        each = max(0.5, (1.5 * sums * beside + most) / (2 * held), LATENCY / held)
        return each * (-(-vectors // beside) * beside / vectors) * (-(-rows // most) * most / rows)

    tiles = [(v, r) for v in BESIDE if v <= vectors for r in range(1, min(rows, ROWS_BESIDE) + 1)]
    return min((t for t in tiles if sums * math.prod(t) <= registers or t == (1, 1)), key=cycles)


def _shared_row(op: Scan, nest: Nest, last: Level) -> Level | None:
    """The loop of a step whose sums read alike, along their vectors, at all of its places."""
    sums = [n for n in op.nodes if isinstance(n, Reduce)]
    inside = topological([e for s in sums for e in s.children])
    conditions = [n.args[0] for n in inside if isinstance(n, Apply) and n.fn is Fn.SELECT] + [s.where for s in sums]
    (lane,) = last.origin
    for level in reversed(nest.levels):
        (axis,) = level.origin
        if level.carried != "within" or level is last or (level.known or 0) < 2 or axis in set(free_axes(conditions)):
            continue
        vectors = [r for r in reads_of(inside) if lane in set(free_axes(r))]
        if all(axis in set(free_axes(s)) for s in sums) and any(axis not in set(free_axes(r)) for r in vectors):
            return level
    return None


def rows_summed_alike(op: Scan) -> int:
    """How many rows of a step its sums are tiles of, vectors along memory; 0 where terms are left out, or each step has
    factors of its own.
    """
    sums = [n for n in op.nodes if isinstance(n, Reduce)]
    if not sums or op.parts or len(op.axes) - 1 in op.dims:
        return 0
    own, last = set(map(id, op.states)), op.axes[-1]
    if not is_along([r for r in op.reads if id(r.tensor) in own or not _is_turned(r, last)], last):
        return 0
    inside = topological([e for s in sums for e in s.children])
    conditions = [n.args[0] for n in inside if isinstance(n, Apply) and n.fn is Fn.SELECT] + [s.where for s in sums]
    if not set(free_axes(conditions)) <= set(op.steps) or any(last not in set(free_axes(s)) for s in sums):
        return 0
    if not set(op.steps).isdisjoint(free_axes([r for r in reads_of(inside) if id(r.tensor) not in own])):
        return 0
    nest = nest_of(op.name, op, "body")
    row = _shared_row(op, nest, nest.levels[-1])
    return 1 if row is None else row.known or 1


def _rows_within(op: Scan, nest: Nest, last: Level, row: Level, count: int) -> list[Directive]:
    """Several rows side by side; what they share along the vectors is walked by them all before it moves on."""
    others = [v.name for v in nest.levels if v.carried == "within" and v is not last and v is not row]
    outer, inner = nest.fresh(f"{row.name}_o"), nest.fresh(f"{row.name}_i")
    order = (*others, f"{last.name}_o", outer, inner, f"{last.name}_v")
    return [
        Split(stage=op.name, loop=row.name, outer=outer, inner=inner, factor=count),
        Reorder(stage=op.name, loops=order),
        Unroll(stage=op.name, loop=inner),
    ]


def _is_along(op: Scan) -> bool:
    """Whether neighbours along the last axis are neighbours in memory; for most of its work, if a scan is packed."""
    if not op.parts:
        return along(op, op.axes[-1])
    points = {True: 0, False: 0}
    for phase in phases_of(op):
        bodies = tuple(phase.bodies.values())
        inner = [math.prod(number(a.extent) or 1 for a in n.axes) for n in topological(bodies) if isinstance(n, Reduce)]
        if phase.axes:
            size = math.prod(number(a.extent) or 1 for a in phase.axes) * (1 + sum(inner))
            points[is_along(reads_of(bodies), phase.axes[-1])] += size
    return points[True] >= points[False]


def _columns(say: list[Directive], op: Scan, level: Level, width: int, time: list[str], machine: Machine) -> list[str]:
    """Vectors along memory, a few at a time where there are as many; number by number where they fill no vector."""
    name, extent = level.name, typical(level.extent)
    if extent < width and extent & (extent - 1):
        return _rows(say, op, level, time)
    while width > extent:
        width //= 2
    if width < 2:
        return []
    lane, few, beside = f"{name}_v", f"{name}_w", _beside(op, -(-extent // width), machine)
    if beside > 1:
        say += [
            Split(stage=op.name, loop=name, outer=f"{name}_o", inner=lane, factor=width),
            Split(stage=op.name, loop=f"{name}_o", outer=f"{name}_o", inner=few, factor=beside),
            Vectorize(stage=op.name, loop=lane),
        ]
        return [few, lane]
    if len(time) == 1 and _is_small(op) and typical(op.steps[0].extent) >= 2 * STEPS:
        steps, step = f"{time[0]}_o", f"{time[0]}_i"  # the states stay in registers between steps written out
        say.append(Split(stage=op.name, loop=time[0], outer=steps, inner=step, factor=STEPS))
        say.append(Unroll(stage=op.name, loop=step))
        time[:] = [steps, step]
    if level.known is None or extent % (WIDE * width):
        say.append(Split(stage=op.name, loop=name, outer=f"{name}_o", inner=lane, factor=width))
        say.append(Vectorize(stage=op.name, loop=lane))
        return [lane]
    say += [
        Split(stage=op.name, loop=name, outer=f"{name}_o", inner=few, factor=WIDE * width),
        Split(stage=op.name, loop=few, outer=few, inner=lane, factor=width, exact=True),
        Unroll(stage=op.name, loop=few),
        Vectorize(stage=op.name, loop=lane),
    ]
    return [few, lane]


def _beside(op: Scan, vectors: int, machine: Machine) -> int:
    """How many vectors of a step follow one another before the next step: as many as the processor needs to have work
    while each waits for its own last step. Few steps of a few operations wait for memory instead.
    """
    own, steps = set(map(id, op.states)), set(op.steps)
    streams = any(not steps.isdisjoint(free_axes(r.indices)) for r in op.reads if id(r.tensor) not in own)
    if streams and _is_small(op) and not any(isinstance(n, Apply) and is_function(n) for n in op.nodes):
        return 1
    points = math.prod(typical(a.extent) for a in op.axes if a.extent is not None)
    tasks = 1 if points < machine.least.scan_threads else BLOCKS * machine.cores
    return max(1, min(AT_ONCE, vectors // tasks))


def _rows(say: list[Directive], op: Scan, level: Level, time: list[str]) -> list[str]:
    """A few steps of each of a few rows; the loops over steps that stay outside take the place of `time`.

    Functions take so long that the processor needs other rows to go on with at each step, and are long to write out.
    """
    extent = typical(level.extent)
    if len(time) > 1 or extent < 2:
        return []
    rows = extent if extent < 2 * ROWS else ROWS
    count = STEPS if number(op.steps[0].extent) is not None else FEW_STEPS
    row, steps, step = f"{level.name}_i", f"{time[0]}_o", f"{time[0]}_i"
    say += [
        Split(stage=op.name, loop=level.name, outer=f"{level.name}_o", inner=row, factor=rows),
        Unroll(stage=op.name, loop=row),
    ]
    if any(isinstance(n, Apply) and is_function(n) for n in topological(op.bodies)):
        return [row]
    say += [
        Split(stage=op.name, loop=time[0], outer=steps, inner=step, factor=count),
        Unroll(stage=op.name, loop=step),
    ]
    time[:] = [steps]
    return [row, step]
