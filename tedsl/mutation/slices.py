"""Slices and integer indices of an axis with any number of places, as Python cuts them: for every value of it.

The number of places of an axis is an expression that may be below 0, where there is none. Where a bound is a number,
or known to be at least 0 or below it, what is cut off stays an affine expression wherever it can.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Apply, Const, Expr, Fn
from tedsl.lang.extents import simplify_extent
from tedsl.lang.intervals import range_of

__all__ = ["AxisCut", "clipped", "cut_axis", "is_place", "place_of"]

_ZERO = Const(0, INT32)


@dataclass(frozen=True, eq=False)
class AxisCut:
    """A part of an axis: `count` places from `first` on in steps; without a step one place, which is no axis any more.

    `from_edge`: no place is left out before the first; `to_edge`: none that a step leads to is left out after the last.
    `checks`: (extent, place) of places that exist, or the call fails.
    """

    first: Expr
    step: int | None
    count: Expr
    from_edge: bool = False
    to_edge: bool = False
    checks: tuple[tuple[Expr, Expr], ...] = ()


def is_place(item: Any) -> bool:
    """Whether an index is an integer expression of sizes."""
    return isinstance(item, Expr) and item.dtype.is_integer


def clipped(count: Expr) -> Expr:
    """The extent of an axis with so many places."""
    if isinstance(count, Const):
        return Const(max(int(count.value), 0), INT32)
    if _is_natural(count):
        return count
    return _ZERO if range_of(count)[1] <= 0 else simplify_extent(fn.maximum(count, 0))


def _is_natural(count: Expr) -> bool:
    """Whether a number of places is never below 0: an array whose number of elements wrapped cannot be held."""
    if isinstance(count, Apply) and count.fn in (Fn.ADD, Fn.MUL, Fn.MINIMUM):
        return all(map(_is_natural, count.args))
    if isinstance(count, Apply) and count.fn is Fn.MAXIMUM:
        return any(map(_is_natural, count.args))
    if isinstance(count, Apply) and count.fn is Fn.FLOORDIV and isinstance(count.args[1], Const):
        return count.args[1].value > 0 and _is_natural(count.args[0])
    return range_of(count)[0] >= 0


def cut_axis(count: Expr, item: slice) -> AxisCut:
    """What a slice leaves of an axis."""
    step = 1 if item.step is None else _whole(item.step, "step")
    if not isinstance(step, int) or step == 0:
        raise ValueError(f"slice at {user_location()}: the step must be a number other than 0, found {item.step!r}")
    start, stop = (None if v is None else _whole(v, "bound") for v in (item.start, item.stop))
    if isinstance(count, Const) and all(v is None or isinstance(v, int) for v in (start, stop)):
        return _known(max(int(count.value), 0), slice(start, stop, step))
    if step > 0:
        return _forward(count, start, stop, step)
    start, stop = (None if v is None else -v - 1 for v in (start, stop))
    turned = _forward(count, start, stop, -step)
    return AxisCut(simplify_extent(count - 1 - turned.first), step, turned.count, turned.from_edge, turned.to_edge)


def _known(extent: int, item: slice) -> AxisCut:
    begin, end, step = item.indices(extent)
    count = len(range(begin, end, step))
    before, beyond = begin - step, begin + step * count
    from_edge, to_edge = (not 0 <= place < extent for place in (before, beyond))
    return AxisCut(Const(begin, INT32), step, Const(count, INT32), from_edge, to_edge)


def _whole(value: Any, what: str) -> Any:
    """A bound as a Python integer or an expression."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, Const):
        return int(value.value)
    if not is_place(value):
        raise TypeError(
            f"slice at {user_location()}: a {what} must be an integer or an expression of extents such as x.shape[0], "
            f"found {value!r:.60}"
        )
    found = simplify_extent(fn.convert(value, INT32))
    return int(found.value) if isinstance(found, Const) else found


def _forward(count: Expr, start: Any, stop: Any, step: int) -> AxisCut:
    """A slice whose step is positive."""
    first, length = _length(count, _ZERO if start is None else start, stop)
    found = simplify_extent(fn.convert(length, INT32) + (step - 1)) // step if step > 1 else length
    edges = start is None or (isinstance(start, int) and start == 0), stop is None
    return AxisCut(simplify_extent(fn.convert(first, INT32)), step, simplify_extent(fn.convert(found, INT32)), *edges)


def _length(count: Expr, start: Any, stop: Any) -> tuple[Any, Any]:
    """The first place and the number of places between two bounds (below 0 where there are none)."""
    begin, end = _sign(start), 1 if stop is None else _sign(stop)
    if 0 in (begin, end):  # a bound that may count from the end or not
        extent = clipped(count)
        first = _placed(start, begin, start, _larger(_ZERO, extent + start))
        last = extent if stop is None else _placed(stop, end, _smaller(extent, stop), extent + stop)
        return first, last - first
    if begin > 0:
        if stop is None:
            return start, count - start
        return start, _smaller(stop - start, count - start) if end > 0 else count + (stop - start)
    first = _larger(_ZERO, count + start)
    if stop is None:
        return first, _smaller(count, -start)
    return first, _smaller(count, stop) - first if end > 0 else _smaller(count + stop, stop - start)


def _smaller(a: Any, b: Any) -> Any:
    """The smaller of two numbers; the one that always is, if there is one."""
    low, high = _gap(a, b)
    return a if high <= 0 else b if low >= 0 else fn.minimum(a, b)


def _larger(a: Any, b: Any) -> Any:
    low, high = _gap(a, b)
    return b if high <= 0 else a if low >= 0 else fn.maximum(a, b)


def _gap(a: Any, b: Any) -> tuple[int, int]:
    """The range of a - b."""
    return range_of(simplify_extent(fn.convert(fn.as_expr(a) - b, INT32)))


def _placed(bound: Any, sign: int, from_begin: Any, from_end: Any) -> Any:
    if sign:
        return from_begin if sign > 0 else from_end
    return fn.select(bound < 0, from_end, from_begin)


def _sign(value: Any) -> int:
    """1 for a bound that counts from the beginning, -1 from the end, 0 where that is not known."""
    low, high = (value, value) if isinstance(value, int) else range_of(value)
    return 1 if low >= 0 else -1 if high < 0 else 0


def place_of(count: Expr, item: Any) -> AxisCut:
    """One place of an axis: IndexError where there is none, a check where that depends on the extent."""
    place = _whole(item, "index")
    low, high = range_of(clipped(count))
    if isinstance(place, int) and not -high <= place < high:
        raise IndexError(f"index {place} is out of bounds for an axis of at most {high} places")
    sign = _sign(place)
    first = _placed(place, sign, place, clipped(count) + place if sign == 0 else count + place)
    found = simplify_extent(fn.convert(first, INT32))
    if isinstance(place, int) and -low <= place < low:
        return AxisCut(found, None, _ZERO)
    return AxisCut(found, None, _ZERO, checks=((clipped(count), found),))
