"""Where the tensors between kernels lie in one block of memory: those that are never needed at once share bytes.

The largest is placed first, each at the lowest address that is free for as long as it is needed.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.backend.arguments.addresses import address_of
from tedsl.lang.dataclass import dataclass

__all__ = ["ALIGNMENT", "Arena", "Shelf", "Span", "fresh", "maker_of"]

ALIGNMENT = 128  # two lines of the cache, and whole vectors
LARGE = 1 << 16  # bytes of an array that is worth a second object
PART = 16  # steps of a program that are looked through at once

_Place = tuple[int, int, int, int]  # offset, end, first and last step


@dataclass(frozen=True)
class Span:
    """One tensor: its bytes, and the first and last step that need it."""

    bytes: int
    first: int
    last: int


class Shelf:
    """Bytes in which tensors get places, each the lowest that is free for as long as it is needed."""

    def __init__(self) -> None:
        self._placed: dict[int, list[_Place]] = {}  # by the steps that need them, some at a time; the lowest one first
        self.bytes = 0  # up to the end of the last tensor

    def free(self, span: Span) -> int:
        """The lowest place for a tensor."""
        at = 0
        parts = [self._placed.get(part, ()) for part in _parts(span)]
        near = parts[0] if len(parts) == 1 else sorted({place for part in parts for place in part})
        for begin, end, first, last in near:
            if first <= span.last and span.first <= last:
                if at + span.bytes <= begin:
                    break
                at = max(at, end)
        return at

    def put(self, span: Span, at: int) -> None:
        """Let a tensor lie there."""
        place = at, at + _whole(span.bytes), span.first, span.last
        for part in _parts(span):
            insort(self._placed.setdefault(part, []), place)
        self.bytes = max(self.bytes, place[1])


class Arena:
    """Offsets of tensors in a block of `bytes`."""

    def __init__(self, spans: Sequence[Span]) -> None:
        shelf = Shelf()
        offsets = [0] * len(spans)
        for k in sorted(range(len(spans)), key=lambda k: (-spans[k].bytes, spans[k].first)):
            offsets[k] = shelf.free(spans[k])
            shelf.put(spans[k], offsets[k])
        self.offsets = tuple(offsets)
        self.bytes = shelf.bytes

    def block(self) -> Array:
        """Memory for one call, aligned."""
        raw = np.empty(self.bytes + ALIGNMENT, np.uint8)
        start = -address_of(raw) % ALIGNMENT
        return raw[start : start + self.bytes]


def _parts(span: Span) -> range:
    """The parts of a program in which a tensor is needed."""
    return range(span.first // PART, span.last // PART + 1)


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array; a large one begins with a line of the cache.

    NumPy's begin 16 bytes behind one, and every store of a whole vector would write to two lines.
    """
    return maker_of(shape, dtype)(shape, dtype)


def maker_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[tuple[int, ...], np.dtype[Any]], Array]:
    """What makes such arrays."""
    return np.empty if math.prod(shape) * dtype.itemsize < LARGE else _aligned


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    large: Array = np.ndarray(shape, dtype, raw, -address_of(raw) % ALIGNMENT)
    return large
