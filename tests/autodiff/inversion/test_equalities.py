"""Equations that inequalities imply: found, right by enumeration, and worth their loops."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from autodiff.integers.conditions import NonNegative
from autodiff.integers.linear import Linear, floordiv, symbol
from autodiff.inversion.domains import Variable
from tests.autodiff.inversion.enumeration import IndexMap, checked

i, j, k, n = map(symbol, "ijkn")


def over(rows: list[Linear], shape: list[Linear | int], at_least_0: list[Linear], size: int = 7) -> IndexMap:
    box = tuple(Variable(v, size) for v in "ijk")
    return IndexMap(box, tuple(rows), tuple(shape), tuple(map(NonNegative, at_least_0)), {"n": size})


ONE_TERM = {
    "a cycle": over([j, k], [7, 7], [i - k, j - i, k - j]),
    "a cycle, one read": over([k], [7], [i - k, j - i, k - j]),
    "a cycle with gaps that add up to none": over([j, k], [7, 7], [i - k - 1, j - i + 1, k - j]),
    "from both sides": over([j, k], [7, 7], [i + j - k, k - i - j]),
    "doubled": over([j, k], [7, 7], [2 * i - j, j - 2 * i]),
    "a quotient": over([j, k], [7, 7], [i - floordiv(j, 2), floordiv(j, 2) - i]),
    "at the end of a range": over([j, k], [7, 7], [i + j - 12]),
}


@pytest.mark.parametrize("name", ONE_TERM)
def test_no_loop_is_left(name: str) -> None:
    m = ONE_TERM[name]
    checked(m)
    assert all(not g.loops for g in m.invert().gathers)


def test_symbolic_extents() -> None:
    box = tuple(Variable(v, n) for v in "ijk")
    cycle = tuple(map(NonNegative, [i - k, j - i, k - j]))
    for size in (1, 2, 5):
        m = IndexMap(box, (j, k), (n, n), cycle, {"n": size})
        checked(m)
        assert [g.loops for g in m.invert().gathers] == [()]


def test_where_the_rest_still_loops_the_elements_are_a_diagonal() -> None:
    box = (*(Variable(v, 7) for v in "ijk"), Variable("b", 5))
    cycle = tuple(map(NonNegative, [i - k, j - i, k - j]))
    count = checked(IndexMap(box, (j, k), (7, 7), cycle, {}))
    assert (count.run, count.useful) == (35, 35)


def test_inequalities_that_imply_none_are_left() -> None:
    count = checked(over([k], [7], [i - k, j - i, k - j + 1]))
    assert count.useful == 7 + 6 + 6  # i = j = k, or j = k + 1 and i one of them


@settings(max_examples=40)
@given(st.lists(st.tuples(st.permutations("ijk"), st.integers(-1, 1)), min_size=2, max_size=4), st.integers(1, 4))
def test_random_orders(relations: list[tuple[list[str], int]], size: int) -> None:
    conditions = [symbol(a) - symbol(b) + c for (a, b, _), c in relations]
    checked(over([j, k], [size, size], conditions, size))


def test_the_gradient_of_a_sum_of_one_term_takes_an_iteration_for_each_element() -> None:
    A = te.placeholder((10, 10), "float64", name="A")
    r = te.reduce_axis(10, name="r")
    head = te.placeholder((10, 10), "float64", name="head")

    def term(a, b):
        return te.select(a <= b, te.select(b <= r, A[b, r], 0.0), 0.0)

    Y = te.compute((10, 10), lambda a, b: te.sum(term(a, b), axis=r, where=a >= r), name="Y")
    (dA,) = te.differentiate(Y, [A], head=head)
    assert te.work(dA).iterations == 100
    h = np.random.default_rng(0).standard_normal((10, 10))
    np.testing.assert_array_equal(te.interpret(dA, {A: 0 * h, head: h}), np.diag(np.diag(h)))
