"""Scatters on a GPU: in so many blocks of points that many threads add, each to a table of its own (see `points`).

    out[f(i), c] += g(i, c)   ->   table[b, f(i), c] += g(i, c), a thread for every b and c; out = sum over b of table

The points of a block follow one another, each waiting for memory; a table more is to be filled and read once more. The
blocks are as many as make the sum of both least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from schedules.default.gpu.sums import rewrite_sum
from schedules.default.points.chains import is_known, joined
from schedules.default.points.tables import combined, in_blocks, is_wide
from schedules.default.rewriting import Rewriting
from tedsl.analysis.checks import checked_as
from tedsl.analysis.iteration import free_dimensions
from tedsl.lang import functions as fn
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.reducers import COMBINE
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.tensor import Operation, Scatter

__all__ = ["plan_tables"]

WAIT, BYTE = 0.5, 3e-6  # microseconds: for a point, and for a byte that is filled, added to and read again
LEAST, MOST_BYTES, MOST_THREADS = 4, 1 << 28, 1 << 17  # blocks; of all tables; that are any use


def plan_tables(rw: Rewriting, original: Operation, ops: Sequence[Operation]) -> bool:
    """Rewrite scatters, each of which adds to the one before it; False where the plain loops do."""
    chain = [op for op in ops if isinstance(op, Scatter)]
    op = chain[-1] if len(chain) == 1 else joined(chain)
    cuts = _cuts(op) if is_known(op) and is_wide(op) and not op.unique else []
    if not cuts:
        if len(chain) > 1:
            rw.add(replace(op, name=rw.name(op.name), _outputs={}), original)
        return len(chain) > 1
    made = op
    for axis, blocks in cuts:
        made = in_blocks(made, axis, blocks)
    made = replace(made, name=rw.name(f"{op.name}_table"), _outputs={})
    checked_as(made, chain)
    rw.add(made)
    total = combined(made.output(), op.name if op.init is None else f"{op.name}_total", op.kind, len(cuts))
    if op.init is None:
        rewrite_sum(rw, original, total)
        return True
    rewrite_sum(rw, total, total)
    axes = tuple(Axis(a.name, a.extent) for a in total.axes)
    before: Expr = fn.convert(Read(op.init, axes), op.value.dtype)
    found = Read(rw.new.get(total.output(), total.output()), axes)
    rw.new[original.outputs[0]] = rw.compute(op.name, axes, COMBINE[SCATTER_KINDS[op.kind]](before, found))
    return True


def _cuts(op: Scatter) -> list[tuple[Axis, int]]:
    """The axes whose points go to blocks, the longest ones, and how many of those."""
    own = set(free_dimensions(op).values())
    ordered = [a for a in op.axes if a not in own]
    turns, threads = (math.prod(number(a.extent) or 1 for a in axes) for axes in (ordered, own))
    size = op.value.dtype.itemsize * math.prod(number(e) or 1 for e in op.shape)
    wanted = min(math.isqrt(int(turns * WAIT / (size * BYTE))), MOST_BYTES // size, MOST_THREADS // threads)
    cuts: list[tuple[Axis, int]] = []
    for axis in sorted(ordered, key=lambda a: -(number(a.extent) or 0)):
        if wanted < (2 if cuts else LEAST):
            break
        blocks = min(wanted, number(axis.extent) or 1)
        cuts.append((axis, blocks))
        wanted //= blocks
    return cuts
