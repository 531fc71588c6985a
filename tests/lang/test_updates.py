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
        (range(3), [2, 0, 2]), range(4, 0, -2), (slice(1, 3), range(0)),
    ],
    ids=str,
)  # fmt: skip
def test_as_numpy(items: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 7)).astype("float32")
    row = rng.uniform(1, 2, x[items].shape[-1:]).astype("float32")
    a, v = te.placeholder(x.shape, name="a"), te.placeholder(row.shape, name="v")
    ways = ["set", *WAYS]
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


@st.composite
def places(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Index arrays, at least one, that may name a place twice, beside slices, integers and new axes."""
    own = draw(hnp.array_shapes(max_dims=2, max_side=4))
    items: list[Any] = []
    for n in shape:
        arrays = hnp.arrays("int64", own, elements=st.integers(-n, n - 1))
        items.append(draw(st.one_of(arrays, arrays, st.slices(n), st.integers(0, n - 1))))
    if not any(isinstance(i, np.ndarray) for i in items):
        items[0] = draw(hnp.arrays("int64", own, elements=st.integers(0, shape[0] - 1)))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


@settings(max_examples=40)
@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), st.booleans())
def test_the_last_of_places_that_are_data_is_set(data: st.DataObject, shape: tuple[int, ...], is_input: bool) -> None:
    items = data.draw(places(shape))
    x, weight = np.arange(np.prod(shape), dtype="float64").reshape(shape), np.cos(np.arange(np.prod(shape)))
    weight = weight.reshape(shape)
    y = -1.0 - np.arange(x[items].size, dtype="float64").reshape(x[items].shape)
    a, v = te.placeholder(shape, "float64", name="a"), te.placeholder(y.shape, "float64", name="v")
    feeds: dict[Any, Any] = {a: x, v: y}
    given_items = list(items)
    for d, item in enumerate(items):
        if is_input and isinstance(item, np.ndarray):  # an index that is known at the call only counts from 0
            length = [n for n, other in zip(shape, [i for i in items if i is not None], strict=True) if other is item]
            given_items[d] = te.placeholder(item.shape, "int64", name=f"idx{d}")
            feeds[given_items[d]] = item % length[0]
    made = a.at[tuple(given_items)].set(v)
    da, dv = te.differentiate((made * te.constant(weight)).sum(), [a, v])
    new = expected(x, items, "set", y)
    winners = np.zeros(y.size)
    winners[(-1 - new[new < 0]).astype(int)] = weight[new < 0]
    for run in (te.interpret, te.evaluate) if data.draw(st.integers(0, 3)) == 0 else (te.interpret,):
        value, da_value, dv_value = run([made, da, dv], feeds)
        np.testing.assert_array_equal(value, new)
        np.testing.assert_array_equal(da_value, np.where(new < 0, 0, weight))
        np.testing.assert_array_equal(dv_value, winners.reshape(y.shape))


def test_places_that_are_data_and_sizes_that_are_symbols() -> None:
    n, k = te.var("n"), te.var("k")
    a, at, v = te.placeholder((n, 3)), te.placeholder((k,), "int32"), te.placeholder((k, 3))
    made = a.at[at].set(v)
    kernel = te.build([a, at, v], [made, *te.differentiate((made * made).sum(), [a, v])])
    x, y = np.ones((5, 3), "float32"), np.arange(12, dtype="float32").reshape(4, 3)
    value, da, dv = kernel(x, np.array([4, 0, 4, 1], "int32"), y)
    np.testing.assert_array_equal(value, expected(x, [4, 0, 4, 1], "set", y))
    np.testing.assert_array_equal(da[:, 0], [0, 0, 2, 2, 0])
    np.testing.assert_array_equal(dv, 2 * y * [[0], [1], [1], [1]])
    np.testing.assert_array_equal(kernel(x, np.zeros(0, "int32"), y[:0])[0], x)
    with pytest.raises(IndexError, match="expected 0 <= index < 5"):
        kernel(x, np.array([5], "int32"), y[:1])


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
