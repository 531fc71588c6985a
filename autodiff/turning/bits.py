"""Indices made of bits: what is linear over the field of two numbers is inverted there.

`i ^ (i >> 1)`, the bits of i in reverse, those of x and y in turns: each bit of such an index is a sum, without
carries, of bits of the axes. Whether an index is of this kind is found by trying all points of a small box, which
proves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, or_

import numpy as np

from autodiff.turning.affine_read import Reader
from autodiff.turning.bit_forms import runs
from autodiff.turning.changes import Change
from autodiff.turning.sent import Sent, Shape
from tedsl.analysis.points import is_data_free, static_range, values_at
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Var
from tedsl.lang.operators import Fn
from tedsl.lang.traverse import free_axes, topological

__all__ = ["bitwise", "has_bits"]

MOST_BITS = 16
OF_BITS = frozenset({Fn.BITXOR, Fn.BITAND, Fn.BITOR, Fn.INVERT, Fn.LSHIFT, Fn.RSHIFT})
Bit = tuple[Axis, int]


def bitwise(read: Sent, shape: Shape, reader: Reader) -> Change | None:
    """rewrites   S[f(i)], f linear over bits   ->   S[y], i the bits of y and of what f leaves free"""
    for row in read.index:
        if free_axes(row) and has_bits(row):
            elsewhere = set(free_axes(tuple(e for e in read.index if e is not row)))
            bits = _bits([a for a in read.axes if a in set(free_axes(row))], elsewhere)
            found = None if bits is None else _matrix(row, bits)
            change = None if bits is None or found is None else _inverted(row, bits, *found)
            if change is not None:
                return change
    return None


def has_bits(row: Expr) -> bool:
    """Whether an index is made with operations on bits."""
    return any(isinstance(n, Apply) and n.fn in OF_BITS for n in topological(row))


def _bits(axes: Sequence[Axis], elsewhere: set[Axis]) -> list[Bit] | None:
    """The bits of the axes, those first that had better be solved for: of axes that no other row has, of long ones."""
    ranges = [static_range(a) for a in axes]
    known = [r[1] for r in ranges if r is not None and r[0] == 0 and r[1] > 0 and r[1] & (r[1] - 1) == 0]
    if not axes or len(known) != len(axes) or sum(n.bit_length() - 1 for n in known) > MOST_BITS:
        return None
    extents = dict(zip(axes, known, strict=True))
    order = sorted(axes, key=lambda a: (a in elsewhere, -extents[a]))
    return [(a, k) for a in order for k in range(extents[a].bit_length() - 1)]


def _matrix(row: Expr, bits: Sequence[Bit]) -> tuple[int, list[int]] | None:
    """(the index at 0, what each bit changes in it), if bits act on their own."""
    if not is_data_free((row,)) or any(isinstance(n, Var) for n in topological(row)):
        return None
    axes = list(dict.fromkeys(a for a, _ in bits))
    sizes = {a: 1 << sum(b is a for b, _ in bits) for a in axes}
    (values,) = values_at([row], {a: np.arange(sizes[a]) for a in axes})
    values = np.broadcast_to(values, tuple(sizes.values())).astype(np.int64)
    place = {a: d for d, a in enumerate(axes)}
    base = int(values[(0,) * len(axes)])
    columns = []
    predicted = np.full(values.shape, base, np.int64)
    for a, k in bits:
        d = place[a]
        at = tuple(1 << k if e == d else 0 for e in range(len(axes)))
        columns.append(int(values[at]) ^ base)
        on = (np.arange(sizes[a]) >> k & 1).reshape([-1 if e == d else 1 for e in range(len(axes))])
        predicted = predicted ^ on * columns[-1]
    return (base, columns) if base >= 0 and np.array_equal(predicted, values) and max(columns) > 0 else None


@dataclass(frozen=True)
class _Solved:
    """A bit of an axis as the exclusive or of bits of y (`of_index`) and of bits that stay free (by number)."""

    bit: int
    of_index: int
    of_free: frozenset[int]


def _inverted(row: Expr, bits: Sequence[Bit], base: int, columns: Sequence[int]) -> Change | None:
    varying = reduce(or_, columns)
    places = [k for k in range(varying.bit_length()) if varying >> k & 1]
    solved = _solved([_gathered(c, places) for c in columns], len(places))
    if solved is None:
        return None
    index = Axis(bits[solved[0].bit][0].name, Const(1 << len(places), INT32))
    shift = _gathered(base, places)  # y is the index, which is not 0 at 0
    pivots = {s.bit: s for s in solved}
    axes = list(dict.fromkeys(a for a, _ in bits))
    sources, new = _free_sources(bits, axes, pivots)
    values: dict[Expr, Expr] = {}
    for a in axes:
        own = [(k, pivots[j]) for j, (b, k) in enumerate(bits) if b is a and j in pivots]
        if own:
            free = {k: sources[j] for j, (b, k) in enumerate(bits) if b is a and j not in pivots}
            values[a] = _word(own, free, index, sources, shift)
    place = _spread(index, varying)
    rest = base & ~varying
    return Change(values, (index, *new), {row: place + rest if rest else place})


def _gathered(value: int, places: Sequence[int]) -> int:
    """The bits at some places, side by side."""
    return sum((value >> place & 1) << k for k, place in enumerate(places))


def _spread(index: Expr, mask: int) -> Expr:
    """The bits of an index at the places of a mask."""
    terms = []
    done = 0
    for place, length in runs(mask):
        left = index // (1 << done) if done else index
        left = left % (1 << length) if mask >> (place + length) else left
        terms.append(left * (1 << place) if place else left)
        done += length
    return reduce(add, terms)


def _solved(columns: Sequence[int], width: int) -> list[_Solved] | None:
    """Bits of the axes, as many as the index has, that the index and the other bits determine."""
    rows = [[columns[j] >> r & 1 for j in range(len(columns))] for r in range(width)]
    combined = [1 << r for r in range(width)]
    pivots: list[int] = []
    for j in range(len(columns)):
        k = len(pivots)
        r = next((r for r in range(k, width) if rows[r][j]), None)
        if r is None:
            continue
        rows[k], rows[r], combined[k], combined[r] = rows[r], rows[k], combined[r], combined[k]
        for other in range(width):
            if other != k and rows[other][j]:
                rows[other] = [x ^ y for x, y in zip(rows[other], rows[k], strict=True)]
                combined[other] ^= combined[k]
        pivots.append(j)
    if len(pivots) < width:
        return None
    taken = set(pivots)
    return [
        _Solved(p, combined[k], frozenset(j for j, e in enumerate(rows[k]) if e and j not in taken))
        for k, p in enumerate(pivots)
    ]


def _free_sources(
    bits: Sequence[Bit], axes: Sequence[Axis], pivots: dict[int, _Solved]
) -> tuple[dict[int, Bit], list[Axis]]:
    """Where each bit that is not solved for is found: in its own axis, or in a new one if that is cut."""
    sources: dict[int, Bit] = {}
    new = []
    for a in axes:
        own = [j for j, (b, _) in enumerate(bits) if b is a]
        free = [j for j in own if j not in pivots]
        if len(free) == len(own):
            sources |= {j: bits[j] for j in free}
        elif free:
            short = Axis(a.name, Const(1 << len(free), INT32))
            new.append(short)
            sources |= {j: (short, k) for k, j in enumerate(free)}
    return sources, new


def _word(
    own: Sequence[tuple[int, _Solved]], free: dict[int, Bit], index: Axis, sources: dict[int, Bit], shift: int
) -> Expr:
    """An axis put together: shifted words of its sources, masked and joined by exclusive or."""
    masks: dict[tuple[Axis, int], int] = {}
    constant = 0

    def add(source: Axis, at: int, to: int) -> None:
        key = source, to - at
        masks[key] = masks.get(key, 0) ^ 1 << to

    for to, solved in own:
        for at in range(solved.of_index.bit_length()):
            if solved.of_index >> at & 1:
                add(index, at, to)
        for j in solved.of_free:
            add(*sources[j], to)
        constant ^= (bin(solved.of_index & shift).count("1") & 1) << to
    for to, bit in free.items():
        add(*bit, to)
    word: Expr | None = None
    for (source, by), mask in masks.items():
        term = _shifted(source, by, mask)
        word = term if word is None else word ^ term
    assert word is not None
    return word ^ constant if constant else word


def _shifted(source: Axis, by: int, mask: int) -> Expr:
    """The bits of a source that `mask` names, moved up by so many places."""
    (_, extent) = static_range(source) or (0, 0)
    every = (extent - 1) << by if by >= 0 else (extent - 1) >> -by
    moved = source if not by else source * (1 << by) if by > 0 else source >> -by
    return moved if mask == every else moved & mask
