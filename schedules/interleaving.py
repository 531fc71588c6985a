"""Pictures whose channels lie side by side, a few of them, with each row of pixels as one row of numbers.

A picture of 480 x 640 x 3 that a window moves over cannot be one axis, but its columns and channels can: whoever reads
another pixel of the row reads so many times three numbers further on.

    y[i, j, c] = sum(x[i, j + k, c] * w[k])       ->   y[i, f] = sum(x[i, f + 3 k] * w[k])           f = 3 j + c
    x[i, max(j - 1, 0), c]                        ->   x[i, max(f // 3 - 1, 0) * 3 + f % 3]
    y[i, j, c] = x[i, 2 - j, c]   for j < 2       ->   y[i, f] = x[i, (2 - f // 3) * 3 + f % 3]     a border
    sum(x[i, j + k, c] * w[k, c])                 ->   sum(x[i, f + 3 k] * t[k, f]), t[k, f] = w[k, f % 3]
    sum over i, j of g[i, j, c] * x[i, j + k, c]  ->   sum over j of t[3 j + c], t[f] a sum over i (`row_sums`)

Vectors are full then, where there were three lanes for a pixel. A stage that does anything else with its pixels
keeps its loops, and what it reads of rows is an element of these: `x[i, j, 0]` is `x[i, 3 j]`. See `merging` for axes
that all stages walk through together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from schedules.merging import LARGEST, Merging, moved, product
from schedules.row_sums import over_rows
from schedules.sizes import PLENTY, typical
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import naturals
from tedsl.analysis.points import is_data_free, values_at
from tedsl.analysis.sizes import vars_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Placeholder, Tensor
from tedsl.lang.traverse import (
    conjuncts,
    free_axes,
    operations_between,
    reads_of,
    rebuild_all,
    substitute_all,
    topological,
)

__all__ = ["MANY", "interleaved"]

MOST = 7  # channels
MANY = 63  # of pixels that are only moved, in rows in which no number is told apart into pixel and channel
LEAST = 32  # numbers of a row
WEIGHTS = 1 << 22  # bytes of them for a row of numbers, at most
ROWS = 8  # that read them, at least
FEW = 16  # elements of a tensor for each that a stage reads of it, which may then be of rows
FOLDS = (Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.MOD, Fn.ABS, Fn.ADD, Fn.SUB, Fn.NEG)
ORDERS = (Fn.LT, Fn.LE, Fn.GT, Fn.GE)


def interleaved(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, shifts: bool = False, most: int = MOST
) -> Merging | None:
    """The program on rows of numbers instead of pixels; None where no window moves along such rows.

    `shifts`: also where pixels some places on are all that is read, which `merging` may have refused, or where rows of
    a length that is not known are walked along, beside what their pixels or channels share.
    """
    operations = operations_between(inputs, outputs)
    if not all(isinstance(op, (Compute, Placeholder)) for op in operations):
        return None
    operations, sums, (rows, found) = _with_row_sums(inputs, operations, most)
    if not any(
        _moves(read, p, shifts) or (shifts and _is_long(op, read, p))
        for op, pairs in found.items()
        for p in pairs
        for read in op.reads
    ):
        return None
    if most > MOST and any(pairs and op.reduction is not None for op, pairs in found.items()):
        return None
    shapes = [{(t.extents, t.dtype) for t in ts if t in rows} for ts in (inputs, outputs)]
    apart = [{(t.extents, t.dtype) for t in ts if t not in rows} for ts in (inputs, outputs)]
    if shifts and (shapes[0] & apart[1] or shapes[1] & apart[0]):  # one may lie where the other lay
        return None
    new = {t: _placeholder(t) if t in rows else t for t in inputs}
    for op in operations:
        if isinstance(op, Compute):
            made = _Rows(op, found[op], new, rows).stage()
            if most > MOST and any(map(_tells_apart, made.nodes)):
                return None
            new.update(zip(sums.get(op, op).outputs, made.outputs, strict=True))
    runs = {t: (1,) * (t.ndim - 2) + (2,) if t in rows else (1,) * t.ndim for t in new}
    there = tuple(new[t] for t in inputs)
    return Merging(there, tuple(new[t] for t in outputs), runs, is_of_rows=not shifts)


def _with_row_sums(
    inputs: Sequence[Tensor], operations: Sequence[Operation], most: int
) -> tuple[list[Operation], dict[Operation, Operation], _RowsAndPairs]:
    """The operations with sums by channel as two, the first along rows, what the second ones were, and all rows."""
    stages = [op for op in operations if isinstance(op, Compute)] if most <= MOST else []
    parts = {op: two for op in stages if (two := over_rows(op, most)) is not None}
    while True:
        split = [
            stage for op in operations for stage in (parts[op] if isinstance(op, Compute) and op in parts else (op,))
        ]
        sums: dict[Operation, Operation] = {total: op for op, (_, total) in parts.items()}
        rows, found = _chosen_rows(inputs, split, most, sums)
        left = {
            op: two
            for op, two in parts.items()
            if found[two[0]] and all(_walks(two[0], p, rows, weighted=True) for p in found[two[0]])
        }
        if len(left) == len(parts):
            return split, sums, (rows, found)
        parts = left


def _chosen_rows(
    inputs: Sequence[Tensor], operations: Sequence[Operation], most: int, sums: Collection[Operation]
) -> _RowsAndPairs:
    """As `_on_rows`, with weights of channels where all that reads rows does so along these."""
    stages = [op for op in operations if isinstance(op, Compute)]
    rows, found = _on_rows(inputs, stages, most, sums, weighted=True)
    readers = {op: pairs for op, pairs in found.items() if op not in sums}
    if any(
        r.tensor in rows and not _is_of_rows(r, op, pairs) for op, pairs in readers.items() for r in _often_read(op)
    ):
        return _on_rows(inputs, stages, most, sums, weighted=False)
    return rows, found


def _tells_apart(node: Expr) -> bool:
    """Whether a node may be a pixel, or a channel, of a number of a row."""
    return (
        isinstance(node, Apply)
        and node.fn in (Fn.FLOORDIV, Fn.MOD)
        and isinstance(node.args[1], Const)
        and 1 < node.args[1].value <= MANY
    )


def _is_of_rows(read: Read, op: Compute, pairs: Sequence[_Pair]) -> bool:
    """Whether a read is along rows or of weights; pixels read out of rows cost more than weights in tables bring."""
    return any(_is_along(read, p) or _is_weight(read, op, p) for p in pairs)


def _on_rows(
    inputs: Sequence[Tensor], stages: Sequence[Compute], most: int, sums: Collection[Operation], *, weighted: bool
) -> _RowsAndPairs:
    """The tensors that become rows, and which loops of a stage become one; also stages with weights of channels.

    `sums` add up what rows have become, wherever these numbers lie.
    """
    pixels: set[Tensor] = set()  # read by loops over pixels and channels that stay two
    while True:
        rows = {t for t in inputs if _is_row(t.extents, most)} - pixels
        found: dict[Compute, list[_Pair]] = {}
        for op in stages:
            found[op] = [
                p
                for p in _pairs(op, rows, most)
                if op not in sums
                and pixels.isdisjoint(op.outputs)
                and (_walks(op, p, rows, weighted=weighted) or (p.is_result and _is_border(op, rows)))
            ]
            if any(p.is_result for p in found[op]):
                rows.update(op.outputs)
        merged = [op for op in stages if any(p.is_result for p in found[op])]
        borders = {t for op in merged if _is_border(op, rows) for t in op.outputs}
        readers = [op for op in stages if op not in sums]
        more = {
            r.tensor for op in readers for r in op.reads if r.tensor in borders and not _is_joined(r, op, rows, most)
        }
        more = more or {
            r.tensor for op in readers for r in _often_read(op) if r.tensor in rows and _needs_pixels(r, op, found[op])
        }
        if not more:
            return rows, found
        pixels |= more


def _needs_pixels(read: Read, op: Compute, pairs: Sequence[_Pair]) -> bool:
    """Whether a read is along channels, or one of a window over all channels, in a stage that keeps these loops.

    What looks at few elements, as borders do, may look for them in rows.
    """
    if FEW * _iterations(op) <= _size(read.tensor.extents):
        return False
    *_, pixel, channel = read.indices
    is_merged = any(p.channel is channel for p in pairs)
    return not is_merged and isinstance(channel, Axis) and (channel in set(op.axes[-1:]) or not isinstance(pixel, Axis))


@dataclass(frozen=True)
class _Pair:
    """A loop over the pixels of a row, and that over their channels."""

    pixel: Axis
    channel: Axis
    is_result: bool

    @property
    def count(self) -> int:
        return number(self.channel.extent) or 1

    def one(self) -> Axis:
        size = product([self.pixel.extent, self.channel.extent])
        return Axis(f"{self.pixel.name}_{self.channel.name}", size, is_reduce=self.pixel.is_reduce)


_RowsAndPairs = tuple[set[Tensor], dict[Compute, list[_Pair]]]


def _is_border(op: Compute, rows: set[Tensor]) -> bool:
    """Whether a stage has few elements beside the rows that it reads: it may look for them there in any order."""
    read = [r.tensor for r in op.reads if r.tensor in rows]
    return bool(read) and all(FEW * _size(a.extent for a in op.axes) <= _size(t.extents) for t in read)


def _is_joined(read: Read, op: Compute, rows: set[Tensor], most: int) -> bool:
    """Whether a border is read along rows, as the part of one that it is."""
    return any(_is_along(read, p) for p in _pairs(op, rows, most))


def _is_row(extents: Sequence[Expr | None], most: int, least: int = LEAST) -> bool:
    """Whether the last two of these are pixels of a few channels."""
    if len(extents) < 2 or any(e is None for e in extents):
        return False
    pixels, channels = typical(extents[-2]), number(extents[-1]) or 0
    are_known = all(number(e) is not None for e in extents)  # a call looks at others
    return 1 < channels <= most and pixels * channels >= least and (not are_known or _size(extents) <= LARGEST)


def _size(extents: Iterable[Expr | None]) -> int:
    return math.prod(map(typical, extents))


def _iterations(op: Compute) -> int:
    """Of all loops of a stage; as good as endless where they have no extent."""
    axes = (*op.axes, *(() if op.reduction is None else op.reduction.axes))
    return math.prod(LARGEST if a.extent is None else typical(a.extent) for a in axes)


def _pairs(op: Compute, rows: set[Tensor], most: int) -> Iterable[_Pair]:
    """The loops that may be those over pixels and channels; of a border its pixels may be few."""
    least = 0 if _is_border(op, rows) else LEAST
    sums = () if op.reduction is None else op.reduction.axes
    for pixel, channel in (*pairwise(op.axes[-2:]), *pairwise(sums)):
        is_result = not pixel.is_reduce
        whole = all(number(a.begin) == 0 for a in (pixel, channel))
        extents = [a.extent for a in (op.axes if is_result else (pixel, channel))]
        if whole and _is_row(extents, most, least if is_result else LEAST):
            yield _Pair(pixel, channel, is_result)


def _walks(op: Compute, pair: _Pair, rows: set[Tensor], *, weighted: bool) -> bool:
    """Whether a stage reads along rows wherever it reads by these loops, if it does.

    One that sums nothing may also read what all channels of a pixel share, or all pixels, but only at places inside.
    What is read for small pictures alone is not asked.
    """
    both = {pair.pixel, pair.channel}
    if pair.is_result and both.isdisjoint(free_axes(op.bodies)):
        return True
    reads = [r for r in _often_read(op) if not both.isdisjoint(free_axes(r.indices))]
    along = {r for r in reads if r.tensor in rows and _is_along(r, pair)}
    if not along or any(reads_of(r.indices) for r in reads):
        return False
    if op.reduction is not None:
        return all(r in along or (weighted and _is_weight(r, op, pair)) for r in reads)
    others = [r for r in reads if r not in along]
    return all(r.tensor not in rows and len(both.intersection(free_axes(r.indices))) == 1 for r in others)


def _often_read(op: Compute) -> Sequence[Read]:
    """What an operation reads where sizes that are not known are as they usually are."""
    known: Sequence[Read] | None = vars(op).get(_OFTEN)
    if known is None:
        reduce = op.reduction
        is_empty = reduce is not None and any(_held(c) is False for c in conjuncts(reduce.where))
        known = vars(op)[_OFTEN] = () if is_empty else reads_of(_chosen(op.bodies))
    return known


_OFTEN = "_often_read"  # where an operation has them


def _held(condition: Expr) -> bool | None:
    """Whether a condition on sizes alone holds where they are as they usually are; None for any other."""
    sizes = vars_of(condition)
    if not sizes or free_axes(condition) or not is_data_free((condition,)):
        return None
    return bool(values_at([condition], {}, dict.fromkeys(sizes, PLENTY))[0])


def _chosen(bodies: Sequence[Expr]) -> tuple[Expr, ...]:
    """Bodies without what is chosen for unusual sizes."""

    def rule(node: Expr) -> Expr:
        held = _held(node.args[0]) if isinstance(node, Apply) and node.fn is Fn.SELECT else None
        return node if held is None or not isinstance(node, Apply) else node.args[1 if held else 2]

    return rebuild_all(bodies, rule)


def _is_weight(read: Read, op: Compute, pair: _Pair) -> bool:
    """Whether a read is one of weights of channels, the same for all pixels, of which a row of numbers has few."""
    if op.reduction is None:
        return False
    sums = set(op.reduction.axes)
    inner = [number(a.extent) for a in op.reduction.axes]
    if not pair.is_result or None in inner or any(number(a.begin) != 0 for a in sums):
        return False
    size = math.prod(n or 0 for n in inner) * typical(pair.one().extent) * read.dtype.itemsize
    channels = [k for k, index in enumerate(read.indices) if index is pair.channel]
    others = [index for k, index in enumerate(read.indices) if k not in channels]
    return (
        len(channels) == 1
        and sums.issuperset(free_axes(others))
        and size <= WEIGHTS
        and _size(a.extent for a in op.axes[:-2]) >= ROWS
    )


def _is_along(read: Read, pair: _Pair) -> bool:
    """Whether a read is one of a pixel of a row, in this loop's channel."""
    if read.tensor.ndim < 2:
        return False
    *others, pixel, channel = read.indices
    if channel is not pair.channel or number(read.tensor.extents[-1]) != pair.count:
        return False
    return not {pair.pixel, pair.channel}.intersection(free_axes(others)) and _is_shifted(pixel, pair.pixel)


