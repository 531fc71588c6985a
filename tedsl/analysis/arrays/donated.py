"""Arrays whose memory was given away: known by identity as long as they live, so that using one again is an error."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from tedsl.analysis.checked import is_checked
from tedsl.analysis.pointwise import Array

__all__ = ["DONATED", "check_not_donated", "donation_problem", "give", "take"]

# By the id of the array: a reference that forgets the entry when the array dies, and the call that took its memory.
DONATED: dict[int, tuple[weakref.ref[Any], str]] = {}


class _Taken:
    """What makes NumPy see memory that was given away as an array of its own; `owner` is kept alive by it."""

    def __init__(self, owner: Array) -> None:
        self.__array_interface__ = owner.__array_interface__
        self.owner = owner


def take(array: Array, call: str) -> Array:
    """A new array on the memory of `array`, which may not be used again."""
    made = np.asarray(_Taken(array)) if array.size else array.copy()
    made = made if made.dtype == array.dtype else made.view(array.dtype)
    give(array, call)
    return made


def give(array: Array, call: str) -> None:
    """Let nobody use an array again."""
    key = id(array)
    DONATED[key] = weakref.ref(array, lambda _: DONATED.pop(key, None)), call


def check_not_donated(arrays: Iterable[tuple[str, Any]], what: str) -> None:
    """ValueError for an array, or a view of one, whose memory was given away."""
    if not DONATED:
        return
    for name, array in arrays:
        current = array
        while isinstance(current, np.ndarray):
            entry = DONATED.get(id(current))
            if entry is not None and entry[0]() is current:
                kind = "was" if current is array else "is a view of an array that was"
                raise ValueError(
                    f"{what}: the array given for {name!r} {kind} donated to {entry[1]}, which wrote there; "
                    "use its results, or donate a copy: te.copy(x)"
                )
            current = current.base
        if is_checked() and isinstance(array, np.ndarray):
            _check_memory(name, array, what)


def _check_memory(name: str, array: Array, what: str) -> None:
    """ValueError where an array that is no result lies on memory that was given away, however it came there."""
    root: Any = array
    while isinstance(root, np.ndarray) and root.base is not None:
        root = root.base
    if isinstance(root, _Taken):
        return
    for reference, call in list(DONATED.values()):
        given = reference()
        if given is not None and np.may_share_memory(array, given) and np.shares_memory(array, given):
            raise ValueError(
                f"{what}: the array given for {name!r} lies on memory that was donated to {call}; copy it before"
            )


def donation_problem(array: Any) -> str | None:
    """Why the memory of an array cannot be given away: somebody else holds it."""
    if not isinstance(array, np.ndarray):
        return f"it is a {type(array).__name__}, whose memory belongs to another library"
    if not array.flags.writeable:
        return "it is read-only"
    base = array.base
    if base is None:
        return None
    # Two references: the one in the array, and the name here (and that of the argument of getrefcount).
    if isinstance(base, (np.ndarray, _Taken)) and sys.getrefcount(base) <= 3:
        return donation_problem(base) if isinstance(base, np.ndarray) else None
    return "it is a view whose base lives on"
