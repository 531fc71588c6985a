"""Sums over parts of a box, `where=`: the gradient visits the points of the forward sum, and `te.work` counts them."""

import itertools

import numpy as np
import pytest

import tedsl as te

N = 9

DOMAINS = {
    "triangle": lambda i, j, k: k <= i,
    "band": lambda i, j, k: (k <= i + 2) & (i <= k + 2),
    "simplex": lambda i, j, k: i + j + k < N,
    "ordered": lambda i, j, k: (i <= j) & (j <= k),
    "ball": lambda i, j, k: i * i + j * j + k * k <= N * N,
    "hyperbola": lambda i, j, k: i * j <= k,
    "either": lambda i, j, k: (k < i) | (k > j),
    "off the diagonal": lambda i, j, k: i != k,
    "every other": lambda i, j, k: (i + j + k) % 2 == 0,
    "bits": lambda i, j, k: (i & j) == k,
}


@pytest.mark.parametrize("name", DOMAINS)
def test_the_gradient_has_as_many_terms_as_the_sum(name):
    inside = DOMAINS[name]
    x, h = te.placeholder((N, N), "float64", name="x"), te.placeholder((N,), "float64", name="h")
    j, k = te.reduce_axis(N, name="j"), te.reduce_axis(N, name="k")
    y = te.compute((N,), lambda i: te.sum(x[j, k], axis=[j, k], where=inside(i, j, k)), name="y")
    (dx,) = te.differentiate(y, [x], head=h)
    points = [z for z in itertools.product(range(N), repeat=3) if inside(*z)]
    work = te.work(dx)
    assert work.iterations - work.masked == len(points)
    head = np.random.default_rng(0).standard_normal(N)
    want = np.zeros((N, N))
    for a, b, c in points:
        want[b, c] += head[a]
    np.testing.assert_allclose(te.interpret(dx, {x: np.zeros((N, N)), h: head}), want, rtol=1e-12, atol=1e-12)


def test_compiled():
    x, h = te.placeholder((N, N), "float64", name="x"), te.placeholder((N,), "float64", name="h")
    j, k = te.reduce_axis(N, name="j"), te.reduce_axis(N, name="k")
    y = te.compute((N,), lambda i: te.sum(x[j, k], axis=[j, k], where=DOMAINS["ball"](i, j, k)), name="y")
    (dx,) = te.differentiate(y, [x], head=h)
    head = np.random.default_rng(0).standard_normal(N)
    got = te.build([x, h], dx)(np.zeros((N, N)), head)
    np.testing.assert_allclose(got, te.interpret(dx, {x: np.zeros((N, N)), h: head}), rtol=1e-12, atol=1e-12)
