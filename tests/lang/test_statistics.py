"""Methods that people expect of arrays, beside NumPy: values for drawn shapes and axes, gradients by differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tedsl as te
from tedsl.lang import functions

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def largest(a: Any, axis: Any, keepdims: bool) -> Any:
    top = a.max(axis, keepdims=True)
    total = np.log(np.exp(a - top).sum(axis, keepdims=True)) + top
    return total if keepdims else total.squeeze(axis)


METHODS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "std": (lambda x, **k: x.std(**k), np.std),
    "te.std": (te.std, np.std),
    "var": (lambda x, **k: x.var(**k), np.var),
    "norm": (lambda x, **k: x.norm(**k), lambda a, axis, keepdims: np.sqrt((a * a).sum(axis, keepdims=keepdims))),
    "logsumexp": (lambda x, **k: x.logsumexp(**k), largest),
}


@pytest.mark.parametrize("name", METHODS)
@given(SHAPES, st.data())
def test_values_are_those_of_numpy(name: str, shape: tuple[int, ...], data: st.DataObject) -> None:
    ours, theirs = METHODS[name]
    x, a = te.placeholder(shape, "float64"), np.random.default_rng(0).normal(size=shape)
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    keepdims = data.draw(st.booleans())
    found = te.interpret(ours(x, axis=axis, keepdims=keepdims), {x: a})
    np.testing.assert_allclose(found, theirs(a, axis=axis, keepdims=keepdims), rtol=1e-12, atol=1e-12)


def test_the_divisor_and_the_order() -> None:
    x, a = te.placeholder((4, 3), "float64"), np.random.default_rng(0).normal(size=(4, 3))
    for ours, theirs in (
        (x.var(axis=1, ddof=1), a.var(1, ddof=1)),
        (x.std(0, ddof=2), a.std(0, ddof=2)),
        *((x.norm(p, axis=1), np.linalg.norm(a, p, axis=1)) for p in (0, 1, 2, 3, np.inf, -np.inf)),
        (x.softmax(1).sum(1), np.ones(4)),
        (x.softmax(0), np.exp(a) / np.exp(a).sum(0)),
    ):
        np.testing.assert_allclose(te.evaluate(ours, {x: a}), theirs, rtol=1e-12)
    assert x.size == 12
    assert te.placeholder((3,), "int32").std().dtype == "float64"
    assert te.placeholder((3,), "float16").var().dtype == "float16"


@pytest.mark.parametrize("method", ["std", "var", "norm", "logsumexp"])
def test_gradients_are_differences(method: str) -> None:
    x = te.placeholder((3, 4), "float64", name="x")
    y = getattr(x, method)(axis=1)
    assert te.gradcheck(y, x).ok


def test_extremes_do_not_overflow() -> None:
    x, a = te.placeholder((2, 3)), np.array([[1000, 1000, -1000], [-np.inf, -np.inf, -np.inf]], "float32")
    np.testing.assert_allclose(te.evaluate(x.logsumexp(1), {x: a}), [1000 + np.log(2), -np.inf], rtol=1e-6)
    np.testing.assert_allclose(te.evaluate(x.softmax(1), {x: a})[0], [0.5, 0.5, 0])
    np.testing.assert_array_equal(te.evaluate(te.differentiate(x.norm(axis=1).sum(), x), {x: np.zeros_like(a)}), 0)


@given(st.floats(-5, 5), st.floats(-5, 5), st.integers(0, 20), st.booleans())
def test_places_at_equal_distances(start: float, stop: float, count: int, endpoint: bool) -> None:
    found = te.interpret(te.linspace(start, stop, count, endpoint=endpoint, dtype="float64"), {})
    np.testing.assert_allclose(found, np.linspace(start, stop, count, endpoint=endpoint), rtol=1e-12, atol=1e-12)


@given(SHAPES, st.data())
def test_differences_and_elements_along_an_axis(shape: tuple[int, ...], data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    x, a = te.placeholder(shape, "float64"), rng.normal(size=shape)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    np.testing.assert_allclose(te.interpret(te.diff(x, axis=axis), {x: a}), np.diff(a, axis=axis))
    places = rng.integers(-shape[axis], shape[axis], shape)
    want = np.take_along_axis(a, places, axis)
    np.testing.assert_array_equal(te.interpret(te.take_along_axis(x, places, axis), {x: a}), want)


def test_lists_and_arrays_as_indices() -> None:
    x, a = te.placeholder((5, 4), name="x"), np.arange(20, dtype="float32").reshape(5, 4)
    rows, columns = np.array([4, 0, -1]), [1, 2, 3]
    for ours, theirs in (
        (te.take(x, [2, 0]), a.ravel()[[2, 0]]),
        (te.take(x, [2, 0], axis=1), a[:, [2, 0]]),
        (x[rows], a[rows]),
        (x[rows, columns], a[rows, columns]),
        (x[np.arange(4), te.constant([0, 1, 2, 3])], a[np.arange(4), np.arange(4)]),
    ):
        np.testing.assert_array_equal(te.evaluate(ours, {x: a}), theirs)
    dx = te.differentiate(x[rows, columns].sum(), x)
    want = np.zeros((5, 4))
    np.add.at(want, (rows, columns), 1)
    np.testing.assert_array_equal(te.evaluate(dx, {x: a}), want)


WORDS: dict[str, tuple[Callable[[], Any], str]] = {
    "torch's keyword": (lambda: te.placeholder((3,)).std(dim=0), "std at .*found dim=, expected axis="),
    "a symbol": (lambda: te.var(te.placeholder((3,))), r"te.var makes a symbol; x.var\(\) is the variance"),
    "torch's keyword of a variance": (lambda: te.placeholder((3,)).var(unbiased=True), "var at .*, expected ddof=1"),
    "an operator": (lambda: te.gelu, "it is te.ops.gelu"),
    "a dtype": (lambda: te.float32, 'dtypes are strings: "float32"'),
    "of numpy": (lambda: te.array, r"it is te.constant\(array\)"),
    "of torch": (lambda: te.placeholder((3,)).view(3), r"write x.reshape\(shape\)"),
    "a value": (lambda: np.asarray(te.constant([1.0]).sum()), "te.evaluate computes them"),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_of_other_libraries(name: str) -> None:
    call, message = WORDS[name]
    with pytest.raises((TypeError, AttributeError), match=message):
        call()


def test_every_function_of_one_tensor_is_a_method() -> None:
    for name in functions.__all__:
        if len(inspect.signature(getattr(te, name)).parameters) == 1:
            method = getattr(te.Tensor, name)
            assert inspect.unwrap(method) is inspect.unwrap(getattr(te, name))
            x = te.placeholder((3,), "bool" if name == "logical_not" else "float32", name="x")
            assert str(method(x)) == str(getattr(x, name)())


def test_what_exists_can_be_found() -> None:
    for name in ("exp", "std", "var", "norm", "softmax", "logsumexp", "argmax", "clip", "cumsum", "size", "flatten"):
        assert name in dir(te.Tensor)
        assert getattr(te.Tensor, name).__doc__
