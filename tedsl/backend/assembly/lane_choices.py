"""Choices by one lane of a comparison of vectors, which are vectors too.

The last step of a tree over the lanes of a vector, as of the largest number of a short row, is a choice between two
floats. Where LLVM compares them as lanes of vectors, x86 has no choice by such a bit but a jump, which it guesses
wrongly every other time. As lanes of vectors that the mask chooses from they are one instruction.
"""

from __future__ import annotations

import re

__all__ = ["chosen_in_lanes"]

_NAME = r'%(?:[\w.$-]+|"[^"]*")'
_TAKEN = re.compile(rf"^  ({_NAME}) = extractelement <(\d+) x i1> ({_NAME}), i64 (\d+)$")
_VALUE = rf"(?:{_NAME}|[-+\w.]+)"
_CHOICE = re.compile(rf"^  ({_NAME}) = select i1 ({_NAME}), (float|double) ({_VALUE}), \3 ({_VALUE})$")


def chosen_in_lanes(lines: list[str]) -> list[str]:
    """The lines of a module, with choices of floats by a lane of a mask made by the mask."""
    if not any(" x i1> " in line and " = extractelement " in line for line in lines):
        return lines
    made: list[str] = []
    taken: dict[str, tuple[str, str, str]] = {}
    for line in lines:
        if line.startswith("define "):
            taken = {}
        if (lane := _TAKEN.match(line)) is not None:
            taken[lane[1]] = lane[2], lane[3], lane[4]
        choice = _CHOICE.match(line)
        if choice is None or choice[2] not in taken:
            made.append(line)
            continue
        name, condition, kind, first, second = choice.groups()
        count, mask, place = taken[condition]
        own, vector = name[1:].strip('"'), f"<{count} x {kind}>"
        whole = [f'%"te.{part}.{own}"' for part in ("first", "second", "chosen")]
        made += [
            f"  {whole[0]} = insertelement {vector} poison, {kind} {first}, i64 {place}",
            f"  {whole[1]} = insertelement {vector} poison, {kind} {second}, i64 {place}",
            f"  {whole[2]} = select <{count} x i1> {mask}, {vector} {whole[0]}, {vector} {whole[1]}",
            f"  {name} = extractelement {vector} {whole[2]}, i64 {place}",
        ]
    return made
