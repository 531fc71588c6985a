"""Vectors of elements whose places are known beside one of them: a load or two, and a shuffle.

    t[b + 2], t[b + 2], t[b + 2], t[b + 3], .. t[b + 31]     one after another, and none beyond the last

A window over a row of which the first places are held at its end is read so in the first vector of the row, once for
each place of the window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tedsl.backend.assembly.text import NAME, everywhere
from tedsl.lang.dataclass import dataclass

__all__ = ["Neighbors", "neighbors", "put_in_place"]

_SUM = re.compile(rf"^(?:add (?:nuw )?nsw|or disjoint) <\d+ x i32> ({NAME}), <(i32 -?\d+(?:, i32 -?\d+)*)>$")
_LANE = re.compile(r"i32 (-?\d+)")


@dataclass(frozen=True)
class Neighbors:
    """Places as distances from one."""

    base: str
    distances: tuple[int, ...]


def neighbors(vector: str, made: Mapping[str, str]) -> Neighbors | None:
    """A vector of places as numbers beside one of them, which leave none out; `made`: what names stand for."""
    match = _SUM.match(made.get(vector, ""))
    base = everywhere(match[1], made) if match else ""
    if match is None or not base:
        return None
    distances = tuple(int(n) for n in _LANE.findall(match[2]))
    whole = set(distances) == set(range(min(distances), max(distances) + 1))  # what is loaded is what was
    return Neighbors(base, distances) if whole else None


def put_in_place(found: Neighbors, base: str, element: str, end: str, number: int) -> tuple[list[str], str]:
    """The lines that load neighbors from an array at `base`, and the value of the vector of them.

    `end`: alignment and alias of a load. No element is loaded but those that are asked for.
    """
    low, lanes = min(found.distances), len(found.distances)
    length = max(found.distances) - low + 1
    size = 1 << (length.bit_length() - 1)  # two such vectors, which overlap, hold all
    kind, name = f"<{size} x {element}>", f"%te.near.{number}"
    lines = [
        f"  {name}.wide = sext i32 {found.base} to i64",
        f"  {name}.base = getelementptr {element}, ptr {base}, i64 {name}.wide",
    ]
    for part, begin in (("first", low), ("last", low + length - size)):
        lines += [
            f"  {name}.{part}.at = getelementptr {element}, ptr {name}.base, i64 {begin}",
            f"  {name}.{part} = load {kind}, ptr {name}.{part}.at, {end}",
        ]
    at = [d - low if d - low < size else d - low - length + 2 * size for d in found.distances]
    order = ", ".join(f"i32 {k}" for k in at)
    return lines, f"shufflevector {kind} {name}.first, {kind} {name}.last, <{lanes} x i32> <{order}>"
