"""Minima and maxima of guarded values: constants in a part of the loops, whose tests for NaN Halide 21 mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming

ROWS, COLUMNS = 9, 5
Body = Callable[[te.Tensor, te.Tensor, te.Tensor], te.Tensor]


def compared(of: Callable[[Any], Any], inlined: bool = False) -> Body:
    """The smaller of two, twice, beside the value of a neighbor; the last column has no neighbor."""

    def program(a: te.Tensor, w: te.Tensor, d: te.Tensor) -> te.Tensor:
        def ahead(i: Any, j: Any) -> Any:
            return te.select(j + 1 < COLUMNS, of(w[i, j + 1]), 0.0)

        stage = te.compute((ROWS, COLUMNS), ahead, name="ahead")

        def body(i: Any, j: Any) -> Any:
            next_one = stage[i, j] if inlined else ahead(i, j)
            above = te.select((i >= 1) & (j + 1 < COLUMNS), w[i - 1, j + 1], 0.0)
            least = te.minimum(te.minimum(a[i, j], next_one), next_one)
            return te.select(least <= above, d[i, j], 0.0)

        return te.compute((ROWS, COLUMNS), body, name="y")

    return program


PROGRAMS: dict[str, Body] = {
    "read": compared(lambda x: x),
    "read of a stage": compared(lambda x: x, inlined=True),
    "computed": compared(lambda x: te.abs(x) + 1.0),
    "clipped": compared(lambda x: te.clip(x, -0.5, 0.5)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_vectors_that_end_beyond_their_guard(name: str, dtype: str) -> None:
    a, w, d = (te.placeholder((ROWS, COLUMNS), dtype, name=n) for n in "awd")
    y = PROGRAMS[name](a, w, d)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, (ROWS, COLUMNS)).astype(dtype) for _ in "awd"]
    arrays[0][2, 1] = arrays[1][4, 3] = np.nan
    with assuming(LOWEST):
        found = te.build([a, w, d], y)(*arrays)
    np.testing.assert_array_equal(found, te.interpret(y, dict(zip([a, w, d], arrays))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("far", [2**31 - 1, 2**31 - 2, -(2**31)])
@pytest.mark.parametrize("first", [True, False])
def test_places_beside_the_largest_integer(first: bool, far: int) -> None:
    """Halide moved a term of a place to the number that stands for none, past the end of int32."""
    x = te.placeholder((64, 8, 4), name="x")
    i, k = te.reduce_axis(8, "i"), te.reduce_axis(64, "k")

    def place() -> te.Expr:
        none = te.const(far, "int32")
        found = x[k, i, i % 4] == 1
        return te.select(found, i * 64 + k, none) if first else te.select(found, none, i * 64 + k)

    outputs = [
        te.compute((), lambda: te.min(place(), axis=(i, k), where=k >= i - 3)),
        te.compute((), lambda: te.max(place(), axis=(i, k), where=k >= i - 3)),
        te.compute((), lambda: te.argmin(x[k, i, i % 4], axis=(i, k), where=k >= i - 3)),
    ]
    feeds = {x: np.random.default_rng(0).integers(0, 2, (64, 8, 4)).astype("float32")}
    for output in outputs:
        assert te.evaluate(output, feeds) == te.interpret(output, feeds)
