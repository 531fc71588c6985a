"""Recurrences of every kind: compiled they are what the reference has, and their gradients what JAX has.

Small ones run with the thresholds of the default schedule at their lowest, cut into kernels or not; large ones as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.equivalence import PHASES
from tests.recurrences import Recurrence, recurrences

FEW, BY_JAX, MANY = 5, 2, 500
MODES: Mapping[str, Mapping[str, int]] = {
    "as it is": {},
    "every pattern": LOWEST,
    "kernels for steps": {"step_kernels": 1},
    "both": {**LOWEST, "step_kernels": 1},
    "small caches": {**LOWEST, "cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10},
    "cut": {**LOWEST, "kernels": 2, "forgotten": 1},
}
Feeds = dict[te.Tensor, Any]


def check(made: Recurrence, mode: str, seed: int, *, by_jax: bool) -> None:
    """Results and gradients, twice, as memory is kept between calls."""
    feeds, floats = made.feeds(seed), [y for y in made.outputs if y.dtype.is_float]
    heads = [te.placeholder(y.shape, str(y.dtype), name=f"head{k}") for k, y in enumerate(floats)]
    rng = np.random.default_rng(seed)
    feeds |= {h: rng.standard_normal(tuple(map(int, h.shape))) for h in heads}
    gradients = list(te.differentiate(floats, made.sources, head=heads)) if floats else []
    with assuming(MODES[mode]):
        kernel = te.build(list(feeds), [*made.outputs, *gradients])
    want = te.interpret([*made.outputs, *gradients], feeds)
    for _ in range(2):
        found = kernel(*feeds.values())
        for got, expected in zip(found, want, strict=True):
            close(got, expected, 1e-9)
    if by_jax and floats:
        from tests.jax_programs import pulled_back

        theirs = pulled_back(floats, feeds, made.sources, [feeds[h] for h in heads])
        for got, expected in zip(found[len(made.outputs) :], theirs, strict=True):
            close(got, expected, 1e-8)


def close(found: Any, expected: Any, rtol: float) -> None:
    """Equal integers, and floats that differ by little of the largest one."""
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * max(1e-3, np.abs(expected).max(initial=0.0)))


def draws(most: int) -> settings:
    return settings(max_examples=most, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck))


modes, seeds = st.sampled_from(sorted(MODES)), st.integers(0, 99)


@draws(FEW)
@given(recurrences(), modes, seeds)
def test_recurrences(made: Recurrence, mode: str, seed: int) -> None:
    check(made, mode, seed, by_jax=False)


@draws(BY_JAX)
@given(recurrences(), modes, seeds)
def test_gradients_are_those_of_jax(made: Recurrence, mode: str, seed: int) -> None:
    pytest.importorskip("jax")
    check(made, mode, seed, by_jax=True)


@pytest.mark.long
@draws(MANY)
@given(recurrences(), modes, seeds)
def test_many_recurrences(made: Recurrence, mode: str, seed: int) -> None:
    pytest.importorskip("jax")
    check(made, mode, seed, by_jax=True)


@pytest.mark.long
@draws(MANY // 10)
@given(recurrences(large=True), modes, seeds)
def test_many_recurrences_of_real_sizes(made: Recurrence, mode: str, seed: int) -> None:
    check(made, mode, seed, by_jax=False)
