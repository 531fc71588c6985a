"""One small case of an index map, for pictures: numbers for its parameters, and where each point goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product
from math import prod
from typing import TYPE_CHECKING, Any

import sympy

from autodiff.symbolic.checking import DrawnNumbers, is_allowed
from autodiff.symbolic.source import pairs_source
from tedsl.lang.dataclass import dataclass

if TYPE_CHECKING:
    from autodiff.symbolic.answer import IndexInversion

__all__ = ["Box", "Sample", "sample_of"]

SIZES = (5, 4, 3, 6, 2, 8, 1)
SHIFTS = (1, 2, 3, -1, 0)
TRIED = 200
LONGEST = 8  # of an axis that is cut

Box = tuple[tuple[int, int], ...]  # (begin, extent) per dimension


@dataclass(frozen=True)
class Sample:
    """What is shown of a map: its `domain` and `shape` in numbers, {point: element}, and whether the domain is cut."""

    sizes: Mapping[Any, int]
    domain: Box
    shape: tuple[int, ...]
    reached: Mapping[tuple[int, ...], tuple[int, ...]]
    is_cut: bool

    @property
    def points(self) -> Mapping[tuple[int, ...], list[tuple[int, ...]]]:
        """The points of each element that is reached."""
        found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for point, element in self.reached.items():
            found.setdefault(element, []).append(point)
        return found


def sample_of(answer: IndexInversion, most: int) -> Sample | None:
    """A case with at most `most` points, of axes cut short where there are more; None where nothing can be shown."""
    for draw in islice(_draws(answer), TRIED):
        domain = [(_number(b, draw), _number(n, draw)) for b, n in answer.domain.values()]
        shape = [_number(n, draw) for n in answer.shape]
        if None in shape or any(None in pair for pair in domain):
            return None
        box: Box = tuple((int(b), max(0, int(n))) for b, n in domain)  # type: ignore[arg-type]
        is_cut = prod(n for _, n in box) > most
        if is_cut and answer.parameters:
            continue
        shown = _cut(box, most) if is_cut else box
        found = _reached(answer, draw, shown)
        if found:
            return Sample(draw, shown, tuple(max(0, int(n)) for n in shape), found, is_cut)  # type: ignore[arg-type]
    return None


def _draws(answer: IndexInversion) -> Iterator[dict[Any, int]]:
    """Numbers for the parameters: neither all alike nor very small, as far as their assumptions allow."""
    choices = []
    for k, s in enumerate(answer.parameters):
        values: tuple[int, ...] = SIZES if s in answer.sizes else SHIFTS
        turned = (*values[k % 3 :], *values[: k % 3])
        choices.append([v for v in (*turned, *(-v for v in turned), 7, 11) if is_allowed(s, v)])
    for values in product(*choices):
        yield dict(zip(answer.parameters, values, strict=True))


def _number(e: Any, draw: Mapping[Any, int]) -> int | None:
    value = sympy.sympify(e).subs(draw)
    return int(value) if value.is_Integer else None


def _cut(box: Box, most: int) -> Box:
    """The beginning of a box, its longest axes shortened until it is small."""
    extents = [min(n, LONGEST) for _, n in box]
    while prod(extents) > most:
        k = extents.index(max(extents))
        extents[k] -= 1
    return tuple((b, n) for (b, _), n in zip(box, extents, strict=True))


def _reached(answer: IndexInversion, draw: Mapping[Any, int], box: Box) -> dict[tuple[int, ...], tuple[int, ...]]:
    ranges = ((sympy.Integer(b), sympy.Integer(n)) for b, n in box)
    small = replace(answer, domain=dict(zip(answer.domain, ranges, strict=True)))
    space: dict[str, Any] = {}
    exec(compile(pairs_source(small), "<inversion>", "exec"), space)
    try:
        pairs = list(space["expected"](*(draw[s] for s in answer.parameters), *(DrawnNumbers() for _ in answer.data)))
    except ZeroDivisionError:
        return {}
    return {point: element for element, point in pairs}
