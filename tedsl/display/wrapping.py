"""Formulas that are longer than a page is wide: a sum goes on in further lines, each beginning with its sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tedsl.display.math import Big, Cases, Fenced, Fraction, Line, Math, Name, Operator, Root, Row, Script, Table, Word

__all__ = ["width_of", "wrapped"]

# Letters of a right side, and of a line with what stands on its left and its remark, that fit the page of a notebook.
WIDEST, PAGE = 72.0, 92.0
SMALL = 0.7  # of what stands above or below
SIGNS = ("+", "−")


def wrapped(lines: Sequence[Line]) -> list[Line]:
    """The lines, those with a wide right side as several; a remark that does not fit beside all is one more."""
    made = [part for line in lines for part in _in_rows(line)]
    room = PAGE - max(width_of(x.left) for x in made) - max(width_of(x.right) for x in made)
    return [part for line in made for part in _with_remark(line, room)]


def _with_remark(line: Line, room: float) -> list[Line]:
    if line.remark is None or width_of(line.remark) <= room:
        return [line]
    return [replace(line, remark=None), Line(Row(()), Row((Word("for "), line.remark)), None, "")]


def _in_rows(line: Line) -> list[Line]:
    """The parts of its right side in rows that are not too wide, the remark at the last."""
    rows: list[tuple[str, list[Math], float]] = []
    for sign, term in _pieces(line.right):
        width = width_of(term)
        if rows and rows[-1][2] + width <= WIDEST:
            before, parts, so_far = rows[-1]
            rows[-1] = before, [*parts, Operator(sign), term], so_far + width
        else:
            rows.append((sign or line.sign, [term], width))
    if len(rows) == 1:
        return [line]
    made = [Line(Row(()), Row(tuple(parts)), None, sign) for sign, parts, _ in rows]
    made[0], made[-1] = replace(made[0], left=line.left), replace(made[-1], remark=line.remark)
    return made


def _pieces(part: Math) -> list[tuple[str, Math]]:
    """A formula in parts that may stand in lines of their own, each with the sign before it; the first has none.

    What is narrow stays whole. Brackets, factors and sums stay with the first part of what they hold, or the last.
    """
    if width_of(part) <= WIDEST:
        return [("", part)]
    match part:
        case Fenced(inner, "(" as left, ")" as right):
            return _around(_pieces(inner), [Operator(left)], [Operator(right)])
        case Big():
            first, *others = _pieces(part.operand)
            return [("", replace(part, operand=first[1])), *others]
        case Row((left, Operator(sign), right)) if sign in SIGNS:
            first, *others = _pieces(right)
            return [*_pieces(left), (sign, first[1]), *others]
        case Row((left, Operator() as between, right)) if width_of(left) < width_of(right):
            return _around(_pieces(right), [left, between], [])
        case Row((left, Operator() as between, right)):
            return _around(_pieces(left), [], [between, right])
        case Row((Operator() as before, right)):
            return _around(_pieces(right), [before], [])
    return [("", part)]


def _around(pieces: list[tuple[str, Math]], before: Sequence[Math], after: Sequence[Math]) -> list[tuple[str, Math]]:
    """The parts with something before the first and after the last."""
    if before:
        pieces[0] = pieces[0][0], Row((*before, pieces[0][1]))
    if after:
        pieces[-1] = pieces[-1][0], Row((pieces[-1][1], *after))
    return pieces


def width_of(part: Math) -> float:
    """About how many letters wide a part is."""
    match part:
        case Name(text) | Word(text):
            return float(len(text))
        case Operator(text):
            return len(text) + 1.0
        case Row(parts):
            return sum(map(width_of, parts))
        case Fenced(inner) | Root(inner):
            return width_of(inner) + 1.0
        case Fraction(above, below):
            return max(width_of(above), width_of(below))
        case Script(base, below, above):
            return width_of(base) + SMALL * max(_width(below), _width(above))
        case Big(_, below, above, operand):
            limits = max(2.0, _width(above), *map(width_of, below)) * SMALL
            return limits + width_of(operand)
        case Cases(rows):
            return 4.0 + max(width_of(v) for v, _ in rows) + max(width_of(c) for _, c in rows)
        case Table(lines):
            return max(width_of(x.left) + width_of(x.right) + _width(x.remark) for x in lines)
    return 0.0


def _width(part: Math | None) -> float:
    return 0.0 if part is None else width_of(part)
