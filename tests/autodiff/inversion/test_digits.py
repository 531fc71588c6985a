"""Index maps that take a number apart and put it together otherwise, against enumeration."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings, strategies as st
from sympy import Eq, Mod, Piecewise, floor, symbols

import tedsl as te
from autodiff import invert
from autodiff.integers.budget import Budget
from autodiff.integers.linear import floordiv, mod, symbol
from autodiff.inversion import invert as inverting
from autodiff.inversion.domains import Inversion, Variable
from autodiff.inversion.invert import _Inverter
from autodiff.inversion.questions import Question

i, j, k, x, y = symbols("i j k x y", integer=True)


def bit(e: Any, position: int) -> Any:
    return Mod(floor(e / 2**position), 2)


# Name -> what is asked: each element has one point, and there is nothing to sum or to ask.
PLAIN: dict[str, tuple[Any, ...]] = {
    "transposed": ([5 * Mod(k, 3) + floor(k / 3)], {k: (0, 15)}, [15]),
    "transposed_in_three": (
        [20 * Mod(k, 3) + 5 * Mod(floor(k / 3), 4) + floor(k / 12)], {k: (0, 60)}, [60],
    ),
    "reversed_bits": ([sum(2 ** (4 - b) * bit(k, b) for b in range(5))], {k: (0, 32)}, [32]),
    "morton": (
        [sum(2**b * bit(k, 2 * b + 1) for b in range(3)), sum(2**b * bit(k, 2 * b) for b in range(3))],
        {k: (0, 64)},
        [8, 8],
    ),
    "morton_joined": (
        [sum(2 ** (2 * b + 1) * bit(x, b) + 4**b * bit(y, b) for b in range(3))], {x: (0, 8), y: (0, 8)}, [64],
    ),
    "blocks_in_a_line": (
        [16 * (2 * floor(i / 4) + floor(j / 4)) + 4 * Mod(i, 4) + Mod(j, 4)], {i: (0, 8), j: (0, 8)}, [64],
    ),
    "perfect_shuffle": ([2 * Mod(k, 8) + floor(k / 8)], {k: (0, 16)}, [16]),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_permutations_of_digits_have_neither_loops_nor_guards(name: str) -> None:
    answer = invert(*PLAIN[name])
    (gather,) = answer.gathers
    assert not gather.loops
    assert not gather.guards
    assert answer.check().points == prod(map(int, answer.shape))


# What digits are only a part of: sums remain, cases, remainders of a last digit that is not full.
OTHER: dict[str, tuple[Any, ...]] = {
    "not_full": ([5 * Mod(k, 3) + floor(k / 3)], {k: (0, 13)}, [15]),
    "no_multiples": ([floor(k / 2) + floor(k / 3)], {k: (0, 20)}, [17]),
    "summed": ([floor(k / 4), Mod(k, 2)], {k: (0, 22)}, [6, 2]),
    "butterfly": ([Piecewise((k + 4, Eq(bit(k, 2), 0)), (k - 4, True))], {k: (0, 16)}, [16]),
    "shifted": ([floor(k / 4) + Mod(k + 1, 4)], {k: (0, 16)}, [7]),
    "where": ([2 * Mod(k, 8) + floor(k / 8)], {k: (0, 16)}, [16], [Eq(bit(k, 1), 1)]),
    "begin": ([2 * Mod(k, 4) + floor(k / 4)], {k: (3, 11)}, [9]),
    "large_divisor": ([floor(k / 32) + Mod(k, 4)], {k: (0, 16)}, [4]),
    "remainder_of_a_multiple": (
        [4 * Mod(x, 2) + 8 * Mod(y, 2) + 2 * Mod(floor(x / 4), 2) + Mod(floor(x / 2), 2)], {x: (0, 7), y: (0, 2)}, [16],
    ),
    "window": ([3 * Mod(k, 4) + floor(k / 4) + x], {k: (0, 12), x: (0, 3)}, [14]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_digits_beside_what_else_there_is(name: str) -> None:
    assert invert(*OTHER[name]).check().points


@st.composite
def rearranged(draw: st.DrawFn) -> tuple[Any, ...]:
    """One or two numbers in digits, and these in any order in one or two others, times 1 or more."""
    domain, digits = {}, []
    for z in draw(st.sampled_from([(k,), (x, y)])):
        radices = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
        missing = draw(st.integers(0, 1))
        domain[z] = (0, prod(radices) - missing)
        below = 1
        for radix in radices:
            digits.append((Mod(floor(z / below), radix), radix))
            below *= radix
    rows, shape = [], []
    order = draw(st.permutations(digits))
    cut = draw(st.integers(0, len(order)))
    for part in (order[:cut], order[cut:]):
        weight, row = draw(st.integers(1, 2)), sympy.Integer(0)
        for digit, radix in part:
            row, weight = row + weight * digit, weight * radix
        rows.append(row)
        shape.append(weight)
    return rows, domain, shape


@settings(max_examples=60)
@given(rearranged())
def test_random_orders_of_digits(question: tuple[Any, ...]) -> None:
    answer = invert(*question)
    assert answer.check().points == prod(int(n) for _, n in answer.domain.values())


def test_the_gradient_of_a_read_in_morton_order() -> None:
    image = te.placeholder((4, 4), "float64", name="image")
    line = te.compute((16,), lambda k: image[k // 8 % 2 * 2 + k // 2 % 2, k // 4 % 2 * 2 + k % 2], name="line")
    head = te.placeholder((16,), "float64", name="head")
    gradients = te.differentiate(line, [image], head=head)
    (read,) = gradients.explain().gathers
    assert not read.inversion.gathers[0].loops
    assert te.work(gradients[0]).iterations == 16
    values = np.random.default_rng(3).standard_normal(16)
    expected = np.zeros((4, 4))
    for place in range(16):
        expected[place // 8 % 2 * 2 + place // 2 % 2, place // 4 % 2 * 2 + place % 2] += values[place]
    np.testing.assert_array_equal(te.interpret(gradients[0], {image: np.zeros((4, 4)), head: values}), expected)


def test_what_digits_say_without_guards_is_not_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of their iterations is a point that reaches the element: no other answer has fewer."""
    asked: list[Question] = []

    def answered(question: Question, steps: int) -> Inversion:
        asked.append(question)
        return _Inverter(question, Budget(steps)).answer()

    monkeypatch.setattr(inverting, "_remembered", answered)
    z = symbol("z")
    found = inverting.invert([Variable("z", 96)], [mod(z, 16) + 16 * floordiv(z, 32)], [48])
    assert [str(e) for g in found.gathers for e in g.solution] == ["-(q0 % 16) + 2*q0 + 16*t0"]
    assert len(asked) == 1
