"""Normal forms, exact minima and projections, each against its definition or against enumeration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product

import sympy
from hypothesis import given, settings, strategies as st
from sympy.polys.matrices import DomainMatrix, normalforms

from autodiff.integers.algebra import _diagonalized, _triangular, diagonalized, independent_rows, triangular_basis
from autodiff.integers.budget import Budget
from autodiff.integers.linear import Linear, ceiling, floordiv, linear, mod, symbol
from autodiff.integers.polyhedra import KnownInequalities, eliminated
from autodiff.integers.simplex import INFEASIBLE, minimum

ENTRIES = st.sampled_from([0, 0, 1, -1, 2, 3, -4, 6, 10**20])
SMALL = st.integers(-4, 4)


def matrices(rows: int, columns: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(ENTRIES, min_size=columns, max_size=columns), min_size=rows, max_size=rows)


def times(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def determinant(m: Sequence[Sequence[int]]) -> int:
    if not m:
        return 1
    minors = ([row[:j] + row[j + 1 :] for row in m[1:]] for j in range(len(m)))
    return sum((-1) ** j * m[0][j] * determinant(minor) for j, minor in enumerate(minors))


@given(st.tuples(st.integers(0, 3), st.integers(0, 4)).flatmap(lambda k: st.tuples(matrices(*k), st.just(k[1]))))
def test_smith_form(drawn: tuple[list[list[int]], int]) -> None:
    """By its definition: sympy's answer, and what is answered without it."""
    a, columns = drawn
    rows = len(a)
    u, d, v = diagonalized(a, columns)
    assert len(d) == min(rows, columns)
    assert {type(e) for m in (u, [d], v) for row in m for e in row} <= {int}  # not sympy's kind of them
    if columns:
        assert times(times(u, a), v) == [[d[i] if i == j else 0 for j in range(columns)] for i in range(rows)]
    assert abs(determinant(u)) == abs(determinant(v)) == 1
    assert all(b == 0 if a == 0 else b % a == 0 for a, b in pairwise(d))
    assert all(e >= 0 for e in d)


@given(st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda k: matrices(*k)))
def test_smith_forms_are_those_of_sympy(a: list[list[int]]) -> None:
    """Programs do not change with who makes the forms: not the diagonal alone, U and V are the same."""
    d, u, v = normalforms.smith_normal_decomp(DomainMatrix(a, (len(a), len(a[0])), sympy.ZZ))
    diagonal = tuple(int(row[i]) for i, row in enumerate(d.to_list()[: len(a[0])]))
    found = _diagonalized(tuple(map(tuple, a)), len(a[0]))
    assert found == (tuple(map(tuple, u.to_list())), diagonal, tuple(map(tuple, v.to_list())))


SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 3)).filter(lambda k: k[0] >= k[1])


def rows_of_one(rows: int, columns: int) -> st.SearchStrategy[list[list[int]]]:
    """Coordinates that one column at most moves, by one."""
    row = st.tuples(st.integers(0, columns - 1), st.sampled_from([0, 1, -1]))
    return st.lists(row.map(lambda at: [at[1] * (k == at[0]) for k in range(columns)]), min_size=rows, max_size=rows)


LATTICES = SHAPES.flatmap(lambda k: st.tuples(matrices(*k) | rows_of_one(*k), st.permutations(range(k[0]))))


@given(LATTICES)
def test_triangular_basis_spans_the_same_lattice(drawn: tuple[list[list[int]], list[int]]) -> None:
    a, order = drawn[0], drawn[1][: len(drawn[0][0])]
    inside = sympy.Matrix([a[i] for i in order])
    found = triangular_basis(a, order)
    if inside.det() == 0:
        assert found is None
        return
    assert found is not None
    for i, r in enumerate(order):
        assert found[r][i] > 0
        assert not any(found[r][i + 1 :])
        assert all(0 <= e < found[r][i] for e in found[r][:i])
    change = inside.inv() * sympy.Matrix([found[i] for i in order])
    assert all(e.is_Integer for e in change)
    assert abs(change.det()) == 1
    assert sympy.Matrix(a) * change == sympy.Matrix(found)


@given(LATTICES)
def test_hermite_forms_are_those_of_sympy(drawn: tuple[list[list[int]], list[int]]) -> None:
    """It works from the last row up and sets pivots from the last column on: both are turned round, twice."""
    a, order = drawn[0], drawn[1][: len(drawn[0][0])]
    found = _triangular(tuple(map(tuple, a)), tuple(order))
    arranged = [*(i for i in range(len(a)) if i not in order), *reversed(order)]
    theirs = normalforms.hermite_normal_form(DomainMatrix([a[i] for i in arranged], (len(a), len(order)), sympy.ZZ))
    rows = dict(zip(arranged, (row[::-1] for row in theirs.to_list()), strict=True))
    if any(i >= len(rows[r]) or not rows[r][i] for i, r in enumerate(order)):
        assert found is None
    else:
        assert found == tuple(tuple(map(int, rows[i])) for i in range(len(a)))


