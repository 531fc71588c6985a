"""Arrays given from outside, checked against the tensors that they stand for: kind and dtype (shapes: see `sizes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.analysis.arrays.conversions import converted, of_numbers
from tedsl.analysis.arrays.donated import check_not_donated
from tedsl.analysis.arrays.foreign import check_not_recorded
from tedsl.analysis.pointwise import Array
from tedsl.lang.constants import is_plain
from tedsl.lang.dtypes import DType, dtype_of_array, is_masked
from tedsl.lang.tensor import ScanState, StepStage, Tensor

__all__ = ["as_outputs", "check_array", "check_dtype", "check_not_masked", "checked_dtype"]


def check_array(tensor: Tensor, value: Any, what: str, casting: str = "safe", offered: bool = False) -> Array:
    """`value` as a NumPy array of the tensor's dtype, converted where `casting` allows it: see `conversions`."""
    place = f"{what}: input {tensor.name!r}"
    is_number = tensor.ndim == 0 and isinstance(value, (bool, int, float))
    if is_number or (isinstance(value, (list, tuple)) and is_plain(value)):
        return of_numbers(value, tensor.dtype, place, casting, offered)
    check_not_donated([(tensor.name, value)], what)
    check_not_recorded(value, place)
    is_array = isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "__array__")
    if not is_array and not isinstance(value, (list, tuple)):
        raise TypeError(
            f"{place}: expected an array of {tensor.dtype}, found {type(value).__name__} "
            f"({value!r:.40}); convert it with np.asarray(x, dtype={str(tensor.dtype)!r})"
        )
    check_not_masked(value, place)
    return converted(np.asarray(value), tensor.dtype, place, casting, offered)


def check_not_masked(value: Any, place: str) -> None:
    """TypeError for a masked array, of which nothing here would see the mask."""
    if is_masked(value):
        raise TypeError(f"{place}: a mask would be lost; give x.filled(value) or x.data of the masked array")


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
    converted(array, dtype, place, casting="no")


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
        if isinstance(tensor.op, (ScanState, StepStage)):
            raise ValueError(
                f"{what}: {tensor!r} ({tensor.op.where}) is there within the steps of a te.scan only; make it a state, "
                "and return it"
            )
    return tuple(tensors), several
