"""What the default schedule asks about a machine: the width of its vectors, its registers, caches and cores."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Machine"]


class Machine(Protocol):
    """Bytes of a vector register and of the caches, number of registers and cores."""

    @property
    def vector_bytes(self) -> int: ...
    @property
    def vector_registers(self) -> int: ...
    @property
    def l1(self) -> int: ...
    @property
    def l2(self) -> int: ...
    @property
    def cores(self) -> int: ...
