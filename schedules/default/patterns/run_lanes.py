"""Reductions over what lies in one piece of memory, in vectors that run on from one short row into the next.

    partial[i, u] = reduce over o of x[i, the row and column of o * L + u]      vectors side by side
    out[i, k]     = the tree over the lanes of partial[i] that are column k, and what is left over

Rows of three numbers fill three lanes of a vector. With n columns, L is a multiple of n and of a vector, so that a lane
has one column; where all of the last axes are reduced there is no column, and L is a few vectors. The order is fixed by
the sizes alone. That a vector lies in one piece shows only where the strides are known: see `facts.is_compact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from schedules.default.patterns.runs import Run, digits, over_cheap_stages, run_of, size_of
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import substitute_all

__all__ = ["Combine", "rewrite_run"]

Combine = Callable[[Expr, Expr], Expr]
MOST_VECTORS = 16  # of partial results, which stay in registers
CHAINS = 4  # vectors from which on an addition does not wait for the one before
FULL = 0.95  # share of the lanes that do something, from which on rows are vectors as they are
LEFT = 4  # terms that may be left over, whatever the run
SHARE = 16  # of a run that may be left over


def rewrite_run(rw: Rewriting, original: Operation, op: Compute, machine: Machine, combine: Combine, few: int) -> bool:
    """Rewrite a reduction over a run of memory; False where it is none, or where vectors along its rows are as full.

    It is cut into `few` blocks at least, if that is more than one.
    """
    op = over_cheap_stages(rw, op)
    reduce = op.reduction
    assert reduce is not None
    run = run_of(op)
    width = max(4, machine.vector_bytes // max(4, reduce.values[0].dtype.itemsize))
    if run is None or _fills(run, width):
        return False
    lanes = _lanes(run, width, max(1, CHAINS // rw.company) if rw.company > 2 else CHAINS)
    if lanes == 0:
        return False
    step = lanes // run.width
    around = math.prod(size_of(a) for a in reduce.axes) // run.length
    rounds = reduce.values[0].dtype.is_float and reduce.reducer.kind == "sum"
    count = max(few, -(-run.length * around // (step * machine.least.chain)) if rounds else 1)
    block = run.length // max(1, min(count, run.length)) // step * step
    if count > 1 and block >= 2 * step and run.length >= 2 * block:
        _Blocks(rw, op, reduce, run, block).rewrite(original, lanes, width, combine)
    elif count > 1 and around > 1:
        return False
    else:
        _Lanes(rw, op, reduce, run, lanes, width, combine).rewrite(original)
    return True


def _fills(run: Run, width: int) -> bool:
    """Whether vectors along the last axis alone are nearly full."""
    if run.columns:
        return run.width >= FULL * width * -(-run.width // width)
    last = size_of(run.reduced[-1])
    return len(run.reduced) == 1 or last >= FULL * 2 * width * -(-last // (2 * width))


def _lanes(run: Run, width: int, chains: int) -> int:
    """Lanes of partial results: so many vectors that additions overlap, little left over; 0 for none."""
    one = math.lcm(run.width, width)
    if one > MOST_VECTORS * width:
        return 0
    for times in (8, 4, 2, 1):
        lanes = times * one
        rounds, left = divmod(run.length * run.width, lanes)
        few = left // run.width <= max(LEFT, run.length // SHARE)
        if lanes <= max(chains * width, one) and rounds >= 2 and (few or times == 1):
            return lanes
    return 0


@dataclass(frozen=True)
class _Blocks:
    """A reduction in blocks of so many rows of its run, each reduced by lanes, and what is left over of the run."""

    rw: Rewriting
    op: Compute
    reduce: Reduce
    run: Run
    rows: int

    def rewrite(self, original: Operation, lanes: int, width: int, combine: Combine) -> None:
        rw, op, count = self.rw, self.op, self.run.length // self.rows
        block = Axis("block", Const(count, INT32))
        part, run = self._part("partial", self.rows, block * self.rows, block)
        assert part.reduction is not None
        _Lanes(rw, part, part.reduction, run, lanes, width, combine).rewrite(part)
        every = Axis("block", block.extent, is_reduce=True)
        fresh = tuple(_fresh(op.axes).values())
        first = count * self.rows
        at = tuple(op.axes) if first == self.run.length else fresh
        body = Reduce(self.reduce.reducer, (Read(rw.new[part.output()], (every, *at)),), (every,), TRUE, 0)
        if first == self.run.length:
            rw.add(replace(op, name=rw.name(op.name), names=None, bodies=(body,), _outputs={}), original)
            return
        total = rw.compute(f"{op.name}_blocks", fresh, body)
        rest, _ = self._part("rest", self.run.length - first, first)
        left = rw.add(replace(rest, name=rw.name(rest.name), _outputs={})).outputs[0]
        rw.add_total(op, original, combine(Read(total, tuple(op.axes)), Read(left, tuple(op.axes))))

    def _part(self, name: str, rows: int, begin: Expr | int, *outer: Axis) -> tuple[Compute, Run]:
        """The reduction over so many rows of the run."""
        fresh = _fresh(self.op.axes)
        row = Axis("row", Const(rows, INT32), is_reduce=True)
        loops = [a for a in self.reduce.axes if a not in set(self.run.reduced)]
        around: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in loops}
        at: dict[Expr, Expr] = {**fresh, **around, **digits(self.run.reduced, row + begin)}
        value, where = substitute_all((self.reduce.values[0], self.reduce.where), at)
        body = Reduce(self.reduce.reducer, (value,), (*around.values(), row), where, 0)
        axes = (*outer, *fresh.values())
        made = replace(self.op, name=f"{self.op.name}_{name}", axes=axes, names=None, bodies=(body,), _outputs={})
        return made, Run((row,), tuple(fresh[a] for a in self.run.columns))


@dataclass(frozen=True)
class _Lanes:
    """The stages that take the place of a reduction."""

    rw: Rewriting
    op: Compute
    reduce: Reduce
    run: Run
    lanes: int
    width: int
    combine: Combine

    @property
    def kept(self) -> tuple[Axis, ...]:
        """The axes of the result but for the columns."""
        return tuple(a for a in self.op.axes if a not in set(self.run.columns))

    @property
    def loops(self) -> tuple[Axis, ...]:
        """The loops of the reduction around the run."""
        return tuple(a for a in self.reduce.axes if a not in set(self.run.reduced))

    @property
    def rounds(self) -> int:
        return self.run.length * self.run.width // self.lanes

    def rewrite(self, original: Operation) -> None:
        """Vectors of partial results, folded to as few as have whole rows, and the lanes of a column combined."""
        rw, one = self.rw, math.lcm(self.run.width, self.width)
        held = rw.compute(f"{self.op.name}_partial", *self._partial())
        rw.kinds[held.op.name], stages = "partial", [held]
        if self.lanes > one:
            fresh, lane = _fresh(self.kept), Axis("lane", Const(one, INT32))
            at = tuple(fresh.values())
            parts: list[Expr] = [Read(held, (*at, lane + k)) for k in range(0, self.lanes, one)]
            held = rw.compute(f"{self.op.name}_folded", (*at, lane), _tree(parts, self.combine))
            rw.kinds[held.op.name] = "folded"
            stages.append(held)
        column = _numbered(self.run.columns)
        parts = [Read(held, (*self.kept, column + k)) for k in range(0, one, self.run.width)]
        body = _tree(parts, self.combine)
        left = self._left()
        body = body if left is None else self.combine(body, left)
        rw.add(replace(self.op, name=rw.name(self.op.name), names=None, bodies=(body,), _outputs={}), original)
        root = rw.stages[-1].name
        rw.kinds[root] = "tree"
        if self.run.columns and self.run.width < self.width:
            rw.widths[root] = 1
        for stage in stages:
            rw.inside[stage.op.name], rw.widths[stage.op.name] = root, self.width

    def _partial(self) -> tuple[tuple[Axis, ...], Reduce]:
        fresh, lane = _fresh(self.kept), Axis("lane", Const(self.lanes, INT32))
        outer = Axis(f"{self.run.reduced[0].name}_o", Const(self.rounds, INT32), is_reduce=True)
        n = self.run.width
        at = self.run.at(outer * (self.lanes // n) + (lane // n if n > 1 else lane), lane % n)
        return (*fresh.values(), lane), self._over(outer, {**fresh, **at})

    def _over(self, inner: Axis | None, mapping: Mapping[Expr, Expr]) -> Reduce:
        """The reduction over its loops around the run, and another one, with its other axes replaced."""
        around: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in self.loops}
        value, where = substitute_all((self.reduce.values[0], self.reduce.where), {**mapping, **around})
        loops = (*around.values(), *(() if inner is None else (inner,)))
        return Reduce(self.reduce.reducer, (value,), loops, where, 0)

    def _left(self) -> Expr | None:
        """What the vectors leave over of the run: a few rows, written out, or with loops a stage of their own."""
        n = self.run.width
        rows = range(self.rounds * (self.lanes // n), self.run.length)
        if not rows:
            return None
        if len(rows) <= LEFT and not self.loops and self.reduce.where is TRUE:
            values = [
                substitute_all((self.reduce.values[0],), digits(self.run.reduced, Const(row, INT32)))[0] for row in rows
            ]
            return _chain(values, self.combine)
        fresh = _fresh(self.op.axes)
        row = Axis("row", Const(len(rows), INT32), is_reduce=True)
        at: dict[Expr, Expr] = {**fresh, **digits(self.run.reduced, row + rows.start)}
        made = self.rw.compute(f"{self.op.name}_left", tuple(fresh.values()), self._over(row, at))
        self.rw.inside[made.op.name] = self.op.name
        return Read(made, tuple(self.op.axes))


def _fresh(axes: Sequence[Axis]) -> dict[Expr, Axis]:
    return {a: Axis(a.name, a.extent) for a in axes}


def _numbered(axes: Sequence[Axis]) -> Expr:
    place: Expr = Const(0, INT32)
    for axis in axes:
        place = place * size_of(axis) + axis
    return place


def _chain(parts: Sequence[Expr], combine: Combine) -> Expr:
    found = parts[0]
    for part in parts[1:]:
        found = combine(found, part)
    return found


def _tree(parts: Sequence[Expr], combine: Combine) -> Expr:
    """A power of two of parts, the first half with the second until one is left."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [combine(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]
