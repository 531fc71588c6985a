"""Reductions for a GPU, rewritten: what a thread sums in its registers, and what the threads of a row sum together.

    out[i] = held[i]                         held: all terms of an element, or of a tile of them, in one thread
    out[i] = reduce over t of partial[i, t]  partial: the terms t, t + 32, ... of a row, a thread each, in shared memory
    out[i] = reduce over b of block[i, b]    block: a part of the terms of a long row, itself such a row

Tiles of sums of products read their operands from shared memory where they can: see `gpu_tiles`.

The order of the terms is fixed by the sizes alone, so a result is the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import replace

from schedules.default.gpu.shared import HELD
from schedules.default.gpu.tiles import clamped, extent_of, is_regrouped, staged_tiles, tile_of
from schedules.default.rewriting import Rewriting
from schedules.program import reading
from schedules.rewrites import Half, cache_write, rfactor
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes

__all__ = ["LANES", "PARTIAL", "rewrite_sum"]

PARTIAL = "partial of a row"  # a kind of stages
UNKNOWN = 1024  # for an extent
LANES = 32  # threads of a row: those that run in step
FEW, FEW_TILES, MANY = 1 << 12, 1 << 15, 1 << 18  # threads that do not fill a GPU, of tiles; that do
BLOCKS, LEAST = 512, 1024  # of an element; terms of one


def rewrite_sum(rw: Rewriting, original: Operation, op: Compute) -> None:
    """Make the stages of a reduction, the last one in its place."""
    cut, row = _cut(op, rw.least), _row(op)
    if not op.axes and (cut is not None or row is not None):
        _single(rw, original, op)
    elif cut is not None:
        _by_blocks(rw, original, op, *cut)
    elif row is not None:
        _by_lanes(rw, original, op, row)
    else:
        _held(rw, original, op)


def _row(op: Compute) -> Axis | None:
    """The reduce axis that neighbouring threads should share: that along which the largest tensor lies in memory."""
    reduce = op.reduction
    assert reduce is not None
    reads = [r for r in op.reads if r.indices and free_axes(r.indices)]
    largest = max(reads, key=lambda r: math.prod(number(e) or UNKNOWN for e in r.tensor.extents), default=None)
    if largest is None or tile_of(op) is not None or not is_regrouped(op):
        return None
    last = largest.indices[-1]
    found = next((a for a in reduce.axes[::-1] if _step(last, a) == 1), None)
    if found is None or any(_step(last, a) < LANES for a in op.axes) or (number(found.extent) or UNKNOWN) < 2 * LANES:
        return None
    return found


def _step(index: Expr, axis: Axis) -> int:
    """How far an index moves with an axis: much, where it does not, or where that is not known."""
    form = affine_of(index)
    by = None if form is None else form.coefficient(axis)
    return abs(by.constant) or UNKNOWN if by is not None and by.is_constant else UNKNOWN


def _held(rw: Rewriting, original: Operation, op: Compute) -> Operation:
    """out[i] = held[i]"""
    if not op.axes:
        return rw.add(op, original)
    tile = tile_of(op)
    staged = None if tile is None else staged_tiles(rw, original, op, tile)
    if staged is not None:
        return staged
    inner = op if tile is None else clamped(op, tile)
    outer, held = cache_write(inner, op.name, rw.name(f"{op.name}_held"))
    rw.add(held)
    made = rw.add(replace(outer, name=rw.name(op.name), _outputs={}), original)
    rw.kinds[held.name], rw.inside[held.name] = HELD, made.name
    if tile is not None:
        rw.tiles[held.name] = tile
    return made


def _by_lanes(rw: Rewriting, original: Operation, op: Compute, row: Axis) -> None:
    """out[i] = reduce over t of partial[i, t]"""
    half = Half(is_outer=False, factor=LANES, name=f"{row.name}_o")
    outer, partial = rfactor(op, row, "lane", half, f"{op.name}_partial")
    assert isinstance(partial, Compute)
    inner = _held(rw, partial, partial)
    whole = reading(outer, rw.new)
    assert isinstance(whole, Compute)
    made = _held(rw, original, whole)
    rw.kinds[inner.name], rw.inside[inner.name] = PARTIAL, made.name


def _cut(op: Compute, least: Thresholds) -> tuple[Axis, int] | None:
    """The reduce axis to cut, and terms of it in a block, where few elements have many terms."""
    reduce = op.reduction
    assert reduce is not None
    terms, elements = (math.prod(map(extent_of, axes)) for axes in (reduce.axes, op.axes))
    tile = tile_of(op)
    threads, few = (elements, FEW) if tile is None else (elements // tile.side**2, FEW_TILES)
    if terms < least.gpu_terms or threads >= few or not is_regrouped(op):
        return None
    axis = max(reduce.axes, key=extent_of)
    blocks = BLOCKS if tile is None else min(BLOCKS, MANY // max(threads, 1))
    factor = max(-(-extent_of(axis) // blocks), -(-LEAST * extent_of(axis) // terms))
    return (axis, factor) if factor < extent_of(axis) else None


def _by_blocks(rw: Rewriting, original: Operation, op: Compute, axis: Axis, factor: int) -> None:
    """out[i] = reduce over b of block[i, b]"""
    half = Half(is_outer=True, factor=factor, name=axis.name)
    outer, block = rfactor(op, axis, "block", half, f"{op.name}_block")
    assert isinstance(block, Compute)
    rewrite_sum(rw, block, block)
    whole = reading(outer, rw.new)
    assert isinstance(whole, Compute)
    rewrite_sum(rw, original, whole)


def _single(rw: Rewriting, original: Operation, op: Compute) -> None:
    """out = row[0], since a block needs a loop."""
    row = replace(op, name=f"{op.name}_row", axes=(Axis("one", Const(1, INT32)),), names=None, _outputs={})
    rewrite_sum(rw, row, row)
    bodies = tuple(Read(rw.new.get(t, t), (Const(0, INT32),)) for t in row.outputs)
    rw.add(replace(op, name=rw.name(op.name), bodies=bodies, _outputs={}), original)
