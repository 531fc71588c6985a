"""Reductions over growing ranges as recurrences: which are known, and that results and gradients stay what they are."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from schedules.default.canonical.growing import Growing, growing
from schedules.thresholds import Thresholds
from tedsl.lang.extents import number

RANDOM = np.random.default_rng(5)
LEAST = Thresholds(growing=2)


def made_of(output: te.Tensor) -> Growing | None:
    return growing(output.op, LEAST)  # type: ignore[arg-type]


def check(outputs: list[te.Tensor], feeds: dict[te.Tensor, Any]) -> None:
    """Results and gradients, compiled with every pattern, are those of the reference."""
    heads = [te.placeholder(y.shape, str(y.dtype), name=f"head{k}") for k, y in enumerate(outputs)]
    wanted = [*outputs, *te.differentiate(outputs, list(feeds), head=heads)]
    feeds = feeds | {h: RANDOM.integers(-2, 3, tuple(map(int, h.shape))).astype(str(h.dtype)) for h in heads}
    with assuming({**LOWEST}):
        found = te.evaluate(wanted, feeds)
    for got, want in zip(found, te.interpret(wanted, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def numbers(*shape: int) -> Any:
    return RANDOM.integers(-4, 5, shape).astype("f4")


def test_a_range_that_grows_is_a_recurrence() -> None:
    x = te.placeholder((4, 9), name="x")
    k = te.reduce_axis(9, name="k")
    rising = made_of(te.compute((4, 9), lambda i, j: te.sum(x[i, k], axis=k, where=k <= j), name="y"))
    assert rising is not None
    assert (rising.body, rising.terms) == (None, None)
    assert str(rising.scan.bodies[0]) == "te.select(k == 0, x[i, k], y[i, k - 1] + x[i, k])"
    falling = made_of(te.compute((4, 9), lambda i, j: te.sum(te.select(k >= j, x[i, k], 0.0), axis=k), name="y"))
    assert falling is not None
    assert falling.body is None
    assert falling.scan.reverse
    assert str(falling.scan.bodies[0]) == "te.select(k == 8, x[i, k], y[i, k + 1] + x[i, k])"


def test_what_is_added_stays_inside_of_the_range() -> None:
    x = te.placeholder((9,), name="x")
    k = te.reduce_axis(9, name="k")
    found = made_of(te.compute((9,), lambda j: te.sum(x[k + 1], axis=k, where=k < j), name="y"))
    assert found is not None
    assert number(found.scan.axes[0].extent) == 8  # x[9] is read by no element
    assert str(found.body) == "te.select(j - 1 >= 0, y[te.maximum(j - 1, 0)], 0.0)"


@pytest.mark.parametrize("why", ["value", "condition", "equal", "two", "scaled", "argmax", "short"])
def test_others_stay_as_they_are(why: str) -> None:
    x, n = te.placeholder((9, 9), name="x"), 1 if why == "short" else 9
    k = te.reduce_axis(9, name="k")
    conditions: dict[str, Callable[[Any], Any]] = {
        "condition": lambda j: (k <= j) & (k + 3 >= j),
        "equal": lambda j: k == j,
        "scaled": lambda j: k <= 2 * j,
    }
    where = conditions.get(why, lambda j: k <= j)
    reducer = te.argmax if why == "argmax" else te.sum

    def body(i: Any, j: Any) -> Any:
        return reducer(x[k, j] if why == "value" else x[i, k], axis=k, where=where(i + j if why == "two" else j))

    assert made_of(te.compute((9, n), body)) is None


def test_every_comparison_and_distance() -> None:
    compared = (operator.le, operator.lt, operator.ge, operator.gt)
    for away, kind in itertools.product((-3, 0, 2), ("sum", "max")):
        outputs, feeds = [], {}
        for compare, (ends, terms), last in itertools.product(compared, ((5, 8), (8, 5)), (True, False)):
            x = te.placeholder((4, terms) if last else (terms, 4), name=f"x{len(feeds)}")
            k = te.reduce_axis(terms, name="k")

            def body(*at: Any, x: te.Tensor = x, k: Any = k, last: bool = last, compare: Any = compare) -> Any:
                row, end = at if last else at[::-1]
                value = x[row, k] if last else x[k, row]
                return te.maximum(getattr(te, kind)(value, axis=k, where=compare(k, end + away)), -9.0)  # noqa: B023

            outputs.append(te.compute((4, ends) if last else (ends, 4), body))
            feeds[x] = numbers(*map(int, x.shape))
        with assuming({**LOWEST}):
            found = te.evaluate(outputs, feeds)
        for got, want in zip(found, te.interpret(outputs, feeds), strict=True):
            np.testing.assert_array_equal(got, want)


def test_gradients_terms_that_are_sums_and_squares() -> None:
    x, w = te.placeholder((7, 9), name="x"), te.placeholder((9,), name="w")
    over, rows, deep = te.reduce_axis(9), te.reduce_axis(7), te.reduce_axis(9)
    area = te.compute((7, 9), lambda i, j: te.sum(x[rows, over], axis=(rows, over), where=(rows <= i) & (over <= j)))
    product = te.compute((7,), lambda i: te.sum(x[rows, deep] * w[deep], axis=(rows, deep), where=rows > i))
    chosen = te.compute((9,), lambda j: te.sum(x[rows, over], axis=(over, rows), where=(over < j) & (over % 2 == 0)))
    check([area, product, chosen], {x: numbers(7, 9), w: numbers(9)})


def test_a_maximum_of_a_range_is_nan_from_where_one_is() -> None:
    x = te.placeholder((40,), name="x")
    k = te.reduce_axis(40)
    y = te.compute((40,), lambda j: te.max(x[k], axis=k, where=k <= j))
    given = np.where(np.arange(40) == 17, np.nan, np.arange(40) % 7).astype("f4")
    np.testing.assert_array_equal(te.evaluate(y, {x: given}), np.maximum.accumulate(given))


def test_the_default_schedule_says_that_terms_are_added_in_another_order() -> None:
    x = te.placeholder((8, 64), name="x")
    y = te.compute((8, 64), lambda i, j: te.sum(lambda k: te.select(k <= j, x[i, k], 0.0)), name="y")
    schedule = te.Schedule(y).auto()
    assert "y" in schedule.regrouped
    assert "y[i, k - 1] + x[i, k]" in str(schedule)


def test_conditions_on_data_are_asked_where_those_before_them_hold() -> None:
    """Row k - 1 is there from 1 on."""
    x, y = te.placeholder((4, 9), name="x"), te.placeholder((9,), name="y")

    def term(i: Any, k: Any) -> Any:
        return te.select(k > 0, te.select(x[i, k - 1] > 0.0, y[k], 0.0), 0.0)

    total = te.compute((4, 9), lambda i, j: te.sum(lambda k: term(i, k), where=lambda k: k <= j), name="total")
    assert made_of(total) is not None
    check([total], {x: numbers(4, 9), y: numbers(9)})
