"""Arrays for the inputs of a program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from autodiff.strategies.program import Program
from tedsl.lang.dtypes import DType, integer_bounds
from tedsl.lang.tensor import Tensor

__all__ = ["values_for"]

SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)


@st.composite
def values_for(draw: Any, program: Program, *, special: bool = True) -> dict[Tensor, np.ndarray[Any, Any]]:
    """Arrays for the inputs: small numbers with few bits, NaN, infinities and signed zeros, extremes of integers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    odd = special and draw(st.booleans())
    return {
        t: _whole(rng, t.dtype, program.shape(t))
        if t in program.whole
        else _array(rng, t.dtype, program.shape(t), program.below.get(t), odd)
        for t in program.inputs
    }


def _whole(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Small integers, in floats as well: however a sum of them is cut, it is the same."""
    low = 0 if dtype.is_bool or (dtype.is_integer and integer_bounds(dtype)[0] == 0) else -2
    return np.asarray(rng.integers(low, 2 if dtype.is_bool else 3, shape)).astype(dtype.numpy)


def _array(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], below: int | None, special: bool
) -> np.ndarray[Any, Any]:
    if below is not None:
        return np.asarray(rng.integers(0, below, shape)).astype(dtype.numpy)
    if dtype.is_bool:
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.is_integer:
        low, high = integer_bounds(dtype)
        small = np.asarray(rng.integers(max(low, -9), 10, shape)).astype(dtype.numpy)
        extreme = np.asarray(
            rng.choice([low, high, low + 1, high - 1], shape) if low >= -(2**62) and high < 2**62 else small
        )
        return np.where(rng.random(shape) < 0.2, extreme, small).astype(dtype.numpy) if special else small
    plain = np.asarray(rng.integers(-32, 33, shape)) / 8
    if special:
        plain = np.where(rng.random(shape) < 0.15, rng.choice(SPECIAL, shape), plain)
    return np.asarray(plain).astype(dtype.numpy)
