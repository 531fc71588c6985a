"""Tables of text that fit a terminal: where they do not, the cells of some columns go on in further lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

__all__ = ["in_columns"]

WIDEST = 120  # characters of a line
GAP, INDENT = 2, 2
LEAST = 24  # of a column that is wrapped


def in_columns(rows: Sequence[Sequence[str]], may_wrap: Sequence[int]) -> list[str]:
    """The lines of a table; the cells of some columns are wrapped where it would be wider than a line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + GAP * (len(widths) - 1) - WIDEST
    for column in sorted(may_wrap, key=lambda c: -widths[c]):
        if over > 0 and widths[column] > LEAST:
            narrow = max(LEAST, widths[column] - over)
            over -= widths[column] - narrow
            widths[column] = narrow
    return [line for row in rows for line in _lines(row, widths)]


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    for k in range(max(map(len, cells))):
        line = [cell[k] if k < len(cell) else "" for cell in cells]
        yield (" " * GAP).join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()


def _wrapped(cell: str, width: int) -> list[str]:
    """A cell in lines, which begin with an operand of the call or the read that it is where that is short enough."""
    if len(cell) <= width:
        return [cell]
    lines: list[str] = []
    for part in _operands(cell):
        if lines and len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            indent = " " * INDENT if lines else ""
            lines += wrap(
                part, width, initial_indent=indent, subsequent_indent=" " * 2 * INDENT, break_long_words=True,
                break_on_hyphens=False,
            )  # fmt: skip
    return lines


def _operands(cell: str) -> Iterator[str]:
    """What stands between the commas of the outermost brackets."""
    depth, begin = 0, 0
    for k, letter in enumerate(cell):
        depth += (letter in "([") - (letter in ")]")
        if cell.startswith(", ", k) and depth == 1:
            yield cell[begin : k + 1]
            begin = k + 2
    yield cell[begin:]