def _is_shifted(index: Expr, pixel: Axis) -> bool:
    """Whether an index is a loop and some number, brought back inside at the ends."""
    pending, found = [index], False
    while pending:
        node = pending.pop()
        if pixel not in set(free_axes(node)):
            continue
        form = affine_of(node)
        if form is not None and form.is_linear:
            factor = form.terms.get((pixel,), 0)
            if abs(factor) > 1:
                return False
            found |= factor == 1
        elif isinstance(node, Apply) and node.fn in FOLDS:
            pending += node.args
        else:
            return False
    return found


def _moves(read: Read, pair: _Pair, shifts: bool) -> bool:
    """Whether a read is one of another pixel than that of the loops."""
    away = moved(read.indices[-2]) if _is_along(read, pair) else (pair.pixel, 0)
    return away is None or (shifts and away[1] != 0)


def _is_long(op: Compute, read: Read, pair: _Pair) -> bool:
    """Whether a stage without a sum walks along rows whose length is not known: `flattening` wants it known."""
    return op.reduction is None and number(pair.pixel.extent) is None and _is_along(read, pair)


class _Rows:
    """A stage over rows of numbers."""

    def __init__(self, op: Compute, pairs: Sequence[_Pair], new: Mapping[Tensor, Tensor], rows: set[Tensor]) -> None:
        self.op, self.pairs, self.new, self.rows = op, pairs, new, rows
        self.one = {p.pixel: p.one() for p in pairs}
        self.apart: dict[Expr, Expr] = {}  # pixel and channel of a number
        for p in pairs:
            self.apart[p.pixel], self.apart[p.channel] = self.one[p.pixel] // p.count, self.one[p.pixel] % p.count

    def stage(self) -> Compute:
        bodies = rebuild_all(self.op.bodies, self._rule)
        return replace(self.op, axes=self._axes(self.op.axes), bodies=bodies, names=None, _outputs={})

    def _axes(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        gone = {p.channel for p in self.pairs}
        return tuple(self.one.get(a, a) for a in axes if a not in gone)

    def _rule(self, node: Expr) -> Expr:
        if isinstance(node, Axis):
            return self.apart.get(node, node)
        if isinstance(node, Reduce):
            return node.with_axes(self._axes(node.axes))
        if isinstance(node, Read) and node.tensor in self.new:
            read = Read(self.new[node.tensor], self._indices(node))
            return read if node.tensor in self.rows else self._tabulated(read)
        if isinstance(node, Apply) and node.fn in ORDERS and node.args[0].dtype is INT32:
            return self._asked(node)
        return node

    def _tabulated(self, read: Read) -> Read:
        """Weights of channels as a table with one for each number of a row."""
        sums = () if self.op.reduction is None else self.op.reduction.axes
        asked = set(free_axes(read.indices))
        for pair in self.pairs:
            one, nodes = self.one[pair.pixel], set(topological(read.indices))
            if (
                not sums
                or not pair.is_result
                or self.apart[pair.channel] not in nodes
                or self.apart[pair.pixel] in nodes
            ):
                continue
            loops = [a for a in (*sums, one) if a in asked]
            axes: dict[Expr, Axis] = {a: Axis(a.name, a.extent) for a in loops}
            body = substitute_all((read,), axes)
            name = f"{self.op.name}_{read.tensor.name}"
            table = Compute(name=name, where=self.op.where, axes=tuple(axes.values()), bodies=body)
            return Read(table.output(), tuple(loops))
        return read

    def _indices(self, read: Read) -> tuple[Expr, ...]:
        """The place of an element in rows, if it has become one of these."""
        if read.tensor not in self.rows:
            return read.indices
        *others, pixel, channel = read.indices
        place = pixel * (number(read.tensor.extents[-1]) or 1) + channel
        form = affine_of(place)
        return (*others, place if form is None else form.to_expr())

    def _asked(self, node: Apply) -> Expr:
        """A comparison of pixels as one of numbers: `f // 3 + k < n` is `f + 3 k < 3 n`."""
        left, right = map(affine_of, node.args)
        if left is None or right is None:
            return node
        ((form,),) = naturals(node.fn, left - right)
        for pair in self.pairs:
            whole, one = self.apart[pair.pixel], affine_of(self.one[pair.pixel])
            factor, rest = form.terms.get((whole,), 0), form.without(whole)
            if abs(factor) == 1 and one is not None:
                rest = rest * pair.count
                return (one + rest if factor > 0 else rest + (pair.count - 1) - one).to_expr() >= 0
        return node


def _placeholder(tensor: Tensor) -> Tensor:
    """An input as rows of numbers."""
    *others, pixels, channels = tensor.extents
    shape = (*others, product([pixels, channels]))
    return Placeholder(name=tensor.name, where="", shape=shape, dtype=tensor.dtype).output()