@given(st.tuples(st.integers(1, 5), st.integers(1, 3)).flatmap(lambda k: matrices(*k)))
def test_independent_rows_are_each_the_first_that_adds_to_the_rank(a: list[list[int]]) -> None:
    order = tuple(reversed(range(len(a))))
    taken: list[int] = []
    for i in order:
        if sympy.Matrix([a[j] for j in (*taken, i)]).rank() > len(taken):
            taken.append(i)
    assert independent_rows(tuple(map(tuple, a)), order) == tuple(taken)


@given(st.lists(st.tuples(SMALL, SMALL, st.integers(-6, 9)), max_size=5), st.tuples(SMALL, SMALL, SMALL))
def test_minimum_is_attained_at_a_vertex(facts: list[tuple[int, int, int]], goal: tuple[int, int, int]) -> None:
    box = [(1, 0, 4), (-1, 0, 4), (0, 1, 4), (0, -1, 4)]
    lines = [*facts, *box]
    vertices = [p for k, e in enumerate(lines) for f in lines[:k] if (p := crossing(e, f)) is not None]
    inside = [p for p in vertices if all(at(f, p) >= 0 for f in lines)]
    expected = min((at(goal, p) for p in inside), default=INFEASIBLE)
    assert minimum(list(goal), [list(f) for f in lines], lambda numbers: None) == expected


def crossing(e: tuple[int, int, int], f: tuple[int, int, int]) -> tuple[Fraction, Fraction] | None:
    d = e[0] * f[1] - e[1] * f[0]
    if d == 0:
        return None
    return Fraction(e[1] * f[2] - f[1] * e[2], d), Fraction(f[0] * e[2] - e[0] * f[2], d)


def at(e: tuple[int, int, int], p: tuple[Fraction, Fraction]) -> Fraction:
    return e[0] * p[0] + e[1] * p[1] + e[2]


@settings(max_examples=60)
@given(st.lists(st.tuples(SMALL, SMALL, st.integers(-6, 9)), min_size=1, max_size=5))
def test_projection_keeps_every_integer_point(rows: list[tuple[int, int, int]]) -> None:
    x, y = symbol("x"), symbol("y")
    system = [x * a + y * b + c for a, b, c in rows]
    system += [x + 5, 5 - x, y + 5, 5 - y]
    projection = eliminated(system, "y", Budget.unlimited())
    for value in range(-5, 6):
        reached = any(all(e.evaluate({"x": value, "y": w}) >= 0 for e in system) for w in range(-5, 6))
        assert not reached or all(e.evaluate({"x": value}) >= 0 for e in projection)


@settings(max_examples=40)
@given(st.tuples(*[st.integers(-9, 9)] * 3), st.integers(1, 7))
def test_floors_are_floors(e: tuple[int, int, int], c: int) -> None:
    form = symbol("x") * e[0] + symbol("y") * e[1] + e[2]
    for x, y in product(range(-4, 5), repeat=2):
        values = {"x": x, "y": y}
        exact = e[0] * x + e[1] * y + e[2]
        assert floordiv(form, c).evaluate(values) == exact // c
        assert ceiling(form, c).evaluate(values) == math.ceil(Fraction(exact, c))
        assert mod(form, c).evaluate(values) == exact % c
        assert floordiv(floordiv(form, c) + 1, 2).evaluate(values) == (exact // c + 1) // 2


@given(st.tuples(*[st.integers(-5, 5)] * 3), st.integers(2, 5))
def test_proofs_are_true(e: tuple[int, int, int], c: int) -> None:
    facts = KnownInequalities({"x": (linear(0), linear(6)), "y": (linear(-2), linear(3))})
    form = floordiv(symbol("x") * e[0] + symbol("y") * e[1], c) * 2 + e[2]
    if facts.proves(form):
        assert all(form.evaluate({"x": x, "y": y}) >= 0 for x, y in product(range(7), range(-2, 4)))


def test_a_quotient_in_its_range_is_proved() -> None:
    s = symbol("s")
    facts = KnownInequalities({"s": (linear(0), linear(15))})
    assert facts.proves(3 - floordiv(s, 4))
    assert not facts.proves(2 - floordiv(s, 4))
    assert facts.proves(s - floordiv(s, 4) * 4)


def test_forms_print_as_they_are_read() -> None:
    x, y = symbol("x"), symbol("y")
    assert str(x * 2 - y + 1) == "2*x - y + 1"
    assert str(mod(x + y, 3) + floordiv(x, 2)) == "((x + y) % 3) + (x // 2)"
    assert str(2 - mod(x, 3)) == "((-x + 2) % 3)"
    assert str(2 * y - 3 * mod(x, 4) + 9) == "3*((-x + 3) % 4) + 2*y"
    assert str(1 - mod(x, 3)) == "-(x % 3) + 1"
    assert str(Linear({}, 0)) == "0"
