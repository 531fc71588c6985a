"""Calls by code that looks at NumPy's arrays itself: made where all is as before, refused where anything is not."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.backend.arguments.array_calls import ArrayCall, _is_known

pytestmark = pytest.mark.skipif(not _is_known(), reason="arrays are laid out otherwise here")


def kernel() -> Any:
    x, y = te.placeholder((6, 5), name="x"), te.placeholder((5,), name="y")
    return te.build([x, y], [x * y, x - y], name="both")


def arrays() -> tuple[Any, ...]:
    return np.arange(30, dtype="f4").reshape(6, 5), np.arange(5, dtype="f4")


def called(kern: Any, *given: Any, **options: Any) -> ArrayCall:
    """What the third call like this one is made by."""
    for _ in range(2):
        kern(*given, **options)
    found: ArrayCall = (kern._last_into if options else kern._last)[1]
    return found


def test_later_calls_are_made_by_code() -> None:
    kern, (a, b) = kernel(), arrays()
    quick = called(kern, a, b)
    fresh = np.empty_like(a), np.empty_like(a)
    assert quick.run(a, b, *fresh) is True
    np.testing.assert_array_equal(fresh, (a * b, a - b))
    first, second = kern(a, b), kern(2 * a, b)
    np.testing.assert_array_equal(first, (a * b, a - b))
    np.testing.assert_array_equal(second, (2 * a * b, 2 * a - b))
    assert kern.stats.copies == []


def swapped(a: Any) -> Any:
    return a.astype(a.dtype.newbyteorder())


def elsewhere(a: Any) -> Any:
    """The same elements, not aligned."""
    raw = np.empty(a.nbytes + 1, "u1")[1:]
    raw[:] = a.reshape(-1).view("u1")
    return raw.view(a.dtype).reshape(a.shape)


def fixed(a: Any) -> Any:
    made = a.copy()
    made.flags.writeable = False
    return made


class Own(np.ndarray[Any, Any]):
    """Arrays of another class."""


OTHERS: list[Callable[[Any], Any]] = [
    lambda a: a[:5], lambda a: a.astype("f8"), lambda a: a.T, np.asfortranarray, lambda a: a[::-1],
    swapped, elsewhere, lambda a: a.view(Own), lambda a: a.tolist(), lambda a: None, lambda a: a[None],
    lambda a: a[0, 0],
]  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
def test_other_arrays_are_none_of_its(other: Callable[[Any], Any]) -> None:
    kern, (a, b) = kernel(), arrays()
    quick = called(kern, a, b)
    assert quick.run(other(a), b, np.empty_like(a), np.empty_like(a)) is None
    assert quick.run(a, b, np.empty_like(a)) is None
    assert quick.run(a, b, np.empty_like(a), np.empty_like(a)) is True


def test_inputs_may_be_read_only_results_may_not() -> None:
    kern, (a, b) = kernel(), arrays()
    out = np.empty_like(a), np.empty_like(a)
    quick = called(kern, a, b, out=out)
    assert quick.run(fixed(a), b, *out) is True
    assert quick.run(a, b, out[0], fixed(out[1])) is None
    with pytest.raises(ValueError, match="read-only"):
        kern(a, b, out=(out[0], fixed(out[1])))


def test_results_that_overlap_are_left_to_those_who_copy() -> None:
    x = te.placeholder((40,), name="x")
    kern = te.build([x], te.compute((40,), lambda i: x[39 - i] + x[i]))
    memory = np.arange(80, dtype="f4")
    out = np.empty(40, "f4")
    quick = called(kern, memory[:40], out=out)
    for begin in (0, 1, 20, 39):
        assert quick.run(memory[:40], memory[begin : begin + 40]) is None
    assert quick.run(memory[:40], memory[40:]) is True
    wanted = memory[:40] + memory[39::-1]
    np.testing.assert_array_equal(kern(memory[:40].copy(), out=memory[:40]), wanted)
    given = memory[:40].copy()
    kern(given, out=given)
    np.testing.assert_array_equal(given, wanted + wanted[::-1])


def test_an_array_may_be_written_over_where_that_is_safe() -> None:
    x = te.placeholder((40,), name="x")
    kern = te.build([x], x + 1)
    a = np.zeros(41, "f4")
    quick = called(kern, a[:40], out=a[:40])
    assert quick.run(a[:40], a[:40]) is True
    assert quick.run(a[:40], a[1:]) is None
    assert a.tolist() == [3.0] * 40 + [0.0]


def test_numbers_of_arrays_are_not_confused() -> None:
    x, y = te.placeholder((4,), name="x"), te.placeholder((4,), name="y")
    kern = te.build([x, y], x - y, name="difference")
    a = np.ones(4, "f4")
    for _ in range(3):
        kern(a, a, out=np.empty(4, "f4"))
    with pytest.raises((TypeError, ValueError)):
        kern(a, out=(a.copy(), a.copy()))


def test_a_failed_call_says_why_and_others_go_on() -> None:
    x, k = te.placeholder((9,), name="x"), te.placeholder((4,), "int32", name="k")
    kern = te.build([x, k], te.compute((4,), lambda i: x[k[i]]), name="looked")
    a = np.arange(9, dtype="f4")
    for _ in range(3):
        kern(a, np.array([1, 2, 3, 8], "i4"))
    for _ in range(2):
        with pytest.raises(IndexError, match="12"):
            kern(a, np.array([1, 12, 3, 8], "i4"))
        np.testing.assert_array_equal(kern(a, np.array([4, 2, 0, 8], "i4")), [4, 2, 0, 8])


def test_threads_beside_one_another() -> None:
    x = te.placeholder((3000,), name="x")
    kern = te.build([x], te.exp(x) * 2 + x)
    inputs = [np.full(3000, k, "f4") for k in range(4)]
    wanted = [kern(a) for a in inputs]

    def work(k: int) -> bool:
        return all(np.array_equal(kern(inputs[k]), wanted[k]) for _ in range(500))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_shapes_in_turn() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    kern = te.build([x], x * 3)
    for size in (5, 7, 5, 5, 7, 7, 7, 5, 0, 5):
        np.testing.assert_array_equal(kern(np.arange(size, dtype="f4")), 3 * np.arange(size, dtype="f4"))
