"""Points of a scope: what they refute holds nowhere, and sizes are within what extents leave them."""

from __future__ import annotations

import itertools

from hypothesis import given, strategies as st

import tedsl as te
from tedsl.analysis.facts import Facts
from tedsl.analysis.samples import Samples
from tedsl.analysis.size_ranges import ranges_of_sizes
from tedsl.lang.expr import SIZE_MAX, Axis
from tedsl.lang.extents import simplify_extent

FACTORS = st.lists(st.integers(-3, 3), min_size=2, max_size=2)


@given(FACTORS, st.integers(-12, 12), st.tuples(st.integers(1, 6), st.integers(1, 6)), st.integers(0, 3))
def test_what_a_point_refutes_is_below_zero_somewhere(
    factors: list[int], constant: int, extents: tuple[int, int], begin: int
) -> None:
    axes = [Axis(name, te.const(n, "int32"), begin=te.const(begin, "int32")) for name, n in zip("ij", extents)]
    facts = Facts(axes)
    form = sum((facts.form(a) * c for a, c in zip(axes, factors)), facts.form(te.const(constant, "int32")))
    points = itertools.product(*(range(begin, begin + n) for n in extents))
    least = min(sum(c * p for c, p in zip(factors, point)) + constant for point in points)
    refuted = Samples(axes).refute(form)
    assert not (refuted and least >= 0)
    assert not (refuted and facts.proves(form))


def test_an_empty_axis_has_no_points() -> None:
    n = te.var("n")
    axis = Axis("i", simplify_extent(n - 2000))
    form = Facts([axis]).form(axis) * -1 - 1
    assert not Samples([axis]).refute(form)
    assert Samples([Axis("i", n)]).refute(Facts([]).form(n) * -1)


def test_sizes_are_as_small_as_rows_made_of_them() -> None:
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    known = ranges_of_sizes([n, simplify_extent(m * 3 - 1), simplify_extent(k * m), None, m])
    assert known == {n: (0, SIZE_MAX), m: (0, (SIZE_MAX + 1) // 3)}
    assert Facts((), ranges_of_sizes([m * 3])).proves(Facts(()).form(te.minimum(6, m * 3)))
