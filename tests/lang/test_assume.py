"""te.assume and te.index_map: what is refused, what te.checked() finds, and which kernels share code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.structure import structural_key

N = 6


def tensors() -> tuple[Any, Any, Any]:
    return (
        te.placeholder((N,), "int32", name="idx"), te.placeholder((N,), "float32", name="x"),
        te.placeholder((N,), "float32", name="h"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "index", "text"),
    [
        ({"permutation": True}, [0, 1, 2, 3, 4, 4], "is a permutation of 6 places, but 4 is there twice along axis 0"),
        ({"permutation": True}, [0, 1, 2, 3, 4, 6], r"is a permutation of 6 places, but 6 is at \[5\]"),
        ({"unique": True}, [0, 1, 2, 2, 3, 4], "is unique, but 2 is there twice along axis 0"),
        ({"sorted": True}, [0, 2, 1, 2, 2, 2], "is sorted, but 1 comes after 2 along axis 0"),
        ({"within": (0, 4)}, [0, 2, 1, 5, 2, 2], r"is within \(0, 4\), but 5 is at \[3\]"),
    ],
)
def test_checked_finds_what_does_not_hold(facts: Any, index: list[int], text: str) -> None:
    idx, x, h = tensors()
    assumed = te.assume(idx, **facts)
    gradient = te.differentiate(te.compute((N,), lambda i: x[assumed[i]]), x, h)
    feeds = {idx: np.int32(index), h: np.ones(N, "f4")}
    forward = te.compute((N,), lambda i: assumed[i] * 2)
    with te.checked(), pytest.raises(ValueError, match=f"te.assume says that 'idx' {text}"):
        te.evaluate(gradient, feeds)
    with te.checked(), pytest.raises(ValueError, match=text):
        te.evaluate(forward, {idx: np.int32(index)})
    np.testing.assert_array_equal(te.evaluate(forward, {idx: np.int32(index)}), np.int32(index) * 2)


def test_checked_passes_what_holds_and_finds_a_wrong_inverse() -> None:
    idx, x, h = tensors()
    inverse = te.placeholder((N,), "int32", name="inverse")
    assumed = te.assume(idx, permutation=True, inverse=inverse, within=(0, N))
    gradient = te.differentiate(te.compute((N,), lambda i: x[assumed[i]]), x, h)
    p = np.int32([3, 1, 0, 2, 5, 4])
    feeds = {idx: p, h: np.arange(N, dtype="f4")}
    with te.checked():
        found = te.evaluate(gradient, {inverse: np.argsort(p).astype("i4"), **feeds})
        with pytest.raises(ValueError, match="has this inverse, but"):
            te.evaluate(gradient, {inverse: p, **feeds})
    np.testing.assert_array_equal(found[p], np.arange(N))


def test_facts_along_an_axis() -> None:
    idx = te.placeholder((2, 3), "int32", name="idx")
    rows, columns = te.assume(idx, permutation=True), te.assume(idx, permutation=True, axis=0)
    array = np.int32([[0, 2, 1], [1, 0, 2]])
    with te.checked():
        te.evaluate(rows, {idx: array})
        with pytest.raises(ValueError, match=r"is a permutation of 2 places, but 2 is at"):
            te.evaluate(columns, {idx: array})


def test_programs_with_and_without_an_assumption_are_two() -> None:
    idx, *_ = tensors()
    made = [idx + 0, te.assume(idx, unique=True), te.assume(idx, sorted=True), te.assume(idx, within=(0, 5))]
    assert len({structural_key(t, [idx]) for t in made}) == 4
    again = te.assume(idx, within=(0, 5))
    assert structural_key(again, [idx]) == structural_key(made[-1], [idx])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda i, x: te.assume(i), ValueError, "nothing is assumed"),
        (lambda i, x: te.assume(x, unique=True), TypeError, "a tensor of integers"),
        (lambda i, x: te.assume(i, inverse=i), ValueError, "say permutation=True"),
        (lambda i, x: te.assume(i, permutation=True, inverse=i[1:]), ValueError, "inverse of integers of the shape"),
        (lambda i, x: te.assume(i, within=3), ValueError, "two integers"),
        (lambda i, x: te.assume(i, within=(0.5, 2)), TypeError, "are integers"),
        (lambda i, x: te.assume(i, unique=True, axis=1), ValueError, "axis 1 does not exist"),
        (lambda i, x: te.index_map(3), TypeError, "expected functions"),
        (lambda i, x: te.index_map(lambda k: k)(i[0]), TypeError, "an axis whose extent is known"),
        (lambda i, x: te.index_map(lambda k: k * 0.5).over(4), TypeError, "expected an integer"),
    ],
)
def test_what_is_refused(make: Any, error: type[Exception], text: str) -> None:
    idx, x, _ = tensors()
    with pytest.raises(error, match=text):
        make(idx, x)
