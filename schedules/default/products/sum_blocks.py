"""Long sums cut into blocks whose operands stay in the cache; the blocks are summed in order."""

from __future__ import annotations

from collections.abc import Sequence

from schedules.default.copies import copy_of
from schedules.default.products.contraction import Contraction
from schedules.default.rewriting import Rewriting, loop_names
from schedules.directives import ComputeRoot, Reorder, Split, Vectorize
from schedules.machine import Machine
from schedules.sizes import blocks_of, extent_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr
from tedsl.lang.extents import number
from tedsl.lang.functions import minimum
from tedsl.lang.tensor import Compute, Operation

__all__ = ["cut", "schedule_total", "sum_blocks"]

MOST_FOR_EACH = 1 << 20  # bytes of partial sums for each iteration of a loop whose length is not known
FEW_BLOCKS = 4  # enough of them for the threads
MOST_HELD = 16 << 20  # bytes of partial sums
IN_A_ROW = 1 << 10  # terms that may lose no more digits than blocks of them do
SHORT = 1 << 8  # terms of a block, beside which it is little to write a small result once more


def sum_blocks(found: Contraction, machine: Machine) -> tuple[tuple[Axis, int], ...] | None:
    """How the sum is cut so that a block's operands stay in the cache: (axis, iterations of a block) from outside in.

    None where one pass is as good: few terms, or a large result. Where the result is small beside the columns, blocks
    are short: each processor then packs its own operands, and reads them from the nearest caches.
    """
    size = found.op.bodies[0].dtype.itemsize
    columns, rows = found.points(found.column_axes), found.points(found.row_axes)
    terms, tiles = found.terms, rows * columns / 400
    large_panel = min(columns, 64) * terms * size > machine.l2 // 4
    is_small = rows * columns <= min(terms * 20, machine.l2 // 16 // size) and terms * columns * size >= machine.l2 // 8
    if found.window or found.batch or terms < machine.least.product_terms // (4 if is_small else 1):
        return None
    if not (large_panel or tiles < 8 or is_small) or rows * columns > terms * 64:
        return None
    cuts, blocks = _cuts(found, machine, rows * columns * size, is_small=is_small)
    return tuple(cuts) if blocks >= 2 and blocks * rows * columns * size < MOST_HELD else None


def _cuts(
    found: Contraction, machine: Machine, result: int, *, is_small: bool
) -> tuple[list[tuple[Axis, int]], int]:  # fmt: skip
    """Axis after axis until a block is small enough and there are enough of them, and how many these are."""
    each = (found.points(found.column_axes) + _rows_per_term(found)) * found.op.bodies[0].dtype.itemsize
    # Long blocks, since each writes all of the result once more; its operands come from the next cache, panel by panel.
    budget = max(machine.l2 // 2, min(2 * machine.l2, IN_A_ROW * each))
    if is_small:
        budget = max(machine.l2 // 8, SHORT * each)
    cuts: list[tuple[Axis, int]] = []
    left, blocks = found.terms, 1
    for k, axis in enumerate(found.sums):
        full = found.sizes[axis]
        per = left // full * each
        if per * full <= budget and blocks >= FEW_BLOCKS:
            break
        step = _step(full, int(budget // per), -(-FEW_BLOCKS // blocks))
        if number(axis.extent) is None:
            if blocks >= FEW_BLOCKS or result > MOST_FOR_EACH:
                break
            step = 1
        if step == 1 and k + 1 == len(found.sums):
            break  # of a block, something must be left to sum
        cuts.append((axis, step))
        blocks *= -(-full // step)
        left = left // full * step
        if left * each <= budget and blocks >= FEW_BLOCKS:
            break
    return cuts, blocks


def _step(full: int, most: int, blocks: int) -> int:
    """How long a block is, at most so long and at least so many of them; a divisor where one is near."""
    wanted = max(1, min(most, full // blocks))
    exact = max(n for n in range(1, wanted + 1) if full % n == 0)
    return exact if 2 * exact >= wanted else -(-full // -(-full // wanted))


def _rows_per_term(found: Contraction) -> float:
    """Elements of the rows for each step of the sum."""
    table = copy_of(found.rows, found.sizes, {}, None, found.sums)
    return found.points(found.row_axes) if table is None else table.size / found.terms


def cut(cuts: Sequence[tuple[Axis, int]]) -> tuple[list[Axis], list[Axis], dict[Expr, Expr], list[Expr]]:
    """Loops over blocks and within them, what those of the sum are, and what leaves out the rest of a last block."""
    outer: list[Axis] = []
    inner: list[Axis] = []
    mapping: dict[Expr, Expr] = {}
    conditions: list[Expr] = []
    for axis, step in cuts:
        count = blocks_of(extent_of(axis), step)
        block = Axis(f"{axis.name}_b", count)
        outer.append(block)
        if step == 1:
            mapping[axis] = block
            continue
        within = Axis(axis.name, Const(step, INT32), is_reduce=True)
        inner.append(within)
        at: Expr = within if number(count) == 1 else block * step + within
        extent = number(axis.extent)
        if extent is not None and extent % step:
            conditions.append(at < extent)
            at = minimum(at, extent - 1)
        mapping[axis] = at
    return outer, inner, mapping, conditions


def schedule_total(rw: Rewriting, total: Operation, machine: Machine) -> None:
    """The sum over the blocks, in vectors along its last axis."""
    assert isinstance(total, Compute)
    assert total.reduction is not None
    stage, names = total.name, loop_names(total)
    lane = names[total.axes[-1]]
    lanes = machine.vector_bytes // total.bodies[0].dtype.itemsize
    rw.directives.append(ComputeRoot(stage=stage))
    for part in ("init", "body"):
        rw.directives += [
            Split(stage=stage, definition=part, loop=lane, outer=f"{lane}_o", inner=f"{lane}_v", factor=lanes),
            Vectorize(stage=stage, definition=part, loop=f"{lane}_v"),
        ]
    outer = [names[a] for a in total.axes[:-1]]
    sums = [names[a] for a in total.reduction.axes]
    rw.directives.append(Reorder(stage=stage, loops=(*outer, f"{lane}_o", *sums, f"{lane}_v")))
    rw.planned.add(stage)
