"""Networks of layers that are alike, and what their kernels compute beside the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

import tedsl as te
from tests.arrays import floats

N = 32


def layers(count: int, columns: Any = N) -> tuple[te.Tensor, list[te.Tensor], list[te.Tensor]]:
    """x, the weights and the result of each layer of a network whose layers are alike."""
    x = te.placeholder((N, columns), name="x")
    weights = [te.placeholder((N, N), name=f"w{k}") for k in range(count)]
    results = [x]
    for k, w in enumerate(weights):
        results.append(te.compute((N, columns), dense(results[-1], w), name=f"layer{k}"))
    return x, weights, results[1:]


def dense(h: te.Tensor, w: te.Tensor) -> Any:
    """Reads whole columns of h, so that it does not run row by row with what computes h."""
    return lambda i, j: te.sum(lambda k: w[i, k] * te.tanh(h[k, j]))


def small(*shape: int) -> Any:
    """Arrays through which an error of a layer grows by less than 1.5 in the next: six sums of 32 terms are off by less
    than 1e-4."""
    return floats(*shape) / 8


def same(kern: Any, inputs: list[te.Tensor], outputs: list[te.Tensor], *arrays: Any) -> None:
    expected = te.interpret(outputs, dict(zip(inputs, arrays, strict=True)))
    for _ in range(2):  # the second call finds the prepared one
        for found, want in zip(kern(*arrays), expected, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def convolutions(count: int) -> tuple[list[te.Tensor], te.Tensor]:
    """The gradient of padded convolutions: it multiplies zeros, which a weight that is infinite forbids."""
    image = te.placeholder((1, 4, 10, 10), name="image")
    weights = [te.placeholder((4, 4, 3, 3), name=f"w{k}") for k in range(count)]
    h = image
    for w in weights:
        h = te.ops.conv2d(h, w, padding=1)
    head = te.placeholder(h.shape, name="head")
    return [image, *weights, head], te.differentiate(h, image, head=head)


def check_an_infinite_weight(kern: Any, inputs: list[te.Tensor], output: te.Tensor) -> None:
    arrays = [floats(*t.shape) for t in inputs]
    arrays[1][0, 0, 0, 0] = np.inf
    want = te.interpret(output, dict(zip(inputs, arrays, strict=True)))
    fine = np.isfinite(want)
    assert fine.any()
    assert not fine.all()
    for _ in range(2):
        found = kern(*arrays)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        np.testing.assert_allclose(found[fine], want[fine], rtol=1e-3, atol=1e-2)
