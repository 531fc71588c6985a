"""Recurrences of every kind: compiled they are what the reference has, and their gradients what JAX has.

Small ones run with the thresholds of the default schedule at their lowest, cut into kernels or not; large ones as they
are. Compiling one, or asking JAX, takes seconds; so most are not compiled: their gradients are told along a random
direction by differences of the reference, and JAX is asked where these say otherwise, as they do beside an edge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.equivalence import PHASES
from tests.recurrences import Recurrence, recurrences

FEW, BY_JAX, BY_DIFFERENCES, MANY = 4, 1, 6, 500
STEP = 1e-6  # of a difference
ERROR = {"float64": 1e-9, "float32": 2e-4, "float16": 0.05}  # of many operations, beside the largest element
MODES: Mapping[str, Mapping[str, int]] = {
    "as it is": {},
    "every pattern": LOWEST,
    "kernels for steps": {"step_kernels": 1},
    "both": {**LOWEST, "step_kernels": 1},
    "small caches": {**LOWEST, "cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10},
    "cut": {**LOWEST, "kernels": 2, "forgotten": 1},
}
Feeds = dict[te.Tensor, Any]


@dataclass(frozen=True)
class Case:
    """A recurrence with values for all that it reads, and the gradients of its floats for some heads."""

    made: Recurrence
    feeds: Feeds
    floats: list[te.Tensor]
    heads: list[te.Tensor]
    gradients: list[te.Tensor]

    def close_to_jax(self, found: Sequence[Any]) -> None:
        from tests.jax_programs import pulled_back

        theirs = pulled_back(self.floats, self.feeds, self.made.sources, [self.feeds[h] for h in self.heads])
        for got, expected in zip(found, theirs, strict=True):
            close(got, expected, 10)


def case(made: Recurrence, seed: int) -> Case:
    feeds, floats = made.feeds(seed), [y for y in made.outputs if y.dtype.is_float]
    heads = [te.placeholder(y.shape, str(y.dtype), name=f"head{k}") for k, y in enumerate(floats)]
    rng = np.random.default_rng(seed)
    feeds |= {h: rng.standard_normal(tuple(map(int, h.shape))).astype(str(h.dtype)) for h in heads}
    gradients = list(te.differentiate(floats, made.sources, head=heads)) if floats else []
    return Case(made, feeds, floats, heads, gradients)


def check(made: Recurrence, mode: str, seed: int, *, by_jax: bool) -> None:
    """Results and gradients, twice, as memory is kept between calls."""
    of = case(made, seed)
    with assuming(MODES[mode]):
        kernel = te.build(list(of.feeds), [*made.outputs, *of.gradients])
    want = te.interpret([*made.outputs, *of.gradients], of.feeds)
    for _ in range(2):
        found = kernel(*of.feeds.values())
        for got, expected in zip(found, want, strict=True):
            close(got, expected)
    if by_jax and of.floats:
        of.close_to_jax(found[len(made.outputs) :])


def check_slopes(made: Recurrence, seed: int) -> None:
    """The gradients along a random direction, by differences; by JAX where they are others."""
    of = case(made, seed)
    if not of.floats or any(y.dtype != "float64" for y in of.floats):
        return  # others are too coarse for differences
    rng = np.random.default_rng(seed + 1)
    along = {x: rng.standard_normal(tuple(map(int, x.shape))) for x in made.sources}
    found = te.interpret(of.gradients, of.feeds)
    slope = sum(float((g * along[x]).sum()) for g, x in zip(found, made.sources, strict=True))
    ends = []
    for sign in (1, -1):
        moved = {t: a + sign * STEP * along[t] if t in along else a for t, a in of.feeds.items()}
        values = te.interpret(of.floats, moved)
        ends.append(sum(float((y * of.feeds[h]).sum()) for y, h in zip(values, of.heads, strict=True)))
    size = sum(float(np.abs(g * along[x]).sum()) for g, x in zip(found, made.sources, strict=True))
    if not abs((ends[0] - ends[1]) / (2 * STEP) - slope) <= 1e-6 * max(size, abs(ends[0]), 1e-3):
        pytest.importorskip("jax")
        of.close_to_jax(found)


def close(found: Any, expected: Any, times: float = 1.0) -> None:
    """Equal integers, and floats that differ by little of the largest one."""
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
    else:
        want = expected.astype("float64")
        atol = times * ERROR[str(found.dtype)] * max(1e-3, np.abs(want).max(initial=0.0))
        np.testing.assert_allclose(found.astype("float64"), want, rtol=0, atol=atol)


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


@draws(BY_DIFFERENCES)
@given(recurrences(), seeds)
def test_gradients_are_those_of_differences(made: Recurrence, seed: int) -> None:
    check_slopes(made, seed)


@pytest.mark.long
@draws(4 * MANY)
@given(recurrences(), seeds)
def test_many_gradients_are_those_of_differences(made: Recurrence, seed: int) -> None:
    check_slopes(made, seed)


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
