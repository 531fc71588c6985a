"""Reducers of one's own that scale what they add by a maximum: a reduction for each component, each scale once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.analysis.scaled_sums import scaled_sums

RANDOM = np.random.default_rng(7)
LOW = float("-inf")
Combine = Callable[[Any, Any], Any]


def guarded(a: Any, b: Any) -> Any:
    top = te.maximum(a[0], b[0])
    left, right = (te.select(c[0] == top, 1.0, te.exp(c[0] - top)) for c in (a, b))
    return top, a[1] * left + b[1] * right, a[2] * left + b[2] * right


def plain(a: Any, b: Any) -> Any:
    top = te.maximum(b[0], a[0])
    return (
        top,
        te.exp(a[0] - top) * a[1] + te.exp(b[0] - top) * b[1],
        b[2] * te.exp(b[0] - top) + te.exp(a[0] - top) * a[2],
    )


def of_least(a: Any, b: Any) -> Any:
    top = te.minimum(a[0], b[0])
    return top, a[1] * te.exp2(top - a[0]) + b[1] * te.exp2(top - b[0]), a[2] + b[2]


def program(combine: Combine, first: float = LOW, dtype: str = "float32", *, chosen: bool = False) -> tuple[Any, ...]:
    t, v = te.placeholder((5, 20), dtype, name="t"), te.placeholder((20, 6), dtype, name="v")
    online, k = te.reducer(combine, (first, 0.0, 0.0)), te.reduce_axis((3, 20), name="k")
    one = te.const(1.0, dtype)

    def element(i: Any, j: Any) -> Any:
        return online((t[i, k], one, v[k, j]), axis=k, where=k % 3 != i % 3 if chosen else True)

    return t, v, te.compute((5, 6), element)


@pytest.mark.parametrize(("combine", "chosen"), [(guarded, True), (plain, False), (of_least, False)])
def test_values_and_gradients_are_those_of_the_reducer(combine: Combine, chosen: bool) -> None:
    t, v, outputs = program(combine, -LOW if combine is of_least else LOW, "float64", chosen=chosen)
    assert scaled_sums(outputs[0].op) is not None
    feeds = {t: RANDOM.normal(size=(5, 20)), v: RANDOM.normal(size=(20, 6))}
    for found, wanted in zip(te.evaluate(list(outputs), feeds), te.interpret(list(outputs), feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    te.gradcheck(list(outputs), [t, v], feeds)


def test_a_scale_is_computed_once_for_all_that_it_multiplies() -> None:
    t, v, outputs = program(guarded)
    found = scaled_sums(outputs[0].op)
    assert found is not None
    assert [len(op.axes) for op in found.stages] == [1, 2, 1, 2]  # top, scale, sum of scales, of values
    schedule = te.Schedule(list(outputs))
    schedule.auto()
    assert str(schedule).count("exp(") == 1
    assert len(schedule.regrouped) == 3


@pytest.mark.parametrize("combine", [
    lambda a, b: (te.maximum(a[0], b[0]), a[1] * 0.5 + b[1] * 0.5, a[2] + b[2]),  # not of what is largest
    lambda a, b: (te.maximum(a[0], b[0]), a[1] + b[1], a[2] + b[2]),  # no scale: one walk is best
    lambda a, b: (te.maximum(a[0], b[0]), a[1] * te.exp(te.maximum(a[0], b[0]) - a[0])
                  + b[1] * te.exp(te.maximum(a[0], b[0]) - b[0]), a[2] + b[2]),  # grows: may be infinite
    lambda a, b: (te.maximum(a[0], b[0]), a[1] / (1.0 + te.maximum(a[0], b[0]) - a[0])
                  + b[1] / (1.0 + te.maximum(a[0], b[0]) - b[0]), a[2] + b[2]),  # two steps are not one
    lambda a, b: (te.maximum(a[0], b[0]), a[1] * te.exp(a[0] - te.maximum(a[0], b[0]))
                  + b[1] * te.exp(b[0] - te.maximum(a[0], b[0])), a[2] * b[1] + b[2]),  # of another component
])  # fmt: skip
def test_others_stay_as_they_are(combine: Combine) -> None:
    *_, outputs = program(combine)
    assert scaled_sums(outputs[0].op) is None


def test_rows_in_which_nothing_is_seen() -> None:
    t, v, outputs = program(guarded)
    rows = np.full((5, 20), LOW, "f4")
    rows[1:3, ::2] = RANDOM.normal(size=(2, 10))
    feeds = {t: rows, v: RANDOM.normal(size=(20, 6)).astype("f4")}
    for found, wanted in zip(te.evaluate(list(outputs), feeds), te.interpret(list(outputs), feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_jacobians() -> None:
    x = te.placeholder((2, 9), "float64", name="x")
    feeds = {x: RANDOM.normal(size=(2, 9))}
    both = [te.differentiate(f(x), x) for f in (te.ops.streaming_logsumexp, te.ops.logsumexp)]
    np.testing.assert_allclose(*te.evaluate(both, feeds), rtol=1e-12)
