"""Reads that are linear over other axes: rotations, digits, bits, tables. All against brute force, none a scatter."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tedsl as te
from tedsl.analysis.sizes import evaluate_extent

N = 16
n, m = te.var("n"), te.var("m")


def expected(shape, domain, index, head, slope=None):
    """What a loop adds up."""
    total = np.zeros(shape)
    for z in itertools.product(*map(range, domain)):
        s = index(*z)
        total[s] += head[z] * (1.0 if slope is None else slope[s])
    return total


def adjoint(shape, domain, index, nonlinear=False):
    x, h = te.placeholder(shape, "float64", name="x"), te.placeholder(domain, "float64", name="h")

    def value(*z):
        read = x[index(*z)]
        return te.tanh(read) if nonlinear else read

    grads = te.differentiate(te.compute(domain, value, name="Y"), [x], head=h)
    return x, h, grads


def check(shape, domain, index, nonlinear=False, compiled=False):
    """The iterations of the gradient alone, after a comparison of what it gives."""
    x, h, grads = adjoint(shape, domain, index, nonlinear)
    assert [r.kind for r in grads.explain().reads] == ["gather"], grads.explain()
    rng = np.random.default_rng(1)
    values, head = rng.standard_normal(shape), rng.standard_normal(domain)
    want = expected(shape, domain, index, head, 1 - np.tanh(values) ** 2 if nonlinear else None)
    got = te.build([x, h], grads[0])(values, head) if compiled else te.interpret(grads[0], {x: values, h: head})
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    return te.work(grads[0]).iterations


def reversed_bits(i):
    return ((i & 1) << 3) | ((i & 2) << 1) | ((i & 4) >> 1) | ((i & 8) >> 3)


def in_turns(a, b):
    return ((a & 1) << 1) | (b & 1) | ((a & 2) << 2) | ((b & 2) << 1)


# shape, domain, index, iterations of the gradient
BITS = {
    "xor": ((N,), (N,), lambda i: i ^ 4, N),
    "butterfly": ((4, N), (4, N), lambda s, i: (s, i ^ (1 << s)), 4 * N),
    "xor of axes": ((N,), (4, N), lambda s, i: i ^ s, 4 * N),
    "shift down": ((N,), (N,), lambda i: i >> 1, 2 * N),
    "shift up": ((N,), (N // 2,), lambda i: i << 1, N),
    "low bits": ((N,), (N,), lambda i: i & 7, 2 * N),
    "a mask with a hole": ((N,), (N,), lambda i: i & 10, 2 * N),
    "or": ((N,), (N,), lambda i: i | 4, 2 * N),
    "not": ((N,), (N,), lambda i: ~i & 15, N),
    "reversed": ((N,), (N,), reversed_bits, N),
    "Gray": ((N,), (N,), lambda i: i ^ (i >> 1), N),
    "Hadamard": ((N,), (N,), lambda i: reversed_bits(i ^ (i >> 1)), N),
    "in turns": ((N,), (4, 4), in_turns, N),
    "in turns, mixed": ((N,), (4, 4, 4), lambda a, b, c: in_turns(a, b) ^ c, 4 * N),
    "bits left over": ((8,), (N,), lambda i: (i ^ (i >> 1)) & 7, N),
    "at other places": ((2 * N,), (N,), lambda i: ((i ^ (i >> 1)) << 1) + 1, 2 * N),
    "halves of a butterfly": ((3, 8), (3, 4), lambda s, i: (s, ((i >> s) << (s + 1)) | (i & ((1 << s) - 1))), 24),
}


@pytest.mark.parametrize("name", BITS)
def test_bits(name):
    shape, domain, index, iterations = BITS[name]
    assert check(shape, domain, index) == iterations
    check(shape, domain, index, nonlinear=True)


@pytest.mark.parametrize("name", ["xor", "butterfly", "Gray", "in turns"])
def test_bits_compiled(name):
    shape, domain, index, _ = BITS[name]
    check(shape, domain, index, nonlinear=True, compiled=True)


WORDS = st.tuples(st.integers(-3, 3), st.integers(1, 15), st.booleans())


@settings(max_examples=25)
@given(st.lists(WORDS, min_size=1, max_size=4), st.integers(0, 15))
def test_random_words(terms, constant):
    """Shifted and masked words of two axes, joined: of any rank."""

    def index(a, b):
        word = constant
        for by, mask, first in terms:
            source = a if first else b
            word = word ^ ((source << by if by >= 0 else source >> -by) & mask)
        return word

    x, h, grads = adjoint((N,), (8, 4), index)
    head = np.random.default_rng(2).standard_normal((8, 4))
    want = expected((N,), (8, 4), index, head)
    np.testing.assert_allclose(te.interpret(grads[0], {x: np.zeros(N), h: head}), want, rtol=1e-12, atol=1e-12)


# shape, domain, index; iterations with n = 5 and m = 3
SYMBOLIC = {
    "around": ((n,), (n, m), lambda n, m, i, j: ((i + j) % n,), 15),
    "around, backwards": ((n,), (n, m), lambda n, m, i, j: ((2 * j - i) % n,), 15),
    "around, further": ((n,), (n,), lambda n, m, i: ((i + m) % n,), 5),
    "around, the first": ((n + m,), (n,), lambda n, m, i: ((i + 2 * m) % (n + m),), 8),
    "rows": ((n,), (n * m,), lambda n, m, k: (k // m,), 15),
    "columns": ((n,), (n * m,), lambda n, m, k: (k % n,), 15),
    "rows, the last one short": ((n,), (n,), lambda n, m, i: (i // m,), 15),
    "columns, the last row short": ((n,), (n,), lambda n, m, i: (i % m,), 10),
    "rows and a window": ((n + 2,), (n * m, 3), lambda n, m, k, r: (k // m + r,), 63),
    "strided": ((n * m,), (n,), lambda n, m, i: (i * m,), 15),
    "strided, the ends": ((n * m,), (n,), lambda n, m, i: (i * m + m - 1,), 15),
    "every other, in blocks": ((2 * n * m,), (n, 2), lambda n, m, i, j: ((2 * i + j) * m,), 30),
    "pairs exchanged": ((2 * n,), (2 * n,), lambda n, m, i: (i ^ 1,), 10),
    "halved": ((n,), (2 * n,), lambda n, m, i: (i >> 1,), 10),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_extents(name):
    shape, domain, index, iterations = SYMBOLIC[name]
    x, h, grads = adjoint(shape, domain, functools.partial(index, n, m))
    assert [r.kind for r in grads.explain().reads] == ["gather"], grads.explain()
    assert te.work(grads[0], sizes={n: 5, m: 3}).iterations == iterations
    for numbers in ((5, 3), (3, 5), (1, 1), (4, 2)):
        sizes = dict(zip((n, m), numbers, strict=True))
        extents = [tuple(evaluate_extent(e, sizes, "") for e in t.extents) for t in (x, h)]
        head = np.random.default_rng(3).standard_normal(extents[1])
        want = expected(*extents, functools.partial(index, *numbers), head)
        got = te.interpret(grads[0], {x: np.zeros(extents[0]), h: head}, sizes=sizes)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


TABLES = {
    "squares around": ((20,), (20,), lambda i: i * i % 20, 80),
    "triangular numbers": ((10,), (4,), lambda i: i * (i + 1) // 2, 10),
    "two rows": ((7, 9), (12,), lambda i: (i * i % 7, i * i * i % 9), 126),
    "beside a plain row": ((20, 5), (20, 5), lambda i, b: (i * i % 20, b), 400),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name):
    shape, domain, index, iterations = TABLES[name]
    assert check(shape, domain, index) == iterations
    check(shape, domain, index, nonlinear=True, compiled=name == "two rows")


def test_a_table_that_would_be_mostly_padding_stays_a_scatter():
    _, _, grads = adjoint((20,), (4, 5), lambda i, j: i * j)
    assert [r.kind for r in grads.explain().reads] == ["scatter"]


def test_a_table_of_a_large_tensor_is_not_made():
    """A scatter touches the few elements that are reached; a table would have a row for each."""
    _, _, grads = adjoint((1 << 20,), (3,), lambda i: i * i)
    assert [r.kind for r in grads.explain().reads] == ["scatter"]


@pytest.mark.parametrize("index", [lambda i: i ^ 5, lambda i: i ^ (i >> 1)])
def test_the_inversion_over_other_axes_is_one_of_sympys(index):
    _, _, grads = adjoint((N,), (N,), index)
    (read,) = grads.gathers
    assert read.reason == "sums 1 per element, over other axes"
    read.inversion.check()


def test_a_recurrence_that_reads_by_bits_is_no_search():
    """A fast Walsh-Hadamard transform: of each step one term comes from the place itself, one from its partner."""
    x = te.placeholder((8,), "float64", name="x")

    def step(w, t, i):
        k = t - 1
        sign = te.select((i >> k) & 1 == 1, -1.0, 1.0)
        return te.select(t == 0, x[i], w[t - 1, i ^ (1 << k)] + sign * w[t - 1, i])

    w = te.scan((4, 8), step, dtype="float64", name="w")
    y = te.compute((8,), lambda i: w[3, i])
    h = te.placeholder((8,), "float64", name="h")
    (dx,) = te.differentiate(y, [x], head=h)
    assert te.work(dx).iterations <= 5 * 8 + 8 + te.work(w).iterations
    H = np.array([[(-1.0) ** bin(i & j).count("1") for j in range(8)] for i in range(8)])
    head = np.arange(8.0)
    np.testing.assert_allclose(te.interpret(dx, {x: np.zeros(8), h: head}), H.T @ head)
