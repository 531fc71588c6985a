"""Rows with a border around them, so that a window over a row is read in vectors from end to end.

A read like x[i, j + v - 1] leaves the row at both ends, where it is guarded and its index held inside. A vector of
such indices does not lie side by side in memory and is loaded lane by lane, in a row of seven vectors six times. Here

    padded[i, j] = x[i, j - L] inside, else what the guard gives, or the end of the row    for j in [0, n + 2L)

is made first, with L lanes on each side: whole vectors lie inside or outside. The window then reads it without a guard.
Rows that are reflected or go on from their other end are made of a row and of `ends`, a vector for each side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from schedules.conditions import extremes, reflected
from schedules.default.costs import INLINE, element_cost, is_pointwise
from schedules.default.groups import MOST_BYTES
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import naturals
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.polynomials import Affine
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor
from tedsl.lang.traverse import conjuncts, reads_of, rebuild_all, topological

__all__ = ["MOST_TERMS", "is_window", "padded_windows"]

MOST_TERMS = 32  # of a window
LEAST_LANES = 4
# How an index is brought back into a row.
_FOLDS: dict[str, Callable[[Expr, int], Expr]] = {
    "clamp": lambda i, n: fn.minimum(fn.maximum(i, 0), n - 1),
    "also clamp": lambda i, n: fn.clip(i, 0, n - 1),
    "reflect": lambda i, n: reflected(i, n - 1),
    "wrap": lambda i, n: i % n,
}


def is_window(op: Compute) -> bool:
    """Whether a stage is a reduction of a few terms whose loops are written out."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) != 1 or reduce.reducer.kind not in COMBINE or len(op.axes) < 2:
        return False
    if op.looks_up or any(number(a.extent) is None for a in (*op.axes, *reduce.axes)):
        return False
    return math.prod(number(a.extent) or 0 for a in reduce.axes) <= MOST_TERMS


def padded_windows(rw: Rewriting, op: Compute, machine: Machine) -> Compute:
    """The operation, its reads that leave a row at the ends replaced by reads of padded rows."""
    if not is_window(op):
        return op
    window = _Window(rw, op, machine)
    bodies = rebuild_all(op.bodies, window.rule)
    if isinstance(bodies[0], Reduce):
        bodies = (window.guarded(bodies[0]),)
    return replace(op, bodies=bodies, _outputs={}) if window.made else op


@dataclass
class _Window:
    """The padded tensors that one operation reads, by what they are made of and what stands outside.

    Outside stands a value, or the row goes on as a mode says.
    """

    rw: Rewriting
    op: Compute
    machine: Machine
    made: dict[tuple[Tensor, Expr | str], Tensor] = field(default_factory=dict)

    def rule(self, node: Expr) -> Expr:
        """A read that a guard or a clamp holds inside its row, by one of a padded row."""
        if isinstance(node, Apply) and node.fn is Fn.SELECT and isinstance(node.args[2], Const):
            guard, read, rest = node.args
            if isinstance(read, Read):
                outer = _without_ends(guard, read)
                lanes = 0 if outer is guard else _lanes(self.op, read, self.machine)
                if lanes:
                    moved = self.moved(read, rest, lanes)
                    return moved if outer is TRUE else fn.select(outer, moved, rest)
        if isinstance(node, Read) and (found := _unfolded(node)) is not None:
            free, mode = found
            lanes = _lanes(self.op, free, self.machine)
            short = lanes == number(node.tensor.extents[-1])  # a mirrored row of one vector would begin beyond its end
            return self.moved(free, mode, lanes) if lanes and not short else node
        return node

    def guarded(self, reduce: Reduce) -> Expr:
        """A sum of elements, whose terms outside of the row may as well be 0."""
        (read,) = reduce.values if len(reduce.values) == 1 else (None,)
        if reduce.reducer.kind != "sum" or not isinstance(read, Read):
            return reduce
        outer = _without_ends(reduce.where, read)
        lanes = 0 if outer is reduce.where else _lanes(self.op, read, self.machine)
        if not lanes:
            return reduce
        moved = self.moved(read, Const(0.0, read.dtype), lanes)
        return Reduce(reduce.reducer, (moved,), reduce.axes, outer, reduce.index)

    def moved(self, read: Read, rest: Expr | str, lanes: int) -> Expr:
        """The read of a padded tensor in place of one that leaves its rows."""
        tensor = read.tensor
        if (tensor, rest) not in self.made:
            self.made[tensor, rest] = self.padded(tensor, rest, lanes)
        return Read(self.made[tensor, rest], (*read.indices[:-1], read.indices[-1] + lanes))

    def padded(self, tensor: Tensor, rest: Expr | str, lanes: int) -> Tensor:
        """The stage of the padded rows."""
        extents = [number(e) or 0 for e in tensor.extents]
        axes = [Axis(f"p{k}", Const(n, INT32)) for k, n in enumerate((*extents[:-1], extents[-1] + 2 * lanes))]
        last, count = axes[-1], extents[-1] // lanes
        vector = last // lanes

        def at(index: Expr) -> Expr:
            return Read(tensor, (*axes[:-1], index))

        if isinstance(rest, Expr):
            before = behind = rest
        elif rest == "clamp":
            before, behind = at(Const(0, INT32)), at(Const(extents[-1] - 1, INT32))
        else:
            side = fn.clip(vector - count, 0, 1)
            before = behind = Read(self.ends(tensor, rest, lanes), (*axes[:-1], side * lanes + last % lanes))
        inside = at(fn.clip(vector - 1, 0, count - 1) * lanes + last % lanes)
        return self.rows(
            "padded", axes, fn.select(vector < 1, before, fn.select(vector > count, behind, inside)), lanes
        )

    def ends(self, tensor: Tensor, mode: str, lanes: int) -> Tensor:
        """The stage of the elements before each row, and of those behind it."""
        extents = [number(e) or 0 for e in tensor.extents]
        axes = [Axis(f"e{k}", Const(n, INT32)) for k, n in enumerate((*extents[:-1], 2 * lanes))]
        lane, n = axes[-1] % lanes, extents[-1]
        # Distances, where differences would count down: Halide is told nothing of the ends of what is read backwards.
        places = (fn.abs(lane - lanes), fn.abs(lane - (n - 2))) if mode == "reflect" else (lane + (n - lanes), lane)
        before, behind = (Read(tensor, (*axes[:-1], place)) for place in places)
        body = fn.select(axes[-1] < lanes, before, behind)
        return self.rows("ends", axes, body, lanes)

    def rows(self, name: str, axes: Sequence[Axis], body: Expr, lanes: int) -> Tensor:
        """A stage whose rows are whole vectors of so many lanes."""
        made = self.rw.compute(f"{self.op.name}_{name}", axes, body)
        self.rw.kinds[made.op.name], self.rw.widths[made.op.name] = "padded", lanes
        return made


