"""Intervals of what integers are made of, against values, and the conversions that rely on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.intervals import range_of
from tests.levels import LEVELS_HERE

EDGES = [
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.999,
    254.999,
    255.5,
    256.0,
    2.0**24,
    2.0**31,
    -1.0,
    3e38,
]
X = np.array([*EDGES, -(2.0**31), -0.99999, 7.9999995, 1791.99, 1793.0, *np.linspace(-300, 300, 81)], "float64")
# A float, and the ends of the int32 made of it.
PLACES: dict[str, tuple[Callable[[Any], Any], tuple[int, int]]] = {
    "clip": (lambda x: te.clip(x, 0.0, 255.0), (0, 255)),
    "above 0": (lambda x: te.clip(x, 3.5, 9.25), (0, 9)),
    "rounded": (lambda x: te.clip(x, 0.0, 1.0) * 10.0 + 0.5, (0, 10)),
    "scaled": (lambda x: te.clip(x, 0.0, 1.0) * 255.0, (0, 255)),
    "below 0": (lambda x: te.maximum(te.minimum(x, -2.0), -9.0), (-9, 0)),
    "steps": (lambda x: te.ceil(te.clip(x, -1.5, 1.5)) - te.floor(te.clip(x, 0.0, 2.5)), (-3, 2)),
    "divided": (lambda x: te.abs(te.clip(x, -6.0, 4.0)) / -2.0, (-3, 0)),
    "chosen": (lambda x: te.select(x > 0.0, te.sigmoid(x) * 7.0, -te.relu(te.clip(x, -1.0, 3.0))), (-3, 7)),
    "any": (lambda x: x * 0.0, (-(2**31), 2**31 - 1)),
    "inverse": (lambda x: 1.0 / te.clip(x, 0.0, 1.0), (-(2**31), 2**31 - 1)),
}


@pytest.mark.parametrize("name", PLACES)
def test_ends(name: str) -> None:
    place, ends = PLACES[name]
    a = te.placeholder((4,), "float32", name="a")
    made = te.compute((4,), lambda i: te.cast(place(a[i]), "int32"))
    assert range_of(made.op.bodies[0]) == ends


def test_ends_of_integers_that_were_floats_on_their_way() -> None:
    a = te.placeholder((4,), "uint8", name="a")
    made = te.compute((4,), lambda i: te.cast(te.cast(a[i], "float32") * 0.5, "int32") + i)
    assert range_of(made.op.bodies[0]) == (0, 130)


@pytest.mark.parametrize(
    ("source", "level"),
    list(zip(["float16", "bfloat16", "float32", "float64", "float32"], LEVELS_HERE * 5, strict=False)),
)
def test_conversions(source: str, level: str) -> None:
    """NaN is 0 and becomes what 0 is clipped to, whichever is clipped first."""
    n = len(X)
    x = te.placeholder((n,), "float64", name="x")
    a = te.compute((n,), lambda i: te.cast(x[i], source), name="a")
    made = [
        te.compute((n,), lambda i, p=place, t=target: te.cast(p(a[i]), t))
        for (place, _), target in itertools.product(PLACES.values(), ("uint8", "int32", "int64"))
    ]
    ends = ((0, 100), (3, 9), (-9, 2), (-9, -2), (-(2**31), 2**31 - 1))
    made += [te.compute((n,), lambda i, e=e: te.clip(te.cast(a[i], "int32"), *e)) for e in ends]
    with np.errstate(all="ignore"):
        wanted = te.interpret(made, {x: X})
    for got, want in zip(te.build([x], made, target=level)(X), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_table_read_at_a_clipped_float_is_not_looked_through_first() -> None:
    a, table = te.placeholder((500,), name="a"), te.placeholder((256,), name="table")
    out = te.compute((500,), lambda i: table[te.cast(te.clip(a[i], 0.0, 255.0), "int32")], name="out")
    kern = te.build([a, table], out)
    assert "check" not in kern.source("stmt")
    values = np.array([*X, *np.linspace(-9, 300, 500 - len(X))], "float32")
    rows = np.arange(256, dtype="float32")
    np.testing.assert_array_equal(kern(values, rows), te.interpret(out, {a: values, table: rows}))
