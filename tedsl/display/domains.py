"""The picture of an index map: the points of its domain, each in the color of the element that it reaches.

A box of any rank is laid out on paper: the last dimension goes across, the one before down, the next across again in
steps of whole blocks, and so on. One element and its points are outlined and joined; under the pointer any other is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from autodiff.symbolic.sample import Box, Sample
from tedsl.display.markup import escape, svg
from tedsl.display.math import GREEK
from tedsl.lang.dataclass import dataclass

__all__ = ["MOST_CELLS", "chosen_of", "picture", "written"]

MOST_CELLS = 200
MOST_ELEMENTS = 256
MOST_HOVERED = 160
MOST_COLUMNS = 32
HEIGHT, GAP, MARGIN, TITLE, TICKS = 22.0, 9.0, 6.0, 18.0, 16.0
BETWEEN = 64.0  # of the two boxes, side by side
WIDEST = 760.0
LETTER = 6.4
AIR = 3.0  # between a box and a line
ARROWS = ("→", "↓", "⇒", "⇓")
SPECTRUM = 300.0  # degrees of hue from the first element to the last
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

Place = tuple[int, ...]


@dataclass(frozen=True)
class PictureLayout:
    """Where the cells of a box are: `steps` (across, down) per dimension, and how large it is in all.

    A line of more than `columns` cells goes on in the next row.
    """

    box: Box
    steps: tuple[tuple[float, float], ...]
    size: tuple[float, float]
    cell: float
    columns: int = 0

    def corner(self, place: Place) -> tuple[float, float]:
        offsets = [(i - b) for i, (b, _) in zip(place, self.box, strict=True)]
        if self.columns:
            row, column = divmod(offsets[0], self.columns)
            return column * self.cell, row * HEIGHT
        moves = [(k * x, k * y) for k, (x, y) in zip(offsets, self.steps, strict=True)]
        return sum(x for x, _ in moves), sum(y for _, y in moves)

    def middle(self, place: Place) -> tuple[float, float]:
        x, y = self.corner(place)
        return x + self.cell / 2, y + HEIGHT / 2

    def places(self) -> Iterator[Place]:
        def rest(k: int) -> Iterator[Place]:
            if k == len(self.box):
                yield ()
                return
            begin, extent = self.box[k]
            for i in range(begin, begin + extent):
                yield from ((i, *after) for after in rest(k + 1))

        return rest(0)


def layout(box: Box, cell: float) -> PictureLayout:
    if len(box) == 1 and box[0][1] > MOST_COLUMNS:
        n = box[0][1]
        columns = next((c for c in range(MOST_COLUMNS, MOST_COLUMNS // 2 - 1, -1) if n % c == 0), MOST_COLUMNS)
        return PictureLayout(box, (), (columns * cell, -(-n // columns) * HEIGHT), cell, columns)
    sides = [cell, HEIGHT]
    steps: list[tuple[float, float]] = []
    for level, (_, extent) in enumerate(reversed(box)):
        side = level % 2
        if level > 1:
            sides[side] += GAP
        steps.append((sides[0], 0.0) if side == 0 else (0.0, sides[1]))
        sides[side] = sides[side] * extent - (GAP if level > 1 else 0.0)
    return PictureLayout(box, tuple(reversed(steps)), (sides[0], sides[1]), cell)


def picture(sample: Sample, domain: Sequence[Any], elements: Sequence[Any], title: str) -> str:
    """An SVG of the domain and of what it reaches; `domain` and `elements` are the names of their dimensions."""
    target = _shown(sample)
    if prod(n for _, n in target) > MOST_ELEMENTS:
        return ""
    cell = max(24.0, 10.0 + LETTER * max(len(_label(e)) for e in sample.reached.values()))
    left, right = layout(sample.domain, cell), layout(target, cell)
    beside = len(domain) != 1 and left.size[0] + right.size[0] + BETWEEN < WIDEST
    down = TITLE + TICKS
    start = (MARGIN + TICKS, down)
    second = (start[0] + left.size[0] + BETWEEN, down) if beside else (start[0], 2 * down + left.size[1] + GAP)
    chosen, hues = chosen_of(sample), _hues(target)
    threads = [*_threads(sample, chosen, left, start, right, second, beside)] if len(domain) <= 2 else []
    aside = GAP + right.size[0] if threads and not beside else 0.0  # the second title, out of the way of the lines
    room = aside + LETTER * len(_named(elements)) if aside else right.size[0]
    width = max(start[0] + left.size[0], second[0] + room, 200.0) + MARGIN
    height = max(start[1] + left.size[1], second[1] + right.size[1]) + MARGIN
    parts = [
        *threads,
        _title(start, domain),
        *_box(left, start, domain, {p: sample.reached.get(p) for p in left.places()}, hues, chosen),
        _title((second[0] + aside, second[1] + (TICKS if aside else 0.0)), elements),
        *_box(right, second, elements, {e: e for e in right.places()}, hues, chosen, sample.points),
    ]
    return svg(width, height, title, _hovering(hues) + "".join(parts))


def _shown(sample: Sample) -> Box:
    """The elements shown: all, or those around what a domain that is cut reaches."""
    if not sample.is_cut:
        return tuple((0, n) for n in sample.shape)
    ends = [1 + max(e[d] for e in sample.reached.values()) for d in range(len(sample.shape))]
    begins = [min(e[d] for e in sample.reached.values()) for d in range(len(sample.shape))]
    return tuple((b, e - b) for b, e in zip(begins, ends, strict=True))


def _hues(target: Box) -> Mapping[Place, tuple[int, float]]:
    """The number of each element and its color: as a spectrum, in the order of the memory."""
    places = list(layout(target, 1.0).places())
    return {e: (k, SPECTRUM * k / max(1, len(places) - 1)) for k, e in enumerate(places)}


def chosen_of(sample: Sample) -> Place:
    """An element with as many points as any has, in the middle of such."""
    points = sample.points
    most = max(map(len, points.values()))
    full = sorted(e for e, found in points.items() if len(found) == most)
    return full[len(full) // 2]


def _label(place: Place) -> str:
    return ",".join(map(str, place)) or "·"


def _box(
    made: PictureLayout,
    start: tuple[float, float],
    names: Sequence[Any],
    shown: Mapping[Place, Place | None],
    hues: Mapping[Place, tuple[int, float]],
    chosen: Place,
    used: Collection[Place] | None = None,
) -> Iterator[str]:
    yield from _ticks(made, start)
    for place, element in shown.items():
        x, y = made.corner(place)
        at = " ".join(f"{n} = {i}," for n, i in zip(names, place, strict=True)).rstrip(",")
        is_empty = element is None or (used is not None and element not in used)
        told = f"{at}: reaches nothing" if element is None else f"{at}: {_label(element)}" if used is None else at
        if used is not None and is_empty:
            told = f"{at}: not reached"
        marks = "" if is_empty or element is None else f" te-hue te-e{hues[element][0]}"
        marks += " te-out" if element == chosen else ""
        hue = f' style="--h:{hues[element][1]:.0f}"' if element is not None and not is_empty else ""
        text = "" if element is None else _label(element)
        yield (
            f'<g class="te-cell{marks}"{hue} transform="translate({start[0] + x + 1:.0f},{start[1] + y + 1:.0f})">'
            f'<title>{escape(told)}</title><rect width="{made.cell - 2:.0f}" height="{HEIGHT - 2:.0f}"/>'
            f'<text{" class=te-sub" if is_empty else ""} x="{made.cell / 2 - 1:.0f}" y="14">{text}</text></g>'
        )


def _named(names: Sequence[Any]) -> str:
    """The names of the dimensions, each with its direction."""
    told = [f"{written(n)} {ARROWS[k if k < 4 else 2 + k % 2]}" for k, n in enumerate(reversed(names))]
    return "   ".join(reversed(told))


def _title(start: tuple[float, float], names: Sequence[Any]) -> str:
    x, y = start[0] + 1, start[1] - TICKS - 3
    return f'<text x="{x:.1f}" y="{y:.1f}" xml:space="preserve">{escape(_named(names))}</text>'


def written(name: Any) -> str:
    """s with a small 0 for s_0, a Greek letter for its name."""
    stem, _, number = str(name).partition("_")
    letter = GREEK.get(stem, stem)
    return letter + number.translate(SUBSCRIPTS) if len(letter) == 1 and (number.isdigit() or not number) else str(name)


def _ticks(made: PictureLayout, start: tuple[float, float]) -> Iterator[str]:
    """Numbers along the last two dimensions, of the first block; of a line of several rows, where each begins."""
    if made.columns:
        ((begin, extent),) = made.box
        for i in range(begin, begin + extent, made.columns):
            x, y = made.middle((i,))
            yield f'<text class="te-sub" x="{start[0] - 4:.1f}" y="{start[1] + y + 4:.1f}" text-anchor="end">{i}</text>'
        return
    origin = [b for b, _ in made.box]
    for level, (begin, extent) in enumerate(reversed(made.box[-2:])):
        d = len(made.box) - 1 - level
        for i in range(begin, begin + extent):
            x, y = made.middle((*origin[:d], i, *origin[d + 1 :]))
            where = (start[0] + x, start[1] - 4) if level == 0 else (start[0] - 4, start[1] + y + 4)
            anchor = "middle" if level == 0 else "end"
            yield f'<text class="te-sub" x="{where[0]:.1f}" y="{where[1]:.1f}" text-anchor="{anchor}">{i}</text>'


def _threads(
    sample: Sample,
    chosen: Place,
    left: PictureLayout,
    start: tuple[float, float],
    right: PictureLayout,
    second: tuple[float, float],
    beside: bool,
) -> Iterator[str]:
    """Lines from the points of the chosen element to it, beside the boxes and their labels.

    They leave a box in the row or the column of a point, and end at the label of that of the element, or below it.
    """
    ex, ey = right.corner(chosen)
    lines = []
    for point in sample.points[chosen]:
        px, py = left.corner(point)
        if beside:
            x, y = start[0] + left.size[0] + AIR, start[1] + py + HEIGHT / 2
            if right.size[1] > HEIGHT:
                u, v = second[0] - TICKS, second[1] + ey + HEIGHT / 2
                bend = f"{(x + u) / 2:.1f} {y:.1f} {(x + u) / 2:.1f} {v:.1f}"
            else:
                u, v = second[0] + ex + right.cell / 2, second[1] + HEIGHT + AIR
                low, near, middle = max(y, v + 2 * AIR), second[0] - AIR, x + BETWEEN / 2
                down = f"{middle:.1f} {y:.1f} {middle:.1f} {low:.1f} {near:.1f} {low:.1f}"
                bend = f"{down}C{u:.1f} {low:.1f} {u:.1f} {low:.1f}"
        else:
            x, y = start[0] + px + left.cell / 2, start[1] + left.size[1] + AIR
            u, v = second[0] + ex + right.cell / 2, second[1] - (AIR if right.columns else TICKS)
            bend = f"{x:.1f} {(y + v) / 2:.1f} {u:.1f} {(y + v) / 2:.1f}"
        lines.append(f'<path d="M{x:.1f} {y:.1f}C{bend} {u:.1f} {v:.1f}"/>')
    yield from dict.fromkeys(lines)


def _hovering(hues: Mapping[Place, tuple[int, float]]) -> str:
    """Rules by which an element and its points are marked when the pointer is over one of them."""
    if len(hues) > MOST_HOVERED:
        return ""
    rules = (f"svg:has(.te-e{k}:hover) .te-e{k} rect" for k, _ in hues.values())
    return f"<style>{','.join(rules)}{{stroke:var(--ink)!important;stroke-width:1.8}}</style>"
