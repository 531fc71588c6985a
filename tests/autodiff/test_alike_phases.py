"""Residue classes of a dimension that only numbers tell apart are one sum, where they do not lie side by side."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import operations_between

WIDE = 4


def sums_of(factors: tuple[int, int], offset: int, extent: int, *, last: bool = False) -> int:
    """How many sums the gradient of a read at `f0 p + f1 q + offset` is; it is right."""
    p, q = te.reduce_axis(3, name="p"), te.reduce_axis(3, name="q")
    shape = (5, extent) if last else (extent, 5)
    x = te.placeholder(shape, "float64", name="x")
    w = te.placeholder((WIDE, 3, 3), "float64", name="w")
    head = te.placeholder((WIDE, 5), "float64", name="head")

    def read(j: te.Axis) -> te.Expr:
        place = factors[0] * p + factors[1] * q + offset
        return x[j, place] if last else x[place, j]

    y = te.compute((WIDE, 5), lambda f, j: te.sum(te.sin(read(j)) * w[f, p, q], axis=(p, q)))
    (gradient,) = te.differentiate([y], [x], head=[head])
    rng = np.random.default_rng(0)
    values = {t: rng.standard_normal(tuple(map(int, t.shape))) for t in (x, w, head)}
    expected = np.zeros((extent, 5))
    for a, b in product(range(3), repeat=2):
        expected[factors[0] * a + factors[1] * b + offset] += values[w][:, a, b] @ values[head]
    expected = (expected.T if last else expected) * np.cos(values[x])
    np.testing.assert_allclose(te.interpret(gradient, values), expected, rtol=1e-12, atol=1e-12)
    stages = operations_between([x, w, head], [gradient])
    return sum(isinstance(op, Compute) and op.reduction is not None for op in stages)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("factors", [(6, 2), (2, 6), (9, 3), (3, 1), (7, 2), (12, 3)])
def test_classes_are_one_sum(factors: tuple[int, int], offset: int) -> None:
    assert sums_of(factors, offset, 3 * max(factors) + (factors == (3, 1))) == 1


def test_classes_of_which_some_are_longer_are_as_many_sums_as_lengths() -> None:
    assert sums_of((6, 2), 0, 19) == 2


def test_along_the_last_dimension_they_stay_apart() -> None:
    """There an element would be looked up by two digits of its place, where classes are read side by side."""
    assert sums_of((6, 2), 0, 18, last=True) == 3


def test_classes_of_other_loops_stay_apart() -> None:
    """Strides that two taps of three reach differ by how many terms their elements have."""
    r = te.reduce_axis(3, name="r")
    x, head = te.placeholder((17, 6), "float64", name="x"), te.placeholder((8, 6), "float64", name="head")
    y = te.compute((8, 6), lambda i, j: te.sum(te.sin(x[2 * i + r, j]), axis=r))
    (gradient,) = te.differentiate([y], [x], head=[head])
    rng = np.random.default_rng(1)
    values = {x: rng.standard_normal((17, 6)), head: rng.standard_normal((8, 6))}
    expected = np.zeros((17, 6))
    for i, r_ in product(range(8), range(3)):
        expected[2 * i + r_] += values[head][i]
    np.testing.assert_allclose(te.interpret(gradient, values), expected * np.cos(values[x]), rtol=1e-12, atol=1e-12)
