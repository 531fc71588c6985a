"""Sums of products of integers: packed panels and tiles in registers as of floats, and every bit as NumPy has it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from schedules.default import assuming
from schedules.thresholds import LOWEST
from tests.levels import processor

WIDE = ("int32", "uint32", "int64", "uint64")
NARROW = ("int8", "uint8", "int16", "uint16")


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of the whole range: their products wrap around."""
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max, shape, dtype=dtype, endpoint=True)


@settings(max_examples=25)
@given(
    st.tuples(*[st.integers(1, 40)] * 3), st.sampled_from(WIDE), st.sampled_from(["NN", "NT", "TN", "TT"]),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_products_wrap_as_those_of_numpy(
    sizes: tuple[int, int, int], dtype: str, layout: str, triangle: bool, seed: int
) -> None:  # fmt: skip
    (m, n, k), rng = sizes, np.random.default_rng(seed)
    a = te.placeholder((m, k) if layout[0] == "N" else (k, m), dtype, name="a")
    b = te.placeholder((k, n) if layout[1] == "N" else (n, k), dtype, name="b")
    rows, columns = a if layout[0] == "N" else a.T, b if layout[1] == "N" else b.T
    where = (lambda i, q: q <= i) if triangle else (lambda i, q: q >= 0)
    y = te.compute(
        (m, n), lambda i, j: te.sum(lambda q: rows[i, q] * columns[q, j], axis=k, where=lambda q: where(i, q)), name="y"
    )
    given = drawn(rng, a.shape, dtype), drawn(rng, b.shape, dtype)
    left, right = given[0] if layout[0] == "N" else given[0].T, given[1] if layout[1] == "N" else given[1].T
    with assuming(LOWEST), processor("x86-64-v3"):
        kernel = te.build([a, b], y)
    np.testing.assert_array_equal(kernel(*given), (np.tril(left) if triangle else left) @ right)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_integers_are_widened_when_they_are_packed(dtype: str) -> None:
    rng = np.random.default_rng(3)
    a, b = te.placeholder((40, 90), dtype, name="a"), te.placeholder((90, 50), dtype, name="b")
    left, right = lambda i, q: te.cast(a[i, q], "int32") - 3, lambda q, j: te.cast(b[q, j], "int32") - 7
    y = te.compute((40, 50), lambda i, j: te.sum(lambda q: left(i, q) * right(q, j), axis=90), name="y")
    name = "y_floats" if np.iinfo(dtype).bits == 8 else "y"
    assert {f"{name}_columns", f"{name}_sums"} <= set(te.Schedule(y).auto().plan.program.stages)
    given = drawn(rng, (40, 90), dtype), drawn(rng, (90, 50), dtype)
    want = (given[0].astype("int32") - 3) @ (given[1].astype("int32") - 7)
    np.testing.assert_array_equal(te.build([a, b], y)(*given), want)
