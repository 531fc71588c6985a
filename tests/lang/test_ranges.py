"""Ranges that are not written are found from every use; contradictions and ambiguities list what was found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

CHANCE = np.random.default_rng(3)
n, m = te.var("n"), te.var("m")
A = te.placeholder((6, 7), name="A")
B = te.placeholder((7, 5), name="B")
w = te.placeholder((3,), name="w")
v = te.placeholder((10,), name="v")
X = te.placeholder((n, m), name="X")
y = te.placeholder((n,), name="y")


def extents(tensor: te.Tensor) -> list[str]:
    return [str(e) for e in tensor.shape]


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda i, j: A[i, j], ["6", "7"]),
        (lambda i, j: A[j, i], ["7", "6"]),
        (lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]), ["6", "5"]),
        (lambda i: te.sum(lambda k: v[i + k] * w[k]), ["8"]),
        (lambda i: te.sum(lambda k: v[2 * i + k] * w[k]), ["4"]),
        (lambda i: te.sum(lambda k: v[i + 2 * k] * w[k]), ["6"]),
        (lambda i: v[i + 1] - v[i + 3], ["7"]),
        (lambda i: v[2 * i] + v[2 * i + 1], ["5"]),
        (lambda i: v[3 * i], ["4"]),
        (lambda i: v[i + 1], ["9"]),
        (lambda i, j: X[i, j] * y[i], ["n", "m"]),
        (lambda i: te.sum(lambda j: X[i, j]), ["n"]),
        (lambda i: y[i + 2], ["n - 2"]),
        (lambda i: te.sum(lambda k: y[2 * i + k] * w[k]), ["(n + 1) // 2 - 1"]),
        (lambda i: v[9 - i] + v[i], ["10"]),
        (lambda i: v[4 - i], ["5"]),
        (lambda i: v[8 - 2 * i], ["5"]),
        (lambda i, j: y[n - 1 - i] * A[5 - j, 0], ["n", "6"]),
        (lambda i: te.sum(lambda k: v[7 - i + k] * w[k]), ["8"]),
        (lambda i: te.sum(lambda k: v[7 - i - k] * w[k]), ["6"]),
        (lambda: te.sum(lambda i, j: A[i, j]), []),
        (lambda i: v[i] * te.select(i > 3, 1.0, v[i - 2 + 2]), ["10"]),
    ],
)
def test_ranges_from_uses(body: Any, shape: list[str]) -> None:
    assert extents(te.compute(body)) == shape


def test_ranges_of_reduce_axes_under_a_written_shape() -> None:
    c = te.compute((4, 5), lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]))
    (k,) = c.op.reduction.axes
    assert k.extent.value == 7


def test_inferred_programs_compute_what_written_ones_do() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((6, 7)).astype("float32"), rng.standard_normal((7, 5)).astype("float32")
    c = te.compute(lambda i, j: te.sum(lambda k: A[i, k] * B[k, j]))
    np.testing.assert_allclose(te.interpret(c, {A: a, B: b}), a @ b, rtol=1e-5)
    signal, taps = rng.standard_normal(10).astype("float32"), np.array([1, 2, 3], "float32")
    d = te.compute(lambda i: te.sum(lambda k: v[i + k] * w[k]))
    np.testing.assert_allclose(te.interpret(d, {v: signal, w: taps}), np.correlate(signal, taps), rtol=1e-5)


def test_every_inferred_range_is_the_largest_in_bounds() -> None:
    for step in (1, 2, 3):
        for shift in range(4):
            for taps in range(1, 4):
                t = te.placeholder((taps,))
                c = te.compute(lambda i, s=step, d=shift, t=t: te.sum(lambda k: v[s * i + d + k] * t[k]))
                count = sum(step * i + shift + taps - 1 < 10 for i in range(20))
                assert c.shape == (count,)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda i: A[i, 0] + B[i, 0], r"range of axis 'i' is contradictory: 6 from A\[i, 0\].*but 7 from B\[i, 0\]"),
        (lambda i: X[i, 0] + X[0, i], r"range of axis 'i' is ambiguous: n from X\[i, 0\].*but m from X\[0, i\]"),
        (lambda i: y[i] + v[i], r"ambiguous: n from y\[i\] \(dimension 0 of y : float32\[n\]\), but 10 from v\[i\]"),
        (lambda i: w[i + 5], "the range of axis 'i' would be negative"),
        (lambda i: i * 1.0, "the range of 'i' cannot be inferred; uses found: none: the axis indexes no tensor"),
        (lambda i: v[i * i], "uses found: none"),
        (lambda i, j: v[i + j], r"the range of 'i', 'j' cannot be inferred; uses found: v\[i \+ j\]"),
        (lambda i: v[te.cast(w[0], "int32") + i], "the range of 'i' cannot be inferred"),
        (lambda i: v[-i], "the range of 'i' cannot be inferred"),
    ],
)
def test_refusals_list_what_was_found(body: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        te.compute(body)


@pytest.mark.parametrize("hop", [1, 3, 4])
def test_a_window_is_the_shorter_of_two_bounds_at_every_size(hop: int) -> None:
    n = te.var("n")
    x, taps = te.placeholder((n,), "float64", name="x"), te.placeholder((5, 2), "float64", name="taps")
    count = (n - 5) // hop + 1
    here = te.compute((count, 2), lambda t, f: te.sum(lambda k: x[t * hop + k] * taps[k, f]))
    first = te.compute((count, 2), lambda t, f: te.sum(lambda k: taps[k, f] * x[t * hop + k]))
    run = te.build([x, taps], [here, first])
    weights = CHANCE.random((5, 2))
    for size in range(5, 15):
        values = CHANCE.random(size)
        rows = [values[t * hop : t * hop + 5] @ weights for t in range((size - 5) // hop + 1)]
        for found in run(values, weights):
            np.testing.assert_allclose(found, rows, rtol=1e-12)


def test_bounds_of_which_either_may_be_the_shorter_are_ambiguous() -> None:
    n = te.var("n")
    x, taps = te.placeholder((n,)), te.placeholder((5,))
    for count in ((n - 3) // 4 + 1, (n - 5) // 4 * 3):
        with pytest.raises(ValueError, match="range of axis 'k' is ambiguous"):
            te.compute((count,), lambda t: te.sum(lambda k: x[t * 4 + k] * taps[k]))
    with pytest.raises(ValueError, match="range of axis 'k' is ambiguous"):  # both say what k is
        te.compute((), lambda: te.sum(lambda k: x[k] * te.placeholder((n // 4 * 4,))[k]))


def test_ranges_of_scatters_and_custom_reducers() -> None:
    add = te.reducer(lambda a, b: a + b, 0.0)
    c = te.compute(lambda i: add(lambda k: A[i, k]))
    assert c.shape == (6,)
    pair = te.reducer(lambda a, b: (a[0] + b[0], te.maximum(a[1], b[1])), (0.0, 0.0))
    k = te.reduce_axis(7, "k")
    total, most = te.compute(lambda i: pair((A[i, k], A[i, k]), axis=k))
    assert total.shape == most.shape == (6,)
