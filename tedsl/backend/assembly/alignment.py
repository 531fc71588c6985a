"""Accesses that expect no more of an address than that it is one of an element.

Halide 21 takes an output that its own update reads back for memory that it allocated itself, aligned to whole vectors;
on an array that is not, the process ends. On aligned memory the instructions are as fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tedsl.backend.assembly.text import BITS

__all__ = ["misaligned", "realigned"]

_ACCESS = re.compile(r"((?:load|store) <\d+ x ([a-z]+)(\d*)>.*?, ptr [^,]+, align )(\d+)")
_MASKED_LOAD = re.compile(r"(@llvm\.masked\.load\.v\d+([a-z]+)(\d+)\.p0\(ptr [^,]+, i32 )(\d+)")
_ANY_LOAD = re.compile(r"@llvm\.masked\.load\.v\d+([a-z]+)(\d+)\b")
_BLOCK = re.compile(r"@llvm\.mem(?:cpy|move|set)\.")
_ALIGN = re.compile(r"\balign \d+")


def realigned(lines: Sequence[str]) -> list[str]:
    """The lines of a module, whose vectors may begin at any element."""
    return [_realigned(line) if " align " in line or "@llvm.m" in line else line for line in lines]


def misaligned(lines: Sequence[str]) -> str | None:
    """A line that expects more, or tells what it expects in a way that is not known."""
    return next((line for line in lines if _is_misaligned(line)), None)


def _realigned(line: str) -> str:
    line = _MASKED_LOAD.sub(_natural, _ACCESS.sub(_natural, line))
    return _ALIGN.sub("align 1", line) if _BLOCK.search(line) else line


def _natural(match: re.Match[str]) -> str:
    return f"{match[1]}{_bytes(match[2], match[3])}"


def _bytes(kind: str, bits: str) -> int:
    return max(1, (int(bits) if bits else BITS.get(kind, 8)) // 8)


def _is_misaligned(line: str) -> bool:
    if " align " in line and ("load <" in line or "store <" in line):
        match = _ACCESS.search(line)
        return match is None or int(match[4]) > _bytes(match[2], match[3])
    if _ANY_LOAD.search(line) and " = " in line:
        match = _MASKED_LOAD.search(line)
        return match is None or int(match[4]) > _bytes(match[2], match[3])
    return False
