"""Scans whose steps sum over all of the step before: recurrent layers as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import PROCESSORS, processor

RANDOM = np.random.default_rng(5)


def recurrent(steps: int, rows: int, width: int, *, across: bool, dtype: str = "float32") -> list[te.Tensor]:
    """x[t] plus a product of the step before, clipped so that numbers stay small."""
    x = te.placeholder((steps, rows, width), dtype, name="x")
    u = te.placeholder((width, width), dtype, name="u")

    def step(h: Any, t: Any, b: Any, j: Any) -> Any:
        before = te.sum(lambda k: h[t - 1, b, k] * (u[j, k] if across else u[k, j]))
        return te.clip(x[t, b, j] + te.select(t == 0, 0.0, before), -4, 4)

    return [x, u, te.scan((steps, rows, width), step, name="h")]


@pytest.mark.parametrize("across", [False, True])
def test_steps_are_vectors(across: bool) -> None:
    x, u, h = recurrent(4, 3, 32, across=across)
    kern = te.build([x, u], h, target="x86-64-v3")
    loops = kern.loop_nest()
    assert ("produce h_u" in loops) == across  # turned once, before the first step
    assert "vectorized" in loops.split("produce h__parts")[1].split("consume")[0]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_results_and_gradients_are_those_of_the_reference(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, most)) for most in (4, 3, 19)]
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    x, u, h = recurrent(*sizes, across=data.draw(st.booleans()), dtype=dtype)  # type: ignore[misc]
    head = te.placeholder(h.shape, dtype, name="head")
    outputs = [h, *te.differentiate(h, [x, u], head=head)]
    feeds = {t: RANDOM.integers(-1, 2, tuple(map(int, t.shape))).astype(dtype) for t in (x, u, head)}
    with assuming(LOWEST), processor(data.draw(PROCESSORS)):
        found = te.evaluate(outputs, feeds)
    for got, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_array_equal(got, want)
