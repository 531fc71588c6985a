"""Shifts and masks by numbers as linear forms.

`e >> k` is `e // 2^k`, and the bits of e from place a to place b are `(e // 2^a) % 2^(b - a)`. That holds of negative
numbers too, which have no end of ones to the left.
"""

from __future__ import annotations

from collections.abc import Iterator

from autodiff.integers.linear import Linear, floordiv, linear, mod
from tedsl.lang.expr import Apply, Const
from tedsl.lang.intervals import range_of

__all__ = ["exclusive_or", "masked", "runs", "shifted_down", "shifted_up", "united"]

MOST_PLACES = 30


def runs(mask: int) -> Iterator[tuple[int, int]]:
    """(first place, length) of each run of ones.

    >>> list(runs(0b1101))
    [(0, 1), (2, 2)]
    """
    place = 0
    while mask >> place:
        if not mask >> place & 1:
            place += 1
            continue
        length = (~(mask >> place) & -~(mask >> place)).bit_length() - 1
        yield place, length
        place += length


def shifted_down(e: Linear, by: Linear) -> Linear | None:
    return floordiv(e, 1 << by.constant) if by.is_constant and 0 <= by.constant <= MOST_PLACES else None


def shifted_up(node: Apply, e: Linear) -> Linear | None:
    """Where no bit is lost."""
    source, by = node.args
    if not isinstance(by, Const) or not 0 <= by.value <= MOST_PLACES:
        return None
    low, high = range_of(source)
    k = int(by.value)
    return e * (1 << k) if low << k >= -(1 << 31) and high << k < 1 << 31 else None


def masked(a: Linear, b: Linear) -> Linear | None:
    """a & b where one is a number."""
    e, mask = (a, b) if b.is_constant else (b, a)
    if not mask.is_constant:
        return None
    if mask.constant < 0:
        return e - _bits(e, ~mask.constant)
    return _bits(e, mask.constant)


def _bits(e: Linear, mask: int) -> Linear:
    parts = (mod(floordiv(e, 1 << place), 1 << length) * (1 << place) for place, length in runs(mask))
    return sum(parts, linear(0))


def united(a: Linear, b: Linear) -> Linear | None:
    both = masked(a, b)
    return None if both is None else a + b - both


def exclusive_or(a: Linear, b: Linear) -> Linear | None:
    both = masked(a, b)
    return None if both is None else a + b - both * 2
