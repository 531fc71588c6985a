"""Arrays given from outside, checked against the tensors that they stand for: kind and dtype (shapes: see `sizes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.analysis.donated import check_not_donated
from tedsl.analysis.foreign import check_not_recorded
from tedsl.analysis.pointwise import Array
from tedsl.lang.dtypes import DType, dtype_of_array, is_masked
from tedsl.lang.functions import const
from tedsl.lang.tensor import Tensor

__all__ = ["as_outputs", "check_array", "check_dtype", "check_not_masked", "checked_dtype"]


def check_array(tensor: Tensor, value: Any, what: str) -> Array:
    """`value` as a NumPy array of the tensor's dtype; a number may stand for rank 0, lists are refused."""
    if isinstance(value, (bool, int, float)) and tensor.ndim == 0:
        return _number(tensor, value, what)
    check_not_donated([(tensor.name, value)], what)
    check_not_recorded(value, f"{what}: input {tensor.name!r}")
    if not isinstance(value, (np.ndarray, np.generic)) and not hasattr(value, "__array__"):
        raise TypeError(
            f"{what}: input {tensor.name!r}: expected an array of {tensor.dtype}, found {type(value).__name__} "
            f"({value!r:.40}); convert it with np.asarray(x, dtype={str(tensor.dtype)!r})"
        )
    check_not_masked(value, f"{what}: input {tensor.name!r}")
    array = np.asarray(value)
    check_dtype(array, tensor.dtype, f"{what}: input {tensor.name!r}")
    return array


def check_not_masked(value: Any, place: str) -> None:
    """TypeError for a masked array, of which nothing here would see the mask."""
    if is_masked(value):
        raise TypeError(f"{place}: a mask would be lost; give x.filled(value) or x.data of the masked array")


def _number(tensor: Tensor, value: bool | int | float, what: str) -> Array:
    """A Python number takes the dtype of the input, as it does inside expressions."""
    fits = isinstance(value, bool) if tensor.dtype.is_bool else not isinstance(value, bool)
    if not fits or (isinstance(value, float) and not tensor.dtype.is_float):
        raise TypeError(
            f"{what}: input {tensor.name!r}: expected a value of {tensor.dtype}, "
            f"found {type(value).__name__} ({value!r})"
        )
    try:
        return np.array(const(value, tensor.dtype).value, dtype=tensor.dtype.numpy)
    except ValueError as error:
        raise ValueError(f"{what}: input {tensor.name!r}: {error}") from None


def checked_dtype(array: Array, place: str) -> Array:
    """The array; TypeError where its elements are of no type that there is."""
    try:
        found = dtype_of_array(array)
    except TypeError as error:
        raise TypeError(f"{place}: {error}") from None
    check_dtype(array, found, place)
    return array


def check_dtype(array: Array, dtype: DType, place: str) -> None:
    """TypeError unless the elements of `array` are of `dtype`, in this machine's byte order."""
    try:
        found: DType | None = dtype_of_array(array)
    except TypeError:
        found = None
    if found is not dtype:
        fix = f"convert it with x.astype({str(dtype)!r})"
        raise TypeError(f"{place}: expected dtype {dtype}, found {array.dtype}; {fix}")
    if not array.dtype.isnative:
        raise TypeError(
            f"{place}: expected the byte order of this machine, found dtype {array.dtype.str!r}; "
            f"convert it with x.astype({str(dtype)!r})"
        )


def as_outputs(outputs: Any, what: str) -> tuple[tuple[Tensor, ...], bool]:
    """The tensors asked for, and whether several were (a list or tuple)."""
    several = isinstance(outputs, (list, tuple))
    tensors: Sequence[Any] = outputs if several else (outputs,)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{what}: outputs are tensors, found {type(tensor).__name__} ({tensor!r:.60}); "
                "an expression becomes a tensor by te.compute"
            )
    return tuple(tensors), several
