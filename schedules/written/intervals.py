"""Intervals of integers as Halide finds them for indices; their ends are arrays, of a number for each iteration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn
from tedsl.lang.traverse import conjuncts, topological

__all__ = ["MOST", "Ends", "Interval", "fits", "held_by_guard", "hull", "interval_of", "of", "turns"]

Ends = Any  # an array of integers, or of truths
Interval = tuple[Ends, Ends]
MOST = 1 << 20  # numbers of an array


def of(value: int) -> Ends:
    """A number as an array."""
    return np.int64(value)


def fits(*arrays: Ends) -> bool:
    """Whether what is computed of arrays is small enough to be held."""
    return math.prod(np.broadcast_shapes(*map(np.shape, arrays))) <= MOST


def held_by_guard(spans: dict[Axis, Interval | None], guard: Expr) -> bool:
    """Hold spans where a guard is true; whether that is all it says, and it is true somewhere in each iteration."""
    is_all = True
    for condition in conjuncts(guard) if guard is not TRUE else ():
        bound = _bound(condition)
        ends = None if bound is None else spans.get(bound[0])
        if bound is None or ends is None:
            is_all = False
            continue
        axis, sign, limit = bound
        is_all &= bool(np.all(ends[0] <= limit if sign > 0 else ends[1] >= limit))
        held = np.minimum if sign > 0 else np.maximum
        spans[axis] = held(ends[0], limit), held(ends[1], limit)
    return is_all


def _bound(condition: Expr) -> tuple[Axis, int, int] | None:
    """An axis that is at most (1) or at least (-1) a number where a condition is true."""
    if not isinstance(condition, Apply) or condition.fn not in _AT_MOST:
        return None
    sign, slack = _AT_MOST[condition.fn]
    forms = [affine_of(a) for a in condition.args]
    if forms[0] is None or forms[1] is None:
        return None
    gap = (forms[0] - forms[1]) * sign  # sign * (a - b) <= slack
    if len(gap.terms) != 1:
        return None
    ((monomial, factor),) = gap.terms.items()
    if len(monomial) != 1 or not isinstance(axis := monomial[0], Axis) or abs(factor) != 1:
        return None
    return axis, factor, factor * (slack - gap.constant)


_AT_MOST: dict[Fn, tuple[int, int]] = {Fn.LT: (1, -1), Fn.LE: (1, 0), Fn.GT: (-1, -1), Fn.GE: (-1, 0)}


def hull(reads: Sequence[Interval | None], extent: int | None) -> Interval | None:
    """The interval of all reads, which are held inside the stage."""
    known = [ends for ends in reads if ends is not None]
    if extent is None or len(known) < len(reads):
        return None
    if not fits(*(e for ends in known for e in ends)):
        return None
    low, high = known[0]
    for a, b in known[1:]:
        low, high = np.minimum(low, a), np.maximum(high, b)
    return np.clip(low, 0, extent - 1), np.clip(high, 0, extent - 1)


def turns(index: Expr) -> bool:
    """Whether an index goes round. Where it does not within an iteration, Halide sometimes sees that."""
    return any(isinstance(node, Apply) and node.fn is Fn.MOD for node in topological(index))


def interval_of(index: Expr, spans: Mapping[Axis, Interval | None]) -> Interval | None:
    """What an index ranges over."""
    if isinstance(index, Const):
        return of(int(index.value)), of(int(index.value))
    if isinstance(index, Axis):
        return spans.get(index)
    form = affine_of(index) if isinstance(index, Apply) and index.fn not in _BOUNDS else None
    if form is None:
        rule = {**_BOUNDS, **_SUMS}.get(index.fn) if isinstance(index, Apply) else None
        operands = [interval_of(a, spans) for a in index.children] if rule is not None else [None]
        known = [ends for ends in operands if ends is not None]
        is_known = rule is not None and len(known) == len(operands) and fits(*(e for ends in known for e in ends))
        return rule(*known) if rule is not None and is_known else None
    low = high = of(form.constant)
    for monomial, factor in form.terms.items():
        found = interval_of(monomial[0], spans) if len(monomial) == 1 and monomial[0] is not index else None
        if found is None or not fits(low, high, *found):
            return None
        a, b = found if factor > 0 else found[::-1]
        low, high = low + factor * a, high + factor * b
    return low, high


def _clipped(a: Interval, low: Interval, high: Interval) -> Interval:
    return np.minimum(np.maximum(a[0], low[0]), high[0]), np.minimum(np.maximum(a[1], low[1]), high[1])


_BOUNDS: dict[Fn, Callable[..., Interval]] = {
    Fn.MINIMUM: lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    Fn.MAXIMUM: lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    Fn.CLIP: _clipped,
    Fn.ABS: lambda a: (np.maximum(np.maximum(a[0], -a[1]), 0), np.maximum(-a[0], a[1])),
    Fn.FLOORDIV: lambda a, by: (a[0] // by[0], a[1] // by[0]),
    Fn.MOD: lambda a, by: (0 * by[0], by[0] - 1),  # also of a single number, as Halide has it mostly
}
_SUMS: dict[Fn, Callable[..., Interval]] = {  # of what has no form
    Fn.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Fn.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Fn.NEG: lambda a: (-a[1], -a[0]),
}
