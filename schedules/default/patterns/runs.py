"""What a reduction reads in one piece of memory: rows that follow one another, reduced, of columns that are not.

out[i, k] = reduce over r of x[i, r, k]        a run of rows r, as many columns as x has last elements
out[i]    = reduce over r, c of x[i, r, c]     a run of r and c, no columns

A row may be weighted: of v[i, r] x[i, r, k] the run is that of x.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import replace

from schedules.default.rewriting import Rewriting
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.operand_types import COMPARE
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, replaced_all, topological

__all__ = ["Run", "digits", "over_cheap_stages", "run_of", "size_of"]

FEW_OPERATIONS, MOST_WRITTEN = 6, 4
FEW_ROWS = 32  # each with a weight: sums that are unrolled are as good
CHEAP = frozenset({Fn.ADD, Fn.SUB, Fn.MUL, Fn.NEG, Fn.ABS, Fn.MINIMUM, Fn.MAXIMUM, Fn.SELECT, Fn.CAST}) | COMPARE


@dataclass(frozen=True)
class Run:
    """Neighbouring axes of all that is read, the last ones: some that are reduced, then columns that are not."""

    reduced: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    @property
    def width(self) -> int:
        """The number of columns."""
        return math.prod(size_of(a) for a in self.columns)

    @property
    def length(self) -> int:
        """The number of rows of so many columns."""
        return math.prod(size_of(a) for a in self.reduced)

    def at(self, row: Expr, column: Expr) -> dict[Expr, Expr]:
        """The axes at a row and column."""
        return digits(self.reduced, row) | digits(self.columns, column)


def size_of(axis: Axis) -> int:
    return number(axis.extent) or 0


def digits(axes: Sequence[Axis], place: Expr) -> dict[Expr, Expr]:
    """The axes at the element of that number of the box that they walk through."""
    found: dict[Expr, Expr] = {}
    for axis in axes[:0:-1]:
        found[axis], place = place % size_of(axis), place // size_of(axis)
    if axes:
        found[axes[0]] = place
    return found


def run_of(op: Compute) -> Run | None:
    """The run that all reads with one of its axes have in common; nothing else depends on these."""
    reduce = op.reduction
    assert reduce is not None
    reads = [r for r in reads_of((reduce.values[0],)) if set(reduce.axes).intersection(free_axes(r.indices))]
    if not reads or any(not _is_known(a) for a in (*op.axes, *reduce.axes)):
        return None
    sums, ends = set(reduce.axes), [_suffix(r, op, reduce) for r in reads]
    axes = max((along for along, _ in ends), key=len)
    found = Run(tuple(a for a in axes if a in sums), tuple(a for a in axes if a not in sums))
    rows = [along for along, _ in ends if not _are_same(along, axes)]  # of what a whole row is weighted with
    if not found.reduced or not all(_are_same(along, found.reduced) for along in rows):
        return None
    if rows and found.length <= FEW_ROWS:
        return None
    # Nothing else may hang on the row. A lane knows its column, and the row whose weight it is multiplied by.
    apart = [i for _, others in ends for i in others]
    unread: dict[Expr, Expr] = {r: Const(0, r.dtype) for r in reads}
    rest = replaced_all((reduce.values[0], reduce.where), unread)
    return None if set(found.reduced).intersection(free_axes((*apart, *rest))) else found


def _are_same(some: Sequence[Axis], others: Sequence[Axis]) -> bool:
    return [*map(id, some)] == [*map(id, others)]


def _is_known(axis: Axis) -> bool:
    return bool(number(axis.extent)) and number(axis.begin) == 0


def _suffix(read: Read, op: Compute, reduce: Reduce) -> tuple[tuple[Axis, ...], Sequence[Expr]]:
    """The last indices of a read that are columns of the result, and loops of the reduction before them; the others.

    All but the first of the last ones walk through their dimension from end to end. What has one place does not count.
    """
    every = set(op.axes)
    sums, columns, found = set(reduce.axes), set(op.axes), list[Axis]()
    indices = [i for i, n in zip(read.indices, read.tensor.extents, strict=True) if number(n) != 1]
    extents = [n for n in read.tensor.extents if number(n) != 1]
    for index, extent in zip(indices[::-1], extents[::-1], strict=True):
        if not isinstance(index, Axis) or index not in sums | columns:
            break
        if index in sums:
            columns = set()  # these are last
        found.append(index)
        sums, columns = sums - {index}, columns - {index}
        if number(index.extent) != number(extent):
            break
    while found and found[-1] in every:
        found.pop()
    return tuple(found[::-1]), indices[: len(indices) - len(found)]


def over_cheap_stages(rw: Rewriting, op: Compute) -> Compute:
    """The reduction with what stages compute by a few operations in place of their elements.

    Halide puts in what is inlined after the places are made, where it no longer sees that quotients cancel.
    """
    windows = {
        made for made in rw.stages if rw.kinds.get(made.name) == "window"
    }  # summed where their copies are stored
    stages = {m for m in rw.stages if m.name not in rw.planned and windows.isdisjoint(t.op for t in m.inputs)}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor.op not in stages or not _is_cheap(node.tensor.op):
            return node
        assert isinstance(node.tensor.op, Compute)
        return node.tensor.op.written_at(node)

    bodies = op.bodies
    for _ in range(MOST_WRITTEN):
        before, bodies = bodies, rebuild_all(bodies, rule)
        if all(map(operator.is_, before, bodies)):
            break
    return op if bodies is op.bodies else replace(op, bodies=bodies, _outputs={})


def _is_cheap(op: Operation) -> bool:
    if not isinstance(op, Compute) or op.reduction is not None or len(op.bodies) != 1:
        return False
    made = [n for n in topological(op.bodies) if isinstance(n, Apply)]
    return len(made) <= FEW_OPERATIONS and all(n.fn in CHEAP for n in made)
