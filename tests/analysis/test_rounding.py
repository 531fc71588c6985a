"""Conversions to bfloat16 are rounded once, by the reference as by kernels."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import example, given, strategies as st

import tedsl as te
from tedsl.analysis.pointwise import rounded
from tedsl.lang.dtypes import BFLOAT16


@functools.cache
def kernel(dtype: str) -> Any:
    x = te.placeholder((8,), dtype, name="x")
    return te.build([x], te.compute((8,), lambda i: te.cast(te.cast(x[i], "bfloat16"), "float32")))


def nearest(value: float | int) -> float:
    """The bfloat16 next to a number, the even one of two."""
    if value == 0 or (isinstance(value, float) and not math.isfinite(value)):
        return float(value)
    exact = Fraction(value)
    exponent = max(math.frexp(float(abs(exact)))[1] - 8, -133)
    while abs(exact) >= Fraction(2) ** (exponent + 8):
        exponent += 1
    whole = round(exact / Fraction(2) ** exponent)  # half to even
    found = whole * Fraction(2) ** exponent
    return math.copysign(math.inf, exact) if abs(found) >= 2**128 else float(found)


NEAR_TIES = st.builds(
    lambda sign, whole, half, beside, by: sign * math.ldexp(whole + half + math.ldexp(beside, -40), by),
    st.sampled_from([-1, 1]), st.integers(128, 255), st.sampled_from([0.0, 0.5]), st.integers(-2, 2),
    st.integers(-145, 121),
)  # fmt: skip


@given(st.lists(NEAR_TIES | st.floats(width=64, allow_nan=False), min_size=8, max_size=8))
@example([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 2.0**-134, 3.4e38, 3.3961e38, -3.3962e38, 1e300, -1e-300])
def test_floats(values: list[float]) -> None:
    array = np.array(values)
    with np.errstate(all="ignore"):
        found = rounded(array, BFLOAT16)
    np.testing.assert_array_equal(found, np.array([nearest(v) for v in values], "float32"))
    np.testing.assert_array_equal(kernel("float64")(array), found)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=8, max_size=8))
@example([2**62 + 2**54 + 1, 2**62 + 2**54, 2**24 + 2**16 + 1, -(2**63), 2**63 - 1, 257, -259, 0])
def test_integers(values: list[int]) -> None:
    array = np.array(values)
    found = rounded(array, BFLOAT16)
    np.testing.assert_array_equal(found, np.array([nearest(v) for v in values], "float32"))
    np.testing.assert_array_equal(kernel("int64")(array), found)
