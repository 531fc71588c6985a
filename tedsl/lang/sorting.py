"""`te.sort`, `te.argsort`, `te.topk` and what builds on order, as stages that a kernel computes with code of its own.

Stable, NaN last, -0 and 0 equal, as in NumPy. Where an element went is known, so a gradient goes back to it.
"""

from __future__ import annotations

from typing import Any

from tedsl.lang.dtypes import INT32, promote
from tedsl.lang.elements import as_tensor, as_tensors, normal_axis, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Const, Read
from tedsl.lang.native import Native
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.titles import takes_variables

__all__ = ["argsort", "searchsorted", "sort", "topk", "unique_counts"]


@takes_variables
def sort(
    x: Any, axis: int | None = -1, descending: bool = False, *, kind: str | None = None, stable: bool | None = None
) -> Tensor:
    """The elements of each row along `axis` in order (of all of them with None): stable, of any `kind`, NaN last."""
    return _ordered(*_rows(x, axis, "te.sort"), "te.sort", "sorted", "down" if descending else "up")[0]


@takes_variables
def argsort(
    x: Any, axis: int | None = -1, descending: bool = False, *, kind: str | None = None, stable: bool | None = None
) -> Tensor:
    """The places from which `te.sort` takes the elements of each row along `axis`, int32."""
    return _ordered(*_rows(x, axis, "te.argsort"), "te.argsort", "order", "down" if descending else "up")[1]


@takes_variables
def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `k` largest elements of each row along `axis`, in descending order, and their places; NaN last, of equal
    ones the first. With `largest=False` the smallest, in ascending order. Where the size of the axis is not known, a
    call checks that there are `k`.
    """
    what = "te.topk"
    tensor = as_tensor(x, what)
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ValueError(f"{what} at {user_location()}: k is a number of elements, found {k!r:.40}")
    along, direction = normal_axis(axis, tensor.ndim, what), "down" if largest else "up"
    extent = tensor.extents[along]
    if isinstance(extent, Const) and extent.value < k:
        raise ValueError(
            f"{what} at {user_location()}: expected an axis of at least k = {k} elements, found {extent} in {tensor!r}"
        )
    if isinstance(extent, Const):
        values, places = _ordered(tensor, axis, what, "topk", direction, k)
    else:
        parts = _ordered(tensor, axis, what, "sorted", direction)
        values, places = (_first(t, along, k, f"{tensor.name}_topk_{n}") for n, t in enumerate(parts))
    return values, places


def _first(tensor: Tensor, along: int, count: int, name: str) -> Tensor:
    """So many along an axis of which nobody knows whether it has them: the reads are checked when they are made."""
    shape = (*tensor.extents[:along], Const(count, INT32), *tensor.extents[along + 1 :])
    return tensor_of(shape, lambda *i: Read(tensor, i), name)


@takes_variables
def searchsorted(sorted: Any, values: Any, side: str = "left") -> Tensor:
    """Where each of `values` would stand in a vector that is sorted, int32: before equal ones, or after (`"right"`)."""
    what = "te.searchsorted"
    if side not in ("left", "right"):
        raise ValueError(f"{what} at {user_location()}: side is 'left' or 'right', found {side!r:.40}")
    table, wanted = as_tensors((sorted, values), what)
    if table.ndim != 1:
        raise ValueError(f"{what} at {user_location()}: expected a sorted vector, found {table!r}")
    if not wanted.ndim:
        row = searchsorted(table, wanted.reshape(1), side)
        return tensor_of((), lambda: Read(row, (Const(0, INT32),)), f"{wanted.name}_place")
    dtype = promote([table.dtype, wanted.dtype])
    table, wanted = (t if t.dtype is dtype else t.astype(dtype) for t in (table, wanted))
    op = Extern(
        name=f"{wanted.name}_places", function=Native("places", (str(dtype), wanted.ndim, 0, 0, side)),
        shapes=(wanted.extents,), dtypes=(INT32,), args=(wanted, table), pure=True,
    )  # fmt: skip
    return op.output()


@takes_variables
def unique_counts(x: Any) -> tuple[Tensor, Tensor]:
    """The different elements of a tensor in ascending order, and how often each is there, int32.

    Both are as long as all of x: behind the last element it is repeated, with a count of 0, so that
    `(counts > 0).sum()` says how many there are. A NaN equals nothing, as in NumPy's unique_counts.
    """
    what = "te.unique_counts"
    flat = as_tensor(x, what).reshape(-1)
    in_order = _ordered(flat, 0, what, "sorted")
    op = Extern(
        name=f"{flat.name}_runs", function=Native("runs", (str(flat.dtype), 1, 0)), shapes=(flat.extents,) * 2,
        dtypes=(INT32, INT32), args=in_order, pure=True,
    )  # fmt: skip
    first, counts = op.outputs
    return tensor_of(flat.extents, lambda i: Read(flat, (Read(first, (i,)),)), f"{flat.name}_unique"), counts


def _rows(x: Any, axis: int | None, what: str) -> tuple[Tensor, int]:
    """What is put in order, and along which axis: all elements as one row where there is none."""
    return (as_tensor(x, what), axis) if axis is not None else (as_tensor(x, what).reshape(-1), 0)


def _ordered(
    x: Any, axis: int, what: str, name: str, direction: str = "up", count: int | None = None
) -> tuple[Tensor, ...]:
    tensor = as_tensor(x, what)
    along = normal_axis(axis, tensor.ndim, what)
    native = Native("order", (str(tensor.dtype), tensor.ndim, tensor.ndim - 1 - along, direction))
    shape = list(tensor.extents)
    if count is not None:
        shape[along] = Const(count, INT32)
    op = Extern(
        name=f"{tensor.name}_{name}", function=native, shapes=(tuple(shape),) * 2, dtypes=(tensor.dtype, INT32),
        args=(tensor,), pure=True,
    )  # fmt: skip
    return op.outputs
