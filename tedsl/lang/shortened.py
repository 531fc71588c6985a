"""Formulas without their middle where they are long: brackets match, and whole operands stand around the mark."""

from __future__ import annotations

import re

__all__ = ["shortened"]

LEFT_OUT = "…"
RANGES = "   for "  # behind a formula: the extents of its axes
SIGN = re.compile(r" (?:[-+*/%&|^]|//|\*\*|<<|>>) |, ")
TIGHT = re.compile(r" [*/%]")
PLACE = re.compile(rf"[(\[\])]|{SIGN.pattern}")
LONGEST_SIGN = 4


def shortened(text: str, most: int) -> str:
    """A formula of at most so many characters: `a + … - f(b[i - 1])`.

    Left out is a short part, of terms rather than factors, behind four fifths of what may stand.
    """
    if len(text) <= most:
        return text
    least, begin = len(text) + len(LEFT_OUT) + LONGEST_SIGN - most, most * 4 // 5
    end = text.rfind(RANGES) if RANGES in text else len(text)
    parts = [part for places in _places(text[:end]).values() for part in _parts(places, least)]
    if not parts:  # one long word
        return f"{text[:begin]} {LEFT_OUT} {text[begin + least + 1 :]}"

    def price(part: tuple[int, int]) -> tuple[int, ...]:
        first, last = part
        tight = sum(bool(TIGHT.match(text, place)) for place in part)
        return (last - first - least) // (most // 8), tight, abs(first - begin), first

    first, last = min(parts, key=price)
    sign = SIGN.match(text, first)
    return f"{text[:first]}{sign[0] if sign else ''}{LEFT_OUT}{text[last:]}"


def _places(text: str) -> dict[int, list[int]]:
    """Where a formula may be cut, by the bracket around: before a sign, after an opening and before a closing one."""
    made: dict[int, list[int]] = {}
    around = [-1]
    for sign in PLACE.finditer(text):
        if sign[0] in "([":
            around.append(sign.start())
            made.setdefault(around[-1], []).append(sign.end())
        else:
            made.setdefault(around[-1], []).append(sign.start())
            if sign[0] in ")]" and len(around) > 1:
                around.pop()
    return made


def _parts(places: list[int], least: int) -> list[tuple[int, int]]:
    """For each place the next one that is far enough."""
    found, k = [], 0
    for place in places:
        while k < len(places) and places[k] - place < least:
            k += 1
        if k == len(places):
            break
        found.append((place, places[k]))
    return found
