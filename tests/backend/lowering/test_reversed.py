"""Vectors read backwards, at lengths that leave a rest: Halide's masked loads stop there at a constant place."""

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("n", [1, 5, 9, 31, 33])
def test_reversed_reads(dtype, n):
    x = te.placeholder((n,), dtype, name="x")
    z = te.compute((n,), lambda i: x[i] + te.cast(i, dtype), name="z")
    outputs = [
        x[::-1],
        te.compute((n,), lambda i: z[n - 1 - i] * z[i]),
        te.compute((2, n), lambda j, i: z[n - 1 - i] * x[n - 1 - i]),
    ]
    feeds = {x: (np.arange(n) % 50).astype(dtype)}
    for have, want in zip(te.evaluate(outputs, feeds), te.interpret(outputs, feeds), strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [2, 3, 5, 9, 33])
def test_reversed_reads_of_stored_stages_below_loops_are_vectors(n):
    """Where a stage began at the unknown number that hides a place, the two canceled."""
    x = te.placeholder((n,), "float64", name="x")
    s = te.compute((n,), lambda i: te.sin(x[i]), name="s")
    diagonal = te.compute((n, n), lambda i, j: te.select(i == j, s[j], 0.0), name="diagonal")
    outputs = [
        te.compute((n, n), lambda i, j: s[n - 1 - j] + te.cast(i, "float64")),
        te.compute((n, n), lambda i, j: diagonal[i, n - 1 - j]),
        te.compute((n, n), lambda i, j: te.select(i < n - 1 - j, s[n - 1 - j], s[0])),
        te.compute((n, n, n), lambda k, i, j: s[n - 1 - j] * s[n - 1 - i] * s[k]),
    ]
    feeds = {x: np.linspace(-1, 1, n)}
    for output in outputs:
        np.testing.assert_allclose(te.evaluate(output, feeds), te.interpret(output, feeds), rtol=1e-15)


def test_a_stage_of_fused_loops_that_is_read_backwards_at_a_quotient():
    """Its extent held the number that hides the place, so that Halide did not know the sign of the extent."""
    x, head = te.placeholder((3, 24), name="x"), te.placeholder((3, 24), name="head")
    best = te.compute((3,), lambda i: te.argmax(lambda s: x[i, s]), name="best")

    def element(i, j):
        place = 9 * i - j + 8
        return te.select(place % 24 == best[place // 24], 1.0, 0.0) + head[place // 24, place % 24]

    y = te.compute((8, 9), element, name="y")
    rng = np.random.default_rng(0)
    feeds = {t: rng.integers(-2, 3, t.shape).astype("float32") for t in (x, head)}
    with assuming(LOWEST):
        np.testing.assert_array_equal(te.evaluate(y, feeds), te.interpret(y, feeds))
