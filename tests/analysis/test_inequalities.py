"""Fourier-Motzkin elimination: never wrong, and right on what indices need."""

from __future__ import annotations

from itertools import product

from hypothesis import given, strategies as st

import tedsl as te
from tedsl.analysis.inequalities import contradictory
from tedsl.lang.polynomials import Affine

X = [te.reduce_axis(9, name) for name in "xyz"]
FACTORS = st.lists(st.integers(-3, 3), min_size=3, max_size=3)
ROWS = st.lists(st.tuples(FACTORS, st.integers(-6, 6)), min_size=1, max_size=6)


def form(factors: list[int], constant: int) -> Affine:
    return Affine({(x,): c for x, c in zip(X, factors, strict=True) if c}, constant)


def holds(factors: list[int], constant: int, point: tuple[int, ...]) -> bool:
    return sum(c * p for c, p in zip(factors, point, strict=True)) + constant >= 0


@given(ROWS)
def test_no_point_satisfies_what_is_contradictory(rows: list[tuple[list[int], int]]) -> None:
    if contradictory(form(*row) for row in rows):
        assert not any(all(holds(*row, point) for row in rows) for point in product(range(-5, 6), repeat=3))


@given(ROWS)
def test_boxed_systems_without_a_rational_point_are_contradictory(rows: list[tuple[list[int], int]]) -> None:
    """Each row of the box [0, 2]^3 fails at all of its points when only one row is added: then it is found."""
    box = [([int(k == d) for k in range(3)], 0) for d in range(3)] + [
        ([-int(k == d) for k in range(3)], 2) for d in range(3)
    ]
    single = rows[0]
    feasible = any(holds(*single, point) for point in product(range(3), repeat=3))
    assert contradictory(form(*row) for row in [*box, single]) == (not feasible)


def test_rows_are_tightened_to_integers() -> None:
    # 2x >= 1 and 2x <= 1 has the rational point 1/2 and no integer one.
    assert contradictory([form([2, 0, 0], -1), form([-2, 0, 0], 1)])


@given(ROWS)
def test_a_contradiction_stays_one_however_the_rows_are_scaled(rows: list[tuple[list[int], int]]) -> None:
    forms = [form(*row) for row in rows]
    assert contradictory(forms) == contradictory([f * 3 for f in forms])
