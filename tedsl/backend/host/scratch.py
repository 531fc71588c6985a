"""Files that Halide or LLVM writes and that are read once: in memory where the system has such files.

LLVM ends the process when a file cannot be written to its end, so a full disk must not be in the way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tedsl.lang.dataclass import dataclass

__all__ = ["Scratch", "scratch"]


@dataclass(frozen=True)
class Scratch:
    """An open file: its number, the path by which others open it, and what it holds."""

    number: int
    path: str

    def read(self) -> bytes:
        """All that was written."""
        with open(self.path, "rb") as file:
            return file.read()

    def text(self) -> str:
        """The same as text."""
        return self.read().decode(errors="replace")


@contextmanager
def scratch() -> Iterator[Scratch]:
    """An empty file, which is gone afterwards."""
    number = _in_memory()
    if number is not None:
        try:
            yield Scratch(number, _path_of(number))
        finally:
            os.close(number)
        return
    with tempfile.NamedTemporaryFile(prefix="tedsl-") as file:
        yield Scratch(file.fileno(), file.name)


def _in_memory() -> int | None:
    """The number of a file in memory, where there are such files and others can open them."""
    create: Callable[[str], int] | None = getattr(os, "memfd_create", None)
    if create is None:
        return None
    try:
        number = create("tedsl")
    except OSError:
        return None
    if os.path.exists(_path_of(number)):
        return number
    os.close(number)  # there is no /proc here
    return None


def _path_of(number: int) -> str:
    return f"/proc/self/fd/{number}"
