"""Whether integer linear inequalities contradict each other: Fourier-Motzkin elimination, rows tightened to integers.

The systems here have a handful of rows. Elimination that grows past a limit gives up, which only means "not proven".
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from tedsl.lang.polynomials import Affine, Monomial

__all__ = ["contradictory"]

LIMIT = 300  # rows at which elimination gives up

System = dict[frozenset[tuple[Monomial, int]], Affine]  # forms that are at least zero, the tightest of each direction


def contradictory(forms: Iterable[Affine]) -> bool:
    """Whether no integers make all of the forms at least zero (False where that could not be shown)."""
    system: System = {}
    for form in forms:
        if _added(system, form):
            return True
    while system:
        unknown = _cheapest(system)
        positive = [row for row in system.values() if row.terms.get(unknown, 0) > 0]
        negative = [row for row in system.values() if row.terms.get(unknown, 0) < 0]
        rest: System = {k: row for k, row in system.items() if unknown not in row.terms}
        if len(rest) + len(positive) * len(negative) > LIMIT:
            return False
        for low in positive:
            for high in negative:
                if _added(rest, _combined(low, high, unknown)):
                    return True
        system = rest
    return False


def _added(system: System, row: Affine) -> bool:
    """Add `row >= 0`, tightened to integers; whether it, or it beside its opposite, is a contradiction."""
    if not row.terms:
        return row.constant < 0
    divisor = gcd(*row.terms.values())
    if divisor > 1:
        row, _ = row.divided(divisor)
    key = frozenset(row.terms.items())
    known = system.get(key)
    if known is None or row.constant < known.constant:
        system[key] = row
    opposite = system.get(frozenset((m, -c) for m, c in row.terms.items()))
    return opposite is not None and opposite.constant + row.constant < 0


def _cheapest(system: System) -> Monomial:
    """The unknown whose elimination makes the fewest rows."""
    counts: dict[Monomial, list[int]] = {}
    for row in system.values():
        for monomial, factor in row.terms.items():
            counts.setdefault(monomial, [0, 0])[factor > 0] += 1
    return min(counts, key=lambda m: counts[m][0] * counts[m][1] - counts[m][0] - counts[m][1])


def _combined(low: Affine, high: Affine, unknown: Monomial) -> Affine:
    """The positive combination of two rows in which `unknown` vanishes."""
    a, b = low.terms[unknown], -high.terms[unknown]
    common = gcd(a, b)
    return (low * (b // common)).plus(high, a // common)