def _unfolded(read: Read) -> tuple[Read, str] | None:
    """The read with its last index free to leave the row, and how that was held inside."""
    if not read.indices or not isinstance(read.indices[-1], Apply):
        return None
    last, extent = read.indices[-1], number(read.tensor.extents[-1])
    if extent is None:
        return None
    for free in topological(last):
        mode = next((m for m, fold in _FOLDS.items() if free.dtype is INT32 and fold(free, extent) is last), None)
        if mode is not None:
            return Read(read.tensor, (*read.indices[:-1], free)), mode.removeprefix("also ")
    return None


def _lanes(op: Compute, read: Read, machine: Machine) -> int:
    """Lanes of the border that a read needs; 0 where none helps."""
    tensor = read.tensor
    if not read.indices or not op.axes or tensor.dtype.itemsize != 4 or not tensor.dtype.is_float:
        return 0
    form, extent = affine_of(read.indices[-1]), number(tensor.extents[-1])
    # Rows read with a stride are longer than what comes of them: copying them took more than their first vectors did.
    if form is None or extent is None or abs(form.terms.get((op.axes[-1],), 0)) != 1 or not _is_near(op, read):
        return 0
    ends = extremes(form)
    lanes = machine.vector_bytes // 4
    while lanes >= LEAST_LANES and extent % lanes:
        lanes //= 2
    if ends is None or lanes < LEAST_LANES or (ends[0] >= 0 and ends[1] < extent):
        return 0
    return lanes if ends[0] >= -lanes and ends[1] < extent + lanes else 0


def _is_near(op: Compute, read: Read) -> bool:
    """Whether padded rows stay in the cache: they are made where they are used, or in place of what is read."""
    tensor = read.tensor
    if isinstance(tensor.op, Compute):
        return is_pointwise(tensor.op) and element_cost(tensor.op) <= INLINE and _is_stored(tensor.op)
    shared = 0
    while shared < len(op.axes) - 2 and read.indices[shared] is op.axes[shared]:
        shared += 1
    sizes = [number(e) for e in tensor.extents[shared:]]
    if shared == 0 or None in sizes:
        return False
    return math.prod(n or 0 for n in sizes) * tensor.dtype.itemsize * 2 <= MOST_BYTES


def _is_stored(op: Operation) -> bool:
    """Whether a cheap stage is made of more than inputs: else it is computed where it is read, and not stored."""
    seen, todo = {op}, [op]
    while todo:
        for below in (r.tensor.op for r in reads_of(todo.pop().expressions)):
            if not isinstance(below, Placeholder) and not is_pointwise(below):
                return True
            if not isinstance(below, Placeholder) and below not in seen:
                seen.add(below)
                todo.append(below)
    return False


def _without_ends(guard: Expr, read: Read) -> Expr:
    """The guard without the conditions that the last index lies in its row."""
    index = affine_of(read.indices[-1]) if read.indices else None
    extent = number(read.tensor.extents[-1]) if read.indices else None
    if index is None or extent is None:
        return guard
    ends = {index.key, (Affine({}, extent - 1) - index).key}
    parts = conjuncts(guard)
    kept = [p for p in parts if (form := _natural(p)) is None or form.key not in ends]
    if len(kept) == len(parts):
        return guard
    return functools.reduce(fn.logical_and, kept) if kept else TRUE


def _natural(condition: Expr) -> Affine | None:
    """A form that is at least 0 where the comparison holds, and nowhere else."""
    if not isinstance(condition, Apply) or condition.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE):
        return None
    left, right = (affine_of(a) for a in condition.args)
    if left is None or right is None:
        return None
    ((form,),) = naturals(condition.fn, left - right)
    return form
