"""An index inversion against brute force: the map and its gathers are run as loops, and their pairs compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import sympy

from autodiff.symbolic.source import pairs_source
from tedsl.lang.dataclass import dataclass

if TYPE_CHECKING:
    from autodiff.symbolic.answer import IndexInversion

__all__ = ["Checked", "DrawnNumbers", "checked", "is_allowed"]

SIZES = (0, 1, 2, 3, 4, 5, 8)
SHIFTS = (0, 1, -1, 2, -2, 3, -5)
DRAWS = 40
MOST_DRAWS = 50_000  # of which those are taken
MOST_POINTS = 300_000  # after which no further draw is tried


@dataclass(frozen=True)
class Checked:
    """What a check tried: values of the parameters, and how many points reached an element."""

    draws: tuple[Mapping[Any, int], ...]
    points: int

    def __str__(self) -> str:
        found = "1 point found once" if self.points == 1 else f"{self.points} points found once each"
        draws = f"; draws of the parameters: {len(self.draws)}" if any(self.draws) else ""
        return f"{found} and no other{draws}"


class DrawnNumbers:
    """An array that has a number at every position, always the same one."""

    def __getitem__(self, position: Any) -> int:
        return hash(position) % 7 - 1


def checked(answer: IndexInversion, sizes: Mapping[Any, int | Sequence[int]], most: int) -> Checked:
    space: dict[str, Any] = {}
    exec(compile(pairs_source(answer), "<inversion>", "exec"), space)
    arrays = [DrawnNumbers() for _ in answer.data]
    draws = []
    points = 0
    for draw in _draws(answer, sizes):
        if _cost(answer, draw) > most or points > MOST_POINTS:
            continue
        try:
            expected = Counter(space["expected"](*draw.values(), *arrays))
        except ZeroDivisionError:
            continue  # these sizes leave the map itself without a value
        found = Counter(space["found"](*draw.values(), *arrays))
        if found != expected:
            raise AssertionError(_counterexample(answer, draw, expected, found))
        draws.append(draw)
        points += sum(expected.values())
    if not draws:
        raise ValueError(_nothing_tried(answer, most))
    return Checked(tuple(draws), points)


def _nothing_tried(answer: IndexInversion, most: int) -> str:
    if not answer.parameters:
        return (
            f"check: the domain and the shape have {_cost(answer, {})} points and elements, of which at most {most} "
            "are tried; give a larger most="
        )
    return (
        f"check: no draw of the parameters ({_names(answer.parameters)}) has at most {most} points and elements; "
        "give smaller ones as sizes={symbol: value}, or a larger most="
    )


def _draws(answer: IndexInversion, sizes: Mapping[Any, int | Sequence[int]]) -> Iterator[dict[Any, int]]:
    """Values of the parameters that their assumptions allow, small ones first."""
    unknown = [s for s in sizes if s not in answer.parameters]
    if unknown:
        raise ValueError(f"check: {_names(unknown)} is no parameter; there are {_names(answer.parameters)}")
    choices = [_choices(answer, s, sizes.get(s)) for s in answer.parameters]
    few = sorted(islice(product(*choices), MOST_DRAWS), key=lambda v: (sum(map(abs, v)), v))
    for values in [*few[: DRAWS // 2], *few[DRAWS // 2 :: max(1, 2 * len(few) // DRAWS)]]:
        yield dict(zip(answer.parameters, values, strict=True))


def _choices(answer: IndexInversion, s: Any, given: int | Sequence[int] | None) -> list[int]:
    if given is not None:
        return list(given) if isinstance(given, Iterable) else [int(given)]
    values = SIZES if s in answer.sizes else SHIFTS
    candidates = [*values, *(c * v for c in (-1, 2, 7) for v in values)]
    asked = [v for v in candidates if is_allowed(s, v)]
    return list(dict.fromkeys(asked))[: len(values)]


def is_allowed(s: Any, value: int) -> bool:
    """Whether the symbol's assumptions hold for the number."""
    number = sympy.Integer(value)
    return all(getattr(number, f"is_{name}", None) in (truth, None) for name, truth in s.assumptions0.items())


def _cost(answer: IndexInversion, draw: Mapping[Any, int]) -> int:
    """Points and elements, as far as they are known."""
    total = 0
    for extents in ([n for _, n in answer.domain.values()], answer.shape):
        count = 1
        for n in extents:
            value = sympy.sympify(n).subs(draw)
            count *= max(0, int(value)) if value.is_Integer else 0
        total += count
    return total


def _counterexample(
    answer: IndexInversion, draw: Mapping[Any, int], expected: Counter[Any], found: Counter[Any]
) -> str:
    (element, point) = min({*(expected - found), *(found - expected)})
    times = (
        f"reaches the element {element} {expected[element, point]} times, and the gathers say {found[element, point]}"
    )
    sizes = ", ".join(f"{s} = {v}" for s, v in draw.items())
    where = f" with {sizes}" if sizes else ""
    return f"check: the point {point} of ({_names(answer.domain)}) {times}{where}; please report\n{answer}"


def _names(symbols: Iterable[Any]) -> str:
    return ", ".join(map(str, symbols)) or "none"
