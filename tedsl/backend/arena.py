"""Where the tensors between kernels lie in one block of memory: those that are never needed at once share bytes.

The largest is placed first, each at the lowest address that is free for as long as it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tedsl.analysis.pointwise import Array
from tedsl.backend.addresses import address_of

__all__ = ["ALIGNMENT", "Arena", "Span"]

ALIGNMENT = 128  # two lines of the cache, and whole vectors


@dataclass(frozen=True)
class Span:
    """One tensor: its bytes, and the first and last step that need it."""

    bytes: int
    first: int
    last: int

    def meets(self, other: Span) -> bool:
        """Whether some step needs both."""
        return self.first <= other.last and other.first <= self.last


class Arena:
    """Offsets of tensors in a block of `bytes`."""

    def __init__(self, spans: Sequence[Span]) -> None:
        placed: list[tuple[int, int, Span]] = []  # offset, end, what
        offsets = [0] * len(spans)
        for k in sorted(range(len(spans)), key=lambda k: (-spans[k].bytes, spans[k].first)):
            at = 0
            for begin, end, _ in sorted((p for p in placed if p[2].meets(spans[k])), key=lambda p: p[0]):
                if at + spans[k].bytes <= begin:
                    break
                at = max(at, end)
            offsets[k] = at
            placed.append((at, at + _whole(spans[k].bytes), spans[k]))
        self.offsets = tuple(offsets)
        self.bytes = max((end for _, end, _ in placed), default=0)

    def block(self) -> Array:
        """Memory for one call, aligned."""
        raw = np.empty(self.bytes + ALIGNMENT, np.uint8)
        start = -address_of(raw) % ALIGNMENT
        return raw[start : start + self.bytes]


def _whole(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
