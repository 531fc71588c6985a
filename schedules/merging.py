"""Neighbouring axes that a whole program walks together, and the same program with each such run as one axis.

A picture of 1024 x 1024 x 3 is a row of three million numbers to whoever treats its pixels alike, and vectors fill with
those, where three channels leave thirteen of sixteen lanes idle. Two axes of a tensor are one where every stage that
reads or makes it has them side by side, in this order, and does nothing else with either: the second one whole, the
first one also from another place on, and compared with numbers, as in a concatenation of rows. The arrays must be
contiguous, which a call knows.

    select(i < 5, a[i, j], b[i - 5, j])   ->   select(f < 5 * 27, a[f], b[f - 5 * 27])      for j < 27
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TypeVar

from schedules.conditions import tidied
from schedules.program import reading
from schedules.sizes import extent_of
from tedsl.analysis.affine import with_plain_indices
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce, Var
from tedsl.lang.extents import number, same_extent, simplify_extent
from tedsl.lang.tensor import Compute, Extern, Operation, Placeholder, Tensor
from tedsl.lang.traverse import free_axes, operations_between, rebuild_all, substitute_all

__all__ = ["Merging", "merging_of", "moved", "product"]

LARGEST = 2**31 - 1
NARROW, WIDE, LANES = 64, 256, 16
STREAM = 1024  # columns that are reduced side by side

T = TypeVar("T", int, Axis)
# An axis of a tensor by its place, or a loop of an operation: together with the next one.
Pair = tuple[Tensor | Operation, int | Axis]


@dataclass(frozen=True)
class Merging:
    """The program on other axes; `runs` tells for a tensor how many of its axes each of the new ones is.

    -n stands for an axis that is two new ones, the second one of n elements. `sizes` are symbols of its own, and what
    they are of those of the program.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    runs: Mapping[Tensor, tuple[int, ...]]
    sizes: Mapping[Var, Expr] = field(default_factory=dict)
    is_of_rows: bool = False


