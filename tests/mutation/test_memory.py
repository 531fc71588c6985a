"""te.may_alias against a walk over every byte; te.copy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te


def touched(x: Any) -> set[int]:
    """Every byte of every element."""
    start, size = x.__array_interface__["data"][0], x.itemsize
    points = product(*map(range, x.shape))
    return {start + sum(s * i for s, i in zip(x.strides, p, strict=True)) + b for p in points for b in range(size)}


@st.composite
def windows(draw: Any, buffer: Any) -> Any:
    kind = np.dtype(draw(st.sampled_from(["u1", "i2", "f4", "f8"])))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    strides = tuple(draw(st.integers(-9, 9)) for _ in shape)
    low = -sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True) if n)
    high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True) if n) + kind.itemsize
    offset = draw(st.integers(low, len(buffer) - high))
    if 0 in shape:
        return np.ndarray(shape, kind, buffer, 0)
    return np.ndarray(shape, kind, buffer, offset, strides)


@given(st.data())
@settings(max_examples=150)
def test_may_alias_is_exact(data: Any) -> None:
    buffer = np.zeros(240, np.uint8)
    x, y = data.draw(windows(buffer)), data.draw(windows(buffer))
    assert te.may_alias(x, y) == bool(touched(x) & touched(y))


def test_interleaved_arrays_do_not_alias() -> None:
    a = np.zeros(10)
    assert not te.may_alias(a[::2], a[1::2])
    assert te.may_alias(a[::2], a[::-3])
    assert not te.may_alias(te.placeholder((3,)), te.placeholder((3,)))


def test_may_alias_and_copy_while_tracing() -> None:
    seen = []

    def program(x: Any) -> Any:
        y, z = x[::2], te.copy(x)
        seen.extend([te.may_alias(x, y), te.may_alias(y, x[1::2]), te.may_alias(x, z)])
        z += 1
        made = te.copy(te.zeros((3,), "float64"))
        made[1:] += x[:2]
        return z, made

    x = np.arange(4.0)
    z, made = te.functionalize(program, interpreted=True)(x)
    assert seen == [True, False, False]
    np.testing.assert_array_equal(x, np.arange(4.0))
    np.testing.assert_array_equal(z, np.arange(4.0) + 1)
    np.testing.assert_array_equal(made, [0, 0, 1])


def test_copy_of_a_tensor_is_a_stage() -> None:
    x = te.placeholder((3,), name="x")
    y = te.copy(x)
    assert y is not x
    np.testing.assert_array_equal(te.interpret(y, {x: np.arange(3, dtype="float32")}), [0, 1, 2])


def test_copy_of_an_array() -> None:
    a = np.arange(6.0).reshape(2, 3).T
    b = te.copy(a)
    np.testing.assert_array_equal(a, b)
    assert not te.may_alias(a, b)


def test_copies_of_arrays_of_jax() -> None:
    x = pytest.importorskip("jax").numpy.arange(3.0)
    y = te.copy(x)
    assert type(y) is type(x)
    np.testing.assert_array_equal(y, x)
