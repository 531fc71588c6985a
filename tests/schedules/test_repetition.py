"""Equal operations are computed once; all else stays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.cutting.repetition import without_repetition
from tedsl.lang.traverse import stages_of

x = te.placeholder((20, 20), "float32", name="x")


def stages(*outputs: te.Tensor) -> int:
    """How many operations there are, the input aside."""
    return len(stages_of(without_repetition([x], outputs))) - 1


def scaled(body: Any, *extents: int) -> te.Tensor:
    made: te.Tensor = te.compute(extents or (20, 20), body)
    return made


def test_what_is_written_twice_is_computed_once() -> None:
    y = te.exp(x - x.max(axis=1, keepdims=True)) / te.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
    shared = te.exp(x - x.max(axis=1, keepdims=True))
    assert stages(y) == stages(shared / shared.sum(axis=1, keepdims=True))
    text = te.build([x], y).source("stmt")
    a = np.random.default_rng(0).standard_normal((20, 20)).astype("float32")
    np.testing.assert_allclose(te.build([x], y)(a), te.interpret(y, {x: a}), rtol=1e-6)
    assert len(re.findall(r"produce x_max(?:_window)? \{", text)) == 1


@pytest.mark.parametrize(
    "other",
    [
        scaled(lambda i, j: x[j, i] * 2),
        scaled(lambda i, j: x[i, j] * 3),
        scaled(lambda i, j: x[i, j] * 2, 20, 19),
        scaled(lambda i, j: x[i, j] + 2),
        scaled(lambda i, j: te.sum(lambda k: x[i, k] * 2)),
    ],
)
def test_what_differs_stays(other: te.Tensor) -> None:
    first = scaled(lambda i, j: x[i, j] * 2)
    assert stages(first.sum(), other.sum()) == 4


def test_names_of_loops_do_not_matter() -> None:
    first, second = scaled(lambda i, j: x[i, j] * 2), scaled(lambda u, v: x[u, v] * 2)
    assert stages(first.sum(), second.sum() + 1.0) == 3
    rows, again = (scaled(lambda i: te.sum(lambda k: x[i, k]), 20) for _ in range(2))
    assert stages(rows * 2.0 + again) == 3


def test_loops_in_another_order_are_not_the_same() -> None:
    i, j = te.reduce_axis(20, name="i"), te.reduce_axis(20, name="j")
    one = te.compute((), lambda: te.sum(x[i, j] * i, axis=(i, j)))
    other = te.compute((), lambda: te.sum(x[j, i] * i, axis=(i, j)))
    assert stages(one + other) == 3


def test_results_are_operations_of_their_own() -> None:
    first, second = scaled(lambda i, j: x[i, j] * 2), scaled(lambda i, j: x[i, j] * 2)
    assert stages(first, second) == 2
    a = np.random.default_rng(0).standard_normal((20, 20)).astype("float32")
    results = [first, second, first + second]
    for found, expected in zip(te.build([x], results)(a), te.interpret(results, {x: a}), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert stages(second + first, second) == 2


def test_sums_that_come_of_taking_factors_out_are_computed_once() -> None:
    """Also where their places are written in other ways: the user's sums differ by a factor for each element."""
    a, b, s, t = (te.placeholder((64, 64), "float32", name=name) for name in "abst")
    k = te.reduce_axis(32, name="k")
    first = te.compute((64, 64), lambda i, j: te.sum(s[i, j] * a[i, 2 * k] * b[2 * k, j], axis=k))
    second = te.compute((64, 64), lambda i, j: te.sum(a[i, k * 2] * b[k + k, j] * t[i, j], axis=k))
    kern = te.build([a, b, s, t], [first, second])
    arrays = [np.random.default_rng(k).standard_normal((64, 64)).astype("float32") for k in range(4)]
    for found, factor in zip(kern(*arrays), arrays[2:], strict=True):
        expected = arrays[0][:, ::2].astype("float64") @ arrays[1][::2] * factor
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    assert len(re.findall(r"produce \w*_inner(?:_\d+)?\$?\d* \{", kern.source("stmt"))) == 1
