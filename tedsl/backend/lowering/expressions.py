"""Scalar expressions to Halide expressions, in the scope of one definition.

Indices and what is compared with them stay plain (see `indices`), and so does int32 arithmetic on data whose ranges
show that it cannot wrap, as on a clipped place: of what goes through unsigned numbers Halide knows no bounds. All other
arithmetic goes through the table of intrinsics, which has the language's semantics for every dtype. A read that Halide
cannot see to be in bounds is clamped: its value is then not used (a guard is false), or the kernel's check of the index
has already failed.

Halide's simplifier takes int32 for the integers, and moves terms to the other side of a comparison or into a minimum:
`n - 1 < x` becomes `n < x + 1`, and `min(x, n - 1) + 1` becomes `min(x + 1, n)`. Beside data as large as int32 goes
that wraps, so there data is kept apart from plain terms (`_compared`, `_mixes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

import halide as hl

from tedsl.analysis.facts import Facts
from tedsl.analysis.places import are_places
from tedsl.analysis.rounds import along_pixels, mirrored_part, near_place, straight_part, unfolded
from tedsl.backend.lowering import indices
from tedsl.backend.lowering.constants import Constants
from tedsl.backend.scalars.casts import cast, truncate
from tedsl.backend.scalars.int_math import divides_by, quotient_by, remainder_by
from tedsl.backend.scalars.intrinsics import DEEP, EMIT, constant_power
from tedsl.backend.scalars.types import Expr as Halide, const, unbounded
from tedsl.lang.dtypes import INT32, INT64, UINT32, UINT64, DType, integer_bounds
from tedsl.lang.expr import SIZE_MAX, Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.extents import number
from tedsl.lang.intervals import Known, Range, leaves, may_wrap, range_of, wraps_early
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["Scalars", "careful_division", "is_deep"]

# Set while a program is lowered again because Halide found a divisor to be the constant 0, which it refuses.
_CAREFUL: ContextVar[bool] = ContextVar("careful_division", default=False)
FULL = 4  # bytes of an element that vectors gather one by one as well as any
FEW = 3  # operations nested in another one: what Halide copies as a tree
RING = frozenset({Fn.ADD, Fn.SUB, Fn.NEG, Fn.MUL})
# Of indices: what Halide may simplify by a range that it does not infer.
UNBOUNDED = RING | {Fn.BITAND, Fn.BITOR, Fn.BITXOR, Fn.FLOORDIV, Fn.MOD}
ORDER = frozenset({Fn.LT, Fn.LE, Fn.GT, Fn.GE})
CHOICES = frozenset({Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.SELECT})
SEEN = RING | CHOICES | {Fn.FLOORDIV, Fn.MOD}  # what Halide's simplifier knows of integers
# How often an operation is made of an operand, about, and how large a tree of operations at constant places may be:
# see `Scalars._kept_small`.
COPIES = {
    **dict.fromkeys((Fn.ADD, Fn.SUB, Fn.MUL, Fn.DIV, Fn.NEG, Fn.ABS, Fn.SQRT, Fn.CAST, Fn.TERM, Fn.ROUNDED), 1),
    **dict.fromkeys((*ORDER, *CHOICES, Fn.EQ, Fn.NE, Fn.RELU, Fn.AND, Fn.OR, Fn.NOT), 3),
}  # fmt: skip
COPIES_OF_FUNCTION, MOST_WRITTEN_OUT = 12, 256
_BY_CONSTANT = {Fn.FLOORDIV: quotient_by, Fn.MOD: remainder_by}
ROOM = 1 << 30  # of a term, beside which there is room in int32 for what is moved
ROOM_OF_64 = 1 << 60  # of what Halide may add up, beside one another
SIGN = 1 << 31
EXACT = {
    "bfloat16": 1 << 23,
    "float16": 1 << 23,
    "float32": 1 << 23,
    "float64": 1 << 31,
}  # integers and their neighbours


@contextmanager
def careful_division() -> Iterator[None]:
    """Float divisions lowered in here never divide by what may be 0: x / 0 is x times an infinity."""
    token = _CAREFUL.set(True)
    try:
        yield
    finally:
        _CAREFUL.reset(token)


ReadRule = Callable[[Tensor, tuple[Halide, ...]], Halide]
RowRule = Callable[[Read], "tuple[Expr, Expr] | None"]


class Scalars:
    """Builder of Halide expressions: `symbols` gives the loop variables, `read` an element of a tensor.

    Of the tensors that are `given` as arrays nothing is known, whatever computed them. `row_of`: where a read is by one
    place in the row of all elements, and their number. `ranges`: of extents. `held`: the dimensions of reads in which
    more is computed than is needed. `product`: marks one that is added with one rounding. `idle`: dimensions along
    which all elements are the same. `windows`: stages of which a part is there at a time, and the dimensions along
    which it moves. `written`: the operations of stages of one element, which may be written out where they are read.
    `others`: stages that are written out, of integers made of numbers whose ranges Halide does not infer.
    """

    def __init__(
        self, read: ReadRule, symbols: Mapping[Expr, Halide], unknown_zero: Callable[[], Halide],
        given: Collection[Tensor], ranges: Mapping[Expr, Range], constants: Constants, *, row_of: RowRule,
        held: Mapping[Read, Collection[int]] = MappingProxyType({}),
        product: Callable[[Halide, str], Halide] | None = None,
        idle: Mapping[Tensor, Collection[int]] = MappingProxyType({}), facts: Facts | None = None,
        windows: Mapping[Operation, Collection[int]] = MappingProxyType({}),
        written: Mapping[Tensor, int] = MappingProxyType({}), others: Collection[Tensor] = (),
    ) -> None:  # fmt: skip
        self._facts = facts
        self._written = written
        self._others = others
        self._windows = windows
        self._read = read
        self._idle = idle
        self._product = product
        self._held = held
        self._row_of = row_of
        self._given = given
        self._unknown_zero = unknown_zero
        self._symbols = dict(symbols)
        self._values: dict[Expr, Halide] = dict(symbols)
        self._plain: dict[Expr, bool] = {}
        self._mixed: dict[Expr, bool] = {}
        self._ranges: Known = dict(ranges)
        self._depths: dict[Expr, int] = {}
        self._sizes: dict[Expr, int] = {}  # of values at constant places
        self._constants = constants

    def bind(self, node: Expr, value: Halide) -> None:
        """Let `node` stand for a value computed elsewhere."""
        self._values[node] = value

    def bind_loop(self, axis: Axis, value: Halide) -> None:
        """Let `axis` stand for a loop that is not one of the symbols."""
        self._values[axis] = self._symbols[axis] = value

    def value(self, root: Expr) -> Halide:
        """The expression as a value: integers wrap, floats follow IEEE."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node in self._values:
                stack.pop()
                continue
            operands = node.args if isinstance(node, Apply) and not self._is_plain_value(node) else ()
            missing = [a for a in operands if a not in self._values]
            if missing:
                stack.extend(reversed(missing))
            else:
                stack.pop()
                self._values[node] = self._kept_small(node, self._value_of(node))
        return self._values[root]

    def _kept_small(self, node: Expr, value: Halide) -> Halide:
        """A value; Halide is told nothing of one that it would write out as a large tree.

        What stands at one place it takes for its own bounds, and substitutes these in what is made of it if it counts
        fewer than ten variables: of elements at constant places none. Each link of a chain that takes the one before
        twice would double them.
        """
        size = self._written_out(node)
        is_large = size > MOST_WRITTEN_OUT and not node.dtype.is_bool
        self._sizes[node] = 1 if is_large else size
        return unbounded(value, node.dtype) if is_large else value

    def size(self, node: Expr) -> int:
        """The operations of a value at one place, written out as a tree; 0 of one that a loop or size changes."""
        return self._sizes.get(node, 0)

    def _written_out(self, node: Expr) -> int:
        if isinstance(node, Const):
            return 1
        if isinstance(node, Read):
            return self._written.get(node.tensor, 1) if all(map(_is_at_one_place, node.indices)) else 0
        sizes = [self.size(a) for a in node.args] if isinstance(node, Apply) else []
        if not isinstance(node, Apply) or not all(sizes):
            return 0
        return 1 + COPIES.get(node.fn, COPIES_OF_FUNCTION) * sum(sizes)

    def _value_of(self, node: Expr) -> Halide:
        if isinstance(node, Const):
            return const(node.value, node.dtype)
        if isinstance(node, Read):
            return self.read(node)
        assert isinstance(node, Apply), f"no value for {type(node).__name__} `{node}` here"
        if self._is_plain_value(node):
            return indices.plain(node, self._symbols, self._hidden if indices.cancels(node) else None)
        operands = [self._values[a] for a in node.args]
        if (clipped := _clipped_before(node)) is not None:
            low, high = (int(e.value) for e in node.args[1:])  # type: ignore[attr-defined]
            of_nan = min(max(0, low), high)
            return truncate(self.value(clipped), clipped.dtype, node.dtype, high, of_nan)
        if node.fn is Fn.TERM and self._product is not None:
            return self._product(operands[0], node.dtype)
        if node.fn is Fn.CAST:
            return self._converted(operands[0], node.args[0], node.dtype)
        if node.fn is Fn.POW and isinstance(node.args[1], Const):
            return constant_power(operands[0], node.args[1].value, node.dtype)
        if node.fn in _BY_CONSTANT and isinstance(node.args[1], Const) and node.dtype.is_integer:
            divisor = int(node.args[1].value)
            if divides_by(divisor, node.dtype):
                return _BY_CONSTANT[node.fn](operands[0], divisor, node.dtype)
        if node.fn is Fn.DIV and _CAREFUL.get():
            return _divided(operands[0], operands[1], node.dtype)
        if node.fn in (Fn.EQ, Fn.NE) and node.args[0] is node.args[1] and node.args[0].dtype.is_float:
            # Halide drops x != x from the masked end of a vectorized loop where x is the same for all lanes.
            test = EMIT[Fn.ISNAN.value](operands[0], dtype=node.args[0].dtype)
            return test if node.fn is Fn.NE else hl.logical_not(test)
        if node.fn in ORDER and node.args[0].dtype is INT32:
            operands = self._compared(node.args, operands)
        if node.fn is Fn.SELECT and node.dtype is INT32:
            operands = self._chosen(node.args, operands)
        if node.fn in RING and self._is_exact(node):
            return indices.PLAIN[node.fn](*operands)
        table = DEEP if node.fn.value in DEEP and any(map(self._is_tested_by_bits, node.args[1:])) else EMIT
        return table[node.fn.value](*operands, dtype=node.args[-1].dtype)

    def _converted(self, value: Halide, source: Expr, dtype: DType) -> Halide:
        """A value in another dtype; of floats that it holds without a look at its ends."""
        if source.dtype.is_float and dtype.is_integer:
            ends = range_of(source, self._ranges)
            least, greatest = integer_bounds(dtype)
            if least - 1 < ends[0] and ends[1] < greatest + 1 and max(map(abs, ends)) < EXACT[source.dtype.name]:
                return truncate(value, source.dtype, dtype, math.trunc(ends[1]))
        return cast(value, source.dtype, dtype)

    def _is_tested_by_bits(self, operand: Expr) -> bool:
        """Whether Halide's own test for NaN does not do."""
        return operand.dtype.is_float and (is_deep(operand, self._depths) or self._constants.may_include(operand))

    def _leaves(self, node: Apply) -> bool:
        """Whether the result of an integer operation might not be in its dtype."""
        for operand in node.args:
            range_of(operand, self._ranges)
        return leaves(node, self._ranges)

    def _is_exact(self, node: Apply) -> bool:
        """Whether Halide may take the result of integer operands for the number that it would be without a dtype."""
        if node.dtype is INT64:
            return not self._leaves(node) and max(map(abs, range_of(node, self._ranges))) < ROOM_OF_64
        return node.dtype is INT32 and not self._leaves(node) and not self._mixes(node)

    def _compared(self, given: Sequence[Expr], operands: list[Halide]) -> list[Halide]:
        """The sides of a comparison, between which no term can be moved that would wrap there.

        Data beside a plain term is brought near its range, which keeps conditions such as `k < length[b]` plain to see;
        where there is no room for that, both are compared as unsigned numbers.
        """
        if any(isinstance(e, Const) for e in given):
            return operands
        plain = [self._is_plain_value(e) for e in given]
        if not any(plain):
            return [_shifted(v) for v in operands] if any(map(self._mixes, given)) else operands
        term, data = plain.index(True), plain.index(False)
        low, high = range_of(given[term], self._ranges)
        is_term = isinstance(given[term], (Axis, Var))
        room = SIZE_MAX if is_term else ROOM
        if self._mixes(given[data]) or low < -room or high > room:
            return [_shifted(v) for v in operands]
        near = list(operands)
        near[data] = hl.max(hl.min(operands[data], hl.i32(high + 1)), hl.i32(low - 1))
        return near

    def _chosen(self, given: Sequence[Expr], operands: list[Halide]) -> list[Halide]:
        """A condition and its branches: a term is hidden beside a number too far off for terms to be moved to."""
        found = list(operands)
        for branch, other in ((1, 2), (2, 1)):
            far = given[other]
            if isinstance(far, Const) and abs(far.value) > ROOM and self._is_plain_value(given[branch]):
                found[branch] = hl.reinterpret(hl.Int(32), _shifted(operands[branch]) ^ hl.u32(SIGN))
        return found

    def _mixes(self, root: Expr) -> bool:
        """Whether Halide sees a minimum, or another choice, of data and of a term with loops or extents."""
        known = self._mixed
        stack = [root]
        while stack:
            node = stack[-1]
            if node in known or not isinstance(node, Apply) or node.fn not in SEEN or self._is_plain_value(node):
                known.setdefault(node, False)
                stack.pop()
            elif missing := [a for a in node.args if a not in known]:
                stack.extend(missing)
            else:
                stack.pop()
                values = [a for a in node.args if not a.dtype.is_bool and not isinstance(a, Const)]
                plain = [self._is_plain_value(a) for a in values]
                known[node] = any(known[a] for a in node.args) or (node.fn in CHOICES and any(plain) and not all(plain))
        return known[root]

    def _is_plain_value(self, node: Expr) -> bool:
        known = self._plain.get(node)
        if known is None:
            known = self._plain[node] = indices.is_plain(node) and not may_wrap(node, self._ranges)
        return known

    def read(self, node: Read) -> Halide:
        """The element at indices that are in bounds, made so where that is not plain to see."""
        extents, held = node.tensor.extents, self._held.get(node, ())
        if (row := self._row_of(node)) is not None:
            return self._read(node.tensor, (self.index(*row),))
        unread = indices.unread(node, self._idle)
        wide, last = node.dtype.itemsize >= FULL, len(extents) - 1  # narrow elements are loaded under masks at the ends
        place = [
            hl.Expr(0) if dim in unread else self.index(i, n, marks=wide and dim == last)
            for dim, (i, n) in enumerate(zip(node.indices, extents, strict=True))
        ]
        for dim in held:
            place[dim] = _clamped(place[dim], self.extent(extents[dim]))
        moved = self._windows.get(node.tensor.op, ())
        for dim in {*moved} - {*unread, last}:
            place[dim] = self._near(node.indices[dim], extents[dim], place[dim])
        if place:
            near = self._near if last in moved else _any
            place[-1] = self._unrolled(node.indices[-1], extents[-1], place[-1], near)
        if place and indices.counts_down(node.indices[-1]):
            # Halide stops at a masked vector read backwards from a known place near the beginning of a buffer. The
            # promise keeps the unknown number from being the place at which a stage begins, where it would cancel.
            place[-1] = _promised(place[-1] + self._unknown_zero(), self.extent(extents[-1]))
        return self._read(node.tensor, tuple(place))

    def index(self, index: Expr, extent: Expr, *, marks: bool = False) -> Halide:
        """An int32 index that Halide knows to lie within [0, extent); `marks` as those of `indices.plain`."""
        if isinstance(index, Axis) and index.extent is extent and number(index.begin) == 0:
            return self._symbols[index]
        if not indices.is_plain(index) or wraps_early(index):
            return self._computed(index, extent)
        cancels = indices.cancels(index)
        plain = indices.plain(index, self._symbols, self._hidden if cancels else None, marks=marks)
        limit = self.extent(extent)
        if indices.stays_inside(index, extent, hides=cancels):
            inside = plain
        else:
            inside = _promised(plain, limit) if self._is_within(index, extent) else _clamped(plain, limit)
        # A bound that Halide could prove it would drop, and then miss.
        is_unseen = cancels or indices.folds(index)
        return _promised(inside, limit + self._unknown_zero()) if is_unseen else inside

    def _near(self, index: Expr, extent: Expr, given: Halide) -> Halide:
        """A given index; a mirrored one is between ends that go along its loops, which is all that Halide sees of it.

        Of what goes back at an end it finds no window that moves, or asks for all there is.
        """
        near = near_place(index, extent) if indices.is_plain(index) and not wraps_early(index) else None
        if near is None:
            return given
        base, limit = indices.plain(near[0], self._symbols), self.extent(extent)
        unseen = given ^ self._unknown_zero()
        return hl.max(hl.min(unseen, _clamped(base + near[1], limit)), _clamped(base - near[1], limit))

    def _is_within(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is known to lie within an extent in all of a piece, whatever the sizes are."""
        if self._facts is None or number(extent) is not None or may_wrap(index, self._ranges):
            return False
        place = self._facts.form(index)
        return self._facts.proves(place) and self._facts.proves(self._facts.form(extent) - place - 1)

    def _unrolled(
        self, index: Expr, extent: Expr, given: Halide, near: Callable[[Expr, Expr, Halide], Halide]
    ) -> Halide:  # fmt: skip
        """A given index; one that goes round, or back, as its straight part in loops of its own, loaded as it lies.

        `near`: what is made of an index that goes back.
        """
        if not indices.is_plain(index) or wraps_early(index):
            return given
        pixels = along_pixels(index, extent)
        if pixels is None and indices.cancels(index):
            return given
        straight, end = straight_part(index) if pixels is None else pixels, extent
        if straight is None and (mirrored := mirrored_part(index, extent)) is not None:
            straight = mirrored
        elif straight is not None:
            end = extent if pixels is not None else index.children[1]
        elif (mirror := unfolded(index, extent)) is not None:
            # Of minima and maxima, as they are written, Halide finds no loop of what lies inside.
            straight = mirror.place
            ends = [indices.plain(e, self._symbols) for e in (mirror.place, mirror.before, mirror.behind)]
            # Each end within the array in all lanes, else Halide loads a vector of both that begins before it.
            size = self.extent(extent)
            inside = [_clamped(end, size) for end in ends[1:]]
            given = _promised(hl.select(ends[0] < 0, *inside), size + self._unknown_zero())
        else:
            return near(index, extent, given)
        place, length = indices.plain(straight, self._symbols), self.extent(end)
        # The place is marked, not the condition, for which Halide does not look in what several reads have in common.
        return hl.select(
            (place >= 0) & (place < length), hl.likely(_clamped(place, self.extent(extent))), near(index, extent, given)
        )

    def _hidden(self, value: Halide, meaning: Expr) -> Halide:
        """A value into which Halide does not look, but for its range."""
        low, high = range_of(meaning, self._ranges)
        zero = self._unknown_zero()  # a promise that can be proven is dropped
        return hl.unsafe_promise_clamped(value, hl.i32(max(low, -SIGN)) + zero, hl.i32(min(high, SIGN - 1)) + zero)

    def _computed(self, index: Expr, extent: Expr) -> Halide:
        """A data-dependent index, brought into int32, then into the extent.

        The conversion may wrap: such an index is out of bounds, and unused or found by the check. The promise repeats
        what the clamp says: where Halide's simplifier drops one half of a clamp, its bounds inference may miss just
        that half.
        """
        limit = self.extent(extent)
        clamped = hl.cast(hl.Int(32), self.value(index))
        if not self._was_clamped(index, extent) and not self._lies_within(index, extent):
            clamped = _clamped(clamped, limit)
        # What the simplifier can prove, it drops as a whole; the bounds of what was a float or unsigned on
        # its way Halide does not infer, so that of a promise that is proven nothing would be left.
        return _promised(clamped, limit + self._unknown_zero() if self.is_of_other_numbers(index) else limit)

    def _was_clamped(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is read from a stage that writes nothing outside the extent."""
        if not isinstance(index, Read) or not isinstance(extent, Const) or index.tensor in self._given:
            return False
        op = index.tensor.op
        if not isinstance(op, Compute) or not are_places(op):
            return False
        low, high = range_of(op.bodies[index.tensor.index])
        return low >= 0 and high < extent.value

    def _lies_within(self, index: Expr, extent: Expr) -> bool:
        """Whether an index made of floats lies inside, whatever these are: Halide knows nothing of their ranges."""
        low, high = range_of(index, self._ranges)
        return self.is_of_other_numbers(index) and isinstance(extent, Const) and low >= 0 and high < extent.value

    def is_of_other_numbers(self, root: Expr) -> bool:
        """Whether parts of it are no signed integers to Halide, to which sums that may wrap are unsigned, or joined
        bits, whose range its simplifier knows and its bounds inference does not; also parts of what is read.
        """
        return any(
            node.dtype in (UINT32, UINT64)
            or node.dtype.is_float
            or (isinstance(node, Apply) and node.fn in UNBOUNDED)
            or (isinstance(node, Read) and node.tensor in self._others)
            for node in topological(root)
        )

    def extent(self, extent: Expr) -> Halide:
        """An extent, or any other plain expression of extents and axes."""
        return indices.plain(extent, self._symbols)


def _clipped_before(node: Apply) -> Expr | None:
    """The clipped float where an integer made of it is clipped: then nothing is looked for that does not fit."""
    if node.fn is not Fn.CLIP or not node.dtype.is_integer:
        return None
    if not isinstance(node.args[0], Apply) or node.args[0].fn is not Fn.CAST:
        return None
    (x,), ends = node.args[0].args, node.args[1:]
    if x.dtype.name not in ("float32", "float64") or not all(isinstance(e, Const) for e in ends):
        return None
    low, high = (int(e.value) for e in ends)  # type: ignore[attr-defined]
    if not -EXACT[x.dtype.name] < low <= high < EXACT[x.dtype.name]:
        return None
    bounds = (Const(float(low), x.dtype), Const(float(high), x.dtype))
    return Apply(Fn.CLIP, (x, *bounds), x.dtype)


def _is_at_one_place(index: Expr) -> bool:
    """Whether an index is always the same: also along an axis of one element."""
    nodes = topological(index)
    return all(isinstance(n, (Const, Apply)) or (isinstance(n, Axis) and number(n.extent) == 1) for n in nodes)


def _shifted(value: Halide) -> Halide:
    """Int32 as unsigned numbers of the same order: the simplifier leaves them as they are, LLVM makes nothing of it."""
    return hl.cast(hl.UInt(32), value) ^ hl.u32(SIGN)


def is_deep(root: Expr, known: dict[Expr, int]) -> bool:
    """Whether more than a few operations are nested in a value; `known` remembers their depths between calls."""
    if root not in known:
        for node in topological(root):
            if node not in known:
                known[node] = 1 + max(known[c] for c in node.args) if isinstance(node, Apply) else 0
    return known[root] > FEW


def _divided(a: Halide, b: Halide, dtype: DType) -> Halide:
    is_zero = EMIT["eq"](b, const(0.0, dtype), dtype=dtype)
    infinite = EMIT["copysign"](const(math.inf, dtype), b, dtype=dtype)
    by_zero = EMIT["mul"](a, infinite, dtype=dtype)
    return hl.select(is_zero, by_zero, EMIT["div"](a, hl.select(is_zero, const(1.0, dtype), b), dtype=dtype))


def _promised(index: Halide, extent: Halide) -> Halide:
    """An index of which Halide is told that it lies within the extent; no instruction comes of it."""
    return hl.unsafe_promise_clamped(index, 0, hl.max(extent - 1, 0))


def _any(index: Expr, extent: Expr, given: Halide) -> Halide:
    """An index of what does not move."""
    return given


def _clamped(index: Halide, extent: Halide) -> Halide:
    return hl.max(hl.min(index, extent - 1), 0)
