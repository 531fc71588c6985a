"""Arrays of more elements or bytes than int32 counts, of which little is ever touched: zeros that nobody wrote to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.expr import SIZE_MAX

SHAPES = {"uint8": (70001, 40000), "bool": (1300, 1300, 1301), "float64": (20000, 20001)}
BOTH = (te.interpret, te.evaluate)


def sparse(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """An array that takes memory only where it is read below: on a diagonal of eleven elements that ends at the end."""
    made = np.zeros(shape, dtype)
    for k in range(11):
        made[at(shape, k)] = k + 1
    return made


def at(shape: tuple[int, ...], k: int) -> tuple[int, ...]:
    return tuple(n - 1 - (10 - k) * (n // 11) for n in shape)


def repeated(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.ones((), dtype), shape)


@pytest.mark.parametrize("is_symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("dtype", SHAPES)
def test_elements_of_large_inputs_are_read(dtype: str, is_symbolic: bool, capfd: pytest.CaptureFixture[str]) -> None:
    shape = SHAPES[dtype]
    assert math.prod(shape) * np.dtype(dtype).itemsize > 2**31
    extents = tuple(te.var(f"n{d}") for d in range(len(shape))) if is_symbolic else shape
    x = te.placeholder(extents, dtype, name="x")
    far = te.compute((11,), lambda k: x[tuple(n - 1 - (10 - k) * (n // 11) for n in extents)], name="far")
    ahead = te.compute(
        (11,), lambda k: x.at(*(n - 1 + (10 - k) * (n // 11) for n in extents), mode="reflect"), name="ahead"
    )
    kernel = te.build([x], [far, ahead])
    for values in (sparse(shape, dtype), repeated(shape, dtype), sparse(shape[::-1], dtype).T):
        want = np.array([values[at(shape, k)] for k in range(11)])
        for found in kernel(values):
            np.testing.assert_array_equal(found, want)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("is_symbolic", [False, True], ids=["known", "symbolic"])
def test_rows_of_repeated_elements_are_summed(is_symbolic: bool) -> None:
    n, m = (te.var("n"), te.var("m")) if is_symbolic else (9, 2**28)
    x = te.placeholder((n, m), "bool", name="x")
    k = te.reduce_axis(1000, "k")
    total = te.compute((n,), lambda i: te.sum(te.cast(x[i, m - 1 - k], "int32"), axis=k))
    np.testing.assert_array_equal(te.build([x], total)(repeated((9, 2**28), "bool")), [1000] * 9)


@pytest.mark.parametrize("is_symbolic", [False, True], ids=["known", "symbolic"])
def test_large_results_are_written(is_symbolic: bool) -> None:
    n, m = (te.var("n"), te.var("m")) if is_symbolic else (50000, 43000)
    a, b = te.placeholder((n,), "uint8", name="a"), te.placeholder((m,), "uint8", name="b")
    table = te.compute((n, m), lambda i, j: a[i] + b[j], name="table")
    left, right = np.arange(50000).astype("uint8"), (np.arange(43000) // 3).astype("uint8")
    found = te.build([a, b], table)(left, right)
    assert found.size > 2**31
    for row in (0, 1, 24999, 49998, 49999):
        np.testing.assert_array_equal(found[row], left[row] + right)


def test_what_int32_does_not_hold_is_refused_at_the_call() -> None:
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n, m), "uint8", name="x"), te.placeholder((n,), "uint8", name="y")
    k, r = te.reduce_axis(n, "k"), te.reduce_axis(m, "r")
    feeds = {x: repeated((60000, 60000), "uint8"), y: repeated((2**30 + 5,), "uint8")}
    for tensor, source, message in (
        (te.compute((), lambda: te.argmax(x[k, r], axis=(k, r))), x, "te.argmax over 3600000000 positions"),
        (te.compute((n * m // 1000,), lambda i: x[i % n, 0]), x, r"`n \* m` is 3600000000 with n = 60000, m = 60000"),
        (te.compute((3,), lambda i: x[i, i] + n * m), x, "extents are computed in int32"),
        (te.compute((3,), lambda i: y.at(i - 1, mode="reflect")), y, r"`2 \* \(n - 1\)` is 2147483656 with n = 107374"),
    ):  # fmt: skip
        for run in BOTH:
            with pytest.raises(ValueError, match=message):
                run(tensor, {source: feeds[source]})
    guarded = te.compute((3,), lambda i: te.select(n < 40000, x[0, n * n % m], x[i, i]))
    np.testing.assert_array_equal(te.evaluate(guarded, {x: feeds[x]}), [1, 1, 1])
    large = te.placeholder((2**30 + 5,), "uint8", name="large")
    mirrored = te.compute((3,), lambda i: large.at(2**30 + 3 + i, mode="reflect"))
    values = np.zeros(2**30 + 5, "uint8")
    values[-3:] = 1, 2, 3
    np.testing.assert_array_equal(te.evaluate(mirrored, {large: values}), [2, 3, 2])


def test_extents_beyond_int32_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"placeholder 'x', dimension 1 at .*: extent 2147483648 does not fit"):
        te.placeholder((3, 2**31), "uint8")
    x = te.placeholder((te.var("n"),), "uint8", name="x")
    last = te.compute((1,), lambda i: x[i])
    for run in BOTH:
        with pytest.raises(ValueError, match=f"of input 'x': extent `n` is 2147483648 .* at most {SIZE_MAX}: "):
            run(last, {x: repeated((2**31,), "uint8")})
    assert te.evaluate(last, {x: repeated((SIZE_MAX,), "uint8")})[0] == 1


def test_indices_that_wrap_for_large_arrays_alone_are_checked_for_those() -> None:
    """`2 * k` leaves int32 where k counts more than two gigabytes of float32; no array below has so many."""
    n = te.var("n")
    x, k = te.placeholder((n,), name="x"), te.reduce_axis(n, "k")
    y = te.compute((1,), lambda i: te.max(x[2 * k // 2 + i], axis=k), name="y")
    kernel = te.build([x], y)
    assert "check" not in kernel.source("stmt")
    assert "float64" not in kernel.source("stmt")
    np.testing.assert_array_equal(kernel(np.arange(10, dtype="float32")), [9])
    unit = te.reduce_axis(1, "unit")  # a loop that the normal form leaves out
    largest = te.compute((1,), lambda i: te.max(x[2 * k // 2 + unit], axis=(unit, k)))
    with pytest.raises(IndexError, match="-1073741824 or beyond"):
        te.evaluate(largest, {x: repeated((2**30 + 5,), "float32")})
    with pytest.raises(IndexError, match=r"index `2 \* k // 2 \+ i` of dimension 0 of x .* -1073741824 or beyond"):
        kernel(repeated((2**30 + 5,), "float32"))
    np.testing.assert_array_equal(kernel(np.arange(10, dtype="float32")), [9])
