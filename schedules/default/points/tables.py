"""A scatter in blocks of its points, each with a table of its own, and the tables combined in order.

    out[f(i)] += g(i)   ->   table[b, f(i)] += g(i) for every i of block b; out[s] = sum over b of table[b, s]

Blocks are cut by the sizes alone, so a result is the same in every run and on any number of threads.
"""

from __future__ import annotations

from dataclasses import replace

from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.tensor import Compute, Scatter, Tensor
from tedsl.lang.traverse import substitute_all

__all__ = ["combined", "in_blocks", "is_wide"]


def is_wide(op: Scatter) -> bool:
    """Whether partial results lose nothing."""
    return op.value.dtype.itemsize >= 4 or op.value.dtype.is_integer


def in_blocks(op: Scatter, axis: Axis, blocks: int) -> Scatter:
    """The tables: a scatter with a first dimension more, its blocks those of an axis."""
    count, begin = number(axis.extent) or 0, number(axis.begin) or 0
    step = -(-count // blocks)
    size = Const(blocks, INT32)
    block = Axis("block", size, is_reduce=True)
    within = Axis(axis.name, Const(step, INT32), is_reduce=True)
    at: Expr = block * step + within
    guard = TRUE if count % blocks == 0 else at < count
    mapping: dict[Expr, Expr] = {axis: fn.minimum(at, count - 1) + begin if guard is not TRUE else at + begin}
    *rows, value, where = substitute_all((*op.index, op.value, op.guard), mapping)
    axes = [new for a in op.axes for new in ((block, within) if a is axis else (a,))]
    return replace(
        op, shape=(size, *op.shape), axes=tuple(axes), index=(block, *rows), value=value,
        guard=where if guard is TRUE else fn.logical_and(guard, where), init=None, unique=False, _outputs={},
    )  # fmt: skip


def combined(table: Tensor, name: str, kind: str, dims: int = 1) -> Compute:
    """The tables of all blocks, which are the first dimensions, combined in order."""
    blocks = tuple(Axis("block", e, is_reduce=True) for e in table.extents[:dims])
    axes = tuple(Axis(f"d{d}", e) for d, e in enumerate(table.extents[dims:]))
    body = Reduce(BUILTIN[SCATTER_KINDS[kind]], (Read(table, (*blocks, *axes)),), blocks, TRUE, 0)
    return Compute(name=name, axes=axes, bodies=(body,), where="")
