"""The arithmetic of intervals against every pair of values in them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product as pairs
from typing import Any

import pytest
from hypothesis import given, strategies as st

import tedsl as te
from tedsl.lang import intervals
from tedsl.lang.dtypes import INT32, integer_bounds
from tedsl.lang.expr import SIZE_MAX, Fn
from tedsl.lang.intervals import Range, cut, hull, may_wrap, range_of, verdict, wraps_early
from tedsl.lang.operators import MIRRORED, NEGATED

RANGES = st.tuples(st.integers(-6, 6), st.integers(0, 5)).map(lambda r: (r[0], r[0] + r[1]))
HOLDS: dict[Fn, Callable[[int, int], bool]] = {
    Fn.LT: operator.lt, Fn.LE: operator.le, Fn.GT: operator.gt, Fn.GE: operator.ge, Fn.EQ: operator.eq,
    Fn.NE: operator.ne,
}  # fmt: skip
EXACT: dict[str, Callable[[int, int], int]] = {
    "plus": operator.add, "minus": operator.sub, "product": operator.mul,
}  # fmt: skip


def values(of: Range) -> range:
    return range(of[0], of[1] + 1)


@pytest.mark.parametrize("name", EXACT)
@given(a=RANGES, b=RANGES)
def test_sums_and_products_reach_their_ends(name: str, a: Range, b: Range) -> None:
    found = [EXACT[name](x, y) for x, y in pairs(values(a), values(b))]
    assert getattr(intervals, name)(a, b) == (min(found), max(found))


@given(a=RANGES, b=RANGES)
def test_a_hull_holds_both_and_no_more(a: Range, b: Range) -> None:
    assert hull(a, b) == (min(*values(a), *values(b)), max(*values(a), *values(b)))


@pytest.mark.parametrize("fn", HOLDS)
@given(gap=RANGES)
def test_a_verdict_is_that_of_every_value(fn: Fn, gap: Range) -> None:
    found = {HOLDS[fn](v, 0) for v in values(gap)}
    assert verdict(fn, gap) == (found.pop() if len(found) == 1 else None)


@pytest.mark.parametrize("fn", HOLDS)
@given(of=RANGES, bound=st.integers(-8, 12))
def test_a_cut_leaves_what_holds(fn: Fn, of: Range, bound: int) -> None:
    kept = [v for v in values(of) if HOLDS[fn](v, bound)]
    low, high = cut(fn, of, bound)
    if fn is Fn.NE:  # what is left has a hole, or all of it is
        assert (low, high) == of
    else:
        assert list(values((low, high))) == kept


@pytest.mark.parametrize("fn", HOLDS)
@given(a=st.integers(-3, 3), b=st.integers(-3, 3))
def test_comparisons_negated_and_mirrored(fn: Fn, a: int, b: int) -> None:
    assert HOLDS[fn](a, b) == (not HOLDS[NEGATED[fn]](a, b)) == HOLDS[MIRRORED[fn]](b, a)


def test_an_extent_that_is_no_number_is_that_of_an_array_that_can_be() -> None:
    n, m = te.var("n"), te.var("m")
    i = te.reduce_axis(n * m, "i")
    assert range_of(i) == (0, SIZE_MAX - 1)  # n * m itself may wrap, and is refused then
    assert range_of(n * m) == integer_bounds(INT32)
    assert not may_wrap(i + 2, {})
    assert may_wrap(i * 2, {})


@pytest.mark.parametrize(
    ("build", "early"),
    [
        (lambda i, n: i * n, False),
        (lambda i, n: i * n * n * n * n * n * n * n * n, True),
        (lambda i, n: i * 4096 + 4095, False),
        (lambda i, n: i * n * 1000, False),
        (lambda i, n: te.reduce_axis(n * n, "whole") * n + i, False),
        (lambda i, n: n**4 * i, False),
        (lambda i, n: i * (1 << 27), True),
        (lambda i, n: te.cast(te.cast(i, "int64") * (1 << 27), "int32"), True),
        (lambda i, n: te.cast(te.cast(i, "int64") * 1000, "int32"), False),
    ],
)
def test_what_wraps_for_small_sizes(build: Any, early: bool) -> None:
    n = te.var("n")
    assert wraps_early(build(te.reduce_axis(n, "i"), n)) == early


def test_what_lies_below_an_expression_that_is_known() -> None:
    """A place that was looked up was known, what it is made of was not: a build ended with KeyError."""
    i = te.reduce_axis(4, "i")
    inner = i + 1
    known = {inner * 3: (0, 30)}
    assert not may_wrap(inner * 3, known)
    assert known[inner] == (1, 4)
