"""The working forms against sympy, an algebra that shares nothing with them."""

from __future__ import annotations

import random

import sympy
from hypothesis import given, settings, strategies as st
from sympy.solvers.simplex import InfeasibleLPError, UnboundedLPError, lpmin

from autodiff.integers.conditions import holds
from autodiff.integers.linear import floordiv, mod
from autodiff.integers.simplex import INFEASIBLE, minimum
from autodiff.inversion.formulas import as_sympy, holds_when
from tests.autodiff.inversion.enumeration import conditions, rows

NUMBERS = random.Random(4)


def substituted(expression, values):
    return expression.subs({sympy.Symbol(s, integer=True): v for s, v in values.items()})


@settings(max_examples=25)
@given(rows("xyz"), conditions("xyz"))
def test_forms_and_conditions_have_the_values_of_their_formulas(form, condition):
    for _ in range(3):
        values = {s: NUMBERS.randint(-9, 9) for s in "xyz"}
        assert substituted(as_sympy(form), values) == form.evaluate(values)
        assert bool(substituted(holds_when(condition), values)) == holds(condition, values)


@settings(max_examples=25)
@given(rows("xy", 0), st.integers(2, 12), st.integers(2, 6))
def test_division_is_that_of_sympy_however_it_is_reduced(e, c, d):
    """`floordiv` joins nested floors and takes out what divides evenly; sympy is asked for them as written."""
    plain = as_sympy(e)
    nested = sympy.floor(sympy.floor(plain / c) / d)
    for _ in range(3):
        values = {s: NUMBERS.randint(-60, 60) for s in "xy"}
        assert floordiv(floordiv(e, c), d).evaluate(values) == substituted(nested, values)
        assert mod(e, c).evaluate(values) == substituted(sympy.Mod(plain, c), values)


@settings(max_examples=25)
@given(rows("xy"), rows("yz", 1), rows("xz", 1))
def test_sums_and_substitutions_are_those_of_sympy(e, f, g):
    """Symbols are replaced all at once, inside floors and minima too."""
    x, y = (sympy.Symbol(s, integer=True) for s in "xy")
    theirs = (2 * as_sympy(e) - as_sympy(f)).xreplace({x: as_sympy(f), y: as_sympy(g)})
    ours = (e * 2 - f).substituted({"x": f, "y": g})
    for _ in range(3):
        values = {s: NUMBERS.randint(-9, 9) for s in "xyz"}
        assert ours.evaluate(values) == substituted(theirs, values)


ROW = st.lists(st.integers(-3, 3), min_size=3, max_size=3)


@settings(max_examples=40)
@given(ROW, st.lists(ROW, max_size=4))
def test_bounds_are_those_of_sympys_simplex(goal, facts):
    """Also where there is no bound, or nothing to bound: facts are not kept in a box."""
    x = sympy.symbols("x y")
    facts = [f for f in facts if any(f[:2])]

    def form(row):
        return row[0] * x[0] + row[1] * x[1] + row[2]

    try:
        expected = lpmin(form(goal), [form(f) >= 0 for f in facts])[0] if facts else None
    except InfeasibleLPError:
        expected = INFEASIBLE
    except UnboundedLPError:
        expected = None
    found = minimum(goal, facts, lambda numbers: None)
    if any(goal[:2]) and facts:
        assert found == expected or (expected == INFEASIBLE and found is None)
