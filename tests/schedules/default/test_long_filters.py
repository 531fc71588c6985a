"""Filters along a row that are too long to be written out: they read a copy with borders, and ask nothing inside."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.schedules.default.test_channels import AVX2, check, with_gradients

TAPS, LENGTH = 40, 50


def filtered(spelling: str, dtype: str = "float32") -> tuple[list[te.Tensor], te.Tensor]:
    """Each of three rows by a filter of its own, from the left; what stands before a row is 0, or its first element."""
    x, w = te.placeholder((2, 3, LENGTH), dtype, name="x"), te.placeholder((3, TAPS), dtype, name="w")
    early, t = te.reduce_axis(TAPS, name="early"), LENGTH
    bodies: dict[str, Callable[..., Any]] = {
        "where": lambda n, c, i: te.sum(x[n, c, i - early] * w[c, early], axis=early, where=i - early >= 0),
        "where, last": lambda n, c, i: te.sum(lambda k: w[c, k] * x[n, c, i - k], where=lambda k: k <= i),
        "zero": lambda n, c, i: te.sum(lambda k: x.at(n, c, i - k, mode="zero") * w[c, k]),
        "clamp": lambda n, c, i: te.sum(lambda k: w[c, k] * x.at(n, c, i - k, mode="clamp")),
        "wrap": lambda n, c, i: te.sum(lambda k: w[c, k] * x[n, c, (i + k) % t]),
    }
    return [x, w], te.compute((2, 3, LENGTH), bodies[spelling], name="y")


@pytest.mark.parametrize("spelling", ["where", "where, last", "zero", "clamp", "wrap"])
def test_filters_and_their_gradients(spelling: str) -> None:
    inputs, y = filtered(spelling)
    text = str(te.Schedule(y).auto(target=AVX2))
    (line,) = (row for row in text.splitlines() if "y[n, c, i] +=" in row)
    assert "y_bordered[" in line
    assert "select" not in line
    assert not re.search(r"if .*\b(k|early)\b", text)
    check(*with_gradients(inputs, y))


def test_in_float64() -> None:
    check(*with_gradients(*filtered("where", "float64")))


def test_both_factors_are_rows() -> None:
    """Products of polynomials, row by row: all of both is read."""
    a, b = te.placeholder((3, 40), name="a"), te.placeholder((3, 40), name="b")

    def element(n: Any, i: Any) -> Any:
        return te.sum(lambda k: a[n, i - k] * b[n, k], where=lambda k: (i - k >= 0) & (i - k < 40))

    check(*with_gradients([a, b], te.compute((3, 79), element, name="y")))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_taps_beyond_the_row_are_not_multiplied(value: float) -> None:
    """The last tap meets the last elements only, whatever stands in it."""
    inputs, y = filtered("where")
    x, w = (np.ones(tuple(map(int, t.shape)), "float32") for t in inputs)
    w[:, -1] = value
    found = te.build(inputs, y)(x, w)
    assert np.isfinite(found[..., : TAPS - 1]).all()
    assert not np.isfinite(found[..., TAPS - 1 :]).any()
