"""Numbers and lists of numbers given for arrays: as NumPy takes them, as arrays of the framework of the others.

A Python float is weak, and so is a list with one in it: it has the dtype of the float arrays beside it, float64 without
any.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from tedsl.analysis.arrays.nests import rebuilt
from tedsl.lang.arrays import full, stack
from tedsl.lang.tensor import Tensor
from tedsl.ops.arrays import is_array
from tedsl.ops.homes import home_of
from tedsl.ops.signature import leaves

__all__ = ["as_array", "as_table", "constant", "is_number", "weak_dtype", "with_arrays"]

Array = np.ndarray[Any, Any]


def with_arrays(values: Sequence[Any], wanted: Sequence[bool] | None) -> list[Any]:
    """Arguments in which numbers are arrays where they are wanted so, and lists with a float in them everywhere.

    So are floats of NumPy: they come of arithmetic on arrays of rank 0, and are others at each step of a loop.
    `wanted` None: if there is no array, floats and lists with floats are arrays.
    """
    found = [leaf for value in values for leaf in leaves(value)]
    arrays = [leaf for leaf in found if is_array(leaf)]
    if not any(isinstance(leaf, (int, float, np.generic)) for leaf in found):
        return list(values)
    like, weak = (arrays[0] if arrays else None), weak_dtype(arrays)

    def taken(value: Any, is_wanted: bool) -> Any:
        if isinstance(value, list) and _is_table(value):
            made = is_wanted or any(isinstance(leaf, (float, np.floating)) for leaf in leaves(value))
            return _given(as_table(value, weak), like) if made else value
        if isinstance(value, (tuple, list)):
            return rebuilt(value, [taken(v, is_wanted) for v in value])
        if isinstance(value, dict):
            return {k: taken(v, is_wanted) for k, v in value.items()}
        is_alone = wanted is None and not arrays and isinstance(value, float)
        if is_number(value) and (is_wanted or is_alone or isinstance(value, np.floating)):
            return _given(as_array(value, weak), like)
        return value

    each = [False] * len(values) if wanted is None else wanted
    return [taken(value, flag) for value, flag in zip(values, each, strict=True)]


def is_number(value: Any) -> bool:
    """An integer or a float, of Python or NumPy; conditions are none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def as_array(number: Any, weak: Any) -> Array:
    """A number as an array of rank 0, a float of Python of the dtype `weak`."""
    return np.asarray(number, weak if type(number) is float else None)


def as_table(numbers: list[Any], weak: Any) -> Array:
    """A list of numbers as an array, of the dtype `weak` if it has floats of Python and no scalars of NumPy."""
    found = leaves(numbers)
    is_weak = any(type(n) is float for n in found) and not any(isinstance(n, np.generic) for n in found)
    return np.asarray(numbers, weak if is_weak else None)


def constant(array: Array) -> Tensor:
    """An array of a few elements as a tensor."""
    dtype = str(array.dtype)
    return stack([constant(part) for part in array]) if array.ndim else full((), array.item(), dtype)


def _is_table(value: Any) -> bool:
    """Numbers in lists that are all of one length, at least one."""
    if not isinstance(value, list) or not value:
        return False
    if all(isinstance(v, list) for v in value):
        return len({len(v) for v in value}) == 1 and all(map(_is_table, value))
    return all(map(is_number, value))


def weak_dtype(arrays: Sequence[Any]) -> Any:
    """The dtype of a Python float beside these."""
    names = {str(a.dtype).rpartition(".")[2] for a in arrays if hasattr(a, "dtype")}
    if "bfloat16" in names:
        return np.dtype("float32")
    floats = [np.dtype(name) for name in ("float16", "float32", "float64") if name in names]
    return np.result_type(*floats) if floats else np.dtype("float64")


def _given(array: Array, like: Any) -> Any:
    """The array as one of the kind of another."""
    if like is None or hasattr(type(like), "__tedsl_lower__"):
        return array
    home = home_of(type(like))
    if home == "tensor":
        return constant(array)
    return array if home == "numpy" else import_module(home).like(array, like)
