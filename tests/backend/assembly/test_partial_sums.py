"""Sums within the steps of a scan without vectors: partial sums side by side, with the results of the reference."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from tedsl.backend.assembly.partial_sums import _call, _Loop, _Sum
from tedsl.backend.assembly.text import Block
from tests.levels import PROCESSORS, processor

CHANCE = np.random.default_rng(3)
N = 37


def triangle(lower: bool, turned: tuple[bool, bool], ends: tuple[int, int], reverse: bool, dtype: str) -> Any:
    """Each element from sums over what was before it, in its row and in its column."""
    a = te.placeholder((N, N), dtype, name="a")

    def at(flip: bool, i: Any, k: Any) -> tuple[Any, Any]:
        return (k, i) if flip else (i, k)

    def element(s: Any, i: Any, j: Any) -> Any:
        def counts(k: Any) -> Any:
            own = k >= j + ends[0] + 1 if reverse else k < j - ends[0]
            return own & (i >= k if lower else i <= N - 1 - ends[1])

        first = te.sum(lambda k: s[i, k] * a[at(turned[0], j, k)], where=counts)
        second = te.sum(
            lambda k: s[k, j] * a[at(turned[1], i, k)], where=lambda k: (k > i) & (j >= 0) if reverse else (k < i)
        )
        return a[i, j] - 0.125 * first - 0.0625 * second

    return a, te.scan((N, N), element, axis=(0, 1), reverse=reverse)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lower=st.booleans(), turned=st.tuples(st.booleans(), st.booleans()), reverse=st.booleans(),
    ends=st.tuples(st.integers(0, 3), st.integers(-2, 3)), dtype=st.sampled_from(["float32", "float64"]),
    level=PROCESSORS,
)  # fmt: skip
def test_drawn_triangles_and_their_gradients_are_those_of_the_reference(
    lower: bool, turned: tuple[bool, bool], reverse: bool, ends: tuple[int, int], dtype: str, level: str
) -> None:
    a, s = triangle(lower, turned, ends, reverse, dtype)
    data = (0.2 * CHANCE.standard_normal((N, N))).astype(dtype)
    outputs = [s, *te.differentiate(te.sum(s * s), [a])]
    with processor(level):
        found = te.build([a], outputs)(data)
    for ours, want in zip(found, te.interpret(outputs, {a: data}), strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-3 if dtype == "float32" else 1e-9, atol=1e-4)


def _solved(dtype: str = "float64") -> Any:
    low, b = te.placeholder((N, N), dtype, name="low"), te.placeholder((N,), dtype, name="b")
    x = te.scan(
        (N,), lambda x, i: (b[i] - te.sum(lambda k: low[i, k] * x[k], where=lambda k: k < i)) / low[i, i], axis=0,
        name="x",
    )  # fmt: skip
    return [low, b], x


def test_what_was_left_to_the_default_schedule_alone_is_regrouped() -> None:
    inputs, x = _solved()
    own = te.Schedule(x)
    own[x].compute_root()
    assert own.copy().auto().regrouped == ()
    assert te.Schedule(x).auto().regrouped == ("x",)
    arrays = [CHANCE.standard_normal((N, N)) + 9 * np.eye(N), CHANCE.standard_normal(N)]
    in_order, side_by_side = te.build(inputs, x, own), te.build(inputs, x)
    if "partial sums" in side_by_side.source("passes"):
        assert re.search(r"partial sums: 0 lines", in_order.source("passes"))
        assert not re.search(r"partial sums: 0 lines", side_by_side.source("passes"))
    np.testing.assert_allclose(in_order(*arrays), side_by_side(*arrays), rtol=1e-12)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_no_number_is_added_once(value: float) -> None:
    """Lanes beyond the last term add nothing, whatever lies there."""
    inputs, x = _solved()
    low = np.eye(N) + np.triu(np.full((N, N), value), 1)
    low[20, 3] = value
    found = te.build(inputs, x)(low, np.ones(N))
    with np.errstate(all="ignore"):
        (want,) = te.interpret([x], dict(zip(inputs, [low, np.ones(N)], strict=True)))
    np.testing.assert_array_equal(found, want)
    assert np.isfinite(found[:20]).all()


def test_values_without_names_are_sorted_by_number() -> None:
    """LLVM counts them as they come: a drawn recurrence of two states could not be compiled."""
    loop = _Loop(Block("a", 0, 0, ()), (), (_Sum("%1", "%2", "%12", "double"), _Sum("%3", "%4", "%t", "double"),
                 _Sum("%5", "%6", "%11", "double")), "%c", "b", "d", True)  # fmt: skip
    made = [line.split()[0] for line in _call(loop, "@te.sums.0") if "extractvalue" in line]
    assert made == ["%t", "%11", "%12"]
