"""Sums of products for a GPU: a thread sums a tile of them in its registers, a block reads its operands once.

    out[i, j] = held[i, j]                         held: a tile of elements, all terms of each

    out[i, j] = total[i, j]                        total: the elements of a block, in shared memory
    total[i, j] = sum over s of held[i, j, s]      held: a tile of elements, the terms of a step, from copies of what
                                                   the block reads for them, in shared memory too

A step has as many terms as there is room for. Halide keeps nothing in a thread's registers while all threads of a block
make copies, hence the totals: 32 accesses of a thread for every step. A thread has 4 x 4 elements, not 8 x 8: an H200
computes 4096 x 4096 products of 4096 terms at 16 TFLOP/s then, instead of 7, as it has 256 threads in a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from schedules.default.gpu.shared import HELD, MOST_BYTES, Copy, copied, is_safe, replaced, windows_of
from schedules.default.rewriting import Rewriting
from schedules.program import reading
from schedules.rewrites import Half, cache_write, rfactor
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, substitute_all

__all__ = ["TOTAL", "ThreadTile", "clamped", "extent_of", "is_regrouped", "staged_tiles", "tile_of"]

TOTAL = "total of a block"  # a kind of stages
REGROUPED = frozenset({"sum", "prod", "max", "min", "any", "all"})
WIDENED = frozenset({"float16", "bfloat16"})  # summed in float32: partial results would be rounded
THREADS = 16  # of a block, along either side of a tile
ELEMENTS, SHORTEST = 4, 12  # elements of a thread along either axis, where the result has so many
SIDE = 64  # elements of a block along either axis, where it makes copies
STEP = (16, 128)  # least and most terms of a step


@dataclass(frozen=True, eq=False)
class ThreadTile:
    """What one thread computes of a sum of products: `side` rows by `side` columns, whose operands it reads once."""

    row: Axis
    column: Axis
    side: int
    most: int = THREADS  # threads along one side

    def threads(self, axis: Axis) -> int:
        """Threads of a block along one side."""
        wanted, count = -(-(number(axis.extent) or 1) // self.side), 1
        while count < min(wanted, self.most):
            count *= 2
        return count

    def block(self, axis: Axis) -> int:
        """Elements of a block along one side."""
        return self.side * self.threads(axis)

    def divides(self, axis: Axis) -> bool:
        return (number(axis.extent) or 1) % self.block(axis) == 0


def is_regrouped(op: Compute) -> bool:
    """Whether the terms may be combined in any order, and partial results lose nothing."""
    reduce = op.reduction
    assert reduce is not None
    kind = reduce.reducer.kind
    return kind in REGROUPED and not (reduce.values[0].dtype in WIDENED and kind in ("sum", "prod"))


def tile_of(op: Compute) -> ThreadTile | None:
    """The tile for a sum of two factors, each with an axis of the result that the other one lacks.

    The last axes that are long enough: those of taps are not.
    """
    reduce = op.reduction
    if reduce is None or reduce.reducer.kind != "sum" or not op.axes:
        return None
    value = reduce.values[0]
    if not (isinstance(value, Apply) and value.fn is Fn.MUL):
        return None
    uses = [set(free_axes(factor)) for factor in value.args]
    alone = {a: own for own, other in (uses, uses[::-1]) for a in op.axes if a in own and a not in other}
    long = [a for a in op.axes[::-1] if a in alone and extent_of(a) >= SHORTEST]
    row = next((a for a in long if alone[a] is not alone[long[0]]), None)
    return None if row is None else ThreadTile(row, long[0], ELEMENTS)


def extent_of(axis: Axis) -> int:
    """The extent, 0 where it is not known."""
    return number(axis.extent) or 0


def clamped(op: Compute, tile: ThreadTile) -> Compute:
    """The sum whose tiles may reach past the end: there the last elements are read again."""
    rest: dict[Expr, Expr] = {
        a: fn.minimum(a, extent_of(a) - 1) for a in (tile.row, tile.column) if not tile.divides(a)
    }
    return replace(op, bodies=tuple(substitute_all(op.bodies, rest)), _outputs={}) if rest else op


def staged_tiles(rw: Rewriting, original: Operation, op: Compute, tile: ThreadTile) -> Operation | None:
    """out = total; total = sum over s of held, which reads copies; None where operands cannot be copied."""
    if not is_safe(op) or not is_regrouped(op) or None in (number(a.extent) for a in op.axes):
        return None
    for axis, factor in _steps_of(op):
        half = Half(is_outer=True, factor=factor, name=axis.name)
        whole, held = rfactor(op, axis, "step", half, f"{op.name}_held")
        assert isinstance(whole, Compute)
        assert isinstance(held, Compute)
        own = dict(zip(op.axes, held.axes[:-1], strict=True))
        mine = ThreadTile(own[tile.row], own[tile.column], tile.side, SIDE // tile.side)
        found = _copies(rw, op.name, held, mine)
        if found is not None:
            reads, copies = found
            return _from_copies(rw, original, whole, held, mine, reads, copies)
    return None


def _steps_of(op: Compute) -> Iterator[tuple[Axis, int]]:
    """Ways to cut the sum into steps of equal numbers of terms, the longest first."""
    assert op.reduction is not None
    axis = max(op.reduction.axes, key=extent_of)
    others = math.prod(extent_of(a) for a in op.reduction.axes if a is not axis)
    if others:
        for factor in range(min(STEP[1] // others, extent_of(axis)), 0, -1):
            if extent_of(axis) % factor == 0 and factor * others >= STEP[0]:
                yield axis, factor


def _copies(rw: Rewriting, name: str, held: Compute, tile: ThreadTile) -> tuple[dict[Expr, Expr], list[Copy]] | None:
    """Copies of all that a block reads in a step, if there is room for them."""
    assert held.reduction is not None
    steps = {a: extent_of(a) for a in held.reduction.axes}
    steps |= {a: tile.block(a) for a in (tile.row, tile.column)}
    windows = windows_of(held.bodies, steps)
    size = held.bodies[0].dtype.itemsize * tile.block(tile.row) * tile.block(tile.column)
    if sum(w.bytes(steps) for w in windows) + size > MOST_BYTES:
        return None
    inside = {r for w in windows for r in w.reads}
    if any(r not in inside and not {tile.row, tile.column}.isdisjoint(free_axes(r.indices)) for r in held.reads):
        return None
    reads: dict[Expr, Expr] = {}
    copies = []
    for window in windows:
        more, copy = copied(rw, name, window, steps)
        reads.update(more)
        copies.append(copy)
    return reads, copies


def _from_copies(
    rw: Rewriting,
    original: Operation,
    whole: Compute,
    held: Compute,
    tile: ThreadTile,
    reads: dict[Expr, Expr],
    copies: list[Copy],
) -> Operation:
    """The stages of a sum in steps."""
    made = rw.add(replace(replaced(held, reads), name=rw.name(held.name), _outputs={}), held)
    total, inner = cache_write(reading(whole, rw.new), whole.name, rw.name(f"{whole.name}_total"))
    rw.add(inner)
    last = rw.add(replace(total, name=rw.name(whole.name), _outputs={}), original)
    rw.kinds[made.name], rw.inside[made.name] = HELD, inner.name
    rw.kinds[inner.name], rw.inside[inner.name] = TOTAL, last.name
    rw.shared[inner.name], rw.tiles[inner.name], rw.tiles[made.name] = copies, tile, tile
    return last
