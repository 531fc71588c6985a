"""Results of integers: places of winners, counts, one-hot rows; compiled as well as interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

X = np.array([[1.0, 3.0, 3.0, 2.0, np.nan], [5.0, 4.0, 4.0, 5.0, 5.0]], "float32")


def test_running_maxima_and_their_places_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in ("cummax", "cummin"):
        values, places = getattr(te.ops, name)(X, 1)
        expected = getattr(torch, name)(torch.tensor(X), 1)
        np.testing.assert_array_equal(values, expected[0].numpy())
        np.testing.assert_array_equal(places, expected[1].numpy())


def test_top1_takes_the_first_of_equals() -> None:
    values, places = te.ops.top1(X[1:], 1)
    assert (values.tolist(), places.tolist()) == ([5.0], [0])


def test_histogram_is_that_of_numpy() -> None:
    x = np.random.default_rng(0).normal(size=(7, 30)).astype("float32")
    np.testing.assert_array_equal(te.ops.histogram(x, 10, -1.5, 2.0), np.histogram(x, 10, (-1.5, 2.0))[0])


def test_one_hot_of_what_is_no_class_is_zero() -> None:
    found = te.ops.one_hot(np.array([2, -1, 0, 3], "int64"), 3)
    np.testing.assert_array_equal(found, [[0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]])


def image(kind: str) -> Any:
    return np.random.default_rng(1).random((8, 9)).astype(kind)


@pytest.mark.parametrize("sigma", [0.7, 1.3])
def test_gaussian_blur_is_that_of_scipy(sigma: float) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    for ours, theirs in (("reflect", "mirror"), ("clamp", "nearest"), ("wrap", "wrap"), ("zero", "constant")):
        found = te.ops.gaussian_blur(image("float64"), sigma, mode=ours)
        np.testing.assert_allclose(found, ndimage.gaussian_filter(image("float64"), sigma, mode=theirs), rtol=1e-9)


def test_distances_are_those_of_scipy() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    free = image("float64") > 0.1
    costs = np.where(free, 1e6, 0.0)
    np.testing.assert_array_equal(te.ops.distance_field(costs), ndimage.distance_transform_cdt(free, "taxicab"))
    squares = ndimage.distance_transform_edt(free) ** 2
    np.testing.assert_allclose(te.ops.distance_field(costs, "squared"), squares, rtol=1e-9)


def test_a_constant_of_float64_does_not_pass_through_float32() -> None:
    assert te.interpret(te.full((1,), 0.1, "float64"), {})[0] == 0.1
    assert te.cast(0.1, "float64").value == 0.1
