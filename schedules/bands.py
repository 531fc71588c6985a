"""Conditions on one combination of loops as bands: from a least to a greatest value.

Choices inside choices ask the same again: `x >= 1 and (x <= 1 and x == 1 or x >= 2)` is `x >= 1`. Where that is seen, a
sum under such a condition is a loop with ends.
"""

from __future__ import annotations

from collections.abc import Callable

from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Const, Expr, Fn
from tedsl.lang.traverse import conjuncts, reads_of

__all__ = ["both", "either"]

LEAST, GREATEST = -(1 << 31), (1 << 31) - 1
Band = tuple[int, int]


def both(node: Apply) -> Expr:
    """An `and` in which no part says less about a combination of loops than the others do."""
    parts = list(conjuncts(node))
    known = [_comparison(part) for part in parts]
    planes = [found[0] for found in known if found is not None]
    repeats = len(parts) < sum(len(conjuncts(arg)) for arg in node.args)
    if len(set(planes)) == len(planes) and not repeats:
        return node
    if reads_of([part for part, found in zip(parts, known, strict=True) if found is None]):
        return node
    bands: dict[Expr, Band] = {}
    for found in known:
        if found is not None:
            plane, (low, high) = found
            least, greatest = bands.get(plane, (LEAST, GREATEST))
            bands[plane] = max(low, least), min(high, greatest)
    if any(low > high for low, high in bands.values()):
        return FALSE
    made: Expr = TRUE
    for part, found in zip(parts, known, strict=True):
        if found is None:
            made = fn.logical_and(made, part)
        elif (band := bands.pop(found[0], None)) is not None:
            made = fn.logical_and(made, part if band == found[1] else _within(found[0], band))
    return made


def either(node: Apply) -> Expr:
    """An `or` of two bands of one combination of loops that meet, as one."""
    one, other = (_band_of(arg) for arg in node.args)
    if one is None or other is None or one[0] is not other[0]:
        return node
    (low, high), (least, greatest) = one[1], other[1]
    if low > greatest + 1 or least > high + 1:
        return node
    return _within(one[0], (min(low, least), max(high, greatest)))


def _comparison(part: Expr) -> tuple[Expr, Band] | None:
    """What is compared with a number, and the values that are left of it."""
    if not isinstance(part, Apply) or part.fn not in _BANDS or part.args[0].dtype is not INT32:
        return None
    plane, bound = part.args
    return (plane, _BANDS[part.fn](int(bound.value))) if isinstance(bound, Const) else None


_BANDS: dict[Fn, Callable[[int], Band]] = {
    Fn.LE: lambda c: (LEAST, c), Fn.LT: lambda c: (LEAST, c - 1), Fn.GE: lambda c: (c, GREATEST),
    Fn.GT: lambda c: (c + 1, GREATEST), Fn.EQ: lambda c: (c, c),
}  # fmt: skip


def _band_of(node: Expr) -> tuple[Expr, Band] | None:
    """The same of a comparison, or of two with one combination."""
    found = [_comparison(part) for part in conjuncts(node)]
    first = found[0]
    if first is None or len(found) > 2:
        return None
    plane, (low, high) = first
    for other in found[1:]:
        if other is None or other[0] is not plane:
            return None
        low, high = max(low, other[1][0]), min(high, other[1][1])
    return (plane, (low, high)) if low <= high else None


def _within(plane: Expr, band: Band) -> Expr:
    low, high = band
    if low == high:
        only: Expr = fn.apply(Fn.EQ, plane, Const(low, INT32))
        return only
    made: Expr = TRUE
    if low > LEAST:
        made = fn.apply(Fn.GE, plane, Const(low, INT32))
    return made if high == GREATEST else fn.logical_and(made, fn.apply(Fn.LE, plane, Const(high, INT32)))
