"""Vectors that are looked up at the same lanes of places, on processors whose gathers are slow.

    t[v + a], t[v + b], .. of numbers a, b     each an address for every lane, taken out of a vector
    (t + a)[v], (t + b)[v], ..                 the lanes of v taken out once

The eight corners of a cell of a grid are looked up so, at a third of the dimensions that is data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tedsl.backend.assembly.text import NAME, everywhere
from tedsl.lang.dataclass import dataclass

__all__ = ["LanePlaces", "SharedLanes", "apart", "lane_lines", "one_by_one", "terms_of"]

QUOTES = '%"'
_LINEAR = re.compile(
    rf"^(add|mul|shl|or) (?:(?:nuw )?nsw|disjoint) <\d+ x i32> ({NAME}), ({NAME}|splat \(i32 -?\d+\))$"
)
_SUMS = ("add", "or")
_NUMBER = re.compile(r"^splat \(i32 (-?\d+)\)$")
LONGEST = 64  # steps of a sum

Terms = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class LanePlaces:
    """A vector of places as the lanes of another one, to each of which scalars and a number are added."""

    vector: str
    scalars: tuple[str, ...] = ()
    number: int = 0


@dataclass(frozen=True)
class SharedLanes:
    """LanePlaces whose lanes others in their block have, too."""

    places: LanePlaces
    block: int
    is_first: bool  # of those that share them

    def names(self, count: int) -> list[str]:
        """The lanes, as numbers of 64 bits."""
        lane = f"te.lane.{self.block}.{self.places.vector.strip(QUOTES)}."
        return [f'%"{lane}{k}"' for k in range(count)]


def apart(vector: str, made: Mapping[str, str]) -> LanePlaces:
    """A vector as another one, to which something is added; `made`: what names stand for.

    Only of sums that do not wrap, so that it can be added to the address.
    """
    scalars, number = list[str](), 0
    while (match := _LINEAR.match(made.get(vector, ""))) is not None and match[1] in _SUMS:
        if (known := _NUMBER.match(match[3])) is not None:
            vector, number = match[2], number + int(known[1])
            continue
        sides = (match[2], match[3]), (match[3], match[2])
        one, scalar = next(((one, s) for one, other in sides if (s := everywhere(other, made))), ("", ""))
        if not one:
            break
        vector = one
        scalars.append(scalar)
    return LanePlaces(vector, tuple(sorted(scalars)), number)


def terms_of(vector: str, made: Mapping[str, str]) -> tuple[Terms, int]:
    """A vector as a sum of others, each so many times, and of a number in every lane, none of which wraps."""
    terms, number, steps = Counter[str](), 0, 0
    pending = [(vector, 1)]
    while pending:
        name, times = pending.pop()
        match = _LINEAR.match(made.get(name, "")) if steps < LONGEST else None
        steps += 1
        known = _NUMBER.match(match[3]) if match is not None else None
        if match is not None and match[1] in _SUMS:
            pending += [(match[2], times)] if known is not None else [(match[2], times), (match[3], times)]
            number += times * int(known[1]) if known is not None else 0
        elif match is not None and known is not None:
            pending.append((match[2], times * (int(known[1]) if match[1] == "mul" else 1 << int(known[1]))))
        else:
            terms[name] += times
    return tuple(sorted(terms.items())), number


def lane_lines(at: SharedLanes, base: str, element: str, count: int, number: int) -> tuple[list[str], str]:
    """The lanes of places, where they are the first to have them, and the array with what is added to its base."""
    made = []
    for k, lane in enumerate(at.names(count) if at.is_first else ()):
        narrow = f'{lane[:-1]}.i32"'
        made.append(f"  {narrow} = extractelement <{count} x i32> {at.places.vector}, i64 {k}")
        made.append(f"  {lane} = sext i32 {narrow} to i64")
    for k, scalar in enumerate(at.places.scalars):
        made.append(f"  %te.added.{number}.{k} = sext i32 {scalar} to i64")
        made.append(f"  %te.base.{number}.{k} = getelementptr {element}, ptr {base}, i64 %te.added.{number}.{k}")
        base = f"%te.base.{number}.{k}"
    return made, base


def one_by_one(
    name: str, at: SharedLanes, base: str, element: str, loads: Sequence[tuple[int, str]], number: int
) -> list[str]:
    """The loads of a vector, each with its alignment and alias; behind the lanes where it is the first to have them."""
    count = len(loads)
    made, base = lane_lines(at, base, element, count, number)
    if at.places.number:
        made.append(f"  %te.base.{number} = getelementptr {element}, ptr {base}, i64 {at.places.number}")
        base = f"%te.base.{number}"
    before = "poison"
    for k, (lane, (align, alias)) in enumerate(zip(at.names(count), loads, strict=True)):
        into = name if k == count - 1 else f"%te.with.{number}.{k}"
        tag = f", !tbaa {alias}" if alias else ""
        made += [
            f"  %te.at.{number}.{k} = getelementptr {element}, ptr {base}, i64 {lane}",
            f"  %te.one.{number}.{k} = load {element}, ptr %te.at.{number}.{k}, align {align}{tag}",
            f"  {into} = insertelement <{count} x {element}> {before}, {element} %te.one.{number}.{k}, i64 {k}",
        ]
        before = into
    return made
