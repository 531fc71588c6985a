"""Reductions over axes give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.lang.oracle import arrays, run, same

BOTH = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


@BOTH
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 1, 0), ()], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "mean"])
def test_reductions(name: str, axis: Any, keepdims: bool, symbolic: bool) -> None:
    (x,) = arrays((2, 3, 4))

    def reduce(x: Any) -> Any:
        return getattr(x, name)(axis=axis, keepdims=keepdims)

    same(reduce, reduce, x, symbolic=symbolic)


@pytest.mark.parametrize("axis", [0, -1, None, ()], ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "squeeze"])
def test_a_scalar_is_its_own_reduction_over_axis_0_and_minus_1(name: str, axis: Any) -> None:
    (x,) = arrays(())
    same(lambda x: getattr(x, name)(axis=axis), lambda x: getattr(x, name)(axis=axis), x)
    with pytest.raises(ValueError, match=f"te.{name} at .*: axis 1 does not exist in a tensor of 0 dimensions"):
        getattr(te.placeholder((), name="s"), name)(axis=1)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_positions(name: str, axis: Any) -> None:
    (x,) = arrays((3, 4, 5))
    same(lambda x: getattr(x, name)(axis), lambda x: getattr(x, name)(axis), x, dtype=False)
    same(lambda x: getattr(x, name)(1, keepdims=True), lambda x: getattr(x, name)(1, keepdims=True), x, dtype=False)
    assert run(lambda x: getattr(x, name)(axis), x).dtype == "int32"


@pytest.mark.parametrize(
    ("name", "dtype", "result"),
    [
        ("sum", "bool", "int64"), ("sum", "int8", "int64"), ("prod", "uint16", "uint64"), ("sum", "int32", "int64"),
        ("sum", "float16", "float16"), ("mean", "int8", "float64"),
        ("mean", "bool", "float64"), ("mean", "float16", "float16"), ("mean", "float32", "float32"), ("any", "int8",
        "bool"),
        ("all", "float32", "bool"), ("max", "bool", "bool"), ("min", "int64", "int64"), ("argmax", "float16", "int32"),
    ],
)  # fmt: skip
def test_dtypes_of_reductions(name: str, dtype: str, result: str) -> None:
    x = te.placeholder((4,), dtype)
    assert getattr(x, name)().dtype == result
    assert getattr(te, name)(x).dtype == result


def test_half_precision_mean_does_not_overflow() -> None:
    x = np.full(100, 60000, "float16")
    assert run(lambda x: x.mean(), x) == x.mean() == 60000


def test_maximum_of_nothing_is_refused() -> None:
    x = te.placeholder((0, 3), name="x")
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match=f"te.{name} over nothing: reduce axis .* has extent 0"):
            getattr(x, name)(0)
    assert run(lambda x: x.max(1), np.ones((0, 3))).shape == (0,)
    assert run(lambda x: x.sum(0), np.ones((0, 3))).tolist() == [0, 0, 0]


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_running_sums(axis: int | None) -> None:
    (x,) = arrays((3, 4))
    same(lambda x: te.cumsum(x, axis), lambda x: np.cumsum(x, axis), x)
    same(lambda x: x.cumprod(axis), lambda x: x.cumprod(axis), x)


def test_dtypes_of_running_sums() -> None:
    assert te.cumsum(te.placeholder((3,), "bool"), 0).dtype == "int64"
    assert te.cumsum(te.placeholder((3,), "uint8"), 0).dtype == "uint64"
    assert te.cumprod(te.placeholder((3,), "int8"), 0, dtype="int8").dtype == "int8"
    assert te.cumsum(te.placeholder((3,), "float32"), 0).dtype == "float32"


CHOSEN = np.random.default_rng(3).random((5, 7)) > 0.4


@pytest.mark.share(7)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint32", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(), lambda x: np.sum(x, axis=1, keepdims=True), lambda x: x.sum(axis=()), lambda x: x.cumsum(1),
        lambda x: x.sum(1, where=CHOSEN), lambda x: x.sum(0, initial=3), lambda x: np.sum(x, dtype="float64"),
        lambda x: x.sum(axis=(), where=CHOSEN), lambda x: np.cumsum(x, axis=0, dtype="int64"),
        lambda x: x.prod(0, where=CHOSEN[0]), lambda x: x.max(1, where=CHOSEN, initial=0),
        lambda x: np.min(x, axis=0, where=CHOSEN[:, :1], initial=1), lambda x: np.any(x, axis=0, where=CHOSEN),
        lambda x: x.all(where=CHOSEN), lambda x: x.mean(0, where=CHOSEN), lambda x: x.mean(where=CHOSEN[1]),
        lambda x: np.mean(x, dtype="float64"), lambda x: np.var(x, where=CHOSEN),
        lambda x: np.std(x, axis=1, ddof=1, where=CHOSEN),
    ],
)  # fmt: skip
def test_numpy_adds_in_the_same_dtype_and_chooses_the_same_elements(function: Any, dtype: str) -> None:
    """A uint8 picture summed in uint8 would be a wrong number that nobody sees."""
    x = (np.random.default_rng(1).random((5, 7)) * 200).astype(dtype)
    expected, given = function(x), te.placeholder(x.shape, dtype)
    found = te.evaluate(function(given), {given: x})
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, equal_nan=True)


def test_options_that_a_reduction_does_not_take_are_named() -> None:
    x = te.placeholder((3,), name="x")
    with pytest.raises(TypeError, match=r"te.argmax at .*: found where=, expected axis=, keepdims= only"):
        x.argmax(where=x > 0)
    with pytest.raises(TypeError, match=r"te.mean at .*: dtype= takes a dtype of floats, found int32"):
        x.mean(dtype="int32")


def test_a_masked_mean_has_gradients() -> None:
    x, chosen = te.placeholder((4,), "float64", name="x"), te.placeholder((4,), "bool", name="chosen")
    (dx,) = te.differentiate(x.mean(where=chosen), [x])
    mask = np.array([True, False, True, True])
    np.testing.assert_allclose(te.evaluate(dx, {x: np.arange(4.0), chosen: mask}), mask / 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_running_sums_of_short_floats_are_made_in_float32(dtype):
    x = te.placeholder((3000,), dtype, name="x")
    ones, factor = te.interpret(te.full((3000,), 1.0, dtype), {}), 1 + 2.0**-7
    for y, want in (
        (te.cumsum(x), 3000),
        (te.cumsum(x, dtype=dtype), 3000),
        (te.cumprod(x[:1000] * factor), factor**1000),
    ):
        assert y.dtype is x.dtype
        np.testing.assert_allclose(float(te.evaluate(y, {x: ones})[-1]), want, rtol=0.01)
    (slope,) = te.differentiate(te.cumsum(x).astype("float32").sum(), [x])
    np.testing.assert_allclose(float(te.evaluate(slope, {x: ones})[0]), 3000, rtol=0.01)
    total = te.ops.logcumsumexp(x, axis=0)
    np.testing.assert_allclose(float(te.evaluate(total, {x: np.zeros_like(ones)})[-1]), np.log(3000), rtol=0.01)
