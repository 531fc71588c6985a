"""Indices that go round: remainders by a length which are one straight run for most of their loops.

What such an index is there a compiler cannot see, as it does not know how often the remainder goes round.
"""

from __future__ import annotations

from tedsl.analysis.affine import form_of
from tedsl.lang.expr import Apply, Expr, Fn, Read
from tedsl.lang.intervals import range_of, with_sizes
from tedsl.lang.polynomials import Affine

__all__ = ["goes_round", "straight_part"]

SIZE = 1024  # taken for a length that is not known
MOST = 3, 5  # of the values of an index, that they are worth loops of their own


def straight_part(index: Expr) -> Expr | None:
    """`g - c * n` for an index `g % n`, with the c of the middle of its range; None where it goes round often.

    They are equal where the straight part lies within [0, n), of which nothing is proven: sizes that are not known are
    taken for a large one.
    """
    if not isinstance(index, Apply) or index.fn is not Fn.MOD:
        return None
    length = index.args[1]
    place = _unwound(index.args[0], length)
    known = with_sizes(index, (SIZE, SIZE))
    low, high = range_of(place, known)
    least, n = range_of(length, known)
    if least < n or n < 2:
        return None
    turns = (low + high) // 2 // n
    straight = min(high + 1, (turns + 1) * n) - max(low, turns * n)
    if straight * MOST[1] < (high - low + 1) * MOST[0]:
        return None
    return place - length * turns if turns else place


def _unwound(place: Expr, length: Expr) -> Expr:
    """What leaves the same remainder, without remainders by the same length in its sum."""
    form = _form(place)
    for monomial, factor in form.terms.items():
        inner = monomial[0]
        if len(monomial) == 1 and isinstance(inner, Apply) and inner.fn is Fn.MOD and inner.args[1] is length:
            return _unwound(form.without(inner).plus(_form(inner.args[0]), factor).to_expr(), length)
    return place


def _form(expr: Expr) -> Affine:
    """An integer expression as a form; what is no sum or product stands in it as an atom."""
    form = form_of(expr, lambda node: True, lambda node: True)
    assert form is not None
    return form


def goes_round(read: Read) -> bool:
    """Whether a read goes round along the contiguous axis."""
    return bool(read.indices) and straight_part(read.indices[-1]) is not None
