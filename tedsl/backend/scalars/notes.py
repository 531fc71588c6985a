"""What is known of Halide's expressions beside themselves: they are no keys of a dict, as == makes another one."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

__all__ = ["Notes"]

T = TypeVar("T")


class Notes(Generic[T]):
    """A note for each of some objects, as long as the object lives."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}

    def of(self, thing: object) -> T | None:
        """The note for this very object."""
        found = self._known.get(id(thing))
        return None if found is None else found[1]

    def note(self, thing: object, what: T) -> None:
        """Remember it."""
        key, known = id(thing), self._known
        known[key] = weakref.ref(thing, lambda _: known.pop(key, None)), what
