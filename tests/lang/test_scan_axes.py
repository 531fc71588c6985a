"""Recurrences along several axes: tables filled from what stands above and beside an element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te

CHANCE = np.random.default_rng(5)


def edit_distance(n: Any, m: Any) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a, b = te.placeholder((n,), "int32", name="a"), te.placeholder((m,), "int32", name="b")

    def body(d: Any, i: Any, j: Any) -> Any:
        above, beside = d[te.maximum(i - 1, 0), j], d[i, te.maximum(j - 1, 0)]
        differs = te.cast(a[te.maximum(i - 1, 0)] != b[te.maximum(j - 1, 0)], "int32")
        best = te.minimum(te.minimum(above, beside) + 1, d[i - 1, j - 1] + differs)
        return te.select(i == 0, j, te.select(j == 0, i, best))

    return a, b, te.scan((n + 1, m + 1), body, axis=(0, 1), name="D")


def distances(a: list[int], b: list[int]) -> np.ndarray[Any, Any]:
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, j in np.ndindex(*table.shape):
        if i == 0 or j == 0:
            table[i, j] = i + j
        else:
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return table


@pytest.mark.parametrize("symbolic", [False, True])
def test_edit_distance(symbolic: bool) -> None:
    a, b = CHANCE.integers(0, 3, 9).astype("int32"), CHANCE.integers(0, 3, 6).astype("int32")
    A, B, D = edit_distance(*((te.var("n"), te.var("m")) if symbolic else (9, 6)))
    for found in (te.evaluate(D, {A: a, B: b}), te.interpret(D, {A: a, B: b})):
        np.testing.assert_array_equal(found, distances(list(a), list(b)))


@pytest.mark.parametrize("reverse", [False, True])
def test_sweeps_in_place_and_their_gradient(reverse: bool) -> None:
    """Gauss and Seidel's: a grid whose elements are renewed one after another, several times."""
    steps, n = 3, 5
    A = te.placeholder((n, n), "float64", name="A")
    last = steps - 1 if reverse else 0
    side = 1 if reverse else -1

    def body(x: Any, t: Any, i: Any, j: Any) -> Any:
        inside = (i > 0) & (i < n - 1) & (j > 0) & (j < n - 1)
        new = x[t, i + side, j] + x[t, i, j + side] + x[t + side, i - side, j] + x[t + side, i, j - side]
        return te.select(t == last, A[i, j], te.select(inside, new / 4.0, x[t + side, i, j]))

    X = te.scan((steps, n, n), body, axis=(0, 1, 2), reverse=reverse, name="X")
    a = CHANCE.random((n, n))
    want = a.copy()
    inner = range(1, n - 1)[:: -1 if reverse else 1]
    for _ in range(steps - 1):
        for i in inner:
            for j in inner:
                want[i, j] = (want[i - 1, j] + want[i, j - 1] + want[i + 1, j] + want[i, j + 1]) / 4
    for found in (te.evaluate(X, {A: a}), te.interpret(X, {A: a})):
        np.testing.assert_allclose(found[0 if reverse else -1], want, rtol=1e-14)
    loss = te.compute((), lambda: te.sum(lambda i, j: X[0 if reverse else steps - 1, i, j] ** 2))
    te.gradcheck(loss, [A], {A: a})
    tangent = CHANCE.random((n, n))
    T = te.placeholder((n, n), "float64", name="T")
    (gradient,) = te.evaluate(list(te.differentiate(loss, [A])), {A: a})
    (along,) = te.evaluate([*te.jvp([loss], [A], [T])], {A: a, T: tangent})
    np.testing.assert_allclose(along, (gradient * tangent).sum(), rtol=1e-12)


def test_the_first_axis_named_is_the_slowest() -> None:
    def body(y: Any, i: Any, j: Any) -> Any:
        return te.select((i == 0) & (j == 0), 0, te.select(i > 0, y[i - 1, j], y[2, te.maximum(j - 1, 0)]) + 1)

    down = te.scan((3, 4), body, axis=(1, 0), name="N")  # columns, one after the other
    np.testing.assert_array_equal(te.evaluate(down, {}), np.arange(12).reshape(4, 3).T)
    with pytest.raises(ValueError, match=r"step `\(2, .*\)` of N .* while step `\(i, j\)` is .*, at i = 0, .*`i` goes"):
        te.build([], te.scan((3, 4), lambda y, i, j: y[2, te.maximum(j - 1, 0)] + 1.0, axis=(0, 1), name="N"))


def test_steps_that_data_choose_are_checked() -> None:
    P = te.placeholder((3, 4), "int32", name="P")

    def body(y: Any, i: Any, j: Any) -> Any:
        return te.select((i == 0) & (j == 0), 1, y[i, P[i, j]] + 1)

    Y = te.scan((3, 4), body, axis=(0, 1), dtype="int32", name="Y")
    places = np.array([[9, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]], "int32")
    for run in (te.evaluate, te.interpret):
        with pytest.raises(IndexError, match="scan 'Y'"):
            run(Y, {P: places})


@pytest.mark.parametrize(("axis", "said"), [((0, 0), "twice"), ((), "no axis"), ((0, 2), "axis 2 does not exist")])
def test_axes_that_are_not_there(axis: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        te.scan((3, 4), lambda y, i, j: 1.0, axis=axis)


def test_it_is_printed_and_scheduled() -> None:
    _, _, D = edit_distance(9, 6)
    assert "for i < 10 in order, j < 7 in order" in str(D)
    s = te.Schedule(D)
    s[D].compute_root()
    loops = str(s)
    assert loops.index("for i") < loops.index("for j")
    with pytest.raises(te.ScheduleError):
        te.Schedule(D)[D].parallel("i")
