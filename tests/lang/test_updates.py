"""`x.at[...].set(v)` and its like, beside NumPy's assignment."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import tedsl as te

WAYS: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def expected(x: np.ndarray[Any, Any], items: Any, way: str, value: Any) -> np.ndarray[Any, Any]:
    """As NumPy does it in place; a place that is named twice takes both."""
    new = x.copy()
    if way == "set":
        new[items] = value
    else:
        WAYS[way].at(new, items, np.asarray(value, x.dtype))
    return new


@pytest.mark.parametrize(
    "items",
    [
        0, -1, (slice(None), 2), slice(1, 4), (slice(None, None, 2), slice(5, 0, -2)), (..., -1), (None, 0),
        slice(3, 3), (), ([1, 3, 1],), ([1, 3], slice(2, 4)), (slice(1, 3), [2, 2]), ([0, 1], [2, 3]), (2, [1, 4]),
    ],
    ids=str,
)  # fmt: skip
def test_as_numpy(items: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 7)).astype("float32")
    row = rng.uniform(1, 2, x[items].shape[-1:]).astype("float32")
    a, v = te.placeholder(x.shape, name="a"), te.placeholder(row.shape, name="v")
    is_data = isinstance(items, tuple) and any(isinstance(i, list) for i in items)
    if is_data:
        with pytest.raises(TypeError, match="the places are data"):
            a.at[items].set(v)
    ways = [*WAYS] if is_data else ["set", *WAYS]
    made = [getattr(a.at[items], way)(value) for way in ways for value in (2.5, v)]
    wanted = [expected(x, items, way, value) for way in ways for value in (np.float32(2.5), row)]
    np.testing.assert_allclose(te.evaluate(made[1], {a: x, v: row}), wanted[1], rtol=1e-6)
    for got, want in zip(te.interpret(made, {a: x, v: row}), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_array_equal(te.interpret(a.at[items].get(), {a: x}), x[items])


@settings(max_examples=50)
@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, max_side=6))
def test_slices_and_gradients(data: st.DataObject, shape: tuple[int, ...]) -> None:
    items = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    x = np.arange(np.prod(shape), dtype="float64").reshape(shape)
    a, v = te.placeholder(shape, "float64", name="a"), te.placeholder(x[items].shape, "float64", name="v")
    y = -1.0 - np.arange(x[items].size, dtype="float64").reshape(x[items].shape)
    made = a.at[items].set(v)
    np.testing.assert_array_equal(te.interpret(made, {a: x, v: y}), expected(x, items, "set", y))
    weights = te.constant(np.cos(x))
    da, dv = te.differentiate((made * weights).sum(), [a, v])
    np.testing.assert_array_equal(te.interpret(da, {a: x, v: y}), expected(np.cos(x), items, "set", 0))
    np.testing.assert_array_equal(te.interpret(dv, {a: x, v: y}), np.cos(x)[items])


def test_masks_and_symbolic_extents() -> None:
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    a, n = te.placeholder((3, 4), name="a"), te.var("n")
    np.testing.assert_array_equal(te.evaluate(a.at[a > 0].set(0), {a: x}), np.minimum(x, 0))
    np.testing.assert_array_equal(te.evaluate(a.at[x > 0].multiply(2), {a: x}), np.where(x > 0, 2 * x, x))
    b = te.placeholder((n,), name="b")
    for items in (slice(1, -1), slice(None, None, 2), slice(None, None, -2), 0, -1):
        y = np.arange(7, dtype="float32")
        np.testing.assert_array_equal(te.evaluate(b.at[items].add(10), {b: y}), expected(y, items, "add", 10))


def test_what_is_no_update() -> None:
    a = te.placeholder((6, 7), name="a")
    k = a.astype("int32")
    cases: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: a.at[0].set(np.ones(3)), ValueError, "a.at[...].set: te.broadcast_to"),
        (lambda: a.at[9].set(1), IndexError, "index 9 of dimension 0"),
        (lambda: a.at[0].set("a"), TypeError, "expected a tensor, found str"),
        (lambda: k.at[0].set(1.5), TypeError, "expected int32"),
        (lambda: k.at[0].add(np.ones(7)), TypeError, "write value.astype('int32')"),
        (lambda: k.at[0].divide(2), TypeError, "a quotient is a float"),
        (lambda: a.at[0, 0, 0].set(1), IndexError, "at most 2 indices"),
        (lambda: a.at[0.5].set(1), TypeError, "is no index"),
        (lambda: a.at.set(1), AttributeError, "a.at[i].set(v) replaces"),
    ]
    for f, error, text in cases:
        with pytest.raises(error, match=re.escape(text)):
            f()
    assert str(a.at[0].set(1)) == "a_set[i, j] = select(i == 0, 1.0, a[i, j])   for i < 6, j < 7"
