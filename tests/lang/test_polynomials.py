"""Integer forms: a ring of polynomials, divided with remainder, against their values point by point."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from math import prod

from hypothesis import given, strategies as st

import tedsl as te
from tedsl.lang.expr import Expr, Fn
from tedsl.lang.polynomials import Affine, Monomial, extreme, interval
from tests.analysis.oracle import value_at

N = te.var("n")
I, J = te.reduce_axis((-2, 3), "i"), te.reduce_axis(4, "j")  # noqa: E741
POINTS: list[dict[Expr, int]] = [{N: n, I: i, J: j} for n in (0, 3) for i in range(-2, 3) for j in range(4)]
MONOMIALS: list[Monomial] = [(I,), (J,), (N,), (I, J), (I, N), (J, J)]


@st.composite
def forms(draw: st.DrawFn) -> Affine:
    """Up to three terms of degree one and two, and a number."""
    some = draw(st.lists(st.sampled_from(MONOMIALS), unique=True, max_size=3))
    return Affine({m: draw(st.integers(-4, 4).filter(bool)) for m in some}, draw(st.integers(-9, 9)))


def at(form: Affine, point: Mapping[Expr, int]) -> int:
    return sum(c * prod(point[a] for a in m) for m, c in form.terms.items()) + form.constant


@given(forms(), forms(), st.integers(-3, 3))
def test_forms_are_a_ring(a: Affine, b: Affine, times: int) -> None:
    for made in (a + b, a - b, a * b, a.plus(b, times), -a, a * times):
        assert all(made.terms.values()), "no term is zero"
    for p in POINTS:
        x, y = at(a, p), at(b, p)
        assert (at(a + b, p), at(a - b, p), at(a * b, p)) == (x + y, x - y, x * y)
        assert (at(a.plus(b, times), p), at(-a, p), at(a * times, p)) == (x + times * y, -x, x * times)


@given(forms(), forms(), forms())
def test_equal_forms_have_equal_keys(a: Affine, b: Affine, c: Affine) -> None:
    assert (a * (b + c)).key == (a * b + c * a).key
    assert (a + b).canonical().to_expr() is (b + a).canonical().to_expr()


@given(forms(), st.integers(-5, 5).filter(bool))
def test_division_leaves_what_the_divisor_does_not_divide(form: Affine, by: int) -> None:
    whole, rest = form.divided(by)
    assert all(c % by for c in rest.terms.values())
    for p in POINTS:
        assert at(form, p) // by == at(whole, p) + at(rest, p) // by
        assert at(form, p) % by == at(rest, p) % by


@given(forms(), st.sampled_from([I, J, N]))
def test_a_factor_and_the_rest_are_the_form(form: Affine, atom: Expr) -> None:
    factor = form.factor(atom)
    if factor is None:
        assert any(sum(a is atom for a in m) > 1 for m in form.terms)
        return
    for p in POINTS:
        assert at(form, p) == at(factor, p) * p[atom] + at(form.without(atom), p)


@given(forms())
def test_a_form_is_written_as_what_it_is(form: Affine) -> None:
    assert all(value_at(form.to_expr(), p) == at(form, p) for p in POINTS)


@given(forms(), forms())
def test_intervals_and_extremes_of_forms(a: Affine, b: Affine) -> None:
    known = {N: (0, 3)}
    low, high = interval(a, dict(known))
    assert all(low <= at(a, p) <= high for p in POINTS)
    for fn, best in ((Fn.MINIMUM, min), (Fn.MAXIMUM, max)):
        found = extreme(fn, a, b, dict(known))
        assert found is None or all(at(found, p) == best(at(a, p), at(b, p)) for p in POINTS)


PROGRAM = """
import sys
import tedsl as te
from tedsl.analysis.affine import affine_of
kept = [te.var(f"v{k}") for k in range(int(sys.argv[1]))]
i, j = te.reduce_axis(40, "i"), te.reduce_axis(40, "j")
kept += [k // 3 for k in (j, i)] if int(sys.argv[1]) % 2 else [k // 3 for k in (i, j)]
print(affine_of((i // 3) * (j // 3) + (i // 5) * (j // 7) + (i // 3 + j // 3 + (i + j) // 2) // 9).to_expr())
"""


def test_a_form_has_one_text_in_every_process() -> None:
    """Whatever the addresses of its atoms."""
    command = [sys.executable, "-c", PROGRAM]
    texts = {subprocess.check_output([*command, str(held)], text=True) for held in (0, 1, 50, 301)}
    assert len(texts) == 1
