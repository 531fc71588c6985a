"""Vectors read backwards, at lengths that leave a rest: Halide's masked loads stop there at a constant place."""

import numpy as np
import pytest

import tedsl as te


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
