"""Indices of every integer dtype, its extreme values among them, in every mode and through arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.dtypes import ALL, integer_bounds

N = 7
MODES = ("clamp", "wrap", "reflect", "zero")
DTYPES = [d for d in ALL if d.is_integer]
X = np.arange(1, N + 1, dtype="float32")
BOTH = (te.interpret, te.evaluate)
# What wraps around in the dtype of the index, as in NumPy.
ARITHMETIC: dict[str, Any] = {
    "i": lambda i: i, "i + 1": lambda i: i + 1, "i - 1": lambda i: i - 1, "3 * i": lambda i: 3 * i,
    "i // 3": lambda i: i // 3, "i % 5": lambda i: i % 5,
}  # fmt: skip


def extremes(dtype: Any) -> np.ndarray[Any, Any]:
    low, high = integer_bounds(dtype)
    around = [0, N, low, high, -(2**40), -(2**31), 2**31, 2**32, 2**63, -N]
    return np.array(sorted({v + d for v in around for d in (-2, -1, 0, 1, 3) if low <= v + d <= high}), dtype)


def place(value: Any, mode: str) -> int | None:
    """Where an index leads, or None for a zero."""
    at = int(value)
    if mode == "zero":
        return at if 0 <= at < N else None
    if mode == "reflect":
        return N - 1 - abs(N - 1 - at % (2 * N - 2))
    return at % N if mode == "wrap" else min(max(at, 0), N - 1)


def looked_up(values: np.ndarray[Any, Any], mode: str) -> list[float]:
    return [0.0 if (at := place(v, mode)) is None else float(X[at]) for v in values]


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_index_in_every_mode(dtype: Any) -> None:
    """Of a length that is known for every second dtype, of any length for the others."""
    values, is_symbolic = extremes(dtype), DTYPES.index(dtype) % 2 == 1
    x = te.placeholder((te.var("n") if is_symbolic else N,), name="x")
    index, head = te.placeholder(values.shape, dtype, name="index"), te.placeholder(values.shape, name="head")
    made, wanted, grads, adjoints = [], [], [], []
    for mode in MODES:
        for rule in ARITHMETIC.values():
            made.append(te.compute(values.shape, lambda k, rule=rule, mode=mode: x.at(rule(index[k]), mode=mode)))
            with np.errstate(over="ignore"):
                wanted.append(looked_up(rule(values), mode))
        grads.append(te.differentiate(made[-len(ARITHMETIC)], [x], head)[0])
        adjoint = np.zeros(N)
        for k, value in enumerate(values):
            if (at := place(value, mode)) is not None:
                adjoint[at] += k + 1
        adjoints.append(adjoint)
    feeds = {x: X, index: values, head: np.arange(1, len(values) + 1, dtype="float32")}
    for run in BOTH:
        for found, want in zip(run([*made, *grads], feeds), [*wanted, *adjoints], strict=True):
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_index_brought_back_by_hand(dtype: Any) -> None:
    values = extremes(dtype)
    x, index = te.placeholder((N,), name="x"), te.placeholder(values.shape, dtype, name="index")
    r = te.reduce_axis(len(values), "r")
    inside = (index[r] >= 0) & (index[r] < N)
    made = [
        te.compute(values.shape, lambda k: x[te.clip(index[k], 0, N - 1)]),
        te.compute(values.shape, lambda k: x[te.minimum(te.maximum(index[k], 0), N - 1)]),
        te.compute(values.shape, lambda k: x[te.maximum(te.minimum(index[k], N - 1), 0)]),
        te.compute(values.shape, lambda k: te.select((index[k] >= 0) & (index[k] < N), x[index[k]], 0.0)),
        te.scatter((N,), [r], (te.clip(index[r], 0, N - 1),), 1.0, name="clipped"),
        te.scatter((N,), [r], (index[r],), 1.0, where=inside, name="guarded"),
    ]
    clipped = looked_up(values, "clamp")
    guarded = looked_up(values, "zero")
    counts = [np.array([places.count(at) for at in range(N)]) for places in (
        [place(v, "clamp") for v in values], [place(v, "zero") for v in values],
    )]  # fmt: skip
    for run in BOTH:
        found = run(made, {x: X, index: values})
        for got, want in zip(found, [clipped, clipped, clipped, guarded, *counts], strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("is_symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_index_outside_is_found(dtype: Any, is_symbolic: bool) -> None:
    n = te.var("n") if is_symbolic else N
    x, index = te.placeholder((n,), name="x"), te.placeholder((3,), dtype, name="index")
    k = te.reduce_axis(3, "k")
    read = te.compute((3,), lambda k: x[index[k]])
    write = te.scatter((n,), [k], (index[k],), 1.0)
    for tensor, inputs, arrays, sizes in ((read, [x, index], [X], {}), (write, [index], [], {n: N})):
        kernel = te.build(inputs, tensor)
        sizes = sizes if is_symbolic else {}
        for value in extremes(dtype):
            given = [*arrays, np.array([1, value, 2], dtype)]
            if 0 <= int(value) < N:
                kernel(*given, sizes=sizes)
                continue
            with pytest.raises(IndexError, match=f"it is {value} at k = 1[ ,]"):
                te.interpret(tensor, dict(zip(inputs, given, strict=True)), sizes=sizes)
            with pytest.raises(IndexError, match=f"it is {value} at k = 1[ ,]"):
                kernel(*given, sizes=sizes)
