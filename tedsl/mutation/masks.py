"""Masks as indices: which view they select from, and what is assigned under them.

A mask stands for the places where it holds, as many as nobody knows before the call; slices and integers beside it make
a view first. A mask whose values are known while the function is traced is a list of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import is_one, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Const, Expr, Read
from tedsl.lang.extents import same_extent
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, lowered, new_array, without_leading_ones
from tedsl.mutation.selected import Selected
from tedsl.mutation.tracing import Trace

__all__ = ["KnownMask", "Masked", "listed_places", "mask_position"]


@dataclass(frozen=True, eq=False)
class KnownMask:
    """A mask that is no traced array: its value now, as of every array that a function captures."""

    array: np.ndarray[Any, Any]
    trace: Trace

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def value(self) -> Tensor:
        return self.trace.capture(self.array)

    @property
    def extents(self) -> tuple[Expr, ...]:
        return self.value.extents

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.array))


def mask_position(items: Sequence[Any]) -> int | None:
    """Where the one mask stands."""
    masks = [p for p, item in enumerate(items) if _is_mask(item)]
    arrays = [item for p, item in enumerate(items) if isinstance(item, Array) and p not in masks]
    if len(masks) + len(arrays) > 1 and all(isinstance(items[p], KnownMask) for p in masks):
        return None  # they are lists of places
    if len(masks) > 1:
        raise TypeError(
            f"index at {user_location()}: several masks pick the first place of one with the first of the other, and "
            "so on; for all combinations write one mask, x[rows[:, None] & columns]"
        )
    if masks and arrays:
        raise TypeError(
            f"index at {user_location()}: a mask beside an array of indices pairs its places with them, and their "
            "number is not known; index twice, or write a mask for both"
        )
    return masks[0] if masks else None


def _is_mask(item: Any) -> bool:
    return isinstance(item, KnownMask) or (isinstance(item, Array) and item.dtype.is_bool)


def listed_places(x: Array, items: Sequence[Any]) -> list[Any]:
    """The items with arrays of places instead of masks whose places are known."""
    found: list[Any] = []
    axis = 0
    known = sum(i.ndim if _is_mask(i) else 1 for i in items if i is not None and i is not Ellipsis)
    for item in items:
        width = x.ndim - known if item is Ellipsis else 0 if item is None else item.ndim if _is_mask(item) else 1
        if isinstance(item, KnownMask):
            _check_shape(item, x.extents[axis : axis + width], x)
            found += [new_array(x.trace, x.trace.capture(p), is_value=False) for p in item.array.nonzero()]
        else:
            found.append(item)
        axis += width
    return found


def _check_shape(mask: Array | KnownMask, own: Sequence[Expr], x: Array) -> None:
    if len(own) < mask.ndim or not all(map(same_extent, own, mask.extents)):
        raise IndexError(
            f"mask at {user_location()}: shape {shape_text(mask.extents)} does not match {shape_text(tuple(own))} of "
            f"the array of shape {shape_text(x.extents)}"
        )


@dataclass(frozen=True, eq=False)
class Masked:
    """The part of an array that slices and integers select, in NumPy's order of axes, and a mask over some of them."""

    target: Array
    mask: Array | KnownMask
    place: int

    @classmethod
    def of(cls, x: Array, items: Sequence[Any], position: int) -> Masked:
        """x[items], of which the one at `position` is the mask."""
        mask = items[position]
        whole = [*items[:position], *(slice(None),) * mask.ndim, *items[position + 1 :]]
        target = x.part(whole)
        used = sum(i is not None and i is not Ellipsis for i in whole)
        full = [j for i in items for j in ([slice(None)] * (x.ndim - used) if i is Ellipsis else [i])]
        place = next(p for p, i in enumerate(full) if i is mask)
        before = full[:place]
        start = sum(not _is_integer(i) for i in before)
        chosen = [p for p, i in enumerate(full) if i is mask or _is_integer(i)]
        if chosen != list(range(chosen[0], chosen[-1] + 1)) and start:  # NumPy puts what is picked first
            moved = range(start, start + mask.ndim)
            target, start = target.moved(moved, range(mask.ndim)), 0
        _check_shape(mask, target.extents[start : start + mask.ndim], x)
        return cls(target, mask, start)

    def read(self) -> Selected:
        """The elements under the mask."""
        return Selected(self.target.trace, self.target.value, self.mask.value, self.place)

    def assign(self, value: Any) -> None:
        """The elements under the mask replaced."""
        chosen = self.read()
        wide = self._placed(value) if isinstance(self.mask, KnownMask) else None
        chosen.assign(value if wide is None else Selected(chosen.trace, wide, chosen.mask, self.place))
        self._store(chosen)

    def update(self, f: Fn, value: Any) -> None:
        """The elements under the mask become f(themselves, value)."""
        self._store(self.read().update(f, value))

    def _store(self, chosen: Selected) -> None:
        at, width, old = self.place, self.mask.ndim, self.target.value
        self.target.assign(tensor_of(
            old.extents,
            lambda *axes: fn.select_node(
                Read(chosen.mask, axes[at : at + width]), Read(chosen.full, axes), Read(old, axes)
            ),
            "masked",
        ))  # fmt: skip

    def _placed(self, value: Any) -> Tensor | None:
        """One value for each place of a known mask, at its place; None where all places have the same."""
        assert isinstance(self.mask, KnownMask)
        if isinstance(value, Selected):
            return None
        behind = self.target.ndim - self.place - self.mask.ndim
        given = lowered(value, self.target.trace, self.target.dtype)
        given = without_leading_ones(given, self.target.ndim - self.mask.ndim + 1)
        at = given.ndim - behind - 1
        if at < 0 or is_one(given.extents[at]):
            return None
        if not same_extent(given.extents[at], Const(self.mask.count, INT32)):
            raise ValueError(
                f"x[mask] = v at {user_location()}: the mask selects {self.mask.count} places, v of shape "
                f"{shape_text(given.extents)} has {given.extents[at]} values for them"
            )
        if not self.mask.count:
            return self.target.value
        order = (np.cumsum(self.mask.array) - 1).clip(0).reshape(self.mask.array.shape).astype(np.int32)
        rank = self.target.trace.capture(order)
        own = self.mask.extents
        shape = (*given.extents[:at], *own, *given.extents[at + 1 :])

        def element(*axes: Any) -> Expr:
            place = Read(rank, axes[at : at + len(own)])
            return Read(given, (*axes[:at], place, *axes[at + len(own) :]))

        return tensor_of(shape, element, "placed")


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer))
