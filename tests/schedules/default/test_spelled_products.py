"""Products of matrices as NumPy spells them, `(a[:, :, None] * b[:, None, :]).sum(0)`, and those by a single vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tests.arrays import floats

DTYPES = ("float32", "float64", "int32", "int64")


def text_of(*outputs: te.Tensor) -> str:
    return str(te.Schedule(list(outputs)).auto(target="x86-64-v3"))


def array_of(chance: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    return chance.integers(-3, 4, shape).astype(dtype)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_drawn(data: st.DataObject) -> None:
    """Whole numbers: every order of the terms, and every rounding of the products, gives the same."""
    k, m, n, b = (data.draw(st.sampled_from((1, 2, 3, 7, 10, 17, 33, 64))) for _ in range(4))
    dtype, turned, masked = data.draw(st.sampled_from(DTYPES)), data.draw(st.booleans()), data.draw(st.booleans())
    size: Any = te.var("k") if data.draw(st.booleans()) else k
    x = te.placeholder((b, m, size) if turned else (b, size, m), dtype, name="x")
    y, v = te.placeholder((size, n), dtype, name="y"), te.placeholder((size,), dtype, name="v")
    chance = np.random.default_rng(data.draw(st.integers(0, 9)))
    arrays = [array_of(chance, shape, dtype) for shape in ((b, m, k) if turned else (b, k, m), (k, n), (k,))]
    rows = x.swapaxes(1, 2) if turned else x
    rows = te.where(rows > 0, rows * v[:, None], 0) if masked else rows
    product = (rows[:, :, :, None] * y[:, None, :]).sum(1)
    weighted = (rows * v[:, None]).sum(1)
    both = (rows[:, :, :, None] * y[:, None, :] * v[:, None, None]).sum(1)
    a = arrays[0].swapaxes(1, 2) if turned else arrays[0]
    a = np.where(a > 0, a * arrays[2][:, None], 0) if masked else a
    found = te.build([x, y, v], [product, weighted, both])(*arrays)
    np.testing.assert_array_equal(found[0], np.einsum("bkm,kn->bmn", a, arrays[1]))
    np.testing.assert_array_equal(found[1], np.einsum("bkm,k->bm", a, arrays[2]))
    np.testing.assert_array_equal(found[2], np.einsum("bkm,kn,k->bmn", a, arrays[1], arrays[2]))


@pytest.mark.parametrize("columns", [3, 8, 32])
def test_a_product_that_is_summed_is_tiled_as_one_of_matrices(columns: int) -> None:
    x, y = te.placeholder((2000, 50), name="x"), te.placeholder((2000, columns), name="y")
    assert "_columns" in text_of((x[:, :, None] * y[:, None, :]).sum(0))
    assert "_columns" in text_of((x.T[:, :, None] * y[None]).sum(1))


def test_a_weight_of_each_term_goes_to_one_side() -> None:
    """The normal equations of weighted least squares: the schedule says that the factors are multiplied otherwise."""
    x, w = te.placeholder((2000, 50), name="x"), te.placeholder((2000,), name="w")
    y = (x[:, :, None] * x[:, None, :] * w[:, None, None]).sum(0)
    assert "_columns" in text_of(y)
    assert "other bits" in text_of(y)
    a, b = floats(2000, 50), floats(2000)
    want = (a.astype("float64") * b[:, None]).T @ a
    np.testing.assert_allclose(te.build([x, w], y)(a, b), want, rtol=1e-4, atol=1e-3)


def test_its_terms_are_rounded_as_a_stage_of_products_rounds_them() -> None:
    """Which products are fused into additions hangs on the program, not on its schedule."""
    x, y = te.placeholder((96, 40), name="x"), te.placeholder((96, 24), name="y")
    product = te.compute((96, 40, 24), lambda k, i, j: x[k, i] * y[k, j], name="product")
    total = te.compute((40, 24), lambda i, j: te.sum(lambda k: product[k, i, j]), name="total")
    by_hand = te.Schedule(total)
    by_hand[product].compute_root()
    by_hand[total].compute_root()
    arrays = floats(96, 40), floats(96, 24)
    assert "_columns" in text_of(total)
    np.testing.assert_array_equal(te.build([x, y], total)(*arrays), te.build([x, y], total, schedule=by_hand)(*arrays))


def test_a_product_that_is_a_result_too_is_one() -> None:
    x, y = te.placeholder((64, 50), name="x"), te.placeholder((64, 20), name="y")
    product = x[:, :, None] * y[:, None, :]
    arrays = floats(64, 50), floats(64, 20)
    whole, total = te.build([x, y], [product, product.sum(0)])(*arrays)
    np.testing.assert_array_equal(whole, arrays[0][:, :, None] * arrays[1][:, None, :])
    np.testing.assert_allclose(total, arrays[0].T @ arrays[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize("rows", [20011, 5003])
def test_few_columns_are_stored_by_vectors_over_rows(columns: int, rows: int) -> None:
    """Colors by a matrix of three by three, in tasks though their products are few: the packing counts."""
    x, w = te.placeholder((rows, 3), name="x"), te.placeholder((3, columns), name="w")
    y = (te.exp(x) @ w).named("y")
    text = text_of(y)
    assert f"lanes {columns} elements apart" in text, text
    if rows > 10000:
        assert "i_oc < 2, parallel" in text, text
    chance = np.random.default_rng(0)
    a, b = (array_of(chance, shape, "float32") for shape in ((rows, 3), (3, columns)))
    np.testing.assert_allclose(te.build([x, w], y)(a, b), np.exp(a) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2000, 50), (300, 400), (1000, 10), (5, 3000)])
def test_a_matrix_by_one_column_is_read_once(shape: tuple[int, int]) -> None:
    """A table of a factor whose elements are used once takes longer than what it is for."""
    rows, columns = shape
    x = te.placeholder(shape, name="x")
    w, v = te.placeholder((columns, 1), name="w"), te.placeholder((rows, 1), name="v")
    outputs = [x @ w, w.T @ x.T, x.T @ v, v.T @ x]
    assert not any("_columns" in text_of(y) for y in outputs)
    a, b, c = floats(*shape), floats(columns, 1), floats(rows, 1)
    found = te.build([x, w, v], outputs)(a, b, c)
    for ours, want in zip(found, (a @ b, b.T @ a.T, a.T @ c, c.T @ a), strict=True):
        np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-3)


def test_a_choice_by_data_in_a_sum_of_products_does_not_hide_them() -> None:
    """The gradient of scores under a mask of lengths, as where attention is spelled element by element."""
    length = te.placeholder((3,), "int32", name="length")
    s, k = te.placeholder((3, 40, 40), name="s"), te.placeholder((3, 40, 24), name="k")
    y = te.compute(
        (3, 40, 24),
        lambda b, i, d: te.sum(
            lambda j: te.select(j < length[b], s[b, i, j] * k[b, j, d], 0.0),
            axis=te.reduce_axis(40),
            where=lambda j: j <= i,
        ),
        name="y",
    )
    assert "_columns" in text_of(y)
    lengths = np.array([40, 7, 0], "int32")
    a, b = floats(3, 40, 40), floats(3, 40, 24)
    kept = np.tril(np.ones((40, 40))) * (np.arange(40) < lengths[:, None])[:, None]
    np.testing.assert_allclose(
        te.build([length, s, k], y)(lengths, a, b), np.einsum("bij,bjd->bid", a * kept, b), rtol=1e-4, atol=1e-5
    )
