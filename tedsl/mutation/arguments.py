"""Arguments of a traced function: arrays found in nested Python values, and the storages that they share.

Arrays that overlap become views of one storage, so that what is written through one is read through the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tedsl.lang.compute import placeholder
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import dtype_of_array
from tedsl.lang.foreign import is_torch
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array
from tedsl.mutation.layouts import Layout, ghost_with
from tedsl.mutation.tracing import Origin, Storage, Trace
from tedsl.mutation.views import is_plain, view_map

__all__ = ["Argument", "BoundStorage", "bind", "is_array", "signature"]


@dataclass(frozen=True, eq=False)
class Argument:
    """One array given by the caller: the object, its memory as a NumPy array, its name."""

    name: str
    given: Any
    array: np.ndarray[Any, Any]

    @property
    def address(self) -> int:
        return int(self.array.__array_interface__["data"][0])


@dataclass(frozen=True, eq=False)
class BoundStorage:
    """A storage over arguments: how its input is fed from their arrays."""

    storage: Storage
    members: tuple[int, ...]
    feed: Callable[[list[Argument]], np.ndarray[Any, Any]]


def is_array(value: Any) -> bool:
    """An array of some framework with memory of its own; NumPy scalars are values."""
    if isinstance(value, (Tensor, np.generic, bool, int, float, str, bytes)):
        return False
    return isinstance(value, np.ndarray) or is_torch(value) or (hasattr(value, "__array__") and hasattr(value, "dtype"))


def signature(arguments: list[Argument]) -> tuple[Any, ...]:
    """What a trace depends on: shapes, dtypes, strides, who may be written, and how the arrays overlap."""
    each = tuple((a.array.shape, a.array.dtype, a.array.strides, a.array.flags.writeable) for a in arguments)
    return each, tuple((i, j, arguments[j].address - arguments[i].address) for i, j in _overlaps(arguments))


def bind(trace: Trace, arguments: list[Argument]) -> tuple[list[Array], list[BoundStorage]]:
    """A traced array per argument, and the storages under them."""
    arrays: dict[int, Array] = {}
    bounds: list[BoundStorage] = []
    pairs = _overlaps(arguments)
    for members in _groups(len(arguments), pairs):
        refusal = _refusal(arguments, members)
        if len(members) == 1 or refusal is not None:
            bounds += [_alone(trace, arguments, m, arrays, refusal) for m in members]
        else:
            bounds.append(_shared(trace, arguments, members, arrays))
    return [arrays[p] for p in range(len(arguments))], bounds


def _overlaps(arguments: list[Argument]) -> list[tuple[int, int]]:
    count = range(len(arguments))
    return [(i, j) for i in count for j in count if i < j and np.shares_memory(arguments[i].array, arguments[j].array)]


def _groups(count: int, pairs: list[tuple[int, int]]) -> list[list[int]]:
    """The arguments joined by overlaps, in order."""
    leader = list(range(count))
    for i, j in pairs:
        old, new = leader[j], leader[i]
        leader = [new if v == old else v for v in leader]
    groups: dict[int, list[int]] = {}
    for p, v in enumerate(leader):
        groups.setdefault(v, []).append(p)
    return list(groups.values())


def _refusal(arguments: list[Argument], members: list[int]) -> str | None:
    """Why the arguments of a group cannot be views of one storage."""
    first = arguments[members[0]]
    for m in members[1:]:
        other = arguments[m]
        size = first.array.itemsize
        if other.array.dtype != first.array.dtype:
            return (
                f"arguments {first.name!r} ({first.array.dtype}) and {other.name!r} ({other.array.dtype}) share memory"
            )
        if (other.address - first.address) % size or any(
            s % size for s in (*first.array.strides, *other.array.strides)
        ):
            return f"the elements of arguments {first.name!r} and {other.name!r} overlap in part"
    return None


def _strides(array: np.ndarray[Any, Any]) -> tuple[int, ...] | None:
    """Strides in elements, or None where they are none."""
    size = array.itemsize
    return None if any(s % size for s in array.strides) else tuple(s // size for s in array.strides)


def _alone(
    trace: Trace, arguments: list[Argument], m: int, arrays: dict[int, Array], refusal: str | None
) -> BoundStorage:
    argument = arguments[m]
    array = argument.array
    strides = _strides(array)
    if strides is None:
        strides = _row_major(array.shape)
    elif not is_plain(Layout(array.shape, strides, 0)):
        strides = _row_major(array.shape)
        refusal = refusal or "several of its elements share memory (a stride is 0, or its windows overlap)"
    memory, ghost = ghost_with(array.shape, strides)
    value = placeholder(array.shape, dtype_of_array(array), argument.name)
    storage = Storage(trace, memory, Layout.of(ghost, memory), value, value)
    origin = Origin(argument.name, m, bool(array.flags.writeable), refusal)
    arrays[m] = Array(storage, ghost, origin)
    return BoundStorage(storage, (m,), lambda given: given[m].array)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _shared(trace: Trace, arguments: list[Argument], members: list[int], arrays: dict[int, Array]) -> BoundStorage:
    """One storage for arguments that overlap: the largest if it holds the others, else the stretch of memory."""
    size = arguments[members[0]].array.itemsize
    spans = {m: _span(arguments[m]) for m in members}
    low = min(begin for begin, _ in spans.values())
    count = (max(end for _, end in spans.values()) - low) // size
    memory = np.empty(count, np.int8)
    ghosts = {}
    for m in members:
        array = arguments[m].array
        strides = tuple(s // size for s in array.strides)
        ghosts[m] = np.ndarray(array.shape, np.int8, memory.data, (arguments[m].address - low) // size, strides)
    layouts = {m: Layout.of(g, memory) for m, g in ghosts.items()}
    owner = max(members, key=lambda m: arguments[m].array.size)
    holds = is_plain(layouts[owner]) and all(
        view_map(layouts[owner], layouts[m], is_inside=False) is not None for m in members
    )
    kind = dtype_of_array(arguments[owner].array)
    if holds:
        value = placeholder(arguments[owner].array.shape, kind, arguments[owner].name)
        base, feed = layouts[owner], lambda given: given[owner].array
    else:
        value = placeholder((count,), kind, "_".join(arguments[m].name for m in members))
        base = Layout((count,), (1,), 0)
        first = min(members, key=lambda m: spans[m][0])
        before = arguments[first].address - low

        def feed(given: list[Argument]) -> np.ndarray[Any, Any]:
            return strided(given[first].array, given[first].address - before, (count,), (size,))

    storage = Storage(trace, memory, base, value, value)
    for m in members:
        array = arguments[m].array
        refusal = None if is_plain(layouts[m]) else "several of its elements share memory"
        arrays[m] = Array(storage, ghosts[m], Origin(arguments[m].name, m, bool(array.flags.writeable), refusal))
    return BoundStorage(storage, tuple(members), feed)


def _span(argument: Argument) -> tuple[int, int]:
    """First byte and the byte after the last."""
    low, high = np.lib.array_utils.byte_bounds(argument.array)
    return int(low), int(high)


class _Memory:
    """What makes NumPy see an array at an address: `owner` is kept alive by it."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def strided(
    like: np.ndarray[Any, Any], address: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """An array in the memory of `like`, which stays alive with it; strides in bytes."""
    bytes_like = like.dtype.str if like.dtype.kind != "V" else "|u2"
    interface = {
        "data": (address, not like.flags.writeable), "shape": shape, "strides": strides, "version": 3,
        "typestr": bytes_like,
    }  # fmt: skip
    found = np.asarray(_Memory(interface, like))
    return found if found.dtype == like.dtype else found.view(like.dtype)
