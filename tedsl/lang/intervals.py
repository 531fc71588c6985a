"""Numeric intervals of integer expressions: what values a node can take when each axis and size takes all of its own.

Quick and sound, not exact: operands are taken as independent. A value that may leave its dtype wraps there, and is then
anything that the dtype holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

from tedsl.lang.dtypes import INT32, integer_bounds
from tedsl.lang.expr import SIZE_MAX, Apply, Axis, Const, Expr, Fn, Var
from tedsl.lang.traverse import topological

__all__ = ["Known", "Range", "exact_range", "leaves", "range_of"]

Range = tuple[int, int]
Known = MutableMapping[Expr, Range]
INT32_MAX = integer_bounds(INT32)[1]


def range_of(expr: Expr, known: Known | None = None) -> Range:
    """The least and greatest value of an integer or bool expression; `known` remembers between calls."""
    known = {} if known is None else known
    if expr in known:
        return known[expr]
    for node in topological(expr):
        if node not in known:
            known[node] = _range(node, known)
    return known[expr]


def _everything(node: Expr) -> Range:
    return (0, 0) if node.dtype.is_float else integer_bounds(node.dtype)


def _range(node: Expr, known: Known) -> Range:
    if isinstance(node, Const):
        return (0, 0) if node.dtype.is_float else (int(node.value), int(node.value))
    if isinstance(node, Var):
        return 0, SIZE_MAX
    if isinstance(node, Axis):
        begin = range_of(node.begin, known)
        extent = (0, SIZE_MAX) if node.extent is None else range_of(node.extent, known)
        return begin[0], min(max(begin[0], begin[1] + extent[1] - 1), INT32_MAX)
    everything = _everything(node)
    if not isinstance(node, Apply) or not (node.dtype.is_integer or node.dtype.is_bool):
        return everything
    if any(a.dtype.is_float for a in node.args):
        return everything
    found = exact_range(node, known)
    return found if found is not None and everything[0] <= found[0] and found[1] <= everything[1] else everything


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


def _hull(*ranges: Range) -> Range:
    return min(r[0] for r in ranges), max(r[1] for r in ranges)


def _product(a: Range, b: Range) -> Range:
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
    return (-a[1], -a[0]) if a[1] <= 0 else (0, max(-a[0], a[1]))


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
    Fn.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]), Fn.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Fn.NEG: lambda a: (-a[1], -a[0]), Fn.MUL: _product, Fn.FLOORDIV: _quotient, Fn.MOD: _remainder,
    Fn.MINIMUM: _minimum, Fn.MAXIMUM: _maximum, Fn.CLIP: lambda x, low, high: _minimum(_maximum(x, low), high),
    Fn.ABS: _absolute, Fn.RELU: lambda a: _maximum(a, (0, 0)), Fn.SELECT: lambda c, a, b: _hull(a, b),
    Fn.CAST: lambda a: a, Fn.SIGN: lambda a: (max(-1, min(a[0], 1)), min(1, max(a[1], -1))), Fn.BITAND: _masked,
    Fn.POW: _power,
}  # fmt: skip
