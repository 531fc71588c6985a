"""What a call is given: arrays of every library, `out=` and `mode=`, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.feeds import check_dtype
from tedsl.analysis.pointwise import Array
from tedsl.backend.aliasing import has_shared_elements
from tedsl.backend.buffers import copy_reason
from tedsl.lang.tensor import Tensor

__all__ = ["as_array", "check_target", "given_outputs", "modes_of", "passable", "writable"]

MODES = ("write", "add", "null")


def modes_of(outputs: Sequence[Tensor], mode: Any, what: str) -> tuple[str, ...]:
    names = [t.name for t in outputs]
    given = {} if mode is None else mode if isinstance(mode, Mapping) else dict.fromkeys(names, mode)
    for name, value in given.items():
        if name not in names:
            raise ValueError(f"{what}: mode= names {name!r}; the outputs are {', '.join(names)}")
        if value not in MODES:
            raise ValueError(f"{what}: mode of {name!r}: expected one of {', '.join(MODES)}, found {value!r}")
    return tuple(given.get(name, "write") for name in names)


def given_outputs(outputs: Sequence[Tensor], out: Any, what: str) -> dict[int, Any]:
    names = [t.name for t in outputs]
    if out is None:
        return {}
    if isinstance(out, Mapping):
        for name in out:
            if name not in names:
                raise ValueError(f"{what}: out= names {name!r}; the outputs are {', '.join(names)}")
        return {p: out[name] for p, name in enumerate(names) if out.get(name) is not None}
    listed = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(listed) != len(names):
        raise ValueError(f"{what}: out= must hold {len(names)} arrays ({', '.join(names)}), found {len(listed)}")
    return {p: array for p, array in enumerate(listed) if array is not None}


def check_target(tensor: Tensor, array: Any, shape: tuple[int, ...], what: str) -> None:
    place = f"{what}: out= for {tensor.name!r}"
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{place}: expected a NumPy array to write into, found {type(array).__name__}")
    check_dtype(array, tensor.dtype, place)
    if array.shape != shape:
        raise ValueError(f"{place}: expected shape {shape}, found {array.shape}")
    if not array.flags.writeable:
        raise ValueError(f"{place}: the array is read-only; give one that can be written")
    if has_shared_elements(array):
        raise ValueError(f"{place}: elements of the array share memory (its strides meet); give one of its own")


def as_array(value: Any) -> Any:
    """A NumPy view of another library's array; everything else is left to the check."""
    if isinstance(value, (np.ndarray, np.generic, bool, int, float)) or hasattr(value, "__array__"):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def writable(value: Any) -> Any:
    """A NumPy view of an array to write into; everything else is left to the check."""
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "__array__"):
        return value
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def passable(array: Array, tensor: Tensor, copies: list[tuple[str, str]]) -> Array:
    """The array, or a copy of it where Halide cannot hold its strides."""
    reason = copy_reason(array.shape, array.strides, array.itemsize)
    if reason is None and not array.flags.aligned:
        reason = "its elements are not aligned in memory"
    if reason is None:
        return array
    copies.append((tensor.name, reason))
    return np.array(array, order="C")
