"""Vectors that are looked up side by side: one load at each lane for several of them, and squares that are turned.

    t[v], t[v + 1], t[v + 2], t[v + 3]     four numbers at each lane of v: a load of 16 bytes instead of four loads

Channels that lie last are looked up so, and neighbors along a row. No element is loaded but those that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tedsl.lang.dataclass import dataclass

__all__ = ["LoadedRow", "row_lines", "rows_of"]

BYTES = 16  # of a longest row: parts of a vector of so many bytes are turned side by side
PAIR = 2


@dataclass(frozen=True)
class LoadedRow:
    """So many elements from `begin` on, that are loaded at each lane at once."""

    begin: int
    length: int


def rows_of(numbers: Iterable[int], size: int) -> list[LoadedRow]:
    """The rows of elements of `size` bytes that numbers lie in, one beside the other; a number by itself is in none."""
    rows: list[LoadedRow] = []
    left = sorted(set(numbers))
    while left:
        run = next((k for k, n in enumerate(left) if n != left[0] + k), len(left))
        length = BYTES // size if run >= BYTES // size else PAIR
        if run >= length:
            last = left[0] + run - length
            rows += [LoadedRow(begin, length) for begin in range(left[0], last + 1, length)]
            if run % length and (length > PAIR or length == BYTES // size):  # begins within the one before
                rows.append(LoadedRow(last, length))
        del left[:run]
    return rows


def row_lines(
    row: LoadedRow, wanted: Mapping[int, str], base: str, element: str, at: Sequence[str], end: str, name: str
) -> tuple[list[str], dict[str, str]]:
    """The lines that load a row at each lane; then those that define the vectors `wanted`, of names by their numbers.

    These stand where the vectors were: LLVM wants values that have numbers for names in their order. `at`: the lanes of
    the places, by which elements of the array at `base` are counted. `end`: alignment and alias.
    """
    made = _Vectors(element, len(at), name)
    loaded = [made.loaded(row, base, lane, end, k) for k, lane in enumerate(at)]
    is_long = row.length > PAIR
    part = 4 if is_long or element in ("float", "i32") else 2  # lanes of 16 bytes
    each = part // row.length  # rows that are side by side in a part
    squares = [
        made.joined([loaded[j + k + n] for j in range(0, len(at), part) for n in range(each)], row.length)
        for k in range(0, part, each)
    ]
    results: dict[str, str] = {}
    for number, result in wanted.items():
        place = number - row.begin
        if is_long:
            half, place = divmod(place, 2)
            mixed = [
                made.named(made.chosen(a, b, part, (2 * half, 2 * half + 1), mixed=True))
                for a, b in (squares[:2], squares[2:])
            ]
            results[result] = f"  {result} = {made.chosen(mixed[0], mixed[1], part, (2 * place, 2 * place + 1))}"
        else:
            results[result] = f"  {result} = {made.chosen(squares[0], squares[1], part, range(place, part, 2))}"
    return made.lines, results


class _Vectors:
    """Lines that work on vectors of so many lanes."""

    def __init__(self, element: str, lanes: int, name: str) -> None:
        self.element, self.lanes, self.name = element, lanes, name
        self.lines: list[str] = []
        self.known: dict[str, str] = {}

    def loaded(self, row: LoadedRow, base: str, lane: str, end: str, k: int) -> str:
        """A row at one lane."""
        place = self.named(f"getelementptr {self.element}, ptr {base}, i64 {lane}")
        place = self.named(f"getelementptr {self.element}, ptr {place}, i64 {row.begin}")
        return self.named(f"load <{row.length} x {self.element}>, ptr {place}, {end}")

    def joined(self, parts: Sequence[str], length: int) -> str:
        """One vector of several, one behind the other."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.named(self._shuffled(a, b, length, range(2 * length))) for a, b in pairs]
            length *= 2
        return parts[0]

    def chosen(self, one: str, other: str, part: int, places: Sequence[int], *, mixed: bool = False) -> str:
        """The elements at some places of every part of two vectors, those of one first, or by turns."""
        order: list[int] = []
        for begin in range(0, self.lanes, part):
            mine = [begin + p for p in places]
            both = mine, [self.lanes + p for p in mine]
            order += [p for pair in zip(*both, strict=True) for p in pair] if mixed else [*both[0], *both[1]]
        return self._shuffled(one, other, self.lanes, order)

    def _shuffled(self, one: str, other: str, length: int, order: Iterable[int]) -> str:
        kind, places = f"<{length} x {self.element}>", [f"i32 {k}" for k in order]
        return f"shufflevector {kind} {one}, {kind} {other}, <{len(places)} x i32> <{', '.join(places)}>"

    def named(self, value: str) -> str:
        """A value under a name, the one that it has already."""
        if value not in self.known:
            self.known[value] = f"{self.name}.{len(self.lines)}"
            self.lines.append(f"  {self.known[value]} = {value}")
        return self.known[value]
