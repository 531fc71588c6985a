"""The value that a dtype holds for a Python number."""

from __future__ import annotations

import numpy as np

from tedsl.lang.dtypes import BOTTOM, DType, integer_bounds
from tedsl.lang.errors import user_location

__all__ = ["literal"]


def literal(value: bool | int | float, dtype: DType) -> bool | int | float:
    """The Python value that `dtype` holds for `value`."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float or dtype is BOTTOM:
        return _rounded(value, dtype)
    if isinstance(value, float) and not value.is_integer():
        raise TypeError(f"{value!r} is no {dtype}: use te.cast to round it, at {user_location()}")
    low, high = integer_bounds(dtype)
    if not low <= int(value) <= high:
        raise ValueError(f"{value!r} is out of range for {dtype} (from {low} to {high}), at {user_location()}")
    return int(value)


def _rounded(value: bool | int | float, dtype: DType) -> float:
    """The nearest number of a float type; beyond its range an infinity, as in NumPy."""
    try:
        number = float(value)
    except OverflowError:
        found = f"an integer of {value.bit_length()} bits"  # type: ignore[union-attr]
        raise ValueError(f"{found} is out of range for {dtype}, at {user_location()}") from None
    if dtype.bits != 32 and dtype != "float16":
        return number
    with np.errstate(over="ignore"):
        return float(np.dtype(str(dtype)).type(number))
