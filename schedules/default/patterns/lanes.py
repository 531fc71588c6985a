"""Reductions along memory, as vectors of partial results: the terms r, r + L, r + 2L, ... go to lane r.

    partial[i, u] = reduce over ro of value[i, ro * L + u]       vectors side by side
    rest[i, u]    = value[i, n - R + u], or nothing              what whole rows of L leave over: R lanes, the last ones
    folded[i, v]  = the tree over q of partial[i, q * 16 + v]    to one vector, with those of the rest
    out[i]        = the tree over its lanes

A large reduction to few elements is first cut into blocks, which run in parallel; so is a sum of floats of which many
terms would be added up in a row, each of which is rounded to the last bit of all before it. Blocks have whole rows of
lanes, what is left over is a stage of its own: no loop over many terms asks whether it has come to the end. The order
is fixed by the sizes alone, so a result is the same in every run and on any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from schedules.default.neighbors import is_along
from schedules.default.patterns.own_parts import plan_own_parts
from schedules.default.patterns.run_lanes import rewrite_run
from schedules.default.patterns.window_tiles import is_tiled_sum
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from schedules.sizes import blocks_of, can_be_cut, extent_of, typical
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.reducers import BUILTIN, COMBINE
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import asked_inside, free_axes, substitute_all

__all__ = ["rewrite_reduction"]

BLOCKS = 16
BLOCK = 1 << 16  # terms of a block where their number is not known
MOST_VECTORS = 12  # of partial results of several sums that are made in one walk: they stay in registers
CHAIN = 1 << 9  # the same where an element's terms are added up in a row


def rewrite_reduction(
    rw: Rewriting, original: Operation, op: Compute, machine: Machine, *, blocked: bool = True
) -> bool:
    """Rewrite a reduction whose terms lie along memory; False where it is none, or short.

    `blocked`: a large one to few elements may be cut into blocks.
    """
    reduce = op.reduction
    if plan_own_parts(rw, original, op):
        return True
    if reduce is not None and reduce.reducer.kind in ("argmax", "argmin"):
        return _argument(rw, original, op, machine)
    if reduce is None or reduce.reducer.kind not in COMBINE or len(op.bodies) != 1:
        return False
    dtype = reduce.values[0].dtype
    if dtype.itemsize < 4 and reduce.reducer.kind in ("sum", "prod"):
        return False
    if any(number(a.extent) == 0 or number(a.begin) is None for a in (*op.axes, *reduce.axes)) or not can_be_cut(op):
        return False
    elements, terms = (math.prod(typical(a.extent) for a in axes) for axes in (op.axes, reduce.axes))
    along, width, lanes = _along(op, machine), _widest(op, machine), 0
    if along is not None:
        rows = terms // max(1, typical(along.extent))
        least = max(1, machine.least.row_vectors // rows)
        width = _width(along, width, least)
        most = machine.choose("lanes", 8 if number(along.extent) is not None else 4, op.name)
        most = most if rw.company == 1 else min(most, max(1, MOST_VECTORS // rw.company))
        lanes = _lanes(typical(along.extent), width, most, least)
    few = elements * 4 < BLOCKS * machine.cores
    rounds = dtype.is_float and reduce.reducer.kind == "sum"
    blocks = BLOCKS if blocked and few and terms >= machine.least.blocks else 1
    if rewrite_run(rw, original, op, machine, COMBINE[reduce.reducer.kind], blocks):
        return True
    if blocked and any(number(a.extent) is None for a in reduce.axes):
        if few or (rounds and not lanes):
            return _in_blocks_of_one_size(rw, original, op, machine, BLOCK if lanes else CHAIN)
    elif blocked:
        count = BLOCKS if few and terms >= machine.least.blocks else 1
        if rounds:
            count = max(count, -(-terms // (max(1, lanes) * max(2, machine.least.chain))))
        if count > 1 and _blocked(rw, original, op, machine, count, lanes):
            return True
    if along is None or lanes == 0:
        return False
    _by_lanes(rw, original, op, along, lanes, width)
    return True


def _along(op: Compute, machine: Machine) -> Axis | None:
    """The reduce axis along which memory is read, where no axis of the result is such a one."""
    reduce = op.reduction
    assert reduce is not None
    votes: dict[Axis, int] = {}
    for read in op.reads:
        if read.indices and free_axes(read.indices):
            # Of a window, the pixels and not the taps.
            for axis in sorted(free_axes(read.indices[-1]), key=lambda a: typical(a.extent))[-1:]:
                votes[axis] = votes.get(axis, 0) + math.prod(number(e) or 1024 for e in read.tensor.extents)
    if not votes:
        return None
    best = max(votes, key=lambda a: votes[a])
    if best not in set(reduce.axes) or (not is_along(op.reads, best) and _lies_along_result(op, machine)):
        return None
    return best


def _lies_along_result(op: Compute, machine: Machine) -> bool:
    """Whether the last axis of the result fills vectors, along which all lies that does not stand still."""
    if len(op.axes) == 0 or typical(op.axes[-1].extent) < _widest(op, machine):
        return False
    return is_along(op.reads, op.axes[-1])


def _widest(op: Compute, machine: Machine) -> int:
    """The lanes of a whole vector of terms."""
    assert op.reduction is not None
    return max(4, machine.vector_bytes // max(4, op.reduction.values[0].dtype.itemsize))


def _width(along: Axis, widest: int, least: int) -> int:
    """The lanes of a vector, fewer of them where a row is shorter than so many of the widest; one may be half full."""
    extent, width = number(along.extent), widest
    while extent is not None and width > 4 and not _fills(extent, width, least):
        width //= 2
    return width


def _fills(extent: int, width: int, least: int) -> bool:
    """Whether a row fills so many vectors."""
    return extent > width // 2 if least == 1 else extent >= least * width


def _lanes(extent: int, width: int, most: int, least: int) -> int:
    """How many lanes a row of this extent is spread over: 0 where it is shorter than so many vectors."""
    counts = [n for n in (16, 8, 4, 2, 1) if n <= most]
    long = next((n for n in counts if extent >= 4 * n * width or (n == 1 and _fills(extent, width, least))), 0)
    even = next((n for n in counts if extent % (n * width) == 0 and extent >= 2 * n * width and n > 1), 0)
    return max(long, even) * width


def _cut(axis: Axis, step: int, inner: Axis) -> tuple[Axis, dict[Expr, Expr], Expr]:
    """`axis` as outer * step + inner: the outer axis, the substitution, and the condition that it is inside.

    Only whole steps, which need no condition, of an extent that has one.
    """
    assert axis.extent is not None
    begin, extent = number(axis.begin), number(axis.extent)
    count = axis.extent // step if extent is None else max(1, extent // step)
    outer = Axis(f"{axis.name}_o", simplify_extent(fn.as_expr(count)), is_reduce=True)
    at: Expr = outer * step + inner
    inside: Expr = TRUE if extent is None or extent >= step else at < extent
    return outer, {axis: at + begin if begin else at}, inside


def _cut_rest(axis: Axis, step: int, width: int, lane: Axis) -> tuple[Axis, dict[Expr, Expr], Expr]:
    """What `_cut` leaves over, in vectors of `width`.

    Of a known extent it is all side by side in the lanes, which end where the axis ends: the first of them begin before
    what is left.
    """
    assert axis.extent is not None
    begin, extent = number(axis.begin), number(axis.extent)
    first = axis.extent // step * step
    if extent is None:
        outer = Axis(f"{axis.name}_r", blocks_of(simplify_extent(axis.extent - first), width), is_reduce=True)
        at: Expr = first + (outer * width + lane)
        inside = at < axis.extent
    else:
        outer = Axis(f"{axis.name}_r", Const(1, INT32), is_reduce=True)
        at = lane + (extent - typical(lane.extent))
        inside = TRUE if extent % step % width == 0 else at >= first
    return outer, {axis: at + begin if begin else at}, inside


def _fresh(axes: Sequence[Axis]) -> dict[Axis, Axis]:
    return {a: Axis(a.name, a.extent) for a in axes}


def _partial(
    rw: Rewriting,
    op: Compute,
    axis: Axis,
    outer: Axis,
    lane: Axis,
    mapping: dict[Expr, Expr],
    inside: Expr,
    name: str = "partial",
) -> Tensor:
    reduce = op.reduction
    assert reduce is not None
    fresh = _fresh(op.axes)
    moved: dict[Expr, Expr] = dict(fresh)  # type: ignore[arg-type]
    loops = [outer if a is axis else Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in reduce.axes]
    renamed: dict[Expr, Expr] = {a: loop for a, loop in zip(reduce.axes, loops, strict=True) if a is not axis}
    value, where = substitute_all((reduce.values[0], reduce.where), {**moved, **renamed, **mapping})
    where = asked_inside(inside, where)
    return rw.compute(
        f"{op.name}_{name}", (*fresh.values(), lane), Reduce(reduce.reducer, (value,), tuple(loops), where, 0)
    )


def _by_lanes(rw: Rewriting, original: Operation, op: Compute, along: Axis, lanes: int, width: int) -> None:
    reduce = op.reduction
    assert reduce is not None
    lane = Axis("lane", Const(lanes, INT32))
    outer, mapping, inside = _cut(along, lanes, lane)
    partial = _partial(rw, op, along, outer, lane, mapping, inside)
    rest = _rest(rw, op, along, lanes, width)
    combine = COMBINE[reduce.reducer.kind]
    held = partial
    if lanes > width or rest is not None:
        fresh = _fresh(op.axes)
        vector = Axis("lane", Const(width, INT32))
        vectors: list[Expr] = [Read(partial, (*fresh.values(), vector + k)) for k in range(0, lanes, width)]
        left = [] if rest is None else [Read(rest, (*fresh.values(), vector + k)) for k in range(0, _row(rest), width)]
        vectors[: len(left)] = map(combine, vectors, left)
        held = rw.compute(f"{op.name}_folded", (*fresh.values(), vector), _tree(vectors, combine))
        rw.kinds[held.op.name] = "folded"
    parts: list[Expr] = [Read(held, (*op.axes, Const(k, INT32))) for k in range(width)]
    rw.add(replace(op, name=rw.name(op.name), names=None, bodies=(_tree(parts, combine),), _outputs={}), original)
    rw.kinds[rw.stages[-1].name] = "tree"
    for tensor in (partial, rest, held):
        if tensor is not None:
            rw.inside[tensor.op.name], rw.widths[tensor.op.name] = rw.stages[-1].name, width
            rw.kinds.setdefault(tensor.op.name, "partial")


def _rest(rw: Rewriting, op: Compute, along: Axis, lanes: int, width: int) -> Tensor | None:
    """The reduction of what whole steps of so many lanes leave over."""
    extent = number(along.extent)
    left = 1 if extent is None else 0 if extent < lanes else extent % lanes
    if not left:
        return None
    lane = Axis("lane", Const(width * -(-left // width), INT32))
    outer, mapping, inside = _cut_rest(along, lanes, width, lane)
    return _partial(rw, op, along, outer, lane, mapping, inside, "rest")


def _row(tensor: Tensor) -> int:
    """The elements of the last axis."""
    return typical(tensor.extents[-1])


def _tree(parts: Sequence[Expr], combine: Callable[[Expr, Expr], Expr]) -> Expr:
    """A power of two of parts, the first half with the second until one is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def _argument(rw: Rewriting, original: Operation, op: Compute, machine: Machine) -> bool:
    """The position of an extreme value, in two passes of vectors: the value, then the least position that has it."""
    reduce = op.reduction
    assert reduce is not None
    value, dtype = reduce.values[0], reduce.values[0].dtype
    counted = all(number(a.extent) != 0 and number(a.begin) == 0 for a in (*op.axes, *reduce.axes))
    along = _along(op, machine)
    if not counted or along is None or dtype.itemsize < 4 or not can_be_cut(op):
        return False
    if typical(along.extent) < machine.least.position:
        return False
    kind = "max" if reduce.reducer.kind == "argmax" else "min"
    best = rw.extreme(op, kind)
    if best is None:
        body = Reduce(BUILTIN[kind], reduce.values, reduce.axes, reduce.where, 0)
        best = _whole(rw, replace(op, bodies=(body,), _outputs={}), "best", machine)
    held = Read(best, tuple(op.axes))
    hit: Expr = value == held
    if dtype.is_float:  # where one of the values is NaN, so is the best
        hit = fn.logical_or(hit, fn.isnan(value))
    position: Expr = Const(0, INT32)
    for axis in reduce.axes:
        position = position * extent_of(axis) + axis
    nowhere = Const((1 << 31) - 1, INT32)
    body = Reduce(BUILTIN["min"], (fn.select(hit, position, nowhere),), reduce.axes, reduce.where, 0)
    found = _whole(rw, replace(op, bodies=(body,), _outputs={}), "first", machine)
    at = Read(found, tuple(op.axes))
    result = fn.select(at == nowhere, Const(0, INT32), at)
    rw.add(replace(op, name=rw.name(op.name), names=None, bodies=(result,), _outputs={}), original)
    return True


