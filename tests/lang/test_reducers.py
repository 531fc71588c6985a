"""Reductions in expressions: conditions, several axes, NaN, ties, nothing at all, and reducers of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

A = te.placeholder((3, 4), "float64", name="A")
F = te.placeholder((3, 4), "bool", name="F")
a = np.array([[3.0, -1, 4, 1], [5, 9, -2, 6], [5, 3, 5, 8]])


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "argmax", "argmin"])
def test_over_one_and_several_axes(kind: str) -> None:
    i, j = te.reduce_axis(3, "i"), te.reduce_axis(4, "j")
    reduce, oracle = getattr(te, kind), getattr(np, kind)
    rows = te.compute((3,), lambda p: reduce(A[p, j], axis=j))
    everything = te.compute((), lambda: reduce(A[i, j], axis=(i, j)))
    transposed = te.compute((), lambda: reduce(A[i, j], axis=(j, i)))
    np.testing.assert_array_equal(te.interpret(rows, {A: a}), oracle(a, axis=1))
    np.testing.assert_array_equal(te.interpret(everything, {A: a}), oracle(a))
    np.testing.assert_array_equal(te.interpret(transposed, {A: a}), oracle(a.T))


def test_conditions() -> None:
    j = te.reduce_axis(4, "j")
    inside = a > 2
    for kind, initial in (("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)):
        y = te.compute((3,), lambda p, kind=kind: getattr(te, kind)(A[p, j], axis=j, where=F[p, j]))
        expected = getattr(np, kind)(a, axis=1, where=inside, initial=initial)
        np.testing.assert_array_equal(te.interpret(y, {A: a, F: inside}), expected)


def test_results_over_nothing() -> None:
    for kind, dtype, expected in [
        ("sum", "float32", 0), ("prod", "int8", 1), ("max", "float64", -np.inf), ("min", "float32", np.inf),
        ("max", "int16", -(2**15)), ("min", "uint8", 255), ("argmax", "float32", 0), ("any", "bool", False),
        ("all", "bool", True),
    ]:  # fmt: skip
        x = te.placeholder((te.var("n"),), dtype, name="x")
        y = te.compute((), lambda kind=kind, x=x: getattr(te, kind)(lambda k: x[k]))
        assert te.interpret(y, {x: np.zeros(0, dtype)}) == expected


def test_nan_and_ties() -> None:
    x = te.placeholder((5,), name="x")
    values = np.array([1, np.nan, 3, np.nan, 0], "float32")
    best = te.compute((), lambda: te.max(lambda k: x[k]))
    place = te.compute((), lambda: te.argmin(lambda k: x[k]))
    assert np.isnan(te.interpret(best, {x: values}))
    assert te.interpret(place, {x: values}) == 1
    assert te.interpret(place, {x: np.array([2, 1, 3, 1, 1], "float32")}) == 1


def test_bools_count() -> None:
    i, j = te.reduce_axis(3, "i"), te.reduce_axis(4, "j")
    y = te.compute((), lambda: te.sum(F[i, j], axis=(i, j)))
    assert y.dtype == "int32"
    assert te.interpret(y, {F: a > 2}) == (a > 2).sum()


def test_ranges_that_begin_elsewhere() -> None:
    j = te.reduce_axis((1, 3), "j")
    y = te.compute((3,), lambda i: te.sum(A[i, j], axis=j))
    z = te.compute((3,), lambda i: te.argmax(A[i, j], axis=j))
    np.testing.assert_array_equal(te.interpret(y, {A: a}), a[:, 1:3].sum(1))
    np.testing.assert_array_equal(te.interpret(z, {A: a}), a[:, 1:3].argmax(1))
    n = te.var("n")
    assert str(te.reduce_axis((2, n)).extent) == "n - 2"


def test_reducers_of_ones_own() -> None:
    product = te.reducer(lambda p, q: p * q, 1.0)
    welford = te.reducer(lambda p, q: (p[0] + q[0], p[1] + q[1], p[2] + q[2]), (0.0, 0.0, 0.0))
    y = te.compute((3,), lambda i: product(lambda k: A[i, k]))
    np.testing.assert_allclose(te.interpret(y, {A: a}), a.prod(1))
    k = te.reduce_axis(4, "k")
    moments = te.compute((3,), lambda i: welford((A[i, k] * 0 + 1, A[i, k], A[i, k] ** 2), axis=k))
    count, total, square = te.interpret(list(moments), {A: a})
    np.testing.assert_allclose(square / count - (total / count) ** 2, a.var(1))


def test_an_argmax_of_ones_own_agrees() -> None:
    best = te.reducer(
        lambda p, q: (te.select(q[0] > p[0], q[0], p[0]), te.select(q[0] > p[0], q[1], p[1])), (-np.inf, -1)
    )
    k = te.reduce_axis(4, "k")
    value, place = te.compute((3,), lambda i: best((A[i, k], k), axis=k), name=("value", "place"))
    found = te.interpret([value, place], {A: a})
    np.testing.assert_array_equal(found[0], a.max(1))
    np.testing.assert_array_equal(found[1], a.argmax(1))


def test_arguments_with_a_default_belong_to_the_user() -> None:
    x = te.placeholder((4,), name="x")
    values = np.arange(4, dtype="float32")
    for factor in (2.0, 3.0):
        total = te.compute((2,), lambda i, f=factor: te.sum(lambda k, f=f: x[k] * f) + i)
        np.testing.assert_array_equal(te.interpret(total, {x: values}), 6 * factor + np.arange(2))
    decayed = te.scan((4,), lambda y, t, a=0.5: te.select(t == 0, x[0], a * y[t - 1] + x[t]))
    np.testing.assert_array_equal(te.interpret(decayed, {x: values}), np.array([0, 1, 2.5, 4.25], "float32"))
    scaled = te.reducer(lambda a, b, one=1.0: a + b * one, 0.0)
    np.testing.assert_array_equal(te.interpret(te.compute((), lambda: scaled(lambda k: x[k])), {x: values}), 6.0)
    for combine in (np.maximum, te.maximum):
        largest = te.reducer(combine, 0.0)
        np.testing.assert_array_equal(te.interpret(te.compute((), lambda r=largest: r(lambda k: x[k])), {x: values}), 3)


def test_one_reducer_serves_several_dtypes() -> None:
    add = te.reducer(lambda p, q: p + q, 0)
    for dtype in ("int8", "float32", "float64"):
        x = te.placeholder((4,), dtype, name="x")
        assert te.compute((), lambda x=x: add(lambda k: x[k])).dtype == dtype
    x, y = te.placeholder((4,), name="x"), te.placeholder((4,), name="y")
    k = te.reduce_axis(4)
    assert add(x[k], axis=k).reducer is add(y[k], axis=k).reducer


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_python_numbers_take_the_dtype_of_what_they_are_combined_with(dtype: str) -> None:
    x = te.placeholder((4,), dtype, name="x")

    def softmax(a: Any, b: Any) -> Any:
        top = te.maximum(a[0], b[0])
        left, right = (te.select(p[0] > -np.inf, p[1] * te.exp(p[0] - top), 0.0) for p in (a, b))
        return top, left + right

    total = te.reducer(softmax, (-np.inf, 0.0))
    for one in (1.0, 1):
        top, weight = te.compute((), lambda one=one: total(lambda k: (x[k], one)))
        assert (top.dtype, weight.dtype) == (dtype, dtype)
    values = np.linspace(-1, 1, 4).astype(dtype)
    np.testing.assert_allclose(te.interpret(weight, {x: values}), np.exp(values - values.max()).sum(), rtol=1e-3)


def test_python_numbers_alone_stay_apart() -> None:
    x = te.placeholder((4,), "float64", name="x")
    both = te.reducer(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0))
    count, total = te.compute((), lambda: both(lambda k: (1, x[k])))
    assert (count.dtype, total.dtype) == ("int32", "float64")
    add = te.reducer(lambda a, b: a + b, 0)
    k = te.reduce_axis(4, "k")
    for one, dtype in ((1, "int32"), (1.5, "float32")):
        assert te.compute((), lambda one=one: add(one, axis=k)).dtype == dtype


def test_a_condition_goes_with_a_reducer_of_ones_own() -> None:
    add = te.reducer(lambda p, q: p + q, 0.0)
    k = te.reduce_axis(4, "k")
    y = te.compute((3,), lambda i: add(A[i, k], axis=k, where=A[i, k] > 2))
    np.testing.assert_array_equal(te.interpret(y, {A: a}), np.where(a > 2, a, 0).sum(1))


def test_a_condition_may_be_a_function_of_the_axes() -> None:
    longest = te.reducer(lambda p, q: te.maximum(p, q), -1.0)
    sums = te.compute((3,), lambda i: te.sum(lambda k: A[i, k], where=lambda k: (k > i) & (A[i, k] > 2)))
    peak = te.compute((), lambda: longest(lambda i, k: A[i, k], where=lambda i, k: k < i))
    i, k = np.ogrid[:3, :4]
    np.testing.assert_array_equal(te.interpret(sums, {A: a}), np.where((k > i) & (a > 2), a, 0).sum(1))
    assert te.interpret(peak, {A: a}) == np.where(k < i, a, -1).max()


def test_whole_tensor_forms() -> None:
    feeds: dict[Any, Any] = {A: a}
    assert te.interpret(te.sum(A), feeds) == a.sum()
    np.testing.assert_array_equal(te.interpret(te.max(A, axis=1, keepdims=True), feeds), a.max(1, keepdims=True))
    np.testing.assert_array_equal(te.interpret(te.argmax(A, axis=0), feeds), a.argmax(0))
    assert bool(te.interpret(te.any(A > 8), feeds)) is True


def test_a_function_of_axes_that_are_given() -> None:
    """Extents that no read tells: a window beyond the border."""
    x, a = te.placeholder((9,), "float64", name="x"), np.arange(9.0) % 4
    wide = np.pad(a, 2, "edge")
    k, l = te.reduce_axis(3), te.reduce_axis((1, 3))  # noqa: E741 - as mathematics has it
    longest = te.reducer(lambda a, b: te.maximum(a, b), float("-inf"))
    for ours, theirs in (
        (lambda i: te.sum(lambda r: x.at(i + r - 2, mode="clamp"), axis=te.reduce_axis(5)), np.sum),
        (lambda i: te.max(lambda r: x.at(i + r - 2, mode="clamp"), axis=(te.reduce_axis(5),)), np.max),
        (lambda i: longest(lambda r: x.at(i + r - 2, mode="clamp"), axis=te.reduce_axis(5)), np.max),
    ):
        want = [theirs(wide[i : i + 5]) for i in range(9)]
        np.testing.assert_array_equal(te.interpret(te.compute((9,), ours), {x: a}), want)
    both = te.compute((), lambda: te.sum(lambda p, q: x[p] * 10 + x[q], axis=(k, l), where=lambda p, q: p != q))
    want = sum(a[p] * 10 + a[q] for p in range(3) for q in (1, 2) if p != q)
    assert te.interpret(both, {x: a}) == te.evaluate(both, {x: a}) == want


def test_extents_stand_for_axes_beside_a_function() -> None:
    x = te.placeholder((4, 5, 6), name="x")
    data = np.random.default_rng(0).normal(size=(4, 5, 6)).astype("float32")
    place = te.cast(te.constant([1.0])[0], "int32")  # of which no extent can be inferred
    for made, expected in {
        te.compute((), lambda: te.sum(lambda a, b, c: x[a, b, c], axis=(4, 5, 6))): data.sum(),
        te.compute((), lambda: te.max(lambda a, b: x[place + a, b, 0], axis=(2, 5))): data[1:3, :, 0].max(),
        te.compute((4,), lambda i: te.prod(lambda k: x.at(i, k - 1, 0, mode="clamp"), axis=3)): (
            data[:, 0, 0] ** 2 * data[:, 1, 0]
        ),
        te.compute((), lambda: te.argmax(lambda k: x[0, k, 0], axis=[te.reduce_axis(5)])): data[0, :, 0].argmax(),
    }.items():
        np.testing.assert_allclose(te.evaluate(made, {x: data}), expected, rtol=1e-5)
    longest = te.reducer(lambda a, b: te.maximum(a, b), -np.inf)
    made = te.compute((), lambda: longest(lambda k: x[place + k, 0, 0], axis=2))
    np.testing.assert_allclose(te.evaluate(made, {x: data}), data[1:3, 0, 0].max())


def test_a_reducer_prints_its_name_and_its_formula() -> None:
    total = te.reducer(lambda a, b: a + b, 0.0, name="total")
    assert repr(total) == "te.reducer 'total': a + b, identity 0.0"
    line = te.reducer(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (1.0, 0.0), name="line")
    assert repr(line) == "te.reducer 'line': (a0 * b0, a1 * b0 + b1), identity (1.0, 0.0)"
    table = np.arange(3)
    assert repr(te.reducer(lambda a, b: table[a] + b, 0, name="odd")) == "te.reducer 'odd': <lambda>, identity 0"
