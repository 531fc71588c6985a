"""Rows that go round, or back at their ends, by sizes that are not known: how often is few where these are not tiny.

A row of one element that is mirrored two elements far goes back twice at each end, one of five never more than once.
What holds for all sizes has a part for each time: nine in two dimensions become 49. So the answer is asked for again
where sizes are large enough to go round once at most, and a program does what its sizes say.
"""

from __future__ import annotations

from functools import reduce

from autodiff.integers.linear import Linear
from autodiff.turning.affine_read import Reader, is_opaque
from autodiff.turning.answers import Answer, plain_answer
from tedsl.lang import functions as fn
from tedsl.lang.expr import Apply, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.traverse import free_axes, topological

__all__ = ["usually"]

LARGE = 256  # sizes are asked to be so large at most


def usually(answer: Answer) -> tuple[Expr, Answer] | None:
    """A condition on sizes, and the answer where it holds; None where that is no shorter."""
    if len(answer.found.gathers) < 2 or answer.found.opaque:
        return None
    least: dict[Expr, int] = {}
    for node in topological(answer.read.index):
        if isinstance(node, Apply) and node.fn in (Fn.MOD, Fn.FLOORDIV) and number(node.args[1]) is None:
            size = node.args[1]
            found = None if free_axes(size) else _enough(answer, *node.args)
            if found is not None:
                least[size] = max(found, least.get(size, 1))
    if not least:
        return None
    usual = plain_answer(answer.read, answer.shape, compact=True, least=least)
    is_shorter = 0 < len(usual.found.gathers) < len(answer.found.gathers)  # none: no size is as large
    if usual.found.opaque or not is_shorter:
        return None
    large = reduce(fn.logical_and, (size >= n for size, n in least.items()))
    return large, usual


def _enough(answer: Answer, place: Expr, size: Expr) -> int | None:
    """From which size on a place goes round it as seldom as it does for large ones; None where that is for all."""

    def turns(least: int) -> int | None:
        reader = Reader(answer.read.axes, answer.shape)
        reader.assume({size: least})
        forms: list[Linear] = [reader.form(place), reader.form(size)]
        found = None if any(map(is_opaque, forms)) else reader.turns(*forms)
        return None if found is None else len(found)

    few, least = turns(LARGE), LARGE
    if few is None or few == turns(1):
        return None
    while turns(least // 2) == few:
        least //= 2
    return least
