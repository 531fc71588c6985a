"""Indexing of traced arrays: slices are views, integer arrays and masks are NumPy's copies on reading.

Assignments through integer arrays keep NumPy's rule that the last value for an element wins: a scatter of positions
under `max` finds the winner of each element, and the new value gathers from it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to, element_at
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import reduce_axes_of, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.indexing import getitem as gather
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, lowered, new_array, without_leading_ones
from tedsl.mutation.layouts import Ghost
from tedsl.mutation.selected import Selected

__all__ = ["accumulate_at", "getitem", "setitem"]

_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))


def getitem(x: Array, key: Any) -> Any:
    """x[key]: a view for slices and integers, else a copy."""
    items = _items(x, key)
    if all(isinstance(i, _BASIC) for i in items):
        return _view(x, items)
    mask = _mask_position(items)
    if mask is not None:
        target, place = _around_mask(x, items, mask)
        return Selected(target.trace, target.value, items[mask].value, place)
    if all(i.ndim == 0 for i in items if isinstance(i, Array)) and (x.trace.torch or len(items) < x.ndim):
        raise TypeError(
            f"index at {user_location()}: x[i] with a value as i is a view at a place that is not known while the "
            "function is traced; index with an array of length 1, x[i.reshape(1)], which copies"
        )
    tensors = tuple(_counted(i.value, n) if isinstance(i, Array) else i for i, n in _with_extents(x, items))
    found = (
        gather(x.value, tensors) if len(tensors) < x.ndim or any(_is_whole(t) for t in tensors) else x.value[tensors]
    )
    has_order = isinstance(found, Tensor) and found.ndim > 1 and x.size and 0 not in found.shape
    return new_array(x.trace, found, order=_order_of(x, items) if has_order else None)


def setitem(x: Array, key: Any, value: Any) -> None:
    """x[key] = value."""
    items = _items(x, key)
    x.check_writable()
    if all(isinstance(i, _BASIC) for i in items):
        _view(x, items, as_array=True).assign(value)
        return
    mask = _mask_position(items)
    if mask is not None:
        target, place = _around_mask(x, items, mask)
        target.assign(_masked(target, items[mask].value, place, value))
        return
    target, rows = _targets(x, items)
    shape, first = _selection(target, rows)
    wide = _fitting(lowered(value, x.trace, x.dtype), shape)
    if target.size and math.prod(shape):
        target.assign(_replaced(target.value, rows, wide.astype(x.dtype), first))


def accumulate_at(x: Array, key: Any, value: Any, kind: str) -> None:
    """np.add.at and its like: every value counts, also where an element is named twice."""
    items = _items(x, key)
    if all(isinstance(i, _BASIC) for i in items):
        raise TypeError(f"ufunc.at at {user_location()}: expected integer arrays as indices; use x[key] += value")
    target, rows = _targets(x, items)
    shape, first = _selection(target, rows)
    wide = _fitting(lowered(value, x.trace, x.dtype), shape).astype(x.dtype)
    axes = reduce_axes_of(wide.extents)
    own, rest = _split_axes(axes, rows, first)
    index = tuple(fn.as_expr(element_at(rows[d], own)) if d in rows else next(rest) for d in range(target.ndim))
    target.assign(scatter(target.shape, list(axes), index, Read(wide, axes), op=kind, init=target.value))


def _items(x: Array, key: Any) -> list[Any]:
    """The parts of a key, arrays of any kind as traced arrays."""
    found: list[Any] = []
    for item in key if isinstance(key, tuple) else (key,):
        if isinstance(item, (bool, np.bool_)):
            raise TypeError(f"index at {user_location()}: a bool is no index of a traced array; write an if around it")
        if isinstance(item, Selected):
            raise TypeError(f"index at {user_location()}: x[mask] has no known length and cannot be an index")
        if isinstance(item, (list, np.ndarray, Tensor)) or hasattr(item, "detach"):
            array = np.asarray(item) if isinstance(item, list) else item
            if isinstance(array, np.ndarray) and array.size == 0 and isinstance(item, list):
                array = array.astype(np.int64)
            if isinstance(array, np.ndarray) and array.ndim == 0:
                found.append(int(array))
                continue
            item = new_array(x.trace, lowered(array, x.trace), is_value=False)
        if not isinstance(item, (*_BASIC, Array)):
            raise TypeError(
                f"index at {user_location()}: expected integers, slices or arrays, found {type(item).__name__}"
            )
        if isinstance(item, Array) and not (item.dtype.is_integer or item.dtype.is_bool):
            raise IndexError(
                f"index at {user_location()}: arrays used as indices must be integer or bool, found {item.dtype}"
            )
        found.append(item)
    return found


def _view(x: Array, items: list[Any], as_array: bool = False) -> Array:
    key = tuple(items)
    try:
        ghost = x.ghost[key]
    except IndexError as error:
        raise IndexError(f"index at {user_location()} of an array of shape {x.shape}: {error}") from None
    if isinstance(ghost, np.ndarray):
        return x.view_of(ghost, x.is_value)
    as_view = (*key, ...)
    view = x.view_of(x.ghost[as_view])
    if as_array or x.trace.torch:
        return view
    # What NumPy reads here is a number: later writes do not reach it.
    return new_array(x.trace, view.value, is_value=True)


def _mask_position(items: list[Any]) -> int | None:
    """Where the one mask stands."""
    masks = [p for p, item in enumerate(items) if isinstance(item, Array) and item.dtype.is_bool]
    if not masks:
        return None
    if len(masks) > 1 or any(isinstance(item, Array) for p, item in enumerate(items) if p != masks[0]):
        raise TypeError(
            f"index at {user_location()}: one mask with slices and integers is supported, not several arrays"
        )
    return masks[0]


def _around_mask(x: Array, items: list[Any], position: int) -> tuple[Array, int]:
    """The view that the other items make, and the axis at which the mask begins."""
    mask = items[position]
    whole = [*items[:position], *(slice(None),) * mask.ndim, *items[position + 1 :]]
    if any(isinstance(item, (int, np.integer)) for item in items) or mask.ndim == 0:
        raise TypeError(
            f"index at {user_location()}: a mask beside integers is not supported; index twice, x[0][mask] = v"
        )
    target = _view(x, whole, as_array=True)
    before = items[:position]
    place = sum(item is not Ellipsis for item in before)
    if Ellipsis in [i for i in before if not isinstance(i, Array)]:
        after = sum(1 for _ in items[position + 1 :])
        place = target.ndim - after - mask.ndim
    if target.shape[place : place + mask.ndim] != mask.shape:
        raise IndexError(
            f"mask at {user_location()}: shape {mask.shape} does not match {target.shape[place : place + mask.ndim]} "
            f"of the array of shape {x.shape}"
        )
    return target, place


def _masked(target: Array, mask: Tensor, place: int, value: Any) -> Tensor:
    """The target with `value` where the mask holds."""
    if isinstance(value, Selected):
        found = value.under(mask, place, target.shape)
    else:
        found = _spread(lowered(value, target.trace, target.dtype), mask.ndim, place, target.ndim)
    old = target.value
    wide = broadcast_to(found.astype(target.dtype), target.shape)
    return tensor_of(
        old.extents,
        lambda *axes: fn.select_node(Read(mask, axes[place : place + mask.ndim]), Read(wide, axes), Read(old, axes)),
        "masked",
    )


def _spread(value: Tensor, masked: int, place: int, ndim: int) -> Tensor:
    """A value for x[mask], whose masked axes are one axis of unknown length, over all axes of x."""
    after = ndim - place - masked
    if value.ndim <= after:
        return value
    shape = value.shape
    at = value.ndim - after - 1
    if shape[at] != 1:
        raise TypeError(
            f"x[mask] = v at {user_location()}: v of shape {shape} gives one value per selected element, and their "
            "number is not known while the function is traced; use x[...] = np.where(mask, v, x) with v of the shape "
            "of x"
        )
    return value.reshape((*shape[:at], *(1,) * masked, *shape[at + 1 :]))


def _is_whole(item: Any) -> bool:
    return item is None or isinstance(item, slice) or (isinstance(item, Tensor) and item.ndim > 0)


def _with_extents(x: Array, items: list[Any]) -> list[tuple[Any, int]]:
    """The items with the ellipsis written out, each with the extent of its axis."""
    used = sum(i is not None and i is not Ellipsis for i in items)
    if used > x.ndim:
        raise IndexError(f"index at {user_location()}: {used} indices for an array of shape {x.shape}")
    dots = [p for p, i in enumerate(items) if i is Ellipsis]
    at = dots[0] if dots else len(items)
    full = [*items[:at], *(slice(None),) * (x.ndim - used), *items[at + 1 :]]
    extents = iter(x.shape)
    return [(item, 0 if item is None else next(extents)) for item in full]


def _counted(index: Tensor, extent: int) -> Tensor:
    """Indices counted from 0: negative ones from the end."""
    kind = index.dtype
    if kind.kind == "u":
        return index
    signed = index if kind.bits >= 32 else index.astype("int32")
    return tensor_of(
        signed.extents,
        lambda *axes: fn.select(Read(signed, axes) < 0, Read(signed, axes) + extent, Read(signed, axes)),
        f"{index.name}_from_0",
    )


def _targets(x: Array, items: list[Any]) -> tuple[Array, dict[int, Tensor]]:
    """The view that the slices make, and the index tensors by its axes; integers beside arrays are indices too."""
    full = _with_extents(x, items)
    if any(item is None for item, _ in full):
        raise TypeError(f"index at {user_location()}: None beside integer arrays is not supported in an assignment")
    rows: dict[int, Tensor] = {}
    for d, (item, extent) in enumerate(full):
        if isinstance(item, Array):
            rows[d] = _counted(item.value, extent)
        elif not isinstance(item, slice):
            if not -extent <= item < extent:
                raise IndexError(f"index {item} at {user_location()} is out of bounds for an axis of {extent}")
            number = int(item) % extent
            rows[d] = tensor_of((), lambda number=number: Const(number, INT32), "index")
    key = [slice(None) if d in rows else item for d, (item, _) in enumerate(full)]
    return _view(x, key), rows


def _selection(target: Array, rows: dict[int, Tensor]) -> tuple[tuple[int, ...], int]:
    """The shape of target[rows] and the axis of it where those of the indices begin, as NumPy places them."""
    try:
        shared = np.broadcast_shapes(*(r.shape for r in rows.values()))
    except ValueError:
        found = ", ".join(str(r.shape) for r in rows.values())
        raise IndexError(f"index at {user_location()}: index arrays of shapes {found} do not broadcast") from None
    places = sorted(rows)
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0
    rest = [n for d, n in enumerate(target.shape) if d not in rows]
    return (*rest[:first], *shared, *rest[first:]), first


def _fitting(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    value = without_leading_ones(value, len(shape))
    try:
        return value if value.shape == shape else broadcast_to(value, shape)
    except ValueError:
        raise ValueError(
            f"assignment at {user_location()}: a value of shape {value.shape} does not broadcast to the indexed "
            f"shape {shape}"
        ) from None


def _split_axes(axes: Any, rows: dict[int, Tensor], first: int) -> tuple[Any, Any]:
    """The axes of a selection that belong to the indices, and the others in order."""
    width = max(r.ndim for r in rows.values())
    return axes[first : first + width], iter((*axes[:first], *axes[first + width :]))


def _replaced(old: Tensor, rows: dict[int, Tensor], value: Tensor, first: int) -> Tensor:
    """`old` with the selected elements replaced, the last value for each."""
    width = max(r.ndim for r in rows.values())
    if not width:  # one place, not known before the call: the same rules for a list of one
        value = value.reshape((*value.shape[:first], 1, *value.shape[first:]))
        return _replaced(old, {d: r.reshape((1,)) for d, r in rows.items()}, value, first)
    shared = value.extents[first : first + width]
    numbers = [int(e.value) for e in shared]  # type: ignore[attr-defined]
    winner = _winners(old, rows, shared, numbers)

    def element(*axes: Axis) -> Expr:
        last = Read(winner, tuple(axes[d] for d in sorted(rows)))
        rest = [axes[d] for d in range(old.ndim) if d not in rows]
        source = (*rest[:first], *_unravelled(last, numbers), *rest[first:])
        return fn.select_node(last >= 0, Read(value, source), Read(old, axes))

    return tensor_of(old.extents, element, "replaced")


def _winners(old: Tensor, rows: dict[int, Tensor], shared: Any, numbers: list[int]) -> Tensor:
    """For each element that can be selected, the last position that names it (negative: none does)."""
    axes = reduce_axes_of(shared)
    position: Any = Const(0, INT32)
    for axis, n in zip(axes, numbers, strict=True):
        position = position * n + axis
    index = tuple(fn.as_expr(element_at(rows[d], axes)) for d in sorted(rows))
    shape = tuple(old.extents[d] for d in sorted(rows))
    found: Tensor = scatter(shape, list(axes), index, position, op="max", name="last_writer")
    return found


def _unravelled(position: Any, numbers: list[int]) -> list[Any]:
    found: list[Any] = []
    for d in range(len(numbers)):
        inner = math.prod(numbers[d + 1 :])
        index = position // inner if inner > 1 else position
        found.append(index % numbers[d] if d else index)
    return found


def _order_of(x: Array, items: list[Any]) -> Ghost:
    """The stand-in that NumPy makes for such a selection: its axes lie in memory in an order of their own."""
    found: Ghost = x.ghost[tuple(np.zeros(i.shape, np.int64) if isinstance(i, Array) else i for i in items)]
    return found


Array._getitem = staticmethod(getitem)
Array._setitem = staticmethod(setitem)
