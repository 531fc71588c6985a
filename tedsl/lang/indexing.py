"""Slices and gathers of whole tensors: `x[:, 0]`, `x[::-1]`, `x[None]`, `x[idx]`.

Where the extent is a number, bounds are cut as NumPy cuts them. Where it is symbolic, a bound past the end is cut,
but one before the beginning makes the kernel refuse the call: `x[2:-1]` has the extent n - 3, not max(n - 3, 0), so
that extents stay affine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.at import brought_inside
from tedsl.lang.axes import as_extent
from tedsl.lang.broadcast import broadcast_shapes, element_at
from tedsl.lang.constants import constant
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.elements import as_tensor, is_one, normal_axis, shape_text, tensor_of
from tedsl.lang.errors import RankError, brief, user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, same_extent, simplify_extent
from tedsl.lang.foreign import has_elements, values_of
from tedsl.lang.reshaping import ravel
from tedsl.lang.step import axes_outside
from tedsl.lang.tensor import Tensor
from tedsl.lang.titles import takes_variables, takes_variables_only
from tedsl.lang.traverse import free_axes

__all__ = ["Places", "Slice", "getitem", "parsed", "slice_axis", "slice_outside", "take", "take_along_axis"]

_TAKES = {"raise": None, "clip": "clamp", "wrap": "wrap"}  # the modes of NumPy, and the borders that they are


@dataclass(frozen=True)
class Slice:
    """begin + step * i for i below extent."""

    begin: Expr
    step: int
    extent: Expr

    def at(self, axis: Expr) -> Expr:
        if self.step < 0:
            return self.begin - -self.step * axis if self.step < -1 else self.begin - axis
        scaled = axis * self.step
        return scaled if isinstance(self.begin, Const) and self.begin.value == 0 else scaled + self.begin


Dim = Slice | Tensor | Expr | None


@takes_variables_only
def getitem(x: Tensor, items: tuple[Any, ...]) -> Tensor:
    """NumPy's basic indexing, and indexing by integer arrays (constants) and tensors.

    The elements of a tensor count from 0, a negative one is an error when the kernel runs.
    """
    dims = parsed(x, items)
    if (
        all(isinstance(d, Slice) and d.step == 1 and d.extent is n for d, n in zip(dims, x.extents))
        and len(dims) == x.ndim
    ):
        return x
    places = Places(dims)
    return tensor_of(
        tuple(places.shape), lambda *axes: Read(x, places.at(axes)), f"{x.name}_{'take' if places.picks else 'slice'}"
    )


def slice_outside(x: Tensor, indices: tuple[Any, ...], modes: tuple[str, ...]) -> Tensor:
    """`x.at(i, mode=...)` of the first indices: the elements of the other axes there."""
    if {*modes} == {"error"}:
        return getitem(x, indices)
    _expanded(x, indices)
    all_modes = modes + ("error",) * (x.ndim - len(modes))
    return tensor_of(x.extents[len(indices) :], lambda *axes: x.at(*indices, *axes, mode=all_modes), f"{x.name}_slice")


def parsed(x: Tensor, items: tuple[Any, ...]) -> list[Dim]:
    """One slice, index tensor, scalar index or new axis per position."""
    dims: list[Dim] = []
    dim = 0
    for item in _expanded(x, _without_masks(x, tuple(of_numpy(item, x) for item in items))):
        if item is None:
            dims.append(None)
            continue
        dims.append(_item(x, dim, item))
        dim += 1
    return dims


def of_numpy(item: Any, x: Tensor) -> Any:
    """An index that is a list, a range or an array of whichever library as one of NumPy's, any other as it is."""
    if isinstance(item, (np.ndarray, np.generic)):
        return item
    is_array = isinstance(item, (list, tuple, range)) or has_elements(item)
    return values_of(item, f"index of {x!r} at {user_location()}") if is_array else item


