"""What a kernel tells of its last call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Stats"]


@dataclass(frozen=True)
class Stats:
    """What compiling took so far, and what the last call did: its copies, its own buffers, bytes of all arrays."""

    compile_ms: float = 0.0
    copies: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0
    buffers: Callable[[], Sequence[int]] = field(default=tuple, repr=False)  # bytes of each, counted when asked for
    on_device: bool = field(default=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _stats_of, (self.compile_ms, self.copies, self.bytes, tuple(self.buffers()), self.on_device)

    @property
    def temporaries(self) -> int:
        """Buffers for intermediate results."""
        return len(self.buffers())

    @property
    def peak_bytes(self) -> int:
        """Bytes of all arrays, and of those buffers."""
        return self.bytes + sum(self.buffers())

    @property
    def device_bytes(self) -> int:
        """Bytes of a GPU's memory that the call took at most: its arrays, or copies of them, and those buffers."""
        return self.peak_bytes if self.on_device else 0


def _stats_of(ms: float, copies: list[tuple[str, str]], size: int, buffers: Sequence[int], on_device: bool) -> Stats:
    """What was pickled of them, with the buffers counted."""
    return Stats(ms, copies, size, lambda: buffers, on_device)
