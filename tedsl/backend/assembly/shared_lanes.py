"""Vectors that are looked up at the same lanes of places, on processors whose gathers are slow.

    t[v + a], t[v + b], .. of numbers a, b     each an address for every lane, taken out of a vector
    (t + a)[v], (t + b)[v], ..                 the lanes of v taken out once

The eight corners of a cell of a grid are looked up so, at a third of the dimensions that is data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tedsl.backend.assembly.text import NAME, everywhere
from tedsl.lang.dataclass import dataclass

__all__ = ["SharedLanes", "apart", "one_by_one"]

QUOTES = '%"'
_SUM = re.compile(rf"^add (?:nuw )?nsw <\d+ x i32> ({NAME}), ({NAME}|splat \(i32 -?\d+\))$")
_NUMBER = re.compile(r"^splat \(i32 (-?\d+)\)$")


@dataclass(frozen=True)
class SharedLanes:
    """The lanes of a vector of places in one block, and the number that is added to each, "" where there is none."""

    vector: str
    number: str
    block: int
    is_first: bool  # of those that share them


def apart(vector: str, made: Mapping[str, str]) -> tuple[str, str]:
    """A vector as another one and a number that is added to each lane; `made`: what names stand for.

    Only of sums that do not wrap, so that the number can be added to the address.
    """
    match = _SUM.match(made.get(vector, ""))
    if match is None:
        return vector, ""
    if (known := _NUMBER.match(match[2])) is not None:
        return match[1], known[1]
    for one, other in (match[1], match[2]), (match[2], match[1]):
        if number := everywhere(other, made):
            return one, number
    return vector, ""


def one_by_one(
    name: str, at: SharedLanes, base: str, element: str, loads: Sequence[tuple[int, str]], number: int
) -> list[str]:
    """The loads of a vector, each with its alignment and alias; behind the lanes where it is the first to have them."""
    count = len(loads)
    lane = f"te.lane.{at.block}.{at.vector.strip(QUOTES)}."
    made = []
    for k in range(count) if at.is_first else ():
        made.append(f'  %"{lane}{k}.i32" = extractelement <{count} x i32> {at.vector}, i64 {k}')
        made.append(f'  %"{lane}{k}" = sext i32 %"{lane}{k}.i32" to i64')
    if at.number:
        made.append(f"  %te.added.{number} = sext i32 {at.number} to i64")
        made.append(f"  %te.base.{number} = getelementptr {element}, ptr {base}, i64 %te.added.{number}")
        base = f"%te.base.{number}"
    before = "poison"
    for k, (align, alias) in enumerate(loads):
        into = name if k == count - 1 else f"%te.with.{number}.{k}"
        tag = f", !tbaa {alias}" if alias else ""
        made += [
            f'  %te.at.{number}.{k} = getelementptr {element}, ptr {base}, i64 %"{lane}{k}"',
            f"  %te.one.{number}.{k} = load {element}, ptr %te.at.{number}.{k}, align {align}{tag}",
            f"  {into} = insertelement <{count} x {element}> {before}, {element} %te.one.{number}.{k}, i64 {k}",
        ]
        before = into
    return made
