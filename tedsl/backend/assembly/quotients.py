"""Vectors of integers divided by a number that is not known: as double precision, in which they are exact.

x86 divides no vectors of integers: each lane is taken out, divided alone, and put back. A ratio of two numbers of 32
bits that is not whole is further from whole numbers than the 53 bits of a double err, so its digits in front of the
point are right. Places that are counted row by row are such vectors, where the length of a row is not known.
"""

from __future__ import annotations

import re
from collections.abc import Set

from tedsl.backend.assembly.text import NAME

__all__ = ["divided_as_doubles"]

LEAST = 4  # lanes
_DIVIDED = re.compile(rf"^  ({NAME}) = ([su])(div|rem) (?:exact )?<(\d+) x i32> (.+), ({NAME})$")


def divided_as_doubles(lines: list[str], features: Set[str]) -> list[str]:
    """The lines of a module, with divisions of doubles in place of those of integers, lane by lane."""
    signs = "su" if "avx512" in features else "s"  # no other instructions convert vectors without a sign
    made: list[str] = []
    for line in lines:
        found = _DIVIDED.match(line)
        if found is None or int(found[4]) < LEAST or found[2] not in signs:
            made.append(line)
            continue
        name, sign, kind, lanes, dividend, divisor = found.groups()
        integers, doubles, own = f"<{lanes} x i32>", f"<{lanes} x double>", name[1:].strip('"')
        parts = [f'%"te.{part}.{own}"' for part in ("dividend", "divisor", "ratio", "quotient", "whole")]
        quotient = name if kind == "div" else parts[3]
        made += [
            f"  {parts[0]} = {sign}itofp {integers} {dividend} to {doubles}",
            f"  {parts[1]} = {sign}itofp {integers} {divisor} to {doubles}",
            f"  {parts[2]} = fdiv {doubles} {parts[0]}, {parts[1]}",
            f"  {quotient} = fpto{sign}i {doubles} {parts[2]} to {integers}",
        ]
        if kind == "rem":
            made += [
                f"  {parts[4]} = mul {integers} {quotient}, {divisor}",
                f"  {name} = sub {integers} {dividend}, {parts[4]}",
            ]
    return made
