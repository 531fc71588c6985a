"""Slices and integers of an axis whose extent is symbolic: Python's own, for every extent."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

import tedsl as te
from tedsl.analysis.sizes import evaluate_extent
from tedsl.mutation.slices import AxisCut, clipped, cut_axis, place_of

n = te.var("n")
BOUNDS = [None, 0, 1, 2, 5, -1, -2, -5]
STEPS = [None, 1, 2, 3, -1, -2, -3]


def number(expr: Any, size: int) -> int:
    return evaluate_extent(expr, {n: size}, "test")


def places(cut: AxisCut, size: int) -> list[int]:
    assert cut.step is not None
    return [number(cut.first, size) + cut.step * k for k in range(number(clipped(cut.count), size))]


@pytest.mark.parametrize("step", STEPS)
def test_every_slice_of_every_axis(step: int | None) -> None:
    for start, stop in product(BOUNDS, BOUNDS):
        item = slice(start, stop, step)
        cut = cut_axis(n, item)
        for size in range(10):
            expected = list(range(size))[item]
            assert places(cut, size) == expected, (item, size)
            by = step or 1
            if expected:
                assert not cut.from_edge or not 0 <= expected[0] - by < size, (item, size)
                assert not cut.to_edge or not 0 <= expected[-1] + by < size, (item, size)


def test_slices_of_slices() -> None:
    rng = random.Random(0)
    for _ in range(300):
        items = [slice(rng.choice(BOUNDS), rng.choice(BOUNDS), rng.choice(STEPS)) for _ in range(3)]
        count: Any = n
        found: list[AxisCut] = []
        for item in items:
            found.append(cut_axis(count, item))
            count = found[-1].count
        for size in range(12):
            own = list(range(size))
            for item, cut in zip(items, found, strict=True):
                own = own[item]
                assert number(clipped(cut.count), size) == len(own), (items, size)


@pytest.mark.parametrize("shift", [-3, -1, 0, 2])
def test_bounds_that_are_expressions(shift: int) -> None:
    """n - 3 counts from the end where n is less than 3, as it does in Python."""
    for bound in (n + shift, n // 2 + shift, te.minimum(n, 4)):
        for item in (slice(bound, None), slice(None, bound), slice(bound, 1, -1), slice(1, bound, 2)):
            cut = cut_axis(n, item)
            for size in range(9):
                plain = slice(*(None if v is None else v if isinstance(v, int) else number(v, size) for v in
                                (item.start, item.stop)), item.step)  # fmt: skip
                assert places(cut, size) == list(range(size))[plain], (item, size)


def test_integers() -> None:
    for index in (0, 3, -1, -4, n // 2, n - 1, n - 2):
        cut = place_of(n, index)
        for size in range(1, 8):
            wanted = index if isinstance(index, int) else number(index, size)
            if -size <= wanted < size:
                assert number(cut.first, size) % size == wanted % size
        assert bool(cut.checks)
    assert not place_of(te.minimum(n, 3) + 1, 0).checks
    for index in (4, -5):
        with pytest.raises(IndexError, match="out of bounds for an axis of at most 4 places"):
            place_of(te.minimum(n, 3) + 1, index)


def test_extents_stay_simple() -> None:
    """What is cut off is said in few words, so that equal parts are equal expressions."""
    shown = {
        "1:": "te.maximum(n - 1, 0)", ":-1": "te.maximum(n - 1, 0)", "::-1": "n", "::2": "(n + 1) // 2", ":0": "0",
        ":3": "te.minimum(3, n)", "-2:": "te.minimum(n, 2)", "1:-1": "te.maximum(n - 2, 0)", "5:2": "0", ":": "n",
    }  # fmt: skip
    for text, extent in shown.items():
        item = slice(*(int(v) if v else None for v in text.split(":")))
        assert str(clipped(cut_axis(n, item).count)) == extent, text
