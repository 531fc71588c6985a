"""Joining, splitting, padding and creation give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.lang.oracle import arrays, same

BOTH = pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])


@BOTH
def test_joining(symbolic: bool) -> None:
    a, b = arrays((2, 3), (4, 3))
    c = a.astype("float32")
    same(lambda a, b: te.concatenate([a, b]), lambda a, b: np.concatenate([a, b]), a, b, symbolic=symbolic)
    same(lambda a, b: te.concatenate([a, b, a]), lambda a, b: np.concatenate([a, b, a]), a, b, symbolic=symbolic)
    same(lambda a, c: te.concatenate([c, a], 1), lambda a, c: np.concatenate([c, a], 1), a, c, symbolic=symbolic)


@BOTH
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack(axis: int, symbolic: bool) -> None:
    a, b = arrays((2, 3), (2, 3))
    c = b.astype("float32")
    same(lambda a, c: te.stack([a, c, a], axis), lambda a, c: np.stack([a, c, a], axis), a, c, symbolic=symbolic)


def test_split() -> None:
    (x,) = arrays((6, 4))
    same(lambda x: te.split(x, 3), lambda x: np.split(x, 3), x)
    same(lambda x: te.split(x, [1, 4], 0), lambda x: np.split(x, [1, 4], 0), x)
    same(lambda x: x.split(2, -1), lambda x: np.split(x, 2, -1), x)
    n = te.var("n")
    assert [str(p.shape[0]) for p in te.split(te.placeholder((4 * n,)), 4)] == ["n"] * 4
    with pytest.raises(ValueError, match="does not divide into 4 equal sections"):
        te.split(te.placeholder((6,)), 4)
    with pytest.raises(ValueError, match="expected 1 section or more"):
        te.split(te.placeholder((6,)), 0)


def test_bad_joins() -> None:
    a, b = te.placeholder((2, 3), name="a"), te.placeholder((2, 4), name="b")
    with pytest.raises(ValueError, match=r"expected equal shapes but for axis 0, found a \(2, 3\) and b \(2, 4\)"):
        te.concatenate([a, b])
    with pytest.raises(ValueError, match=r"expected equal shapes, found a \(2, 3\) and b \(2, 4\)"):
        te.stack([a, b])
    with pytest.raises(ValueError, match="at least one tensor"):
        te.stack([])
    with pytest.raises(TypeError, match="expected a sequence of tensors, found Tensor"):
        te.concatenate(a)
    with pytest.raises(ValueError, match=r"use te.stack"):
        te.concatenate([a, te.placeholder(())])


@BOTH
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap", "symmetric"])
@pytest.mark.parametrize("width", [0, 2, (1, 3), ((2, 0), (0, 9)), ((7, 8), (5, 6))], ids=str)
def test_pad(width: Any, mode: str, symbolic: bool) -> None:
    (x,) = arrays((3, 4))
    same(lambda x: te.pad(x, width, mode), lambda x: np.pad(x, width, mode), x, symbolic=symbolic)


@pytest.mark.parametrize("width", [2, ((9, 0), (4, 11))], ids=str)
def test_gradients_of_mirrored_pads_are_gathers(width: Any) -> None:
    x = te.placeholder((3, 4), "float64", name="x")
    y = te.pad(x, width, mode="symmetric")
    loss = (y * y * te.constant(np.arange(1.0, 1 + np.prod(y.shape)).reshape(y.shape))).sum()
    assert not te.differentiate(loss, x).explain().scatters
    assert te.gradcheck(loss, x).ok


def test_pad_details() -> None:
    (x,) = arrays((3, 1))
    same(lambda x: te.pad(x, 1, value=7), lambda x: np.pad(x, 1, constant_values=7), x)
    same(lambda x: te.pad(x, 2, "reflect"), lambda x: np.pad(x, 2, "reflect"), x)
    same(lambda x: te.pad(x, 1, "zero"), lambda x: np.pad(x, 1), x)
    t = te.placeholder((3, 0), name="t")
    with pytest.raises(ValueError, match="mode must be one of"):
        te.pad(t, 1, "mirror")
    with pytest.raises(ValueError, match="is empty and cannot be padded by 'wrap'"):
        te.pad(t, 1, "wrap")
    with pytest.raises(ValueError, match="widths cannot be negative"):
        te.pad(t, -1)
    with pytest.raises(ValueError, match="one pair for each of 2 axes"):
        te.pad(t, ((1, 2), (3, 4), (5, 6)))
    with pytest.raises(TypeError, match="widths must be integers"):
        te.pad(t, 1.5)


def test_creation() -> None:
    n = te.var("n")
    for found, expected in [
        (te.zeros((2, 3)), np.zeros((2, 3), "float32")), (te.ones(3, "int8"), np.ones(3, "int8")),
        (te.full((2,), 2.5), np.full(2, 2.5, "float32")), (te.full((2,), 3), np.full(2, 3, "int32")),
        (te.zeros_like(te.ones(3, "bool")), np.zeros(3, bool)), (te.full_like(te.ones((2, 1)), 4), np.full((2, 1), 4,
        "float32")),
        (te.ones_like(te.ones(2), "int64"), np.ones(2, "int64")), (te.eye(3), np.eye(3, dtype="float32")),
        (te.eye(2, 4, 1, "int32"), np.eye(2, 4, 1, "int32")), (te.arange(5), np.arange(5, dtype="int32")),
        (te.arange(2, 9, 3), np.arange(2, 9, 3, "int32")), (te.arange(9, 2, -3), np.arange(9, 2, -3, "int32")),
        (te.arange(0.0, 1.0, 0.25), np.arange(0, 1, 0.25, "float32")), (te.arange(3, dtype="float64"), np.arange(3.0)),
        (te.arange(5, 2), np.arange(5, 2, dtype="int32")), (te.zeros(()), np.zeros((), "float32")),
    ]:  # fmt: skip
        value = te.interpret(found, {})
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected)
    assert te.arange(n).shape == (n,)
    assert str(te.arange(1, n, 2).shape[0]) == "n // 2"
    with pytest.raises(ValueError, match="a number other than 0"):
        te.arange(1, 5, 0)
    with pytest.raises(ValueError, match="cannot be negative"):
        te.zeros((3, -1))


def test_padding_by_the_value_as_numpy_calls_it() -> None:
    x = te.placeholder((2, 3), name="x")
    a = np.arange(6, dtype="float32").reshape(2, 3)
    for pad in (te.pad, np.pad):
        np.testing.assert_array_equal(
            te.evaluate(pad(x, 1, constant_values=7), {x: a}), np.pad(a, 1, constant_values=7)
        )
