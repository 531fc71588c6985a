"""Sums of products of small integers, as floats that hold them exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.default.canonical.whole_numbers import as_floats
from schedules.thresholds import Thresholds
from tests.levels import PROCESSORS, processor

NARROW = st.sampled_from(["int8", "uint8", "bool", "int16"])


def product_of(n: int, k: int, m: int, dtypes: tuple[str, str], result: str, *, staged: bool = False) -> Any:
    """A product of two narrow matrices, the second one turned."""
    x, w = te.placeholder((n, k), dtypes[0], name="x"), te.placeholder((m, k), dtypes[1], name="w")
    if staged:
        return x, w, x.astype(result) @ w.T.astype(result)
    loop = te.reduce_axis(k)
    body = lambda i, j: te.sum(te.cast(x[i, loop], result) * te.cast(w[j, loop], result), axis=loop)  # noqa: E731
    return x, w, te.compute((n, m), body, name="y")


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 2600), st.integers(1, 70)), dtypes=st.tuples(NARROW, NARROW),
    result=st.sampled_from(["int32", "int64"]), staged=st.booleans(), is_far=st.booleans(), level=PROCESSORS,
)  # fmt: skip
def test_no_bit_changes(
    sizes: tuple[int, int, int], dtypes: tuple[str, str], result: str, *, staged: bool, is_far: bool, level: str
) -> None:
    n, k, m = sizes
    x, w, y = product_of(n, k, m, dtypes, result, staged=staged)
    chance = np.random.default_rng(math.prod(sizes))

    def numbers(dtype: str, *shape: int) -> Any:
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return (np.full(shape, low or high) if is_far else chance.integers(low, high + 1, shape)).astype(dtype)

    a, b = numbers(dtypes[0], n, k), numbers(dtypes[1], m, k)
    with processor(level):
        found = te.evaluate(y, {x: a, w: b})
    np.testing.assert_array_equal(found, (a.astype("int64") @ b.astype("int64").T).astype(result))


@pytest.mark.parametrize(
    ("dtypes", "terms", "sums"),
    [
        (("int8", "int8"), 512, 1), (("int8", "int8"), 1024, 2), (("int8", "int8"), 8000, 8),
        (("uint8", "uint8"), 250, 1), (("uint8", "uint8"), 260, 2), (("uint8", "uint8"), 8000, 0),
        (("int16", "int16"), 250, 0),
    ],
)  # fmt: skip
def test_as_many_terms_as_floats_hold(dtypes: tuple[str, str], terms: int, sums: int) -> None:
    *_, y = product_of(64, terms, 64, dtypes, "int32")
    parts = as_floats(y.op, Thresholds())
    assert (0 if parts is None else len(parts.stages)) == sums
    assert parts is None or {str(stage.outputs[0].dtype) for stage in parts.stages} == {"float32"}
    *_, staged = product_of(64, terms, 64, dtypes, "int32", staged=True)
    assert ("floats" in str(te.Schedule([staged]).auto())) == (sums > 0)
