"""Which extents of an operator's arrays become symbols: those that changed from call to call.

Extents that were the same in all calls stay numbers, and extents that were equal to one another in each of them share a
symbol, as a function needs that adds two arrays. What is guessed so is looked at before each use (`fits`): a call that
breaks it has the guess made again with its shapes, which can only tell more extents apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tedsl.lang.axes import var

__all__ = ["Pattern", "Spec", "all_apart", "fits", "is_numeric", "kind_of", "opened", "pattern_of", "with_keys"]

Spec = tuple[tuple[Any, ...], str]  # shape and dtype of an array
Pattern = tuple[Spec, ...]  # shapes of numbers and of names, one for each symbol


def is_numeric(specs: Sequence[Spec]) -> bool:
    """Whether all extents are numbers, none of them a symbol of the caller's."""
    return all(isinstance(n, int) for shape, _ in specs for n in shape)


def kind_of(specs: Sequence[Spec]) -> Pattern:
    """What one kernel may have in common: 0 and 1, which may be broadcast, stay numbers; None stands for others."""
    return tuple((tuple(n if n < 2 else None for n in shape), dtype) for shape, dtype in specs)


def all_apart(specs: Sequence[Spec]) -> Pattern:
    """A symbol of its own for each extent."""
    return _named(specs, [[(n,) if n < 2 else (n, a, d) for d, n in enumerate(s)] for a, (s, _) in enumerate(specs)])


def pattern_of(seen: Sequence[Sequence[Spec]], everywhere: bool) -> Pattern:
    """A symbol for those extents that were equal in all shapes seen, of one kind; a number for what never changed.

    `everywhere`: symbols also for these, since every extent is to be one.
    """
    first = seen[0]
    columns = [
        [tuple(specs[a][0][d] for specs in seen) for d in range(len(shape))] for a, (shape, _) in enumerate(first)
    ]
    changes = [[c if c[0] > 1 and (everywhere or len({*c}) > 1) else c[:1] for c in row] for row in columns]
    if everywhere:
        changes = [[(*c, None) if c[0] > 1 else c for c in row] for row in changes]
    return _named(first, changes)


def with_keys(pattern: Pattern, specs: Sequence[Spec]) -> Pattern:
    """The pattern where the two words of random keys, last in an array of uint32, are two whatever else is open."""
    return tuple(
        ((*named[:-1], 2), dtype) if dtype == "uint32" and shape[-1:] == (2,) else (named, dtype)
        for (named, dtype), (shape, _) in zip(pattern, specs, strict=True)
    )


def _named(specs: Sequence[Spec], keys: Sequence[Sequence[tuple[Any, ...]]]) -> Pattern:
    """Names for extents by their keys, the same for the same key; a key of one number is that number."""
    names: dict[tuple[Any, ...], str] = {}
    rows = [tuple(k[0] if len(k) == 1 else names.setdefault(k, f"n{len(names)}") for k in row) for row in keys]
    return tuple((row, dtype) for row, (_, dtype) in zip(rows, specs, strict=True))


def fits(pattern: Pattern, specs: Sequence[Spec]) -> bool:
    """Whether arrays of these shapes are what the pattern says: numbers met, equal extents where a symbol is shared."""
    bound: dict[str, int] = {}
    return len(pattern) == len(specs) and all(
        dtype == other
        and len(named) == len(shape)
        and all(n == m if isinstance(n, int) else m > 1 and bound.setdefault(n, m) == m for n, m in zip(named, shape))
        for (named, dtype), (shape, other) in zip(pattern, specs)
    )


def opened(pattern: Pattern) -> tuple[Spec, ...]:
    """The pattern as shapes, with a variable for each name."""
    names = {n: var(n) for shape, _ in pattern for n in shape if isinstance(n, str)}
    return tuple((tuple(names.get(n, n) for n in shape), dtype) for shape, dtype in pattern)
