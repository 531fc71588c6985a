"""Drawn maps through `autodiff.invert`: its own check, enumeration of the forms, and a solution by sympy alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, reject, settings, strategies as st

from autodiff import IndexInversion
from autodiff.symbolic.source import pairs_source
from tests.autodiff.inversion.enumeration import IndexMap, forward_pairs, index_maps
from tests.autodiff.inversion.questions import IndexQuestion, a, in_sympy, n, questions
from tests.autodiff.inversion.solving import TooManyCases, points

NUMBERS = np.random.default_rng(7)


def run(answer: IndexInversion, values: np.ndarray, *arguments: Any) -> np.ndarray:
    space: dict[str, Any] = {}
    exec(answer.code(), space)
    found: np.ndarray = space["gather"](values, *arguments)
    return found


@settings(max_examples=60)
@given(index_maps(), st.booleans())
def test_the_code_of_an_answer_sums_what_enumeration_finds(drawn: IndexMap, is_size: bool) -> None:
    """The oracle is the enumeration of the linear forms; what is run went through sympy and Python's text."""
    size = n if is_size else sympy.Symbol("n", integer=True, nonnegative=True)
    answer = in_sympy(drawn, size).answer()
    assert answer.latex.startswith(r"\begin{aligned}")
    for number in (0, 1, 3, (drawn.sizes or {})["n"]):
        given_map = IndexMap(drawn.variables, drawn.rows, drawn.shape, drawn.conditions, {"n": number})
        known = {size: number}
        begins = [int(sympy.sympify(b).subs(known)) for b, _ in answer.domain.values()]
        extents = [int(sympy.sympify(e).subs(known)) for _, e in answer.domain.values()]
        values = NUMBERS.integers(1, 10**9, extents)
        expected = np.zeros([int(sympy.sympify(e).subs(known)) for e in answer.shape], np.int64)
        for (s, point), times in forward_pairs(given_map).items():
            expected[s] += times * values[tuple(p - b for p, b in zip(point, begins, strict=True))]
        np.testing.assert_array_equal(run(answer, values, *(number for _ in answer.parameters)), expected)


@settings(max_examples=60)
@given(questions())
def test_answers_stand_their_check(question: IndexQuestion) -> None:
    question.answer().check()


@pytest.mark.long
@settings(max_examples=20_000)
@given(questions())
def test_20000_answers_stand_their_check(question: IndexQuestion) -> None:
    question.answer().check()


def agrees_with_sympy(question: IndexQuestion, draw: Callable[[Any], Any]) -> None:
    """At one element, with a value for each parameter: loops, sympy alone and brute force find the same."""
    answer = question.answer()
    space: dict[str, Any] = {}
    exec(pairs_source(answer), space)
    # Only `a` is no divisor, and may be negative.
    sizes = {s: draw(st.integers(-3, 3) if s == a else st.integers(0, 4)) for s in answer.parameters}
    shape = [int(sympy.sympify(e).subs(sizes)) for e in answer.shape]
    assume(all(e > 0 for e in shape))
    element = tuple(draw(st.integers(0, e - 1)) for e in shape)
    try:
        tried = Counter(z for s, z in space["expected"](*sizes.values()) if s == element)
        solved = points(question, element, sizes)
    except ZeroDivisionError:  # the map itself has no value with these sizes
        return
    except TooManyCases:
        reject()
    found = Counter(z for s, z in space["found"](*sizes.values()) if s == element)
    assert found == Counter(solved) == tried, f"{element} with {sizes}\n{answer}"


@settings(max_examples=30)
@given(questions(), st.data())
def test_sympy_alone_finds_the_same_points(question: IndexQuestion, data: st.DataObject) -> None:
    agrees_with_sympy(question, data.draw)


@pytest.mark.long
@settings(max_examples=5_000)
@given(questions(), st.data())
def test_sympy_alone_finds_the_same_points_of_5000_maps(question: IndexQuestion, data: st.DataObject) -> None:
    agrees_with_sympy(question, data.draw)
