"""The first step of a scan has loops of its own, where it begins with what is read elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tests.levels import PROCESSORS, processor

CHANCE = np.random.default_rng(5)
FIRST = {
    "t == 0": lambda t, _: t == 0, "t < 1": lambda t, _: t < 1, "t <= 0": lambda t, _: t <= 0,
    "~(t > 0)": lambda t, _: ~(t > 0), "2 * t < 1": lambda t, _: 2 * t < 1, "t < 2": lambda t, _: t < 2,
    "t == last": lambda t, last: t == last, "t >= last": lambda t, last: t >= last,
}  # fmt: skip


def fields(steps: int, shape: tuple[int, int], first: str, *, reverse: bool, apart: bool) -> Any:
    """Two fields that change each other; the second reads what the first has become."""
    a, b = (te.placeholder(shape, "float64", name=name) for name in "ab")
    m = shape[1]

    def step(x: Any, y: Any, t: Any) -> Any:
        before = t + 1 if reverse else t - 1

        def of(state: Any, begin: te.Tensor, i: Any, j: Any) -> Any:
            return te.select(FIRST[first](t, steps - 1), begin[i, j], state[before, i, j])

        new = te.compute(shape, lambda i, j: of(x, a, i, j) - 0.5 * of(y, b, i, te.maximum(j - 1, 0)), name="new")
        after = te.select(t % 2 == 0, 0.5, 0.25) if apart else 0.5
        return new, lambda i, j: of(y, b, i, j) - after * (new[i, te.minimum(j + 1, m - 1)] - new[i, j])

    x, y = te.scan([(steps, *shape)] * 2, step, axis=0, reverse=reverse)
    last = 0 if reverse else steps - 1
    return [a, b], te.compute(shape, lambda i, j: x[last, i, j] + y[last, i, j], name="sum"), (x, y)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), PROCESSORS)
def test_drawn_beginnings(data: st.DataObject, level: str) -> None:
    steps, shape = data.draw(st.integers(1, 6)), (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 21)))
    reverse = data.draw(st.booleans())
    first = data.draw(st.sampled_from([f for f in FIRST if ("last" in f) == reverse]))
    inputs, total, states = fields(steps, shape, first, reverse=reverse, apart=data.draw(st.booleans()))
    outputs = [total, *states] if data.draw(st.booleans()) else [total]
    feeds = {t: CHANCE.standard_normal(shape) for t in inputs}
    with processor(level):
        for got, want in zip(te.evaluate(outputs, feeds), te.interpret(outputs, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("reverse", [False, True])
def test_later_steps_do_not_read_what_the_first_begins_with(reverse: bool) -> None:
    inputs, total, _ = fields(9, (6, 20), "t == last" if reverse else "t == 0", reverse=reverse, apart=False)
    text = te.build(inputs, total, target="x86-64-v4").source("stmt")
    (later,) = [part for part in text.split("for (")[1:] if "= a[" not in part and "rebased, 0, 8)" in part] or [""]
    assert "a[" not in later
