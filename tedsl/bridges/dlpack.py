"""Operators on arrays of any other library: zero copy in by the exchange protocols, and its own kind of array out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tedsl.backend.arguments.device_arrays import is_on_gpu, spec_of
from tedsl.lang.dtypes import dtype_of_array
from tedsl.ops.op import Op
from tedsl.ops.results import into
from tedsl.ops.signature import OpCall

__all__ = ["call", "like", "prepare"]


def call(op: Op, call: OpCall, out: Any, mode: Any) -> Any:
    """The op on arrays that have `__dlpack__`, `__array_interface__`, `__array__` or `__cuda_array_interface__`."""
    kinds = {type(a) for a in call.arrays}
    if len(kinds) > 1:
        names = ", ".join(sorted(f"{k.__module__}.{k.__qualname__}" for k in kinds))
        raise TypeError(f"{op.signature.title}: arrays of different kinds: {names}; give arrays of one kind")
    if all(map(is_on_gpu, call.arrays)):
        there = op.definition(call.template).traced(tuple(map(spec_of, call.arrays)))
        return into(there, call.arrays, out, mode, target="cuda")
    arrays = [_viewed(a, name, op) for a, name in zip(call.arrays, call.template.names, strict=True)]
    specs = tuple((a.shape, str(dtype_of_array(a))) for a in arrays)
    traced = op.definition(call.template).traced(specs)
    return into(traced, arrays, out, mode, lambda t, name: _viewed(t, name, op), _maker(call.arrays[0]))


def prepare(op: Op, call: OpCall) -> None:
    """There is no shorter way."""


def like(array: np.ndarray[Any, Any], given: Any) -> Any:
    """An array of NumPy as one of another kind."""
    return _maker(given)(array)


def _viewed(array: Any, name: str, op: Op) -> np.ndarray[Any, Any]:
    """A NumPy array over the same memory."""
    device = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else 1
    if int(device) not in (1, 3):  # the CPU, or memory of it that a GPU also reads
        raise ValueError(
            f"{op.signature.title}: argument {name!r} ({type(array).__name__}) is not in the CPU's memory (DLPack "
            f"device {int(device)}); copy it there"
        )
    try:
        viewed = np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)
        dtype_of_array(viewed)
    except (TypeError, BufferError, RuntimeError) as error:
        raise TypeError(f"{op.signature.title}: argument {name!r} ({type(array).__name__}): {error}") from error
    return viewed


def _maker(array: Any) -> Callable[[np.ndarray[Any, Any]], Any]:
    """What makes an array of the given one's kind: its array API namespace, or its library's from_dlpack or asarray."""
    spaces = [array.__array_namespace__()] if hasattr(array, "__array_namespace__") else []
    spaces.append(sys.modules.get(type(array).__module__.partition(".")[0]))
    for space in spaces:
        for name in ("from_dlpack", "asarray"):
            if callable(getattr(space, name, None)):
                found: Callable[[np.ndarray[Any, Any]], Any] = getattr(space, name)
                return found
    return lambda result: result
