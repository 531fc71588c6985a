"""Choices between a vector and a bitwise combination of others, kept apart from the combination.

LLVM 20 to 22 make one masked `vpternlog` of the two, swap its operands to read one of them from memory, and leave its
truth table as it was: `select(c, x, (x & m) | (y & ~m))` came out with bits of x where those of y belong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tedsl.backend.assembly.text import BITS, NAME, declaring

__all__ = ["fenced", "unfenced"]

_OPERAND = re.compile(f"({NAME})")
_CHOICE = re.compile(rf"^\s+({NAME}) = select (?:[a-z]+ )*<(\d+) x i1> \S+, <\d+ x (i32|i64|float|double)> (.*)$")
_BITWISE = re.compile(rf"^\s+({NAME}) = (?:tail )?(and|or|xor|fneg|bitcast|call)\b(.*)$")


def fenced(lines: list[str]) -> list[str]:
    """The lines of a module, with a fence before every such choice."""
    if not _has_choices(lines):
        return lines
    made: list[str] = []
    shapes: set[str] = set()
    for line, sides, choice in _choices(lines):
        for side in sides:
            before, name, shape = _fence(side, int(choice[2]), choice[3], len(made))
            made += before
            shapes.add(shape)
            line = re.sub(rf"{re.escape(side)}(?=,|$)", name, line)
        made.append(line)
    return declaring(made, map(_declaration, sorted(shapes)))


def unfenced(lines: Sequence[str]) -> str | None:
    """A line that chooses a bitwise combination as it is."""
    return next((line for line, sides, _ in _choices(lines) if sides), None) if _has_choices(lines) else None


def _has_choices(lines: Sequence[str]) -> bool:
    return any(" = select " in line and _CHOICE.match(line) is not None for line in lines)


def _choices(lines: Sequence[str]) -> Iterator[tuple[str, list[str], Any]]:
    """Every line, and where it chooses between vectors, those of them that are bitwise combinations."""
    bitwise: dict[str, int] = {}  # the depth of combinations below a name of this function
    for line in lines:
        if line.startswith("define "):
            bitwise = {}
        match = _BITWISE.match(line)
        if match is not None:
            bitwise[match[1]] = _depth(match[2], match[3], bitwise)
        choice = _CHOICE.match(line)
        sides = dict.fromkeys(_OPERAND.findall(choice[4])) if choice is not None else ()
        yield line, [name for name in sides if bitwise.get(name, 0) >= 2], choice


def _depth(kind: str, rest: str, bitwise: dict[str, int]) -> int:
    """How many bitwise operations lie one on another."""
    below = max((bitwise.get(name, 0) for name in _OPERAND.findall(rest)), default=0)
    if kind == "bitcast":
        return below
    if kind != "call":
        return below + 1
    return 2 if "@llvm.copysign." in rest else below + 1 if "@llvm.fabs." in rest else 0


def _fence(name: str, lanes: int, element: str, number: int) -> tuple[list[str], str, str]:
    """Lines that make of a vector one of which the code generator knows nothing, its name, and the fence's suffix."""
    real = {"i32": "float", "i64": "double"}.get(element, element)
    shape = f"v{lanes}f{BITS[real]}"
    given, real_type = f"<{lanes} x {element}>", f"<{lanes} x {real}>"
    return (
        [
            f"  %te.bits.{number} = bitcast {given} {name} to {real_type}",
            f"  %te.kept.{number} = call {real_type} @llvm.arithmetic.fence.{shape}({real_type} %te.bits.{number})",
            f"  %te.apart.{number} = bitcast {real_type} %te.kept.{number} to {given}",
        ],
        f"%te.apart.{number}",
        shape,
    )


def _declaration(shape: str) -> str:
    lanes, _, bits = shape[1:].partition("f")
    vector = f"<{lanes} x {'float' if bits == '32' else 'double'}>"
    return f"declare {vector} @llvm.arithmetic.fence.{shape}({vector})"
