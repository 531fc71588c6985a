"""Arrays of another dtype, Python's numbers and lists, as arrays of the dtype that is wanted.

What NumPy calls a safe cast loses nothing, so it is made without asking; what would lose something is made only where
the caller names the rule of NumPy that allows it. Python's numbers have no dtype: they take the one that they meet, as
they do in expressions, if it is of their kind or above it (bool, integers, floats).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.lang.dtypes import DType, dtype_of_array, integer_bounds

__all__ = ["CASTINGS", "converted", "of_numbers"]

CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")  # NumPy's, each allows what those before it do
_KINDS = "biuf"


def converted(array: Array, dtype: DType, place: str, casting: str = "safe", offered: bool = False) -> Array:
    """The array with elements of `dtype`, itself where they are; TypeError where `casting` does not allow it.

    `offered` says that the caller could be given another rule, which the error then names.
    """
    try:
        found: DType | None = dtype_of_array(array)
    except TypeError:
        found = None
    if found is dtype and array.dtype.isnative:
        return array
    if found is not None and np.can_cast(array.dtype, dtype.numpy, casting):  # type: ignore[arg-type]
        return array.astype(dtype.numpy)
    raise TypeError(f"{place}: {_misfit(array, found, dtype)}; {_fix(array, found, dtype, offered)}")


def _misfit(array: Array, found: DType | None, dtype: DType) -> str:
    if found is dtype:
        return f"expected the byte order of this machine, found dtype {array.dtype.str!r}"
    return f"expected dtype {dtype}, found {array.dtype}"


def _fix(array: Array, found: DType | None, dtype: DType, offered: bool) -> str:
    if array.dtype.kind == "c":
        return "give its parts apart, x.real and x.imag"
    if array.dtype.kind not in "biufV":  # bfloat16 is of kind V
        return f"give numbers, np.asarray(x, {str(dtype)!r})"
    by_hand = f"convert it with x.astype({str(dtype)!r})"
    if not offered or found is None:
        return by_hand
    rule = next(c for c in CASTINGS if np.can_cast(array.dtype, dtype.numpy, c))  # type: ignore[arg-type]
    return f"give casting={rule!r} in the call, or {by_hand}"


def of_numbers(value: Any, dtype: DType, place: str, casting: str = "safe", offered: bool = False) -> Array:
    """What `is_plain` as an array of `dtype`; TypeError where it is of a higher kind, ValueError out of its range."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{place}: the lists of {value!r:.40} are of several lengths ({error})") from None
    if not array.size:
        return np.empty(array.shape, dtype.numpy)
    if array.dtype.kind not in _KINDS:
        raise ValueError(f"{place}: expected numbers of {dtype}, found {value!r:.40}, which no dtype holds")
    if _rank(array.dtype.kind) > _rank(dtype.kind):
        if CASTINGS.index(casting) > CASTINGS.index("safe"):
            return converted(array, dtype, place, casting, offered)
        told = f"{'a value' if array.ndim == 0 else 'values'} of {dtype}"
        fix = _fix(array, dtype_of_array(array), dtype, offered)
        raise TypeError(f"{place}: expected {told}, found {type(value).__name__} ({value!r:.40}); {fix}")
    _check_range(array, dtype, place)
    with np.errstate(over="ignore"):  # beyond the range of a float type an infinity, as in expressions
        return array.astype(dtype.numpy)


def _rank(kind: str) -> int:
    return "biuf".index(kind.replace("u", "i"))


def _check_range(array: Array, dtype: DType, place: str) -> None:
    if not dtype.is_integer:
        return
    low, high = integer_bounds(dtype)
    for number in (int(array.min()), int(array.max())):
        if not low <= number <= high:
            raise ValueError(f"{place}: {number} is out of range for {dtype} (from {low} to {high})")