def _whole(rw: Rewriting, op: Compute, name: str, machine: Machine, *, blocked: bool = True) -> Tensor:
    """A reduction of one's own, rewritten in turn where that helps."""
    made = replace(op, name=f"{op.name}_{name}", names=None, _outputs={})
    result = made.outputs[0]
    if rewrite_reduction(rw, made, made, machine, blocked=blocked):
        return rw.new[result]
    return rw.add(replace(made, name=rw.name(made.name), _outputs={})).outputs[0]


def _blocked(rw: Rewriting, original: Operation, op: Compute, machine: Machine, count: int, lanes: int) -> bool:
    """partial[p, ..] over a block of the longest outer reduce axis, each block again by lanes; then over the blocks.

    `count`: so many blocks at least, of whole rows of `lanes` where the axis lies along memory; what is left over is
    reduced by itself. False where no loop is long enough.
    """
    reduce = op.reduction
    assert reduce is not None
    along, least = _along(op, machine), max(2, machine.least.block_extent)
    sizes = {a: number(a.extent) or 0 for a in reduce.axes}
    axis = max([a for a in sizes if a is not along] or list(sizes), key=lambda a: sizes[a])
    if sizes[axis] < least:
        axis = max(sizes, key=lambda a: sizes[a])
    extent, begin = sizes[axis], number(axis.begin) or 0
    step = extent // min(count, extent)
    if axis is along and step > lanes > 0:
        step -= step % lanes
    left = step * math.prod(sizes.values()) // extent
    if extent < least or left == 1:  # term of a block
        return False
    block = Axis("block", Const(extent // step, INT32))
    first = extent // step * step
    whole = Axis(axis.name, Const(step, INT32), is_reduce=True)
    held = _part(rw, _over(op, axis, whole, block * step + whole + begin, block), "partial", machine)
    every = Axis("block", block.extent, is_reduce=True)
    axes = op.axes if first == extent else tuple(_fresh(op.axes).values())
    body = Reduce(reduce.reducer, (Read(held, (every, *axes)),), (every,), TRUE, 0)
    total = replace(op, axes=axes, names=None, bodies=(body,), _outputs={})
    if first == extent:
        if not rewrite_reduction(rw, original, total, machine):
            rw.add(replace(total, name=rw.name(op.name), _outputs={}), original)
        return True
    rest = Axis(axis.name, Const(extent - first, INT32), is_reduce=True)
    blocks = _part(rw, total, "blocks", machine)
    rows = _part(rw, _over(op, axis, rest, first + rest + begin), "rest", machine)
    rw.add_total(op, original, COMBINE[reduce.reducer.kind](Read(blocks, tuple(op.axes)), Read(rows, tuple(op.axes))))
    return True


def _part(rw: Rewriting, op: Compute, name: str, machine: Machine) -> Tensor:
    """A part of a reduction, rewritten in turn, or in tiles, where that helps."""
    made = replace(op, name=f"{op.name}_{name}", names=None, _outputs={})
    if rewrite_reduction(rw, made, made, machine):
        return rw.new[made.output()]
    if is_tiled_sum(made, machine):
        rw.add_window(made, made, "tiled")
        return rw.new[made.output()]
    return rw.add(replace(made, name=rw.name(made.name), _outputs={})).outputs[0]


def _in_blocks_of_one_size(rw: Rewriting, original: Operation, op: Compute, machine: Machine, terms: int) -> bool:
    """As `_blocked` for an extent that is not known: whole blocks of so many terms, and the rest."""
    reduce = op.reduction
    assert reduce is not None
    unknown = [a for a in reduce.axes if number(a.extent) is None]
    along = _along(op, machine)
    axis = next((a for a in unknown if a is not along), unknown[0])
    assert axis.extent is not None
    step = max(1, terms // math.prod(typical(a.extent) for a in reduce.axes if a is not axis))
    block = Axis("block", simplify_extent(axis.extent // step))
    begin, first = number(axis.begin) or 0, axis.extent // step * step
    whole = Axis(axis.name, Const(step, INT32), is_reduce=True)
    rest = Axis(axis.name, simplify_extent(axis.extent - first), is_reduce=True)
    held = _whole(rw, _over(op, axis, whole, block * step + whole + begin, block), "partial", machine, blocked=False)
    left = _whole(rw, _over(op, axis, rest, first + rest + begin), "rest", machine, blocked=False)
    rw.kinds[held.op.name] = "blocks"
    every = Axis("block", block.extent, is_reduce=True)
    fresh = tuple(_fresh(op.axes).values())
    body = Reduce(reduce.reducer, (Read(held, (every, *fresh)),), (every,), TRUE, 0)
    total = rw.compute(f"{op.name}_blocks", fresh, body)
    rw.add_total(op, original, COMBINE[reduce.reducer.kind](Read(total, tuple(op.axes)), Read(left, tuple(op.axes))))
    return True


def _over(op: Compute, axis: Axis, loop: Axis, at: Expr, *outer: Axis) -> Compute:
    """The reduction with one of its loops replaced, for each of the iterations of those `outer`."""
    reduce = op.reduction
    assert reduce is not None
    fresh = _fresh(op.axes)
    loops = {a: loop if a is axis else Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in reduce.axes}
    mapping: dict[Expr, Expr] = {axis: at}
    mapping.update((a, now) for a, now in (*fresh.items(), *loops.items()) if a is not axis)
    value, where = substitute_all((reduce.values[0], reduce.where), mapping)
    body = Reduce(reduce.reducer, (value,), tuple(loops.values()), where, 0)
    return replace(op, axes=(*outer, *fresh.values()), bodies=(body,), names=None, _outputs={})
