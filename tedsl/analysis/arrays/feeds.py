"""Arrays given from outside, checked against the tensors that they stand for: kind and dtype (shapes: see `sizes`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from tedsl.analysis.arrays.conversions import converted, of_numbers
from tedsl.analysis.arrays.donated import check_not_donated
from tedsl.analysis.pointwise import Array
from tedsl.lang.constants import is_plain
from tedsl.lang.dtypes import DType, dtype_of_array, is_masked
from tedsl.lang.elements import shape_text, whole
from tedsl.lang.foreign import check_not_recorded, values_of
from tedsl.lang.tensor import Constant, Placeholder, ScanState, StepStage, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Feeds", "as_feeds", "as_outputs", "check_array", "check_dtype", "check_not_masked", "checked_dtype"]

# What arrays are given for: tensors, or inputs by their names.
Feeds = Mapping[Tensor, Any] | Mapping[str, Any] | Mapping[Tensor | str, Any]


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
        fix = "; give a dict of arrays by name as kern(**arrays)" if isinstance(value, dict) else ""
        is_iterable = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        fix = fix or (f"; convert it with np.asarray(x, dtype={str(tensor.dtype)!r})" if is_iterable else "")
        raise TypeError(
            f"{place}: expected an array of {tensor.dtype} of shape {shape_text(tensor.extents)}, "
            f"found {type(value).__name__} ({value!r:.40}){fix}"
        )
    check_not_masked(value, place)
    return converted(values_of(value, place), tensor.dtype, place, casting, offered)


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


def as_feeds(feeds: Feeds | None, outputs: Sequence[Tensor], what: str) -> dict[Tensor, Any]:
    """The arrays by the tensors that they stand for, which a name may stand for too: `{A: a}` or `{"A": a}`."""
    if feeds is None:
        return {}
    if not isinstance(feeds, Mapping):
        raise TypeError(f"{what}: feeds is a dict {{tensor: array}}, found {type(feeds).__name__}")
    found: dict[Tensor, Any] = {}
    for key, value in feeds.items():
        tensor = _input_named(key, outputs, what) if isinstance(key, str) else key
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{what}: the keys of feeds are tensors or their names, found {type(key).__name__} ({key!r:.40})"
            )
        if tensor in found:
            raise ValueError(f"{what}: feeds has two arrays for {tensor!r}; give one")
        found[tensor] = value
    return found


def _input_named(name: str, outputs: Sequence[Tensor], what: str) -> Tensor:
    """The one input of this name that the outputs read."""
    ops = operations_between((), outputs)
    inputs = [op.output() for op in ops if isinstance(op, Placeholder) and not isinstance(op, Constant)]
    alike = [t for t in inputs if t.name == name]
    if len(alike) == 1:
        return alike[0]
    if alike:
        places = " and ".join(f"{t!r} ({t.op.where})" for t in alike)
        raise ValueError(f"{what}: {name!r} is the name of {places}; give the tensors themselves as keys")
    near = get_close_matches(name, [t.name for t in inputs], n=1)
    told = f"; did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(t.name) for t in inputs) or "no inputs"
    raise ValueError(f"{what}: the outputs read no input named {name!r}, but {listed}{told}")


def as_outputs(outputs: Any, what: str) -> tuple[tuple[Tensor, ...], bool]:
    """The tensors asked for, and whether several were (a list or tuple)."""
    several = isinstance(outputs, (list, tuple))
    tensors = [whole(output, "value") for output in (outputs if several else (outputs,))]
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