def merging_of(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Merging | None:
    """The program with its axes merged; None where no vectors would fill better."""
    if any(isinstance(op, Extern) for op in operations_between(inputs, outputs)):
        return None
    operations = [(op, _without_units(op)) for op in operations_between(inputs, outputs)]
    pairs = _Pairs({(t.extents, t.dtype) for t in inputs}.isdisjoint((t.extents, t.dtype) for t in outputs))
    for op, plain in operations:
        pairs.look_at(op, plain)
    apart = pairs.apart()
    loops = [
        (op, axes)
        for op, plain in operations
        if isinstance(plain, Compute)
        for axes in (plain.axes, () if plain.reduction is None else plain.reduction.axes)
    ]
    if not any(_gains(axes, apart, op) for op, axes in loops):
        return None
    tensors = dict.fromkeys((*inputs, *(t for op, _ in operations for t in op.outputs)))
    if any(math.prod(number(e) or 1 for e in t.extents) > LARGEST for t in tensors):
        return None
    runs = {t: tuple(map(len, _runs(range(t.ndim), apart, t))) for t in tensors}
    wholes = [product(a.extent for a in run) for op, axes in loops for run in _runs(axes, apart, op) if len(run) > 1]
    one = _of_one_size(wholes)
    new = {t: _placeholder(t, runs[t], one) for t in inputs}
    for op, plain in operations:
        if not isinstance(op, Placeholder):
            made = _merged(op, plain, new, runs, apart, one)
            new.update(zip(op.outputs, made.outputs, strict=True))
    sizes = {symbol: whole for whole, symbol in one.items()}
    return Merging(tuple(new[t] for t in inputs), tuple(new[t] for t in outputs), runs, sizes)


def _of_one_size(wholes: Sequence[Expr]) -> dict[Expr, Var]:
    """A symbol for the iterations of merged loops that all have the same, of sizes that are not known.

    Of a symbol more is known than of a product, which may leave int32.
    """
    symbolic = dict.fromkeys(whole for whole in wholes if number(whole) is None)
    return {next(iter(symbolic)): Var("size")} if len(symbolic) == 1 else {}


def _without_units(op: Operation) -> Operation:
    """The operation without loops over a single term, which leave more of its indices plain axes."""
    reduce = op.reduction if isinstance(op, Compute) else None
    units: dict[Expr, Expr] = {}
    if reduce is not None:
        units = {a: a.begin for a in reduce.axes if number(a.extent) == 1 and number(a.begin) == 0}
    if reduce is None or not 0 < len(units) < len(reduce.axes):
        return op
    assert isinstance(op, Compute)
    rest = tuple(a for a in reduce.axes if a not in units)
    bodies = [b.with_axes(rest) for b in op.bodies if isinstance(b, Reduce)]
    return replace(op, bodies=tidied(rebuild_all(substitute_all(bodies, units), with_plain_indices)), _outputs={})


class _Pairs:
    """Which pairs are one axis or two for all alike, and which are two for somebody.

    `moves`: rows may be read from another place on. Where a result may lie in the memory of an input they are not: what
    is written before it is read is told by rows.
    """

    def __init__(self, moves: bool) -> None:
        self._moves = moves
        self._alike: dict[Pair, list[Pair]] = {}
        self._apart: dict[Pair, None] = {}

    def look_at(self, op: Operation, plain: Operation) -> None:
        """Note what an operation does with its loops, and with the axes of what it reads and makes."""
        if not isinstance(plain, Compute):
            tensors = () if isinstance(op, Placeholder) else (*op.inputs, *op.outputs)
            self._apart.update(((t, place), None) for t in tensors for place in range(t.ndim - 1))
            return
        reduce = plain.reduction
        after = dict([*pairwise(plain.axes), *(pairwise(reduce.axes) if reduce is not None else ())])
        for first, second in after.items():
            if not (_is_whole(first) and _is_whole(second)):
                self._apart[op, first] = None
        for place, first in enumerate(plain.axes[:-1]):
            for t in op.outputs:
                self._join((t, place), (op, first))
        before = {second: first for first, second in after.items()}
        for node in plain.nodes:
            if isinstance(node, Read):
                self._look_at_read(op, node, after, before)
            elif self._moves and (compared := _compared(node)) is not None:
                self._use_first(op, compared.axis, after, before)
            elif not self._moves or moved(node) is None:
                self._use_apart(op, [p[0] for c in node.children if (p := moved(c)) is not None], before)
        self._use_apart(op, plain.bodies, before)

    def _use_first(self, op: Operation, axis: Axis, after: Mapping[Axis, Axis], before: Mapping[Axis, Axis]) -> None:
        """Note a use that a loop may have as the first one of a pair, but not as the second one."""
        if axis not in after:
            self._apart[op, axis] = None
        if axis in before:
            self._apart[op, before[axis]] = None

    def _use_apart(self, op: Operation, nodes: Iterable[Expr], before: Mapping[Axis, Axis]) -> None:
        for axis in nodes:
            if isinstance(axis, Axis):
                self._apart[op, axis] = None
                if axis in before:
                    self._apart[op, before[axis]] = None

    def _look_at_read(self, op: Operation, read: Read, after: Mapping[Axis, Axis], before: Mapping[Axis, Axis]) -> None:
        extents, last = read.tensor.extents, len(read.indices) - 1
        places = [moved(index) for index in read.indices]
        for place, found in enumerate(places):
            if found is None:
                self._apart[read.tensor, place] = None
                continue
            index, away = found
            following = read.indices[place + 1] if place < last else None
            if isinstance(following, Axis) and after.get(index) is following and _is_of(following, extents[place + 1]):
                self._join((read.tensor, place), (op, index))
            else:
                self._apart[read.tensor, place] = self._apart[op, index] = None
            if index in before and (away or place == 0 or (places[place - 1] or (None,))[0] is not before[index]):
                self._apart[op, before[index]] = None

    def _join(self, one: Pair, other: Pair) -> None:
        self._alike.setdefault(one, []).append(other)
        self._alike.setdefault(other, []).append(one)

    def apart(self) -> set[Pair]:
        """The pairs that are two axes."""
        known, pending = set(self._apart), list(self._apart)
        while pending:
            fresh = [p for p in self._alike.get(pending.pop(), ()) if p not in known]
            known.update(fresh)
            pending += fresh
        return known


def moved(node: Expr) -> tuple[Axis, int] | None:
    """The loop and the number whose sum an index is."""
    if isinstance(node, Axis):
        return node, 0
    if isinstance(node, Apply) and node.fn in (Fn.ADD, Fn.SUB) and node.dtype is INT32:
        axis, away = node.args
        if isinstance(axis, Axis) and isinstance(away, Const):
            return axis, int(away.value) if node.fn is Fn.ADD else -int(away.value)
    return None


@dataclass(frozen=True)
class _Compared:
    """Whether a loop is below a number (or not, `is_below` false)."""

    axis: Axis
    number: int
    is_below: bool

    def of(self, axis: Axis, inner: Expr) -> Expr:
        """The same of a loop of which each iteration is so many of another one."""
        end = product([simplify_extent(fn.minimum(max(self.number, 0), extent_of(self.axis))), inner])
        return axis < end if self.is_below else axis >= end


def _compared(node: Expr) -> _Compared | None:
    """A loop that is compared with a number."""
    if not isinstance(node, Apply) or node.fn not in _BELOW or node.args[0].dtype is not INT32:
        return None
    found, end = moved(node.args[0]), node.args[1]
    if found is None or not isinstance(end, Const) or not isinstance(node.args[0], (Axis, Apply)):
        return None
    axis, away = found
    more, is_below = _BELOW[node.fn]
    return _Compared(axis, int(end.value) - away + more, is_below)


_BELOW = {Fn.LT: (0, True), Fn.LE: (1, True), Fn.GE: (0, False), Fn.GT: (1, False)}


def _is_whole(axis: Axis) -> bool:
    return axis.extent is not None and number(axis.begin) == 0


def _is_of(axis: Axis, extent: Expr) -> bool:
    """Whether an axis has as many iterations as there are elements, by numbers or whatever the sizes are."""
    return axis.extent is not None and same_extent(axis.extent, extent)


def _runs(axes: Iterable[T], apart: set[Pair], owner: Tensor | Operation) -> list[list[T]]:
    """The axes of a tensor or an operation, those together that are one."""
    runs: list[list[T]] = []
    for axis in axes:
        if runs and (owner, runs[-1][-1]) not in apart:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _gains(axes: Sequence[Axis], apart: set[Pair], op: Operation) -> bool:
    """Whether the last axis alone leaves lanes idle, and is merged."""
    runs = _runs(axes, apart, op)
    if not runs or len(runs[-1]) == 1:
        return False
    last = number(runs[-1][-1].extent)
    if last is None:
        return False
    if last < NARROW or (last < STREAM and _sums_columns(op, axes)):
        return True
    return last % LANES != 0 and last < (STREAM if axes[-1].is_reduce else WIDE)


def _sums_columns(op: Operation, axes: Sequence[Axis]) -> bool:
    """Whether columns of one tensor are reduced, which are streams of memory if they lie side by side."""
    if not isinstance(op, Compute) or op.reduction is None or any(a.is_reduce for a in axes):
        return False
    read = [r for r in dict.fromkeys(op.reads) if not set(axes).isdisjoint(free_axes(r.indices))]
    return len(read) == 1 and read[0].indices[-1] is axes[-1]


def _placeholder(tensor: Tensor, runs: Sequence[int], one: Mapping[Expr, Var]) -> Tensor:
    """An input with its axes merged."""
    if all(n == 1 for n in runs):
        return tensor
    shape: list[Expr] = []
    rest = list(tensor.extents)
    for n in runs:
        whole = rest[0] if n == 1 else product(rest[:n])
        shape.append(one.get(whole, whole) if n > 1 else whole)
        del rest[:n]
    return Placeholder(name=tensor.name, where="", shape=tuple(shape), dtype=tensor.dtype).output()


def product(extents: Iterable[Expr | None]) -> Expr:
    """The iterations of loops one in another."""
    total: Expr = Const(1, INT32)
    for extent in extents:
        assert extent is not None
        total = total * extent
    return simplify_extent(total)


def _merged(
    op: Operation, plain: Operation, new: Mapping[Tensor, Tensor], runs: Mapping[Tensor, tuple[int, ...]],
    apart: set[Pair], sizes: Mapping[Expr, Var],
) -> Operation:  # fmt: skip
    """The operation on merged axes."""
    if not isinstance(plain, Compute):
        return reading(op, {t: made for t, made in new.items() if made is not t})
    one: dict[Axis, Axis] = {}  # of a run, by its first axis
    inner: dict[Axis, Expr] = {}  # iterations for each one of that

    def joined(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        made = []
        for run in _runs(axes, apart, op):
            axis = run[0]
            if len(run) > 1:
                name = "_".join(a.name for a in run)
                whole = product(a.extent for a in run)
                axis = Axis(name, sizes.get(whole, whole), is_reduce=axis.is_reduce)
                one[run[0]], inner[run[0]] = axis, product(a.extent for a in run[1:])
            made.append(axis)
        return tuple(made)

    axes = joined(plain.axes)
    sums = () if plain.reduction is None else joined(plain.reduction.axes)

    def at(index: Expr, count: int) -> Expr:
        found = moved(index)
        if count == 1 or found is None:
            return index
        axis, away = found
        return one[axis] + simplify_extent(inner[axis] * away) if away else one[axis]

    def rule(node: Expr) -> Expr:
        if isinstance(node, Read):
            places = [sum(runs[node.tensor][:k]) for k in range(len(runs[node.tensor]))]
            indices = [at(node.indices[p], n) for p, n in zip(places, runs[node.tensor], strict=True)]
            return Read(new[node.tensor], tuple(indices))
        compared = _compared(node)
        if compared is not None and compared.axis in one:
            return compared.of(one[compared.axis], inner[compared.axis])
        return node.with_axes(sums) if isinstance(node, Reduce) else node

    return replace(plain, axes=axes, bodies=rebuild_all(plain.bodies, rule), _outputs={})
