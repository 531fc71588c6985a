"""Functions of whole arrays that the library brings: machine code in a kernel, and here what they mean, in NumPy.

A stage that calls one is an `Extern` whose function is a `Native`: equal ones are one function, in every process, so
that kernels with them are kept and shared like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tedsl.lang.dataclass import dataclass

__all__ = ["Native"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Native:
    """A routine: its name, and the options that its code depends on.

    The first options are the dtype of the elements, the number of axes, and the axis, counted from the last one.
    """

    routine: str
    options: tuple[Any, ...]

    @property
    def __name__(self) -> str:
        return self.routine

    @property
    def axis(self) -> int:
        """The axis, counted from the first one."""
        _, ndim, axis, *_ = self.options
        return int(ndim - 1 - axis)

    def batched(self) -> Native:
        """The same for arrays with one more axis in front."""
        kind, ndim, axis, *rest = self.options
        if self.routine == "places":  # which has a table for each place of so many axes
            rows, side = rest
            rest = [rows + 1, side]
        return replace(self, options=(kind, ndim + 1, axis, *rest))

    def __call__(self, *arrays: Array, shape: tuple[int, ...]) -> Any:
        """The results, of which the first has this shape."""
        return MEANING[self.routine](self, shape, *arrays)


def _order(native: Native, shape: tuple[int, ...], x: Array) -> tuple[Array, Array]:
    axis, descending = native.axis, native.options[3] == "down"
    known = _comparable(x)
    turned = known if not descending else -known if known.dtype.kind == "f" else ~known
    places = np.argsort(turned, axis=axis, kind="stable")
    places = np.take(places, range(shape[axis]), axis)
    return np.take_along_axis(x, places, axis), places.astype(np.int32)


def _places(native: Native, shape: tuple[int, ...], values: Array, table: Array) -> Array:
    _, _, _, rows, side = native.options
    found = np.zeros(shape, np.int32)
    for at in np.ndindex(shape[:rows]):
        found[at] = np.searchsorted(_comparable(table[at]), _comparable(values[at]), side)
    return found


def _runs(native: Native, shape: tuple[int, ...], values: Array, places: Array) -> tuple[Array, Array]:
    known = np.moveaxis(_comparable(values), native.axis, -1)
    origins = np.moveaxis(places, native.axis, -1)
    first, counts = np.zeros(known.shape, np.int32), np.zeros(known.shape, np.int32)
    for at in np.ndindex(known.shape[:-1]):
        row = known[at]
        begins = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])) if row.size else np.zeros(0, int)
        first[at][: len(begins)] = origins[at][begins]
        first[at][len(begins) :] = origins[at][begins[-1:]]
        counts[at][: len(begins)] = np.diff([*begins, row.size])
    return np.moveaxis(first, -1, native.axis), np.moveaxis(counts, -1, native.axis)


def _comparable(x: Array) -> Array:
    """The numbers in a type that NumPy can sort."""
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


MEANING: dict[str, Callable[..., Any]] = {"order": _order, "places": _places, "runs": _runs}
