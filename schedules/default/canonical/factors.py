"""A term of several factors as a product of two, however they are associated.

| before | after |
|---|---|
| `sum over k of (a[i, k] b[k, j]) s[k]` | `sum over k of (a[i, k] s[k]) b[k, j]` |
| `sum over k of (a[i, k] b[k, j]) cast(k <= i)` | `sum over k of (a[i, k] cast(k <= i)) b[k, j]` |

Floats are multiplied in another order then, each term as often as before: other bits, which the schedule says. A sum
whose factors are in order is left as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce as folded
from itertools import product
from operator import mul

from schedules.default.canonical.stages import sum_of, summed
from schedules.default.products.contraction import contraction_of
from schedules.sizes import typical_sizes
from schedules.thresholds import Thresholds
from tedsl.analysis.terms import rounded, unrounded
from tedsl.lang.expr import Apply, Expr, Fn
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes

__all__ = ["factors_of", "grouped"]

MOST_FACTORS = 5


def grouped(op: Compute, least: Thresholds) -> Compute:
    """The sum with its factors as rows times columns where that makes a product of it, over the smallest tables."""
    reduce = sum_of(op)
    term = reduce.values[0]
    written = unrounded(term)
    factors = factors_of(written)
    if not 2 < len(factors) <= MOST_FACTORS:
        return op
    sizes = typical_sizes(op)

    def points(side: Iterable[Expr]) -> int:
        return math.prod(sizes[a] for a in free_axes(side) if a in sizes)

    best: tuple[int, Compute] | None = None
    for first, second in _sides(factors):
        cost = points(first) + points(second)
        if best is not None and cost >= best[0]:
            continue
        value: Expr = folded(mul, first) * folded(mul, second)
        value = value if written is term else rounded(value)
        made = replace(op, bodies=(summed(reduce, value, reduce.axes, reduce.where),), _outputs={})
        if contraction_of(made, least) is not None:
            best = cost, made
    return op if best is None or best[1].bodies[0] is op.bodies[0] else best[1]


def factors_of(value: Expr) -> list[Expr]:
    """What is multiplied, outermost operations first."""
    if isinstance(value, Apply) and value.fn is Fn.MUL:
        return [f for arg in value.args for f in factors_of(arg)]
    return [value]


def _sides(factors: Sequence[Expr]) -> Iterator[tuple[list[Expr], list[Expr]]]:
    """Every way to put the factors on two sides, the first one on the first."""
    for choice in product((True, False), repeat=len(factors) - 1):
        first = [f for f, here in zip(factors, (True, *choice), strict=True) if here]
        second = [f for f, here in zip(factors, (True, *choice), strict=True) if not here]
        if second:
            yield first, second
