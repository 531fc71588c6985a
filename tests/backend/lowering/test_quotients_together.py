"""Quotients that meet other terms of their axis: Halide 21 solves such sums for their loops, wrongly.

It takes (8 * i - k) / 2 for 4 * i - k / 2, one more where k is odd. The programs here are integers made of axes alone,
computed under drawn splits and vectors, against the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te

Form = Callable[[Any, Any], Any]

FOUND: dict[str, Form] = {
    "two quotients of one axis": lambda i, j: -j // 2 - (2 - j) // 58 * 29,
    "a quotient within": lambda i, j: (-j + -j // 8 * 2 + (5 * j - 3 * i + 7) // 58 * 29) // 2 * 29,
    "a quotient and its axis": lambda i, j: (j // 3 * 4 - j) // 2,
    "a comparison": lambda i, j: te.select((3 * i - j) // 2 > j - 5, i, j),
}


def check(forms: list[Form], shape: tuple[int, int], splits: list[tuple[str, int]], vector: int) -> None:
    outputs = [te.compute(shape, form, name=f"t{k}") for k, form in enumerate(forms)]
    schedule = te.Schedule(outputs)
    for tensor in outputs:
        for axis, factor in splits:
            schedule[tensor].split(axis, factor)
        if vector:
            schedule[tensor].vectorize(schedule[tensor].loops[-1], vector)
    found = te.build([], outputs, schedule=schedule)()
    for tensor, got, want in zip(outputs, found, te.interpret(outputs, {}), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=str(tensor))


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("splits", [[("j", 2)], [("j", 8)], [("j", 3), ("i", 4)]], ids=str)
@pytest.mark.parametrize("vector", [0, 4])
def test_sums_that_came_out_wrong(name: str, splits: list[tuple[str, int]], vector: int) -> None:
    check([FOUND[name]], (30, 16), splits, vector)


def test_a_gradient_that_came_out_wrong() -> None:
    """Of windows over a reflected border, by steps of two."""
    x, w = te.placeholder((2, 33, 30), name="x"), te.placeholder((33, 2), name="w")
    y = te.compute((2, 33, 17), lambda n, c, a: te.sum(lambda v: x.at(n, c, 2 * a + v - 2, mode="reflect") * w[c, v]))
    head = te.placeholder(y.shape, name="head")
    dx = te.differentiate(y, x, head=head)
    rng = np.random.default_rng(0)
    feeds = {t: rng.integers(-2, 3, t.shape).astype("float32") for t in (x, w, head)}
    np.testing.assert_array_equal(te.evaluate(dx, feeds), te.interpret(dx, feeds))


NUMBERS = st.sampled_from([-3, -2, -1, 1, 2, 3, 4, 29])


@st.composite
def forms(draw: st.DrawFn, depth: int = 2) -> Form:
    """Sums of multiples of axes, and of quotients, remainders and extremes of such sums."""
    terms = draw(st.lists(_terms(depth), min_size=1, max_size=3))
    constant = draw(st.sampled_from([0, 0, 1, 2, -1, 7]))
    return lambda i, j: sum((term(i, j) for term in terms), 0 * i) + constant


@st.composite
def _terms(draw: st.DrawFn, depth: int) -> Form:
    by, which = draw(NUMBERS), draw(st.integers(0, 5 if depth else 1))
    if which < 2:
        return lambda i, j: (i, j)[which] * by
    inner, size = draw(forms(depth - 1)), draw(st.sampled_from([2, 3, 4, 5, 8, 58]))
    bound = draw(st.integers(-5, 40))
    return {
        2: lambda i, j: inner(i, j) // size * by,
        3: lambda i, j: inner(i, j) % size * by,
        4: lambda i, j: te.minimum(inner(i, j), bound) * by,
        5: lambda i, j: te.maximum(inner(i, j), bound) // size * by,
    }[which]


@settings(max_examples=20)
@given(
    st.lists(forms(), min_size=8, max_size=8), st.tuples(*[st.sampled_from([5, 6, 16, 30])] * 2),
    st.lists(st.tuples(st.just("j"), st.sampled_from([2, 3, 4, 8])), max_size=1),
    st.lists(st.tuples(st.just("i"), st.sampled_from([2, 3, 4])), max_size=1), st.sampled_from([0, 0, 4, 8]),
)  # fmt: skip
def test_any_sum_of_quotients(
    drawn: list[Form], shape: tuple[int, int], j: list[tuple[str, int]], i: list[tuple[str, int]], vector: int
) -> None:
    check(drawn, shape, [*j, *i], vector)
