"""Indexing of traced arrays: slices are views, integer arrays and masks are NumPy's copies on reading.

Assignments through integer arrays keep NumPy's rule that the last value for an element wins: a scatter of positions
under `max` finds the winner of each element, and the new value gathers from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_shapes, broadcast_to, element_at
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import is_zero, reduce_axes_of, same_shape, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.foreign import array_of, is_torch
from tedsl.lang.indexing import getitem as gather
from tedsl.lang.operators import Fn
from tedsl.lang.reshaping import flattened, split_position
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, holds_arrays, lowered, new_array, without_leading_ones
from tedsl.mutation.layouts import Ghost
from tedsl.mutation.masks import KnownMask, Masked, listed_places, mask_position
from tedsl.mutation.outlines import Outline, whole
from tedsl.mutation.selected import Selected
from tedsl.mutation.slices import is_place, place_of

__all__ = ["accumulate_at", "at_axis", "getitem", "setitem"]

_BASIC = (int, np.integer, slice, type(None), type(Ellipsis))
UPDATES = {"add": Fn.ADD, "mul": Fn.MUL, "max": Fn.MAXIMUM, "min": Fn.MINIMUM}


def getitem(x: Array, key: Any) -> Any:
    """x[key]: a view for slices and integers, else a copy."""
    items = listed_places(x, _items(x, key))
    if all(map(_is_basic, items)):
        return _view(x, items)
    mask = mask_position(items)
    if mask is not None:
        return Masked.of(x, items, mask).read()
    if all(i.ndim == 0 for i in items if isinstance(i, Array)) and (x.trace.torch or len(items) < x.ndim):
        raise TypeError(
            f"index at {user_location()}: x[i] with a value as i is a view at a place that is not known while the "
            "function is traced; index with an array of length 1, x[i.reshape(1)], which copies"
        )
    found = _gathered(x, items)
    if isinstance(x.ghost, Outline):
        return new_array(x.trace, found, order=whole(found.extents, is_ordered=False))
    has_order = found.ndim > 1 and x.size and all(isinstance(n, int) and n for n in found.shape)
    return new_array(x.trace, found, order=_order_of(x, items) if has_order else None)


def _gathered(x: Array, items: list[Any]) -> Tensor:
    """The elements where arrays of integers point; slices cut first."""
    pairs = _with_extents(x, items)
    cut = [i if isinstance(i, slice) else slice(None) for i, _ in pairs if i is not None]
    tensors = tuple(
        _counted(i.value, n) if isinstance(i, Array) else slice(None) if isinstance(i, slice) else i for i, n in pairs
    )
    source = x.part(cut).value
    if len(tensors) < x.ndim or any(_is_whole(t) for t in tensors):
        return gather(source, tensors)
    element = source[tensors]
    return element if isinstance(element, Tensor) else tensor_of((), lambda: element, "element")


def setitem(x: Array, key: Any, value: Any) -> None:
    """x[key] = value."""
    items = _items(x, key)
    x.check_writable()
    if all(map(_is_basic, items)):
        _view(x, items, as_array=True).assign(value)
        return
    mask = mask_position(items)
    if mask is not None:
        Masked.of(x, items, mask).assign(value)
        return
    items = listed_places(x, items)
    target, rows = _targets(x, items)
    shape, first = _selection(target, rows)
    wide = _fitting(lowered(value, x.trace, x.dtype), shape)
    if not any(map(is_zero, (*target.extents, *shape))):
        target.assign(_replaced(target.value, rows, wide.astype(x.dtype), first))


def accumulate_at(x: Array, key: Any, value: Any, kind: str) -> None:
    """np.add.at and its like: every value counts, also where an element is named twice."""
    items = listed_places(x, _items(x, key))
    x.check_writable()
    mask = mask_position(items)
    if mask is not None or all(map(_is_basic, items)):  # no element is named twice
        part = _view(x, items, as_array=True) if mask is None else Masked.of(x, items, mask)
        part.update(UPDATES[kind], value)
        return
    target, rows = _targets(x, items)
    shape, first = _selection(target, rows)
    wide = _fitting(lowered(value, x.trace, x.dtype), shape).astype(x.dtype)
    axes = reduce_axes_of(wide.extents)
    own, rest = _split_axes(axes, rows, first)
    index = tuple(fn.as_expr(element_at(rows[d], own)) if d in rows else next(rest) for d in range(target.ndim))
    target.assign(scatter(target.extents, list(axes), index, Read(wide, axes), op=kind, init=target.value))


def at_axis(axis: int, item: Any) -> tuple[Any, ...]:
    """The key of an index along one axis."""
    return (*(slice(None),) * axis, item)


def _items(x: Array, key: Any) -> list[Any]:
    """The parts of a key, arrays of any kind as traced arrays."""
    found: list[Any] = []
    for item in key if isinstance(key, tuple) else (key,):
        if isinstance(item, (bool, np.bool_)):
            raise TypeError(f"index at {user_location()}: a bool is no index of a traced array; write an if around it")
        if isinstance(item, Selected):
            raise TypeError(f"index at {user_location()}: x[mask] has no known length and cannot be an index")
        if isinstance(item, range):
            item = np.asarray(item)
        if isinstance(item, (list, np.ndarray, Tensor)) or is_torch(item):
            array = item if not isinstance(item, list) or holds_arrays(item) else np.asarray(item)
            array = array_of(item) if is_torch(item) else array
            if isinstance(array, np.ndarray) and array.size == 0 and isinstance(item, list):
                array = array.astype(np.int64)
            if isinstance(array, np.ndarray) and array.ndim == 0 and array.dtype.kind in "iu":
                found.append(int(array))
                continue
            if isinstance(array, np.ndarray) and array.dtype == bool and array.ndim:
                found.append(KnownMask(array, x.trace))
                continue
            item = new_array(x.trace, lowered(array, x.trace), is_value=False)
        if not _is_basic(item) and not isinstance(item, Array):
            raise TypeError(
                f"index at {user_location()}: expected integers, slices or arrays, found {type(item).__name__}"
            )
        if isinstance(item, Array) and not (item.dtype.is_integer or item.dtype.is_bool):
            raise IndexError(
                f"index at {user_location()}: arrays used as indices must be integer or bool, found {item.dtype}"
            )
        found.append(item)
    return found


def _is_basic(item: Any) -> bool:
    return isinstance(item, _BASIC) or is_place(item)


def _view(x: Array, items: list[Any], as_array: bool = False) -> Array:
    view = x.part(items)
    if view.ndim or any(i is Ellipsis for i in items):
        view.is_value = x.is_value
        return view
    if as_array or x.trace.torch:
        return view
    # What NumPy reads here is a number: later writes do not reach it.
    return new_array(x.trace, view.value, is_value=True)


def _is_whole(item: Any) -> bool:
    return item is None or isinstance(item, slice) or (isinstance(item, Tensor) and item.ndim > 0)


def _with_extents(x: Array, items: list[Any]) -> list[tuple[Any, int]]:
    """The items with the ellipsis written out, each with the extent of its axis."""
    used = sum(i is not None and i is not Ellipsis for i in items)
    if used > x.ndim:
        raise IndexError(f"index at {user_location()}: {used} indices for an array of shape {shape_text(x.extents)}")
    dots = [p for p, i in enumerate(items) if i is Ellipsis]
    at = dots[0] if dots else len(items)
    full = [*items[:at], *(slice(None),) * (x.ndim - used), *items[at + 1 :]]
    extents = iter(x.shape)
    return [(item, 0 if item is None else next(extents)) for item in full]


def _counted(index: Tensor, extent: Any) -> Tensor:
    """Indices counted from 0: negative ones from the end."""
    kind = index.dtype
    if kind.kind == "u":
        return index
    signed = index if kind.bits >= 32 else index.astype("int32")
    end = fn.convert(extent, signed.dtype)
    return tensor_of(
        signed.extents,
        lambda *axes: fn.select(Read(signed, axes) < 0, Read(signed, axes) + end, Read(signed, axes)),
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
            try:
                place = place_of(fn.convert(extent, INT32), item).first
            except IndexError as error:
                raise IndexError(f"index at {user_location()}: {error}") from None
            rows[d] = tensor_of((), lambda place=place: place, "index")
    key = [slice(None) if d in rows else item for d, (item, _) in enumerate(full)]
    return x.part(key), rows


def _selection(target: Array, rows: dict[int, Tensor]) -> tuple[tuple[Expr, ...], int]:
    """The shape of target[rows] and the axis of it where those of the indices begin, as NumPy places them."""
    try:
        shared = broadcast_shapes(list(rows.values()), "index arrays")
    except ValueError:
        found = ", ".join(shape_text(r.extents) for r in rows.values())
        raise IndexError(f"index at {user_location()}: index arrays of shapes {found} do not broadcast") from None
    places = sorted(rows)
    together = places == list(range(places[0], places[-1] + 1))
    first = places[0] if together else 0
    rest = [n for d, n in enumerate(target.extents) if d not in rows]
    return (*rest[:first], *shared, *rest[first:]), first


def _fitting(value: Tensor, shape: tuple[Expr, ...]) -> Tensor:
    value = without_leading_ones(value, len(shape))
    try:
        return value if same_shape(value.extents, shape) else broadcast_to(value, shape)
    except ValueError:
        raise ValueError(
            f"assignment at {user_location()}: a value of shape {shape_text(value.extents)} does not broadcast to the "
            f"indexed shape {shape_text(shape)}"
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
    winner = _winners(old, rows, shared)

    def element(*axes: Axis) -> Expr:
        last = Read(winner, tuple(axes[d] for d in sorted(rows)))
        rest = [axes[d] for d in range(old.ndim) if d not in rows]
        source = (*rest[:first], *split_position(last, list(shared)), *rest[first:])
        return fn.select_node(last >= 0, Read(value, source), Read(old, axes))

    return tensor_of(old.extents, element, "replaced")


def _winners(old: Tensor, rows: dict[int, Tensor], shared: Any) -> Tensor:
    """For each element that can be selected, the last position that names it (negative: none does)."""
    axes = reduce_axes_of(shared)
    position = flattened(list(axes), list(shared))
    index = tuple(fn.as_expr(element_at(rows[d], axes)) for d in sorted(rows))
    shape = tuple(old.extents[d] for d in sorted(rows))
    found: Tensor = scatter(shape, list(axes), index, position, op="max", name="last_writer")
    return found


def _order_of(x: Array, items: list[Any]) -> Ghost:
    """The stand-in that NumPy makes for such a selection: its axes lie in memory in an order of their own."""
    found: Ghost = x.ghost[tuple(np.zeros(i.shape, np.int64) if isinstance(i, Array) else i for i in items)]
    return found


Array._getitem = staticmethod(getitem)
Array._setitem = staticmethod(setitem)
