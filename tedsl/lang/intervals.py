"""Intervals of integers: their arithmetic, what an expression ranges over, and whether anything in it wraps.

Quick and sound, not exact: operands are taken as independent. No interval of integers is infinite: a value that may
leave its dtype wraps there, and is then anything that the dtype holds, as is a value of which nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from tedsl.lang.dtypes import INT32, DType, integer_bounds
from tedsl.lang.expr import SIZE_MAX, Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.float_intervals import ALL, FloatRange, float_range, truncated
from tedsl.lang.operators import NEGATED
from tedsl.lang.traverse import topological

__all__ = [
    "FEW", "INT32_MAX", "Known", "Range", "cut", "exact_range", "hull", "leaves", "may_wrap", "minus", "negated",
    "plus", "product", "range_of", "verdict", "with_sizes", "within", "wraps_early",
]  # fmt: skip

Range = tuple[int, int]
Known = MutableMapping[Expr, Range]
INT32_MAX = integer_bounds(INT32)[1]
FEW, MANY_BITS = 16, 16


def range_of(expr: Expr, known: Known | None = None) -> Range:
    """The least and greatest value of an integer or bool expression; `known` remembers between calls.

    Of floats, which NaN is beside, `known` has the ends as floats.
    """
    known = {} if known is None else known
    if expr in known:
        return known[expr]
    for node in topological(expr):
        if node not in known:
            known[node] = _range(node, known)
    return known[expr]


def within(found: Range, dtype: DType) -> bool:
    """Whether an integer type holds all of a range."""
    least, most = integer_bounds(dtype)
    return least <= found[0] and found[1] <= most


def may_wrap(expr: Expr, known: Known) -> bool:
    """Whether integer arithmetic below a node might leave its dtype."""
    order = topological(expr)
    for node in order:  # also of what lies below one that is known
        range_of(node, known)
    return any(leaves(node, known) for node in order)


def wraps_early(expr: Expr) -> bool:
    """Whether an expression might leave its dtype for sizes of a product up to 65536, where all that is read is 0.

    That it may wrap for larger ones says nothing: an array of which the index `i*n + j` wraps cannot be held.
    """
    known = with_sizes(expr, (0, max(FEW, 1 << MANY_BITS // max(1, _degree(expr)))))
    order = topological(expr)
    for node in order:
        range_of(node, known)
    return any(leaves(node, known) for node in order)


def _degree(expr: Expr) -> int:
    """How many sizes are multiplied at most: two in `i*n + j`."""
    degrees: dict[Expr, int] = {}
    for node in topological(expr):
        below = [degrees[c] for c in node.children]
        if isinstance(node, Axis):
            degrees[node] = max([1, *(_degree(e) for e in (node.begin, node.extent) if e is not None)])
        elif isinstance(node, Apply) and node.fn is Fn.POW and isinstance(node.args[1], Const):
            degrees[node] = below[0] * max(1, int(node.args[1].value))
        elif isinstance(node, Apply) and node.fn is Fn.MUL:
            degrees[node] = sum(below)
        else:
            degrees[node] = int(isinstance(node, Var)) or max(below, default=0)
    return degrees[expr]


def with_sizes(expr: Expr, sizes: Range) -> Known:
    """Intervals to begin with: every size lies within `sizes`, also those of extents, and all that is read is 0."""
    known: Known = {}
    stack = [expr]
    while stack:
        for node in topological(stack.pop()):
            if isinstance(node, Var):
                known[node] = sizes
            elif isinstance(node, Read):
                known[node] = 0, 0
            elif isinstance(node, Axis):
                stack += [e for e in (node.begin, node.extent) if e is not None and e not in known]
    return known


def _everything(node: Expr) -> Range:
    return integer_bounds(node.dtype)


def _range(node: Expr, known: Known) -> Range:
    if node.dtype.is_float:
        return _of_floats(node, known)  # type: ignore[return-value]  # no rule of integers looks at it
    if isinstance(node, Const):
        return int(node.value), int(node.value)
    if isinstance(node, Var):
        return 0, SIZE_MAX
    if isinstance(node, Axis):
        begin, last = range_of(node.begin, known), _longest(node.extent, known) - 1
        return begin[0], min(max(begin[0], begin[1] + last), INT32_MAX)
    everything = _everything(node)
    if not isinstance(node, Apply) or not (node.dtype.is_integer or node.dtype.is_bool):
        return everything
    if any(a.dtype.is_float for a in node.args):
        return (
            truncated(known[node.args[0]], node.dtype) if node.fn is Fn.CAST and node.dtype.is_integer else everything
        )
    found = exact_range(node, known)
    return found if found is not None and everything[0] <= found[0] and found[1] <= everything[1] else everything


def _of_floats(node: Expr, known: Known) -> FloatRange:
    if isinstance(node, Const):
        return ALL if math.isnan(value := float(node.value)) else (value, value)
    return float_range(node, tuple(known[a] for a in node.args)) if isinstance(node, Apply) else ALL


def _longest(extent: Expr | None, known: Known) -> int:
    """The greatest extent: one that is no number is checked, when a kernel runs, to be from 0 to SIZE_MAX."""
    if extent is None:
        return SIZE_MAX
    high = range_of(extent, known)[1]
    return high if isinstance(extent, Const) else min(high, SIZE_MAX)


def exact_range(node: Apply, known: Mapping[Expr, Range]) -> Range | None:
    """The interval before any wrap."""
    rule = _RULES.get(node.fn)
    return rule(*(known[a] for a in node.args)) if rule else None


def leaves(node: Expr, known: Mapping[Expr, Range]) -> bool:
    """Whether the result of one integer operation might not be in its dtype, for operands of known ranges."""
    if not isinstance(node, Apply) or not node.dtype.is_integer or any(a.dtype.is_float for a in node.args):
        return False
    found, (low, high) = exact_range(node, known), integer_bounds(node.dtype)
    return found is not None and not (low <= found[0] and found[1] <= high)


def hull(*ranges: Range) -> Range:
    """The least interval that holds them all."""
    return min(r[0] for r in ranges), max(r[1] for r in ranges)


def plus(a: Any, b: Any) -> Any:
    """a + b; the ends may be expressions."""
    return a[0] + b[0], a[1] + b[1]


def minus(a: Any, b: Any) -> Any:
    """a - b; the ends may be expressions."""
    return a[0] - b[1], a[1] - b[0]


def negated(a: Any) -> Any:
    """-a; the ends may be expressions."""
    return -a[1], -a[0]


def product(a: Range, b: Range) -> Range:
    """a * b."""
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Range, b: Range) -> Range:
    if b[0] <= 0 <= b[1]:  # what 0 divides is 0, or an error
        size = max(-a[0], a[1])
        return (min(a[0], 0), max(a[1], 0)) if b[0] == 0 else (-size, size)
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


def _remainder(a: Range, b: Range) -> Range:
    if b[0] > 0 and a[0] >= 0 and a[1] < b[0]:
        return a
    if b[0] >= 0 and a[0] >= 0:
        return 0, max(min(b[1] - 1, a[1]), 0)
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _absolute(a: Range) -> Range:
    if a[0] >= 0:
        return a
    return negated(a) if a[1] <= 0 else (0, max(-a[0], a[1]))


def _minimum(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), min(a[1], b[1])


def _maximum(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), max(a[1], b[1])


def _masked(a: Range, b: Range) -> Range | None:
    tops = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(tops)) if tops else None


def _power(a: Range, b: Range) -> Range | None:
    if not 0 <= b[0] <= b[1] < 64:
        return None
    top = max(-a[0], a[1], 1) ** b[1]
    return (-top if a[0] < 0 else 0, top)


_RULES: dict[Fn, Callable[..., Range | None]] = {
    Fn.ADD: plus, Fn.SUB: minus, Fn.NEG: negated, Fn.MUL: product, Fn.FLOORDIV: _quotient, Fn.MOD: _remainder,
    Fn.MINIMUM: _minimum, Fn.MAXIMUM: _maximum, Fn.CLIP: lambda x, low, high: _minimum(_maximum(x, low), high),
    Fn.ABS: _absolute, Fn.RELU: lambda a: _maximum(a, (0, 0)), Fn.SELECT: lambda c, a, b: hull(a, b),
    Fn.CAST: lambda a: a, Fn.SIGN: lambda a: (max(-1, min(a[0], 1)), min(1, max(a[1], -1))), Fn.BITAND: _masked,
    Fn.POW: _power,
}  # fmt: skip

# fn -> whether `value fn 0` holds for all of an interval; where it fails for all of it, the opposite holds.
_ALWAYS: Mapping[Fn, Callable[[int, int], bool]] = {
    Fn.LT: lambda low, high: high < 0, Fn.LE: lambda low, high: high <= 0, Fn.GT: lambda low, high: low > 0,
    Fn.GE: lambda low, high: low >= 0, Fn.EQ: lambda low, high: low == high == 0,
    Fn.NE: lambda low, high: low > 0 or high < 0,
}  # fmt: skip


def verdict(fn: Fn, gap: Range) -> bool | None:
    """Whether `value fn 0` holds for every value of an interval, or for none; None where that differs."""
    if _ALWAYS[fn](*gap):
        return True
    return False if _ALWAYS[NEGATED[fn]](*gap) else None


def cut(fn: Fn, values: Range, bound: int) -> Range:
    """The interval of the values of an interval for which `value fn bound` holds."""
    low, high = values
    if fn in (Fn.LT, Fn.LE, Fn.EQ):
        high = min(high, bound - (fn is Fn.LT))
    if fn in (Fn.GT, Fn.GE, Fn.EQ):
        low = max(low, bound + (fn is Fn.GT))
    return low, high
