"""What a kernel tells of its last call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from tedsl.backend.host.units import readable
from tedsl.lang.dataclass import dataclass
from tedsl.lang.rich import Rich

__all__ = ["Stats"]


@dataclass(frozen=True)
class Stats(Rich):
    """What compiling took so far, and what the last call did: its copies, its own buffers, bytes of all arrays.

    `phases` splits the milliseconds of the build: "schedule", "lower" to Halide's functions, "Halide" (with LLVM's
    optimizations), "LLVM" (its machine code), "load", and "elsewhere" where other processes compiled beside this one.
    `compile_ms` is the time that passed; in `phases` threads that compile at the same time are added up. A program of
    several kernels is scheduled before `compile_ms` begins.
    """

    compile_ms: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    copies: list[tuple[str, str]] = field(default_factory=list)
    bytes: int = 0
    buffers: Callable[[], Sequence[int]] = field(default=tuple, repr=False)  # bytes of each, counted when asked for
    on_device: bool = field(default=False, repr=False)
    called: bool = field(default=True, repr=False)  # else there is no last call

    def __str__(self) -> str:
        phases = ", ".join(f"{name} {ms:.0f}" for name, ms in self.phases.items())
        added = "of all threads: " if sum(self.phases.values()) > self.compile_ms else ""
        built = f"compiled in {self.compile_ms:.0f} ms" + (f" ({added}{phases})" if phases else "")
        if not self.called:
            return f"{built}\nnot called yet"
        own = f"{readable(sum(self.buffers()))} of its own (temporaries: {self.temporaries})"
        copies = [f"  copied {name}: {why}" for name, why in self.copies]
        many = "1 copy" if len(copies) == 1 else f"{len(copies) or 'no'} copies"
        last = f"last call: {readable(self.bytes)} of arrays, {own}, {many}"
        return "\n".join([built, last, *copies])

    def __reduce__(self) -> tuple[Any, ...]:
        told = self.compile_ms, dict(self.phases), self.copies, self.bytes
        return _stats_of, (*told, tuple(self.buffers()), self.on_device, self.called)

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


def _stats_of(
    ms: float, phases: Mapping[str, float], copies: list[tuple[str, str]], size: int, buffers: Sequence[int],
    on_device: bool, called: bool,
) -> Stats:  # fmt: skip
    """What was pickled of them, with the buffers counted."""
    return Stats(ms, copies, size, lambda: buffers, on_device, called, phases=phases)