def _without_masks(x: Tensor, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Masks of known contents as the places where they hold, an array for each of their dimensions, as in NumPy."""
    dims = [item.ndim if _is_mask(item) else int(item is not None and item is not Ellipsis) for item in items]
    if not any(map(_is_mask, items)):
        return items
    found: list[Any] = []
    dim = 0
    for item, count in zip(items, dims, strict=True):
        if _is_mask(item):
            _check_mask(x, dim, item)
            found += np.nonzero(item)
        else:
            found.append(item)
        dim += x.ndim - sum(dims) if item is Ellipsis else count
    return tuple(found)


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b" and item.ndim > 0


def _check_mask(x: Tensor, dim: int, mask: np.ndarray[Any, Any]) -> None:
    extents = x.extents[dim : dim + mask.ndim]
    if [number(e) for e in extents] != list(mask.shape):
        hint = (
            "" if all(isinstance(e, Const) for e in extents) else "; give the places where it holds, np.nonzero(mask)"
        )
        raise IndexError(
            f"index of {x!r} at {user_location()}: expected a mask of shape {shape_text(extents)}, found one of "
            f"{shape_text(mask.shape)}{hint}"
        )


def _expanded(x: Tensor, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """The items with `...` and missing trailing ones written as full slices."""
    for item in items:
        _check_kind(x, item)
    used = sum(item is not None and item is not Ellipsis for item in items)
    dots = [p for p, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError(f"index of {x!r} at {user_location()}: an index can hold a single ellipsis ('...')")
    if used > x.ndim:
        raise RankError(f"index of {x!r} at {user_location()}: expected at most {x.ndim} indices, found {used}")
    if used < x.ndim and not dots and any(map(_is_of_axes, items)):
        raise RankError(
            f"index of {x!r} at {user_location()}: expected {x.ndim} indices, found {used}; inside te.compute every "
            "dimension needs one, and a sum over some is te.sum(lambda k: ...) of what is read at k"
        )
    if any(_is_of_axes(item) for item in items) and not all(map(_is_one_place, items)):
        raise TypeError(_row_text(x, items))
    at = dots[0] if dots else len(items)
    return (*items[:at], *(slice(None),) * (x.ndim - used), *items[at + 1 :])


def _is_of_axes(item: Any) -> bool:
    return isinstance(item, Expr) and bool(axes_outside(item))


def _is_one_place(item: Any) -> bool:
    return isinstance(item, (Expr, int, np.integer)) or (isinstance(item, (Tensor, np.ndarray)) and not item.ndim)


def _row_text(x: Tensor, items: tuple[Any, ...]) -> str:
    """The message for `x[i, :]` inside a function of axes, with what to write there."""
    used = {axis.name for item in items if isinstance(item, Expr) for axis in free_axes(item)}
    fresh = [name for name in "klmnpqrs" if name not in used]
    names: list[str] = []
    read: list[str] = []

    def over() -> str:
        names.append(fresh[len(names) % len(fresh)])
        return names[-1]

    for item in items:
        if item is Ellipsis:
            given = sum(other is not None and other is not Ellipsis for other in items)
            read += [over() for _ in range(x.ndim - given)]
        elif isinstance(item, slice):
            read.append(over())
        elif isinstance(item, (Tensor, np.ndarray, list, range)) and np.ndim(item):
            own = ", ".join(over() for _ in range(np.ndim(item)))
            read.append(f"{_item_text(item)}[{own}]")
        elif item is not None:
            read.append(_item_text(item))
    element, found = f"{x.name}[{', '.join(read)}]", f"{x.name}[{', '.join(map(_item_text, items))}]"
    total = f"; a sum over it is te.sum(lambda {', '.join(names)}: {element})" if names else ""
    return (
        f"`{found}` at {user_location()}: a slice at a place that an axis gives is no tensor; inside te.compute read "
        f"elements, as {element}{total}"
    )


def _item_text(item: Any) -> str:
    """An index as it was written."""
    if isinstance(item, slice):
        first, last, step = ("" if bound is None else str(bound) for bound in (item.start, item.stop, item.step))
        return f"{first}:{last}{':' if step else ''}{step}"
    if isinstance(item, Tensor):
        return item.name
    return "..." if item is Ellipsis else "array" if isinstance(item, (np.ndarray, list, range)) else str(item)


def _check_kind(x: Tensor, item: Any) -> None:
    hint = None
    if isinstance(item, (bool, np.bool_)) or (isinstance(item, (Tensor, Expr)) and item.dtype.is_bool):
        hint = (
            "a mask makes a result of unknown size; use te.where(mask, x, 0), or a reduction with where=mask, or "
            'x[mask.astype("int32")] for the elements at 0 and 1'
        )
    elif isinstance(item, np.ndarray) and item.dtype.kind not in "iu" and item.size:
        hint = f"expected integers, found {item.dtype}"
    elif isinstance(item, (Tensor, Expr)) and not item.dtype.is_integer:
        hint = f"expected integers, found {item.dtype}; use te.cast(x, 'int32')"
    elif not (item is None or item is Ellipsis or isinstance(item, (slice, int, np.integer, Tensor, Expr, np.ndarray))):
        hint = "expected integers, slices, None, ..., or arrays, lists and ranges of integers"
    if hint is not None:
        shown = brief(repr(item) if isinstance(item, Tensor) else item)
        raise TypeError(f"index of {x!r} at {user_location()}: {type(item).__name__} `{shown}` is no index; {hint}")


def _item(x: Tensor, dim: int, item: Any) -> Slice | Tensor | Expr:
    if isinstance(item, slice):
        return _slice(x, dim, item)
    if isinstance(item, Tensor) and item.ndim:
        return item
    if isinstance(item, np.ndarray) and item.ndim:
        return places_of(item, x, dim)
    return x._index(dim, item)


def places_of(array: np.ndarray[Any, Any], x: Tensor, dim: int) -> Tensor:
    """Places along a dimension as a constant; negative ones count from the end, as in NumPy."""
    extent = x.extents[dim]
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    if isinstance(extent, Const):
        length = int(extent.value)
        if array.size and not -length <= low <= high < length:
            raise IndexError(
                f"index {low if low < -length else high} of dimension {dim} of {x!r} is out of bounds, at "
                f"{user_location()}: expected {-length} <= index < {length}"
            )
        array = array.astype("int64")
        return constant(np.where(array < 0, array + length, array).astype("int32"), f"{x.name}_places")
    if max(-low, high) >= 2**31:
        raise IndexError(
            f"index {low if -low > high else high} of dimension {dim} of {x!r}, at {user_location()}: expected 32 bits"
        )
    places = constant(array.astype("int32"), f"{x.name}_places")
    return fn.select(places < 0, places + extent, places) if low < 0 else places


def _slice(x: Tensor, dim: int, item: slice) -> Slice:
    extent = x.extents[dim]
    step = 1 if item.step is None else item.step
    if not isinstance(step, (int, np.integer)) or step == 0:
        raise ValueError(
            f"slice of dimension {dim} of {x!r} at {user_location()}: the step must be an integer other "
            f"than 0, found {step!r}"
        )
    step = int(step)
    for bound in (item.start, item.stop):
        if not (bound is None or isinstance(bound, (int, np.integer)) or _is_size(bound)):
            raise TypeError(
                f"slice of dimension {dim} of {x!r} at {user_location()}: a bound must be an integer or an expression "
                f"of te.vars, found {bound!r:.60}"
            )
    plain = (item.start, item.stop)
    if isinstance(extent, Const) and all(v is None or isinstance(v, (int, np.integer)) for v in plain):
        begin, end, step = slice(item.start, item.stop, step).indices(int(extent.value))
        return Slice(Const(begin, INT32), step, Const(len(range(begin, end, step)), INT32))
    what = f"slice of dimension {dim} of {x!r}"
    if step > 0:
        first = _bound(item.start, Const(0, INT32), extent, None)
        last = _bound(item.stop, extent, extent, extent)
        length = (last - first + (step - 1)) // step
    else:
        first = _bound(item.start, extent - 1, extent, extent - 1)
        last = _bound(item.stop, Const(-1, INT32), extent, None)
        length = (first - last + (-step - 1)) // -step
    return Slice(simplify_extent(first), step, as_extent(length, what))


def _is_size(bound: Any) -> bool:
    return isinstance(bound, Expr) and bound.dtype.is_integer


def _bound(value: Any, default: Expr, extent: Expr, cut: Expr | None) -> Expr:
    """One bound of a slice as an expression: negative integers count from the end, positive ones stop at `cut`."""
    if value is None:
        return default
    if isinstance(value, (int, np.integer)):
        if value < 0:
            return extent + int(value)
        return fn.convert(int(value), INT32) if cut is None else fn.minimum(cut, int(value))
    return fn.convert(value, INT32)


class Places:
    """The elements of `x` that slices, index tensors, scalar indices and new axes name, and the shape they have."""

    def __init__(self, dims: list[Dim]) -> None:
        self.dims = dims
        self.picks = [d for d in dims if isinstance(d, Tensor)]
        self.shared = broadcast_shapes(self.picks, "index tensors") if self.picks else ()
        found = [p for p, d in enumerate(dims) if isinstance(d, (Tensor, Expr))] if self.picks else []
        together = not found or found == list(range(found[0], found[-1] + 1))
        first = (found[0] if together else 0) if self.picks else None
        self.shape: list[Expr] = [] if together else list(self.shared)
        for position, d in enumerate(dims):
            if position == first and together:
                self.shape += self.shared
            if d is None:
                self.shape.append(Const(1, INT32))
            elif isinstance(d, Slice):
                self.shape.append(d.extent)
        is_later = together and self.picks
        self._offset = sum(d is None or isinstance(d, Slice) for d in dims[:first]) if is_later else 0

    def at(self, axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
        """Where in the tensor the element of these axes is."""
        end = self._offset + len(self.shared)
        own = axes[self._offset : end]
        rest = iter(axes[: self._offset] + axes[end:])
        indices: list[Expr] = []
        for d in self.dims:
            if d is None:
                next(rest)
            elif isinstance(d, Slice):
                indices.append(d.at(next(rest)))
            else:
                indices.append(fn.as_expr(element_at(d, own)) if isinstance(d, Tensor) else d)
        return tuple(indices)

    def joined(self, own: tuple[Expr, ...], free: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The axes of the shape: those of the index tensors, and those of slices and new axes."""
        return (*free[: self._offset], *own, *free[self._offset :])


@takes_variables
def take(x: Any, index: Any, axis: Any = None, mode: str = "raise") -> Tensor:
    """`x` at the positions `index` along `axis` (of the flattened `x` when None).

    As in NumPy, `mode` is for places that lie outside: "raise" an error, "clip" them to the border (those below 0 to
    the first element), or "wrap" them around.
    """
    source, what = as_tensor(x, "te.take"), "te.take"
    if mode not in _TAKES:
        raise ValueError(f"{what} at {user_location()}: mode must be one of {', '.join(_TAKES)}; found {mode!r:.40}")
    if axis is None:
        source, axis = ravel(source), 0
    dim = normal_axis(axis, source.ndim, what)
    if way := _TAKES[mode]:
        return _take_inside(source, dim, index if isinstance(index, (Tensor, Expr)) else values_of(index, what), way)
    return getitem(source, (*(slice(None),) * dim, index))


def _take_inside(x: Tensor, dim: int, index: Any, way: str) -> Tensor:
    """x at places along a dimension, those outside brought to places inside."""
    _check_kind(x, index)
    if isinstance(index, np.ndarray):
        index = constant(index, f"{x.name}_places") if index.ndim else fn.as_expr(int(index))
    places = Places(parsed(x, (*(slice(None),) * dim, index)))

    def element(*axes: Axis) -> Expr:
        at = list(places.at(axes))
        at[dim] = brought_inside(at[dim], x.extents[dim], way)
        return Read(x, tuple(at))

    return tensor_of(tuple(places.shape), element, f"{x.name}_take")


@takes_variables
def take_along_axis(x: Any, index: Any, axis: Any = -1) -> Tensor:
    """`x[..., index[..., t, ...], ...]`: along `axis` the place that `index` has there (flattened when None).

    `index` has as many axes as `x`; along the others its extents are those of `x`, or 1.
    """
    source, what = as_tensor(x, "te.take_along_axis"), "te.take_along_axis"
    if axis is None:
        source, axis = ravel(source), 0
    dim = normal_axis(axis, source.ndim, what)
    places = index if isinstance(index, Tensor) else values_of(index, what)
    _check_kind(source, places)
    if places.ndim != source.ndim:
        raise ValueError(
            f"{what} at {user_location()}: expected an index of {source.ndim} dimensions, as {source!r} has, found "
            f"{places.ndim}"
        )
    chosen = places if isinstance(places, Tensor) else places_of(places, source, dim)
    shape: list[Expr] = []
    for d, (own, other) in enumerate(zip(source.extents, chosen.extents, strict=True)):
        if d != dim and not (is_one(own) or is_one(other) or same_extent(own, other)):
            raise ValueError(
                f"{what} at {user_location()}: expected an index of extent {own} or 1 in dimension {d}, as {source!r} "
                f"has, found {other}"
            )
        shape.append(other if d == dim or is_one(own) else own)

    def element(*axes: Axis) -> Expr:
        at: list[Expr] = [Const(0, INT32) if is_one(n) else a for n, a in zip(source.extents, axes, strict=True)]
        at[dim] = fn.as_expr(element_at(chosen, axes))
        return Read(source, tuple(at))

    return tensor_of(tuple(shape), element, f"{source.name}_take")


def slice_axis(x: Tensor, axis: int, begin: Any, end: Any, step: int | None = None) -> Tensor:
    """`x[..., begin:end:step, ...]` along one axis."""
    return getitem(x, (*(slice(None),) * axis, slice(begin, end, step)))
