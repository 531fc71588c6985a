"""Mirrored indices as places that are one straight run but for the ends of a row."""

from __future__ import annotations

import re

import pytest

import tedsl as te
from tedsl.analysis.rounds import unfolded
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
