"""Sums of quotients and remainders of one number, written by its digits where that is shorter.

s // 2 - 2 (s // 4) is one bit of s, and 8 s - 4 (s % 4) - 2 (s % 2) is 32 (s // 4) + 8 (s // 2 % 2) + 2 (s % 2):
every such sum is a sum of digits, each times a number, where each divisor is a multiple of the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import sympy

__all__ = ["by_digits"]

Chain = dict[int, Any]  # the coefficient of number // divisor, per divisor


def by_digits(e: Any) -> Any:
    """The sum with the terms of each number in their shortest form.

    >>> s = sympy.Symbol("s", integer=True)
    >>> by_digits(3 * s - 14 * sympy.floor(s / 5))
    3*(Mod(s, 5)) + floor(s/5)
    """
    own: dict[Any, dict[Any, Any]] = {}  # the terms of each number, None for those of none
    chains: dict[Any, Chain] = {}
    for term, c in e.as_coefficients_dict().items():
        parts = list(_parts(term))
        number = parts[0][0] if parts else None
        own.setdefault(number, {})[term] = c
        for _, divisor, factor in parts:
            chain = chains.setdefault(number, {})
            chain[divisor] = chain.get(divisor, 0) + c * factor
    written = [_shortest(number, terms, chains.get(number, {})) for number, terms in own.items()]
    return sympy.Add(*(c * t for terms in written for t, c in terms.items()))


def _parts(term: Any) -> Iterator[tuple[Any, int, int]]:
    """The term as a sum of factor * (number // divisor), where it is one."""
    if isinstance(term, sympy.Mod):
        inside, m = term.args
        if m.is_Integer and m > 1:
            for number, divisor, _ in _parts(inside):
                yield number, divisor, 1
                yield number, divisor * int(m), -int(m)
    elif isinstance(term, sympy.floor):
        (inside,) = term.args
        divisor = sympy.ilcm(1, *(c.q for c in inside.as_coefficients_dict().values()))
        number = sympy.expand(inside * divisor)
        if number.is_integer:
            yield number, int(divisor), 1
    elif isinstance(term, sympy.Symbol) and term.is_integer:
        yield term, 1, 1


def _shortest(number: Any, terms: dict[Any, Any], chain: Chain) -> Mapping[Any, Any]:
    divisors = sorted(chain)
    if len(terms) == 1 or not divisors or any(b % a for a, b in pairwise(divisors)):
        return terms
    forms = [terms, _digits(number, chain, divisors), {_quotient(number, d): c for d, c in chain.items() if c != 0}]
    return min(forms, key=lambda form: (len(form), any(c < 0 for c in form.values())))


def _digits(number: Any, chain: Chain, divisors: list[int]) -> Mapping[Any, Any]:
    found = {}
    weight = sympy.Integer(0)
    for d, larger in pairwise([*divisors, 0]):
        weight += chain[d]
        if weight != 0:
            found[sympy.Mod(_quotient(number, d), larger // d) if larger else _quotient(number, d)] = weight
        weight *= larger // d
    return found


def _quotient(number: Any, divisor: int) -> Any:
    return sympy.floor(number / divisor)
