"""What the default schedule asks about a machine, and the choices that a measured search makes in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Literal

from schedules.records import record_of
from schedules.thresholds import Thresholds
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = ["FIGURES", "Choices", "Machine", "assumed", "assuming"]

Choices = tuple[tuple[str, int], ...]
FIGURES = ("l1", "l2", "l3", "vector_bytes", "cores")  # that may be chosen too

_assumed: list[Choices] = [()]


def assumed() -> Choices:
    """What is chosen where nobody chooses anything."""
    return _assumed[-1]


@contextmanager
def assuming(choices: Mapping[str, int]) -> Iterator[None]:
    """Within the block, in every thread, programs are scheduled as if somebody had chosen this.

    `assuming(LOWEST)` makes patterns fire on small programs, `assuming({"l2": 4096})` makes blocks of small factors.
    """
    _assumed.append(tuple(sorted({**dict(assumed()), **choices}.items())))
    try:
        yield
    finally:
        _assumed.pop()


MOST = 2**40  # of any figure
VECTORS = tuple(2**k for k in range(3, 11))  # bytes of a register


@dataclass(frozen=True)
class Machine:
    """Bytes of a vector register and of the caches, number of registers and cores.

    `choices` are (name, value) pairs that replace what the scheduler would take: "unroll" everywhere, "C:unroll" for
    the stage C; a figure of the machine; a threshold.
    """

    vector_bytes: int
    vector_registers: int
    l1: int
    l2: int
    l3: int
    cores: int
    gpu: Literal["cuda", "opencl"] | None = None
    choices: Choices = ()

    def tuned(self) -> Machine:
        """The machine with its figures replaced by those that are chosen."""
        return replace(self, **{name: value for name, value in self.choices if name in FIGURES})  # type: ignore[arg-type]

    @cached_property
    def least(self) -> Thresholds:
        """From which sizes on patterns are worth it."""
        return Thresholds.chosen(dict(self.choices))

    @property
    def has_masks(self) -> bool:
        """Whether part of a vector is loaded and stored as fast as all of it (AVX-512)."""
        return self.vector_bytes >= 64

    @property
    def tells_stages_apart(self) -> bool:
        """Whether what is chosen may differ between stages that are equal but for their names."""
        return any(":" in name for name, _ in self.choices)

    def choose(self, name: str, default: int, stage: str = "") -> int:
        """The value of a parameter of the scheduler: the one chosen for the stage, or for all, or the default."""
        known = dict(self.choices)
        return known.get(f"{stage}:{name}", known.get(name, default))

    def to_json(self) -> dict[str, Any]:
        """The machine as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Machine:
        """The machine that `to_json` wrote; ValueError where it wrote no such thing."""
        made: Machine = record_of(cls, data, "machine")
        for name, value in (*vars(made).items(), *made.choices):
            if isinstance(value, int) and not 0 <= value <= MOST:
                raise ValueError(f"machine.{name}: expected a number from 0 to {MOST}, found {value!s:.40}")
        for vector in (made.vector_bytes, made.tuned().vector_bytes):
            if vector not in VECTORS:
                raise ValueError(
                    f"machine.vector_bytes: expected a power of 2 from {VECTORS[0]} to {VECTORS[-1]}, found {vector}"
                )
        return made
