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
        ("sum", "bool", "int32"), ("sum", "int8", "int8"), ("prod", "uint16", "uint16"), ("mean", "int8", "float64"),
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
    assert te.cumsum(te.placeholder((3,), "bool"), 0).dtype == "int32"
    assert te.cumsum(te.placeholder((3,), "int8"), 0).dtype == "int8"
