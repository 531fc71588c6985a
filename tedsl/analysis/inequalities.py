"""Whether integer linear inequalities contradict each other: Fourier-Motzkin elimination, rows tightened to integers.

The systems here have a handful of rows. Elimination that grows past a limit gives up, which only means "not proven".
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from tedsl.analysis.affine import Affine, Monomial

__all__ = ["contradictory"]

LIMIT = 300  # rows at which elimination gives up

Row = dict[Monomial, int]
System = dict[frozenset[tuple[Monomial, int]], tuple[Row, int]]


def contradictory(forms: Iterable[Affine]) -> bool:
    """Whether no integers make all of the forms at least zero (False where that could not be shown)."""
    system: System = {}
    for form in forms:
        if _added(system, dict(form.terms), form.constant):
            return True
    while system:
        unknown = _cheapest(system)
        positive = [row for row in system.values() if row[0].get(unknown, 0) > 0]
        negative = [row for row in system.values() if row[0].get(unknown, 0) < 0]
        rest: System = {k: row for k, row in system.items() if unknown not in row[0]}
        if len(rest) + len(positive) * len(negative) > LIMIT:
            return False
        for low in positive:
            for high in negative:
                if _added(rest, *_combined(low, high, unknown)):
                    return True
        system = rest
    return False


def _added(system: System, terms: Row, constant: int) -> bool:
    """Add `terms + constant >= 0`, the tightest of its direction kept; whether it alone is a contradiction."""
    if not terms:
        return constant < 0
    divisor = gcd(*terms.values())
    if divisor > 1:
        terms = {m: c // divisor for m, c in terms.items()}
        constant = constant // divisor
    key = frozenset(terms.items())
    known = system.get(key)
    if known is None or constant < known[1]:
        system[key] = terms, constant
    opposite = system.get(frozenset((m, -c) for m, c in terms.items()))
    return opposite is not None and opposite[1] + constant < 0


def _cheapest(system: System) -> Monomial:
    """The unknown whose elimination makes the fewest rows."""
    counts: dict[Monomial, list[int]] = {}
    for terms, _ in system.values():
        for monomial, factor in terms.items():
            counts.setdefault(monomial, [0, 0])[factor > 0] += 1
    return min(counts, key=lambda m: counts[m][0] * counts[m][1] - counts[m][0] - counts[m][1])


def _combined(low: tuple[Row, int], high: tuple[Row, int], unknown: Monomial) -> tuple[Row, int]:
    """The positive combination of two rows in which `unknown` vanishes."""
    a, b = low[0][unknown], -high[0][unknown]
    common = gcd(a, b)
    times_low, times_high = b // common, a // common
    total = {m: c * times_low for m, c in low[0].items()}
    for monomial, factor in high[0].items():
        total[monomial] = total.get(monomial, 0) + factor * times_high
    return {m: c for m, c in total.items() if c}, low[1] * times_low + high[1] * times_high
