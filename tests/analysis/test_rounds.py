"""Mirrored indices as places that are one straight run but for the ends of a row."""

from __future__ import annotations

import re

import pytest

import tedsl as te
from tedsl.analysis.rounds import near_place, unfolded
from tedsl.lang import functions as fn
from tedsl.lang.expr import Axis, Const, Expr
from tedsl.lang.traverse import substitute


def value(e: Expr, axis: Axis, at: int) -> int:
    """An index at a place."""
    (made,) = (fn.as_expr(substitute(e, {axis: Const(at, axis.dtype)})),)
    return int(te.interpret(te.compute((1,), lambda i: made + 0 * i), {})[0])


def mirrored(p: Expr, last: int) -> Expr:
    return fn.clip(fn.maximum(fn.minimum(p, 2 * last - p), -p), 0, last)


@pytest.mark.parametrize(("factor", "offset"), [(1, -2), (1, 3), (-1, 8), (2, -1), (1, 0)])
def test_each_part_is_what_the_index_is_there(factor: int, offset: int) -> None:
    last = 9
    count = (last + 3) // abs(factor) if offset else last + 1
    axis = Axis("x", Const(count, te.const(0).dtype))
    place = factor * axis + offset
    index = mirrored(place, last)
    found = unfolded(index, Const(last + 1, axis.dtype))
    assert found is not None
    for x in range(count):
        p = value(found.place, axis, x)
        part = found.place if 0 <= p <= last else found.before if p < 0 else found.behind
        assert value(part, axis, x) == value(index, axis, x)
    assert found.place is place


@pytest.mark.parametrize("offset", [*range(-7, 8)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("between", [False, True])
def test_a_mirrored_index_is_near_its_loop(rows: int, offset: int, between: bool) -> None:
    """The element before the first is the second one, or, mirrored between elements, the first."""
    loop, extent = Axis("x", Const(rows, te.const(0).dtype)), Const(rows, te.const(0).dtype)
    turn = (loop + offset) % max(1, 2 * (rows - 1))
    index = (rows - 1) - fn.abs((rows - 1) - turn)
    if between:
        turn = (loop + offset) % fn.maximum(2 * extent, 1)
        index = fn.minimum(turn, 2 * extent - 1 - turn)
    near = near_place(index, extent)
    if near is None:
        assert rows == 1 or 0 <= offset <= rows  # its remainder is the place itself, or 0
        return
    assert near[0] is loop
    assert near[1] == abs(offset)
    for x in range(rows):
        low, high = (min(max(x + way * abs(offset), 0), rows - 1) for way in (-1, 1))
        assert low <= value(index, loop, x) <= high


def test_what_is_mirrored_elsewhere_is_not_near() -> None:
    loop, extent = Axis("x", Const(10, te.const(0).dtype)), Const(10, te.const(0).dtype)
    for d in (-2, 3):
        near = near_place(mirrored(loop + d, 9), extent)
        assert near is not None
        assert near[0] is loop
        assert near[1] == abs(d)
    assert near_place(fn.clip(fn.maximum(loop - 2, 5 - loop), 0, 9), extent) is None
    assert near_place(mirrored(2 * loop - 2, 9), extent) is None  # whose loop goes beyond
    assert near_place(loop, extent) is None


def test_what_is_held_or_far_off_is_not_mirrored() -> None:
    axis = Axis("x", Const(40, te.const(0).dtype))
    length = Const(10, axis.dtype)
    assert unfolded(fn.clip(axis - 3, 0, 9), length) is None
    assert unfolded(mirrored(axis - 3, 9), length) is None  # further than its length away
    assert unfolded(fn.minimum(axis, 12 - axis), length) is None
    assert unfolded(axis, length) is None


@pytest.mark.parametrize("columns", [256, 301])
@pytest.mark.parametrize("taps", [(-1,), (1,), (-2, -1, 1, 2)])
@pytest.mark.parametrize("mode", ["reflect", "zero", "clamp", "wrap"])
def test_borders_are_left_out_of_the_loop_of_vectors(columns: int, taps: tuple[int, ...], mode: str) -> None:
    """A loop over all vectors of a row loads each of them number by number."""
    a = te.placeholder((64, columns), name="a")
    b = te.compute(a.shape, lambda y, x: sum((a.at(y, x + d, mode=mode) for d in taps), a[y, x]), name="b")
    text = te.build(a, b, target="x86-64-v3").source("stmt")
    (count,) = re.findall(r"for \(b\.s0\.x\.x_o[.a-z]*, 0, (\d+)\)", text)
    assert int(count) < -(-columns // 8)
