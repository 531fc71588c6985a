"""What a call is given: arrays of every library, `out=` and `mode=`, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.arrays.conversions import CASTINGS
from tedsl.analysis.arrays.feeds import check_array, check_dtype, check_not_masked
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import sizes_of
from tedsl.backend.arguments.blocks import copy_reason
from tedsl.backend.calling.aliasing import has_shared_elements
from tedsl.lang.foreign import array_of, check_not_recorded, is_recorded, is_torch
from tedsl.lang.tensor import Tensor

__all__ = [
    "as_array", "check_casting", "check_is_memory", "check_target", "given_outputs", "in_order", "input_array",
    "modes_of", "numbers_as_arrays", "passable", "writable",
]  # fmt: skip

MODES = ("write", "add", "null")
EXACT = 1 << 11  # integers up to here are floats of every width
OPTIONS = ("out", "mode", "sizes", "casting")  # of every call, so no names of inputs there


def in_order(
    inputs: Sequence[Tensor], given: Sequence[Any], named: Mapping[str, Any], what: str, outputs: Sequence[Tensor] = ()
) -> list[Any]:
    """The arrays of a call in the order of the inputs, those given by name behind those given by position."""
    names = [t.name for t in inputs]
    listed = ", ".join(names)
    for name in named:
        if name not in names:
            extent = ""
            if any(size.name == name for size in sizes_of(inputs, outputs)):
                number = named[name] if isinstance(named[name], (int, np.integer)) else "..."
                extent = f", which is an extent: give sizes={{{name!r}: {number}}}"
            raise TypeError(f"{what}: no input is called {name!r}{extent}; the inputs are {listed or 'none'}")
        if names.count(name) > 1:
            raise TypeError(f"{what}: {names.count(name)} inputs are called {name!r}; give them by position ({listed})")
        if name in names[: len(given)]:
            raise TypeError(f"{what}: input {name!r} is given twice, by position and by name")
    missing = [name for name in names[len(given) :] if name not in named]
    if missing or len(given) > len(names):
        absent = f" and {len(named)} by name, not {', '.join(map(repr, missing))}" if named and missing else ""
        option = next((f"; {name}= is an option of every call, so give that input by position"
                       for name in missing if name in OPTIONS), "")  # fmt: skip
        raise TypeError(
            f"{what}: expected {len(names)} array{'s' * (len(names) != 1)} ({listed}), found {len(given)}"
            f"{absent}{option}"
        )
    return [*given, *(named[name] for name in names[len(given) :])]


def check_casting(casting: Any, what: str) -> None:
    """ValueError unless it is one of NumPy's rules."""
    if not isinstance(casting, str) or casting not in CASTINGS:
        raise ValueError(f"{what}: casting= is one of {', '.join(CASTINGS)}, found {casting!r:.60}")


def input_array(
    tensor: Tensor, value: Any, what: str, casting: str, is_memory: bool, copies: list[tuple[str, str]]
) -> Array:
    """What was given for an input as an array of its dtype; converted ones are among the copies.

    What a call writes into must be the caller's memory: nothing is converted there.
    """
    found = as_array(value, tensor, what)
    if is_memory and not isinstance(found, (bool, int, float)):
        return check_array(tensor, found, what, "no")
    array = check_array(tensor, found, what, casting, offered=True)
    former = getattr(found, "dtype", None)
    if isinstance(former, np.dtype) and former != array.dtype:
        copies.append((tensor.name, f"its elements are {former}, converted to {tensor.dtype}"))
    return array


def numbers_as_arrays(given: tuple[Any, ...], dtypes: Mapping[int, np.dtype[Any]]) -> tuple[Any, ...]:
    """What is given, with arrays of rank 0 for numbers that are one of the dtype asked for at their place."""
    found: list[Any] | None = None
    for place, dtype in dtypes.items():
        if place < len(given) and given[place].__class__ is not np.ndarray:
            array = _number_as_array(given[place], dtype)
            if array is not None:
                found = list(given) if found is None else found
                found[place] = array
    return given if found is None else tuple(found)


def _number_as_array(value: Any, dtype: np.dtype[Any]) -> Array | None:
    """None where it takes a look at what may be converted."""
    kind, to = value.__class__, dtype.kind
    if kind is bool:
        fits = to == "b"
    elif kind is int:
        fits = np.iinfo(dtype).min <= value <= np.iinfo(dtype).max if to in "iu" else to == "f" and abs(value) <= EXACT
    elif isinstance(value, float):  # NumPy's float64 is one
        fits = to == "f" and abs(value) <= float(np.finfo(dtype).max)
    else:
        fits = isinstance(value, np.generic) and value.dtype == dtype
    return np.asarray(value, dtype) if fits else None


