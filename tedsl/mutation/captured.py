"""Arrays that a function reads from outside of itself: changing one while the function is traced is an error.

The change would happen once, when the function is traced, and not at each call. Global variables that the function
names and variables of the functions around it are looked at before the trace and after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import numpy as np

from tedsl.lang.errors import user_location
from tedsl.lang.foreign import is_torch

__all__ = ["Surroundings"]


class Surroundings:
    """The arrays around a function, as they were before it was traced."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        self._before = [(kind, word, array, _print_of(array)) for kind, word, array in _around(function)]

    def check(self) -> None:
        """TypeError for one that has changed."""
        for kind, word, array, before in self._before:
            if _print_of(array) != before:
                raise TypeError(
                    f"{self.name} at {user_location()}: the {kind} array {word!r} is changed while the function is "
                    "traced, which would happen once and not at each call; make it an argument, which is written "
                    "back, or change it outside"
                )


def _around(function: Callable[..., Any]) -> Iterator[tuple[str, str, Any]]:
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return
    known = getattr(function, "__globals__", {})
    for word in sorted(_words(code)):
        if _is_array(known.get(word)):
            yield "global", word, known[word]
    for word, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if _is_array(value):
            yield "captured", word, value


def _words(code: CodeType) -> set[str]:
    """The names that a function and those inside of it use."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*map(_words, inner))


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_torch(value)


def _print_of(array: Any) -> Any:
    """What changes with the elements of an array."""
    if is_torch(array):
        return array._version
    if array.dtype.hasobject:
        return None
    return zlib.crc32(np.ascontiguousarray(array).tobytes())
