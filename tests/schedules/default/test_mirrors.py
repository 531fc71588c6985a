"""Symmetric products: half of their sums are computed, and the bits are those of all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming

RANDOM = np.random.default_rng(3)
WHOLE = {**LOWEST, "mirrored_rows": 1 << 30}


def half_of(x: te.Tensor, y: te.Tensor) -> bool:
    """Whether a stage that runs is half of a product."""
    return "_half" in str(te.build(x, y, target="x86-64-v3").loop_nest())


def bits_are_equal(x: te.Tensor, outputs: list[te.Tensor]) -> None:
    given_x = RANDOM.standard_normal(tuple(map(int, x.shape))).astype(str(x.dtype))
    found = []
    for least in (LOWEST, WHOLE):
        with assuming(least):
            found.append(te.evaluate(outputs, {x: given_x}))
    for half, whole, want in zip(*found, te.interpret(outputs, {x: given_x}), strict=True):
        np.testing.assert_array_equal(half, whole)
        np.testing.assert_allclose(half, want, rtol=0, atol=1e-4 * max(1.0, np.abs(want).max()))


Gram = Callable[[te.Tensor, Any, Any, Any], Any]
SYMMETRIC: dict[str, Gram] = {
    "columns": lambda x, i, j, k: x[k, i] * x[k, j],
    "rows": lambda x, i, j, k: x[i, k] * x[j, k],
    "centered": lambda x, i, j, k: (x[k, i] - x[0, i]) * (x[k, j] - x[0, j]),
    "functions": lambda x, i, j, k: te.exp(-x[i, k]) * te.exp(-x[j, k]),
}
OTHERS: dict[str, Gram] = {
    "another factor": lambda x, i, j, k: x[k, i] * (x[k, j] + 1),
    "a shift": lambda x, i, j, k: x[k, i] * x[(k + 1) % 256, j],
    "one side": lambda x, i, j, k: x[k, i] * x[k, i],
}


@pytest.mark.parametrize("kind", [*SYMMETRIC, *OTHERS])
def test_half_of_a_symmetric_product_is_computed(kind: str) -> None:
    x = te.placeholder((256, 256), "float64", name="x")
    y = te.compute((256, 256), lambda i, j: te.sum(lambda k: {**SYMMETRIC, **OTHERS}[kind](x, i, j, k)), name="y")
    assert half_of(x, y) == (kind in SYMMETRIC)


def test_few_rows_and_few_terms_are_not_worth_it() -> None:
    for rows, terms in ((64, 2048), (1024, 32)):
        x = te.placeholder((rows, terms), name="x")
        assert not half_of(x, te.compute((rows, rows), lambda i, j, x=x: te.sum(lambda k: x[i, k] * x[j, k])))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(sorted(SYMMETRIC)),
    st.integers(3, 40),
    st.integers(1, 40),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["alone", "scaled", "chosen", "multiplied", "moved"]),
)
def test_results_and_gradients_keep_their_bits(kind: str, rows: int, terms: int, dtype: str, reader: str) -> None:
    x = te.placeholder((rows, terms) if kind in ("rows", "functions") else (terms, rows), dtype, name="x")
    k = te.reduce_axis(terms, name="k")
    y = te.compute((rows, rows), lambda i, j: te.sum(SYMMETRIC[kind](x, i, j, k), axis=k), name="y")
    z = {
        "alone": lambda: y,
        "scaled": lambda: te.compute((rows, rows), lambda i, j: y[i, j] / 7.0 + 1.0),
        "chosen": lambda: te.compute((rows, rows), lambda i, j: te.select(i < j, y[j, i] * 2.0, y[i, j])),
        "multiplied": lambda: te.compute((rows, rows), lambda i, j: te.sum(lambda m: y[i, m] * y[m, j]) / rows),
        "moved": lambda: te.compute((rows - 1, rows - 2), lambda i, j: y[i + 1, j + 2]),
    }[reader]()
    bits_are_equal(x, [z, te.differentiate(te.compute((), lambda: te.sum(lambda i, j: te.tanh(z[i, j]))), x)])


def test_products_of_many_matrices() -> None:
    x = te.placeholder((3, 20, 33), name="x")
    k = te.reduce_axis(20, name="k")
    y = te.compute((3, 33, 33), lambda b, i, j: te.sum(x[b, k, i] * x[b, k, j], axis=k), name="y")
    with assuming(LOWEST):
        assert half_of(x, y)
    bits_are_equal(x, [y, te.compute((3, 33), lambda b, i: y[b, i, 32 - i])])
