"""Reads that are shifted by minima, maxima and choices of sizes, which may be negative on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te

Formula = Callable[[Any], Any]
SHIFTS: dict[str, tuple[Formula, Formula]] = {
    "max of min": (lambda n: te.maximum(te.minimum(n - 5, 3), 0), lambda n: max(min(n - 5, 3), 0)),
    "max of two sizes": (lambda n: te.maximum(0, te.minimum(n - 5, 9 - n)), lambda n: max(0, min(n - 5, 9 - n))),
    "clip": (lambda n: te.clip(n - 5, 0, 3), lambda n: min(max(n - 5, 0), 3)),
    "max of a choice": (lambda n: te.maximum(te.select(n > 4, n - 5, -2), 0), lambda n: max(n - 5 if n > 4 else -2, 0)),
}
MOST = 9


def formulas() -> st.SearchStrategy[tuple[Formula, Formula]]:
    """An expression of a size for te, and for Python."""
    number = st.integers(-4, 4)
    leaf = number.map(lambda c: (lambda n: n + c, lambda n: n + c)) | number.map(
        lambda c: (lambda n: te.const(c, "int32"), lambda n: c)
    )

    def joined(inner: Any) -> Any:
        kinds = {
            "min": (te.minimum, min),
            "max": (te.maximum, max),
            "difference": (lambda a, b: a - b, lambda a, b: a - b),
            "choice": (lambda a, b: te.select(a > b, a, -b), lambda a, b: a if a > b else -b),
        }

        def of(kind: str, a: Any, b: Any) -> tuple[Formula, Formula]:
            ours, python = kinds[kind]
            return (lambda n: ours(a[0](n), b[0](n))), (lambda n: python(a[1](n), b[1](n)))

        return st.builds(of, st.sampled_from(sorted(kinds)), inner, inner)

    return st.recursive(leaf, joined, max_leaves=4)


def check(shift: tuple[Formula, Formula], sizes: range) -> None:
    n = te.var("n")
    x, head = te.placeholder((n + MOST,), "float64", name="x"), te.placeholder((n,), "float64", name="head")
    y = te.compute((n,), lambda i: x[i + te.clip(shift[0](n), 0, MOST)] * 2.0, name="y")
    (gradient,) = te.differentiate([y], [x], head=[head])
    for size in sizes:
        values, begin = np.arange(1.0, size + 1), min(max(shift[1](size), 0), MOST)
        expected = np.zeros(size + MOST)
        expected[begin : begin + size] = 2 * values
        found = te.interpret(gradient, {x: np.zeros(size + MOST), head: values})
        np.testing.assert_array_equal(found, expected, err_msg=f"n = {size}")


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_that_are_never_negative(name: str) -> None:
    """A minimum was taken for a size, so for one that is never negative."""
    n = te.var("n")
    x, head = te.placeholder((n + MOST,), "float64", name="x"), te.placeholder((n,), "float64", name="head")
    ours, python = SHIFTS[name]
    y = te.compute((n,), lambda i: x[i + ours(n)], name="y")
    kernel = te.build([x, head], te.differentiate([y], [x], head=[head])[0])
    for size in range(1, 13):
        expected = np.zeros(size + MOST)
        expected[python(size) : python(size) + size] = np.arange(size)
        np.testing.assert_array_equal(kernel(np.zeros(size + MOST), np.arange(size) * 1.0), expected)


@settings(max_examples=60, deadline=None)
@given(formulas())
def test_drawn_shifts(shift: tuple[Formula, Formula]) -> None:
    check(shift, range(1, 9))
