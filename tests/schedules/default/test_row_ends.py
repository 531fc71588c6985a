"""The last vector of a row begins earlier where vectors have no masks, and what it computes again stays the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(5)
V3, V4 = "x86-64-v3", "x86-64-v4"


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return (CHANCE.random(shape) * 100).astype(dtype)


def rows(a: te.Tensor) -> te.Tensor:
    """A stage that is read through a window, and what reads it; the window begins behind the first column."""
    h, w = (int(n) for n in a.shape)
    made = te.compute((h, w), lambda y, x: a[y, x] * 3 + 1, name="made")
    return te.compute((h - 2, w - 1), lambda y, x: made[y, x + 1] + made[y + 1, x + 1] + made[y + 2, x + 1], name="out")


@pytest.mark.share(7)
@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
@pytest.mark.parametrize("width", [2, 9, 17, 37, 66])
def test_rows_of_any_length(width: int, dtype: str, level: str) -> None:
    a = te.placeholder((7, width), dtype, name="a")
    out, given = rows(a), numbers((7, width), dtype)
    want = te.interpret(out, {a: given})
    for choices in ({}, {**LOWEST, "cores": 2}):
        with assuming(choices):
            found = te.build([a], out, target=level)(given)
        np.testing.assert_array_equal(found, want)


def test_only_vectors_without_masks_begin_earlier() -> None:
    a = te.placeholder((4, 70), name="a")
    out = te.compute((4, 69), lambda i, j: a[i, j] + a[i, j + 1], name="out")
    assert "j = minimum(j_o*8, 61) + j_v" in str(te.Schedule(out).auto(target=V3))
    assert "if j < 69" in str(te.Schedule(out).auto(target=V4))


def test_in_place_every_element_is_computed_once() -> None:
    given = numbers((3, 69), "float32")
    a = te.placeholder(given.shape, name="a")
    twice = te.compute(a.shape, lambda i, j: a[i, j] * 2, name="twice")
    kern = te.build([a], twice)
    own = given.copy()
    kern(own, out=own)
    np.testing.assert_array_equal(own, given * 2)
    taken = te.build([a], twice, donate=[a])
    np.testing.assert_array_equal(taken(given.copy()), given * 2)


def test_what_is_added_to_is_added_to_once() -> None:
    given = numbers((3, 70), "float32")
    a = te.placeholder(given.shape, name="a")
    kern = te.build([a], te.compute((3, 69), lambda i, j: a[i, j] + a[i, j + 1], name="pairs"))
    sums = np.ones((3, 69), "float32")
    kern(given, out=sums, mode="add")
    np.testing.assert_array_equal(sums, 1 + (given[:, :-1] + given[:, 1:]))