def modes_of(outputs: Sequence[Tensor], mode: Any, what: str) -> tuple[str, ...]:
    """`mode=`, for each output."""
    given = mode if isinstance(mode, Mapping) else dict.fromkeys(outputs, "write" if mode is None else mode)
    found = _by_position(outputs, given, f"{what}: mode=")
    for position, value in found.items():
        if not isinstance(value, str) or value not in MODES:
            name = outputs[position].name
            raise ValueError(f"{what}: mode of {name!r}: expected one of {', '.join(MODES)}, found {value!r:.60}")
    return tuple(found.get(p, "write") for p in range(len(outputs)))


def given_outputs(outputs: Sequence[Tensor], out: Any, what: str) -> dict[int, Any]:
    """`out=`, by the position of the output; None stands for an array to be made."""
    if out is None:
        return {}
    if isinstance(out, Mapping):
        return {p: a for p, a in _by_position(outputs, out, f"{what}: out=").items() if a is not None}
    listed = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(listed) != len(outputs):
        names = ", ".join(t.name for t in outputs)
        raise ValueError(
            f"{what}: out= must hold {len(outputs)} array{'s' * (len(outputs) != 1)} ({names}), found {len(listed)}"
        )
    return {p: array for p, array in enumerate(listed) if array is not None}


def _by_position(outputs: Sequence[Tensor], given: Mapping[Any, Any], place: str) -> dict[int, Any]:
    """A dict whose keys are names of outputs, or the outputs themselves, by their position."""
    names = [t.name for t in outputs]
    listed = ", ".join(names)
    found: dict[int, Any] = {}
    for key, value in given.items():
        if isinstance(key, Tensor):
            meant = [p for p, t in enumerate(outputs) if t is key]
        else:
            meant = [p for p, name in enumerate(names) if isinstance(key, str) and name == key]
        if not meant:
            shown = key.name if isinstance(key, Tensor) else key
            raise ValueError(f"{place} names {shown!r:.60}; the outputs are {listed}")
        if len(meant) > 1 and not isinstance(key, Tensor):
            raise ValueError(
                f"{place} names {key!r}, but {len(meant)} outputs are called that; give the tensors as keys"
            )
        for position in meant:
            if position in found:
                raise ValueError(f"{place} names output {names[position]!r} twice")
            found[position] = value
    return found


def check_target(tensor: Tensor, array: Any, shape: tuple[int, ...], place: str) -> None:
    """Refuse an array that `tensor` cannot be written into."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{place}: expected a NumPy array to write into, found {type(array).__name__}")
    check_not_masked(array, place)
    check_dtype(array, tensor.dtype, place)
    if array.shape != shape:
        raise ValueError(f"{place}: expected shape {shape}, found {array.shape}")
    if not array.flags.writeable:
        raise ValueError(f"{place}: the array is read-only; give one that can be written")
    if has_shared_elements(array):
        raise ValueError(f"{place}: elements of the array share memory (its strides meet); give one of its own")


def as_array(value: Any, tensor: Tensor, what: str) -> Any:
    """A NumPy view of another library's array; everything else is left to the check."""
    if is_torch(value) and not is_recorded(value):
        try:
            return array_of(value)
        except TypeError as error:
            raise TypeError(f"{what}: input {tensor.name!r}: {error}") from None
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)) or hasattr(value, "__array__"):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def writable(value: Any, place: str) -> Any:
    """A NumPy view of an array to write into; everything else is left to the check."""
    check_not_recorded(value, place)
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "__array__"):
        return value
    if is_torch(value):
        return array_of(value)
    array = np.asarray(value)
    check_is_memory(value, array, place)
    return array


def check_is_memory(value: Any, array: Array, place: str) -> None:
    """TypeError where an array is not the memory of what was given, but a copy, with which a result would be lost."""
    if isinstance(value, np.ndarray) or is_torch(value):
        return
    if isinstance(value, (np.generic, bool, int, float)):
        raise TypeError(
            f"{place}: expected an array to write into, found {type(value).__name__} ({value!r:.40}); give "
            f"np.array(x, dtype={str(array.dtype)!r})"
        )
    again = (
        np.asarray(value) if hasattr(value, "__array__") or not hasattr(value, "__dlpack__") else np.from_dlpack(value)
    )
    if array.size and not np.shares_memory(array, again):
        raise TypeError(
            f"{place}: expected memory to write into, found a {type(value).__name__}, which gives NumPy copies of its "
            "elements; give an array, and copy the result from there"
        )


def passable(array: Array, tensor: Tensor, copies: list[tuple[str, str]], *, on_device: bool = False) -> Array:
    """The array, or a copy of it where Halide, or a GPU, cannot hold its strides."""
    reason = copy_reason(array.shape, array.strides, array.itemsize, on_device)
    if reason is None and not array.flags.aligned:
        reason = "its elements are not aligned in memory"
    if reason is None:
        return array
    copies.append((tensor.name, reason))
    return np.array(array, order="C")
