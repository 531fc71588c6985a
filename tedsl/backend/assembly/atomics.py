"""Compare-and-swap loops in which what is written is computed from what is compared.

Halide 21 reads the element a second time to compute with it. Where another thread takes it to another value in between,
and a third one back, the exchange succeeds and writes a sum of what was there for a moment: a gradient of ones and
minus ones lost terms that way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tedsl.backend.assembly.text import NAME

__all__ = ["compared_once", "compared_twice"]

_START = re.compile(r"^casloop\.start\d*:")
_HELD = re.compile(rf"^  ({NAME}) = phi (i\d+) ")
_EXCHANGE = re.compile(rf"^  {NAME} = cmpxchg (?:weak )?ptr ({NAME}), (i\d+) ({NAME}), ")
_LOAD = re.compile(rf"^  ({NAME}) = load ([^,]+), ptr ({NAME}), ")


def compared_twice(lines: Sequence[str]) -> str | None:
    """An exchange in a loop that still reads its element, or that is of a form that is not known."""
    if not _has_exchanges(lines):
        return None
    places: set[str] = set()
    inside = False
    for line in lines:
        if _START.match(line):
            places, inside = set(), True
        elif match := _LOAD.match(line):
            places.add(match[3])
        elif " = cmpxchg " in line:
            exchange = _EXCHANGE.match(line)
            if not inside or exchange is None or exchange[1] in places:
                return line
            inside = False
    return None


def compared_once(lines: list[str]) -> list[str]:
    """The lines of a module, with what such a loop holds in the place of what it would read again."""
    if not _has_exchanges(lines):
        return lines
    made = list(lines)
    for begin, line in enumerate(lines):
        if _START.match(line) is None:
            continue
        end = next(k for k in range(begin, len(lines)) if " = cmpxchg " in lines[k])
        exchange = _EXCHANGE.match(lines[end])
        if exchange is None or not any((m := _HELD.match(x)) and m[1] == exchange[3] for x in lines[begin:end]):
            continue
        place, kind, held = exchange.groups()
        for at in range(begin, end):
            load = _LOAD.match(lines[at])
            if load is not None and load[3] == place:
                made[at] = f"  {load[1]} = bitcast {kind} {held} to {load[2]}"
    return made


def _has_exchanges(lines: Sequence[str]) -> bool:
    return any(" = cmpxchg " in line for line in lines)
