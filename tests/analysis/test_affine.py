"""Affine forms against the expressions that they stand for, by enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import tedsl as te
from tedsl.analysis.affine import affine_of
from tedsl.lang.intervals import range_of
from tests.analysis.oracle import boxes, index_exprs, points, value_at


@given(st.data())
def test_a_form_has_the_values_of_its_expression(data: st.DataObject) -> None:
    axes = data.draw(boxes())
    expr = data.draw(index_exprs(axes))
    form = affine_of(expr)
    if form is None:
        return
    again = form.to_expr()
    for point in points(axes):
        assert value_at(again, point) == value_at(expr, point)


@given(st.data())
def test_a_coefficient_is_what_one_step_of_the_axis_adds(data: st.DataObject) -> None:
    axes = data.draw(boxes())
    expr = data.draw(index_exprs(axes))
    form = affine_of(expr)
    factor = form.coefficient(axes[0]) if form is not None else None
    if form is None or factor is None:
        return
    step, rest = factor.to_expr(), form.without(axes[0]).to_expr()
    for point in points(axes):
        assert value_at(expr, point) == value_at(step, point) * point[axes[0]] + value_at(rest, point)


def axes_and_sizes() -> tuple[Any, ...]:
    n, m = te.var("n"), te.var("m")
    return te.reduce_axis(n, "i"), te.reduce_axis(m, "j"), n, m


def test_a_symbolic_stride_is_a_coefficient() -> None:
    i, j, _, m = axes_and_sizes()
    form = affine_of(i * m + 2 * j + 3)
    assert form is not None
    assert [str(form.coefficient(a).to_expr()) for a in (i, j)] == ["m", "2"]  # type: ignore[union-attr]
    assert form.constant == 3
    assert not form.is_linear
    assert affine_of(2 * i - j).is_linear  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda i, j: (4 * i + j) // 4, "i + j // 4"),
        (lambda i, j: (4 * i + j + 9) % 4, "(j + 1) % 4"),
        (lambda i, j: (i + j) - (j + i), "0"),
        (lambda i, j: 2 * (i - j) - i, "i - j * 2"),
    ],
)
def test_forms_are_normal(build: Any, expected: str) -> None:
    i, j, _, _ = axes_and_sizes()
    form = affine_of(build(i, j))
    assert form is not None
    assert str(form.to_expr()) == expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda i, j: ((i + 1) % 8 + j + 1) % 8, "(i + j + 2) % 8"),
        (lambda i, j: ((i + 1) % 8 + j + 1) % 4, "(i + j + 2) % 4"),
        (lambda i, j: (3 * ((i + j) % 4) + j) % 12, "(i * 3 + j * 4) % 12"),
        (lambda i, j: ((i + 1) % 4 + j) % 8, "((i + 1) % 4 + j) % 8"),
    ],
)
def test_remainders_of_remainders(build: Any, expected: str) -> None:
    i, j = te.reduce_axis(100, "i"), te.reduce_axis(90, "j")
    form = affine_of(build(i, j))
    assert form is not None
    assert str(form.to_expr()) == expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda i, j: (i // 6 + 5) % 9 * 6 + i % 6, "(i + 30) % 54"),
        (lambda i, j: 6 * ((i // 6 - j + 2) % 9) + i % 6 + j, "j + (i - j * 6 + 12) % 54"),
        (lambda i, j: ((2 * i + j) // 3 + 1) % 4 * 3 + (2 * i + j) % 3, "(i * 2 + j + 3) % 12"),
        (lambda i, j: (i // 6 * 2 + 5) % 9 * 6 + i % 6, "(i // 6 * 2 + 5) % 9 * 6 + i % 6"),
        (lambda i, j: (i // 6 + i // 6 * j) % 9 * 6 + i % 6, "(i // 6 * j * 6 + i) % 54"),
        (lambda i, j: (i // 6 + 5) % 9 * 5 + i % 6, "(i // 6 + 5) % 9 * 5 + i % 6"),
    ],
)
def test_rows_that_go_round_are_one_row_that_does(build: Any, expected: str) -> None:
    i, j = te.reduce_axis(100, "i"), te.reduce_axis(9, "j")
    form = affine_of(build(i, j))
    assert form is not None
    assert str(form.to_expr()) == expected
    for point in points([i, j]):
        assert value_at(form.to_expr(), point) == value_at(build(i, j), point)


def test_a_quotient_that_is_carried_with_products_of_its_remainder() -> None:
    i, j = te.reduce_axis(40, "i"), te.reduce_axis(9, "j")
    expr = i // 6 + (i % 6 + i % 6 * j + 3) // 6
    form = affine_of(expr)
    assert form is not None
    for point in points([i, j]):
        assert value_at(form.to_expr(), point) == value_at(expr, point)


def test_what_may_wrap_keeps_its_remainder() -> None:
    i, j, _, _ = axes_and_sizes()
    assert str(affine_of(((i + 1) % 8 + 1) % 8).to_expr()) == "(i + 2) % 8"  # type: ignore[union-attr]
    assert str(affine_of((i % 7 + j) % 7).to_expr()) == "(i % 7 + j) % 7"  # type: ignore[union-attr]


def test_what_has_no_form() -> None:
    i, _, n, _ = axes_and_sizes()
    idx = te.placeholder((4,), "int32")
    for expr in (idx[i], te.minimum(i, 3), i // n, te.abs(i), te.select(i > 1, i, 0), te.cast(i, "float32")):
        assert affine_of(expr) is None


@given(st.data())
def test_intervals_hold_every_value(data: st.DataObject) -> None:
    axes = data.draw(boxes())
    expr = data.draw(index_exprs(axes))
    low, high = range_of(expr)
    for point in points(axes):
        assert low <= value_at(expr, point) <= high


def test_intervals_of_what_wraps_are_those_of_the_type() -> None:
    i = te.reduce_axis(200, "i")
    assert range_of(te.cast(i, "int8") + te.const(1, "int8")) == (-128, 127)
    assert range_of(te.cast(te.reduce_axis(100, "j"), "int8") + te.const(1, "int8")) == (1, 100)


ROW = te.placeholder((30_000,), name="row")


@pytest.mark.parametrize("mode", ["zero", "clamp", "wrap", "reflect"])
@pytest.mark.parametrize(
    "place",
    [
        lambda i: te.cast(i, "int64") * 100_000 // 100_001,
        lambda i: (te.cast(i, "int64") * 100_000 + 7) % 100_001,
        lambda i: te.cast(i, "int64") * te.cast(i, "int64") // 1_000_000,
        lambda i: te.minimum(te.cast(i, "int64") * 65_537 // 3, 40_000) - 5,
    ],
)
@pytest.mark.parametrize("count", [100_001, te.var("n")])
def test_quotients_of_64_bits_are_not_taken_in_32(mode: str, place: Any, count: Any) -> None:
    shift = te.placeholder((count,), name="shift")
    y = te.compute((count,), lambda i: ROW.at(place(i), mode=mode) + shift[i], name="y")
    feeds = {ROW: np.arange(30_000, dtype="float32"), shift: np.zeros(100_001, "float32")}
    np.testing.assert_array_equal(te.evaluate(y, feeds), te.interpret(y, feeds))


def test_what_64_bits_hold_beyond_an_array_is_out_of_bounds() -> None:
    with pytest.raises(IndexError, match="it is 30000 at i = 30001"):
        te.build([ROW], te.compute((100_001,), lambda i: ROW[te.cast(i, "int64") * 100_000 // 100_001]))


def test_factors_beyond_int32_wrap_as_it_does() -> None:
    u = te.placeholder((70,), name="u")
    place = lambda j: te.cast(te.cast(17 * j, "int64") % 1_000, "int32") * 65_536 * 99_991  # noqa: E731
    y = te.compute((40, 70), lambda i, j: ROW.at(place(j), mode="clamp") * u[j], name="y")
    outputs = [y, *te.differentiate(te.sum(y * y), [ROW, u])]
    feeds = {ROW: np.linspace(0, 1, 30_000, dtype="float32"), u: np.linspace(0, 1, 70, dtype="float32")}
    for found, want in zip(te.evaluate(outputs, feeds), te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["zero", "clamp", "wrap", "reflect"])
def test_places_of_64_bits_with_factors_beyond_32_have_gradients(mode: str) -> None:
    x = te.placeholder((100,), name="x")
    wide = lambda i: te.cast(i, "int64")  # noqa: E731
    for place in (lambda i: wide(i) * 2**32 + wide(i), lambda i: wide(i) * 2**33 // 2**33 + 2**32):
        y = te.compute((60,), lambda i, place=place: x.at(place(i), mode=mode), name="y")
        outputs = [y, *te.differentiate(te.sum(y * y), [x])]
        feeds = {x: np.arange(1, 101, dtype="float32")}
        for found, want in zip(te.evaluate(outputs, feeds), te.interpret(outputs, feeds), strict=True):
            np.testing.assert_array_equal(found, want)
