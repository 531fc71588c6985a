"""Variables cut into digits: where an index divides k by 2, 4 and 8, the bits of k are what it is made of.

k in [0, 16) with k // 4 and k // 2 is 4 a + 2 b + c, a in [0, 4), b and c in [0, 2): the quotients are a and 2 a + b,
and no floor is left. Digits that go into different rows no longer tie these together: transposed flat memory, tiles,
shuffles of pixels, reversed bits and Morton's order come out without loops and without guards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from autodiff.integers.conditions import Condition, NonNegative, forms, mapped
from autodiff.integers.linear import Linear, Quotient, Symbol, linear, symbol
from autodiff.inversion.domains import Gather, GatherLoop, Inversion
from autodiff.inversion.lattice_loops import nominal
from autodiff.inversion.questions import Question, Unknown
from tedsl.lang.dataclass import dataclass

__all__ = ["Digits", "burden", "digits_of", "is_least"]

Box = tuple[Linear, Linear]  # begin, extent


@dataclass(frozen=True)
class Digits:
    """The question in digits; `places` has the number and the weight of each digit, per variable of the caller."""

    question: Question
    places: tuple[tuple[tuple[int, int], ...], ...]

    def joined(self, answer: Inversion) -> Inversion:
        """The answer, of the variables that were asked for."""
        return replace(answer, gathers=tuple(map(self._joined, answer.gathers)))

    def _joined(self, g: Gather) -> Gather:
        values = (sum((g.solution[k] * w for k, w in digits), linear(0)) for digits in self.places)
        return replace(g, solution=tuple(map(_loops_last, values)))


def _loops_last(e: Linear) -> Linear:
    """The form written from its start on: the steps of loops after it."""
    order = sorted(e.coefficients.items(), key=lambda term: isinstance(term[0], GatherLoop))
    return Linear(dict(order), e.constant)


def digits_of(question: Question) -> Digits | None:
    """The question with every variable cut that only numbers divide, each a multiple of the one before."""
    divisors = _divisors(question)
    weights = [_weights(box, divisors.get(Unknown(i), ())) for i, box in enumerate(question.boxes)]
    if all(len(w) == 1 for w in weights):
        return None
    places: list[tuple[tuple[int, int], ...]] = []
    boxes: list[Box] = []
    values: dict[Symbol, Linear] = {}
    conditions = list(question.conditions)
    for i, (box, own) in enumerate(zip(question.boxes, weights, strict=True)):
        digits = tuple((len(boxes) + k, w) for k, w in enumerate(own))
        places.append(digits)
        boxes += _boxes(box, own)
        for d in own:
            whole = sum((symbol(Unknown(k)) * (w // d) for k, w in digits if w >= d), linear(0))
            values[Unknown(i) if d == 1 else Quotient(symbol(Unknown(i)), d)] = whole
        if len(own) > 1 and box[1].constant % own[0]:
            conditions.append(NonNegative(box[1] - 1 - symbol(Unknown(i))))
    return Digits(_substituted(question, tuple(boxes), conditions, values), tuple(places))


def _substituted(
    question: Question, boxes: tuple[Box, ...], conditions: Sequence[Condition], values: Mapping[Symbol, Linear]
) -> Question:
    return replace(
        question,
        boxes=boxes,
        rows=tuple(None if row is None else row.substituted(values) for row in question.rows),
        conditions=tuple(mapped(c, lambda e: e.substituted(values)) for c in conditions),
    )


def _divisors(question: Question) -> dict[Unknown, set[int]]:
    """The numbers by which a variable is divided, itself and nothing else."""
    found: dict[Unknown, set[int]] = {}
    for e in (*question.rows, *(e for c in question.conditions for e in forms(c))):
        for a in () if e is None else e.atoms():
            if isinstance(a, Quotient) and len(a.numerator.coefficients) == 1:
                (v,) = a.numerator
                if isinstance(v, Unknown) and a.numerator == symbol(v):
                    found.setdefault(v, set()).add(a.divisor)
    return found


def _weights(box: Box, divisors: Collection[int]) -> tuple[int, ...]:
    """What the digits of a variable count, the largest first."""
    begin, extent = box
    if not divisors or not extent.is_constant or begin != linear(0):
        return (1,)
    chain = [1, *sorted(d for d in divisors if d < extent.constant)]
    return tuple(reversed(chain)) if all(b % a == 0 for a, b in pairwise(chain)) else (1,)


def _boxes(box: Box, weights: tuple[int, ...]) -> list[Box]:
    if len(weights) == 1:
        return [box]
    extents = [-(-box[1].constant // weights[0]), *(a // b for a, b in pairwise(weights))]
    return [(linear(0), linear(n)) for n in extents]


def is_least(answer: Inversion) -> bool:
    """Whether no answer costs less: every iteration is a point that reaches the element, without anything to ask."""
    return not answer.opaque and len(answer.gathers) == 1 and not answer.gathers[0].guards


def burden(answer: Inversion) -> tuple[int, int, int, int]:
    """What an answer costs: rows that stay a scatter, iterations, guards, gathers."""
    iterations = sum(prod(nominal(n) for _, n in (*g.axes, *g.loops)) for g in answer.gathers)
    return len(answer.opaque), iterations, sum(len(g.guards) for g in answer.gathers), len(answer.gathers)
