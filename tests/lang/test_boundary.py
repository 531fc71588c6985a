"""`A.at(..., mode)` reads outside as np.pad fills: at any distance, in any dimension, by every integer dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.expr import Apply, Fn, Read

PAD = {"zero": "constant", "clamp": "edge", "reflect": "reflect", "wrap": "wrap"}


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("mode", PAD)
def test_one_dimension_at_any_distance(mode: str, length: int, symbolic: bool) -> None:
    reach = 13
    x = te.placeholder((te.var("n") if symbolic else length,), "float64", name="x")
    y = te.compute((length + 2 * reach,), lambda i: x.at(i - reach, mode=mode))
    a = np.arange(1.0, length + 1)
    np.testing.assert_array_equal(te.interpret(y, {x: a}), np.pad(a, reach, PAD[mode]))


@pytest.mark.parametrize("mode", PAD)
def test_two_dimensions(mode: str) -> None:
    x = te.placeholder((3, 4), "int32", name="x")
    y = te.compute((9, 14), lambda i, j: x.at(i - 2, j - 5, mode=mode))
    a = np.arange(12, dtype="int32").reshape(3, 4)
    np.testing.assert_array_equal(te.interpret(y, {x: a}), np.pad(a, ((2, 4), (5, 5)), PAD[mode]))


@pytest.mark.parametrize("rows", [*PAD, "error"])
@pytest.mark.parametrize("columns", PAD)
def test_a_mode_for_each_index(rows: str, columns: str) -> None:
    x, a = te.placeholder((3, 4), "float64", name="x"), np.arange(12.0).reshape(3, 4)
    above = 0 if rows == "error" else 2
    y = te.compute((3 + 2 * above, 14), lambda i, j: x.at(i - above, j - 5, mode=(rows, columns)))
    padded = np.pad(np.pad(a, ((above, above), (0, 0)), PAD.get(rows, "edge")), ((0, 0), (5, 5)), PAD[columns])
    np.testing.assert_array_equal(te.interpret(y, {x: a}), padded)
    np.testing.assert_array_equal(te.evaluate(y, {x: a}), padded)
    (adjoint,) = te.differentiate((y * y).sum(), [x])
    np.testing.assert_allclose(te.evaluate(adjoint, {x: a}), te.interpret(adjoint, {x: a}), rtol=1e-12)
    np.testing.assert_array_equal(
        te.interpret(x.at(-1, mode=[columns]), {x: a}), np.pad(a, ((1, 0), (0, 0)), PAD[columns])[0]
    )


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("mode", PAD)
def test_indices_of_every_integer_dtype(mode: str, dtype: str) -> None:
    x, p = te.placeholder((3,), "float64", name="x"), te.placeholder((6,), dtype, name="p")
    y = te.compute((6,), lambda i: x.at(p[i], mode=mode))
    low = -3 if dtype.startswith("int") else 0
    where = np.arange(low, low + 6).astype(dtype)
    expected = np.pad(np.arange(3.0), 6, PAD[mode])[where.astype(int) + 6]
    np.testing.assert_array_equal(te.interpret(y, {x: np.arange(3.0), p: where}), expected)


def test_a_tuple_of_indices_and_the_default_mode() -> None:
    x = te.placeholder((3, 4), name="x")
    i, j = te.reduce_axis(3), te.reduce_axis(4)
    assert x.at((i, j)) is x[i, j]
    assert x.at(i, j, mode="error") is x[i, j]
    assert x.at(-1, 0) is x[-1, 0]


@pytest.mark.parametrize("mode", PAD)
def test_fewer_indices_than_axes_are_the_first_ones(mode: str) -> None:
    n = te.var("n")
    x = te.placeholder((3, n), "float64", name="x")
    a = np.arange(12.0).reshape(3, 4)
    padded = np.pad(a, ((5, 5), (0, 0)), PAD[mode])
    for place in (-4, -1, 0, 2, 3, 7):
        row = x.at(place, mode=mode)
        assert [str(e) for e in row.shape] == ["n"]
        np.testing.assert_array_equal(te.interpret(row, {x: a}), padded[place + 5])
    y = te.placeholder((2, 3, 4), "float64", name="y")
    b = np.arange(24.0).reshape(2, 3, 4)
    wide = np.pad(b, ((2, 2), (2, 2), (0, 0)), PAD[mode])
    np.testing.assert_array_equal(te.evaluate(y.at(-1, 4, mode=mode), {y: b}), wide[1, 6])
    np.testing.assert_array_equal(te.evaluate(y.at((2,), mode=mode), {y: b}), wide[4, 2:5])
    with pytest.raises(ValueError, match=r"expected 2 indices for x : .*found 0"):
        x.at(mode=mode)
    with pytest.raises(ValueError, match=r"expected 2 indices, found 1; inside te\.compute"):
        te.compute((9,), lambda i: te.sum(lambda j: x.at(i - 3, mode=mode)[j]))


def test_fewer_indices_that_may_not_lie_outside() -> None:
    x = te.placeholder((3, 4), "float64", name="x")
    a = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(te.interpret(x.at(-1), {x: a}), a[-1])
    with pytest.raises(IndexError, match="index 3 of dimension 0"):
        x.at(3)


def test_the_step_before_the_first_is_zero_for_all_its_elements() -> None:
    first = np.arange(10.0).reshape(5, 2)
    p0 = te.placeholder((5, 2), "float64", name="p0")

    def step(p: Any, t: Any) -> Any:
        before = p.at(t - 1, mode="zero")
        return p0 + before * (before**2).sum(-1)[:, None]

    rows = [first]
    for _ in range(3):
        rows.append(first + rows[-1] * (rows[-1] ** 2).sum(-1)[:, None])
    found = te.scan([(4, 5, 2)], step)
    for evaluate in (te.interpret, te.evaluate):
        np.testing.assert_allclose(evaluate(found, {p0: first}), rows, rtol=1e-12)


def test_an_axis_over_exactly_the_extent_is_not_wrapped() -> None:
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    for mode in ("clamp", "reflect", "wrap"):
        y = te.compute((n, 6), lambda i, j, mode=mode: x.at(i, j - 1, mode=mode))
        (read,) = [e for e in [y.op.bodies[0]] if isinstance(e, Read)]
        assert read.indices[0] is y.op.axes[0]
        assert isinstance(read.indices[1], Apply)


def test_zero_guards_its_read() -> None:
    x = te.placeholder((4,), name="x")
    y = te.compute((6,), lambda i: x.at(i - 1, mode="zero"), name="y")
    assert str(y) == "y[i] = x.at(i - 1, mode='zero')   for i < 6"
    assert y.op.bodies[0].fn is Fn.SELECT


def test_negative_literals_are_positions_before_the_beginning_in_other_modes() -> None:
    x = te.placeholder((4,), "float64", name="x")
    y = te.compute((), lambda: x.at(-1, mode="clamp") + 10 * x.at(-1))
    assert te.interpret(y, {x: np.arange(4.0)}) == 0 + 10 * 3


def test_an_index_mirrored_as_the_guide_says_repeats_the_last_element_too() -> None:
    n, reach = 5, 4
    x = te.placeholder((n,), "float64", name="x")

    def mirrored(i: Any) -> Any:
        k = te.maximum(i - reach, -1 - (i - reach))
        return x[te.minimum(k, 2 * n - 1 - k)]

    y = te.compute((n + 2 * reach,), mirrored)
    a = np.arange(1.0, n + 1)
    np.testing.assert_array_equal(te.evaluate(y, {x: a}), np.pad(a, reach, "symmetric"))
    assert not te.differentiate((y * y).sum(), x).explain().scatters
