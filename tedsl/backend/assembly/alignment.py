"""Accesses that expect no alignment but that of an element."""

from __future__ import annotations

import re

from tedsl.backend.assembly.text import BITS

__all__ = ["realigned"]

_VECTOR_ACCESS = re.compile(r"((?:load|store) <\d+ x ([a-z]+)(\d*)>[^\n]*?, ptr [^,\n]+, align )\d+")
_MASKED_LOAD = re.compile(r"(@llvm\.masked\.load\.v\d+([a-z]+)(\d+)\.p0\(ptr [^,]+, i32 )\d+")
_BLOCK = re.compile(r"@llvm\.mem(?:cpy|move|set)\.[^\n]*")


def realigned(assembly: str) -> str:
    """Vector accesses that expect no more of an address than that it is one of an element.

    Halide 21 takes an output that its own update reads back for memory that it allocated itself, aligned to whole
    vectors; on an array that is not, the process ends. On aligned memory the instructions are as fast.
    """

    def natural(match: re.Match[str]) -> str:
        bits = int(match[3]) if match[3] else BITS.get(match[2], 8)
        return f"{match[1]}{max(1, bits // 8)}"

    assembly = _MASKED_LOAD.sub(natural, _VECTOR_ACCESS.sub(natural, assembly))
    return _BLOCK.sub(lambda match: re.sub(r"\balign \d+", "align 1", match[0]), assembly)
