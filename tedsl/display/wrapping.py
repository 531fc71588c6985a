"""Formulas that are longer than a page is wide: a sum goes on in further lines, each beginning with its sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tedsl.display.math import Big, Cases, Fenced, Fraction, Line, Math, Name, Operator, Root, Row, Script, Table, Word

__all__ = ["width_of", "wrapped"]

# Letters of a right side; with its left side and its remark a line then fits the page of a notebook.
WIDEST = 72.0
SMALL = 0.7  # of what stands above or below
SIGNS = ("+", "−")


def wrapped(line: Line) -> list[Line]:
    """The line, or several where its right side is a sum that is too wide; the remark stands at the last."""
    if width_of(line.right) <= WIDEST:
        return [line]
    rows: list[tuple[str, list[Math], float]] = []
    for sign, term in _terms(line.right, line.sign):
        width = width_of(term)
        if rows and rows[-1][2] + width <= WIDEST:
            before, parts, so_far = rows[-1]
            rows[-1] = before, [*parts, Operator(sign), term], so_far + width
        else:
            rows.append((sign, [term], width))
    made = [Line(Row(()), Row(tuple(parts)), None, sign) for sign, parts, _ in rows]
    made[0] = replace(made[0], left=line.left)
    made[-1] = replace(made[-1], remark=line.remark)
    return made


def _terms(right: Math, sign: str) -> Iterator[tuple[str, Math]]:
    """The terms of a sum, each with the sign before it."""
    stack = [(sign, right)]
    while stack:
        sign, part = stack.pop()
        if isinstance(part, Row) and len(part.parts) == 3 and _sign(part.parts[1]) in SIGNS:
            left, between, rest = part.parts
            stack += [(_sign(between), rest), (sign, left)]
        else:
            yield sign, part


def _sign(part: Math) -> str:
    return part.text if isinstance(part, Operator) else ""


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
