"""Vectors of two elements: where something is divided by two, Halide 21 makes them of scalars as a and a + (b - a)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te

CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "remainder": lambda p: p % 2 == 0,
    "quotient": lambda p: p // 2 == 1,
    "bit": lambda p: (p & 1) == 0,
    "shift": lambda p: (p >> 1) == 1,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("extent", [2, 3])
@pytest.mark.parametrize("name", sorted(CONDITIONS))
def test_reductions_over_halves(name: str, extent: int, dtype: str) -> None:
    """Neighbors of all sizes, and infinite ones, beside which a difference loses a number."""
    a = te.placeholder((6, extent), dtype, name="a")
    holds = CONDITIONS[name]

    def reduced(reduce: Callable[..., Any], away: int) -> te.Tensor:
        return te.compute((extent,), lambda i: reduce(lambda k: a[k, i], where=lambda k: holds(k + i + away)))

    ys = [reduced(reduce, away) for reduce in (te.min, te.max) for away in (0, 1)]
    rng = np.random.default_rng(3)
    data = (rng.uniform(0.5, 1.5, (6, extent)) * 10.0 ** rng.integers(-8, 8, (6, extent))).astype(dtype)
    data[1, 0], data[4, 1] = np.inf, -np.inf
    for found, expected in zip(te.build([a], ys)(data), te.interpret(ys, {a: data}), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_inlined_halves() -> None:
    a = te.placeholder((6, 2), "float64", name="a")
    even = te.compute((6, 2), lambda k, i: te.select((k + i + 1) % 2 == 0, a[k, i], np.inf), name="even")
    y = te.compute((2,), lambda i: te.min(lambda k: even[k, i]), name="y")
    s = te.Schedule(y)
    s[even].compute_inline()
    s[y].vectorize(y.op.axes[0].name)
    s[y].unroll("k")
    data = np.random.default_rng(0).uniform(0.5, 1.5, (6, 2))
    (expected,) = te.interpret([y], {a: data})
    np.testing.assert_array_equal(te.build([a], y, schedule=s)(data), expected)
