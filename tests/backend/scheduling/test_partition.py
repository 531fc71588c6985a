"""Loops that Halide cuts around vectors whose last one is masked."""

from __future__ import annotations

import re
from typing import Any

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST
from schedules.machine import assuming
from tests.levels import PROCESSORS, processor

CHANCE = np.random.default_rng(7)


def shifted(read: Any, shape: tuple[int, int], by: tuple[int, int]) -> Any:
    """What is read elsewhere, 0 outside."""

    def at(i: Any, j: Any) -> Any:
        p, q = i + by[0], j + by[1]
        inside = (p >= 0) & (p < shape[0]) & ((q >= 0) & (q < shape[1]))
        return te.select(inside, read(p, q), 0)

    return at


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), level=PROCESSORS)
def test_borders_of_stages_in_one_another(data: st.DataObject, level: str) -> None:
    """A choice in the last vector's copy of a body was taken for the same in the other one: 26 of 153 were wrong."""
    shape = data.draw(st.integers(5, 20)), data.draw(st.integers(2, 37))
    a = te.placeholder(shape, data.draw(st.sampled_from(["int32", "float64"])), name="a")
    by = data.draw(st.sampled_from([(-2, -2), (2, 2), (-1, 2), (0, -1), (-3, 0)]))
    again = by if data.draw(st.booleans()) else data.draw(st.sampled_from([(-2, -2), (1, -1)]))

    def once(i: Any, j: Any) -> Any:
        return a[i, j] + shifted(lambda p, q: a[p, q], shape, by)(i, j)

    def twice(i: Any, j: Any) -> Any:
        return once(i, j) + shifted(once, shape, again)(i, j)

    inner = te.compute(shape, once, name="inner")
    outputs = [
        te.compute(shape, twice, name="out"),
        te.compute(shape, lambda i, j: inner[i, j] + shifted(lambda p, q: inner[p, q], shape, again)(i, j)),
    ]
    values = CHANCE.integers(1, 4, shape).astype(str(a.dtype))
    with processor(level):
        for out in outputs:
            np.testing.assert_array_equal(te.evaluate(out, {a: values}), te.interpret(out, {a: values}))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), level=PROCESSORS)
def test_choices_along_the_vectors(data: st.DataObject, level: str) -> None:
    """The gradient of a window, whose terms are left out at borders: in the last columns none of them was."""
    rows, columns = data.draw(st.integers(8, 16)), data.draw(st.integers(17, 40))
    by_rows, is_inside = data.draw(st.booleans()), data.draw(st.booleans())
    dtype = data.draw(st.sampled_from(["float64", "float32"]))
    a = te.placeholder((rows + 2, columns), dtype, name="a")
    s = te.placeholder((rows + 2, columns - 2), dtype, name="s")
    moved = te.compute(s.shape, lambda i, j: s[i, j] * (a[i, j] * a[i, j]), name="moved")

    def term(i: Any, j: Any, p: int, q: int) -> Any:
        inside = (j >= q) & (j <= columns - 3 + q)
        value = moved[i + 2 - p, j - q] * a[i, j]
        return te.select(inside & (i >= p) & (i <= rows - 3 + p) if by_rows else inside, value + value, 0.0)

    out = te.compute((rows, columns), lambda i, j: sum(term(i, j, p, q) for p in range(3) for q in range(3)))
    if is_inside:
        inner = out
        out = te.compute(inner.shape, lambda i, j: inner[i, j] + a[i, j], name="outer")
    values = {t: CHANCE.integers(1, 4, [int(n) for n in t.shape]).astype(dtype) for t in (s, a)}
    with processor(level), assuming({"pieces": data.draw(st.sampled_from([1, 1 << 30]))}):
        np.testing.assert_array_equal(te.evaluate(out, values), te.interpret(out, values))


def test_halide_still_takes_two_bodies_for_one() -> None:
    """Once this fails, what `keep_whole` says of masks may go."""
    i, j, outer, lane, f = hl.Var("i"), hl.Var("j"), hl.Var("outer"), hl.Var("lane"), hl.Func("f")
    a = hl.ImageParam(hl.Int(32), 2)
    row, column = hl.Expr(i), hl.Expr(j)

    def before(n: int) -> Any:
        return a[hl.clamp(column - n, 0, 8), hl.clamp(row - n, 0, 16)]

    def unsigned(e: Any) -> Any:
        return hl.cast(hl.UInt(32), e)

    near, far = (row >= 2) & (column >= 2), (row >= 4) & (column >= 4)
    inner = hl.cast(hl.Int(32), unsigned(before(2)) + unsigned(hl.select(far, before(4), 0)))
    total = unsigned(a[j, i]) + unsigned(hl.select(near, before(2), 0))
    f[j, i] = hl.cast(hl.Int(32), unsigned(hl.cast(hl.Int(32), total)) + unsigned(hl.select(near, inner, 0)))
    f.split(j, outer, lane, 8, hl.TailStrategy.GuardWithIf).vectorize(lane)
    for buffer in (a, f.output_buffer()):
        buffer.dim(0).set_bounds(0, 9)
        buffer.dim(1).set_bounds(0, 17)
    ones = hl.Buffer(hl.Int(32), [9, 17])
    ones.fill(1)
    a.set(ones)
    found = np.array(f.realize([9, 17]))
    wrong = int(found[4, 0]), int(found[16, 1])
    if wrong == (1, 1):
        pytest.fail("Halide tells the two bodies apart now")
    assert wrong == (2, 2)


def means(x: te.Tensor, count: int, mode: str) -> te.Tensor:
    """Each of 3 x 3 places of the one before."""
    for _ in range(count):
        read, u, v = x, te.reduce_axis(3), te.reduce_axis(3)
        x = te.compute(x.shape, lambda i, j: te.sum(read.at(i + u - 1, j + v - 1, mode=mode), axis=(u, v)) * 0.125)  # noqa: B023
    return x


@pytest.mark.parametrize("mode", ["zero", "clamp"])
def test_loops_around_many_stages_are_there_once(mode: str) -> None:
    x = te.placeholder((600, 1024), name="x")
    text = te.build([x], means(x, 7, mode), target="x86-64-v4").source("stmt")
    assert [text.count(f"produce x_{k} ") for k in (3, 4, 5, 6)] == [1, 1, 1, 1]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), mode=st.sampled_from(["zero", "clamp", "reflect", "wrap"]))
def test_chains_of_many_stages(data: st.DataObject, mode: str) -> None:
    shape = data.draw(st.integers(8, 70)), data.draw(st.integers(8, 70))
    x = te.placeholder(shape, data.draw(st.sampled_from(["float32", "float64"])), name="x")
    y = means(x, 6, mode)
    values = CHANCE.integers(0, 4, shape).astype(str(x.dtype))
    with assuming(LOWEST):
        np.testing.assert_array_equal(te.evaluate(y, {x: values}), te.interpret(y, {x: values}))


@pytest.mark.usefixtures("cut_everywhere")
def test_rows_held_at_their_ends_are_cut_where_two_planes_are_read() -> None:
    """What both places had in common was the held column: Halide looks for ramps in indices, not beside them."""
    a = te.placeholder((4, 120, 240), name="a")
    plane = te.compute(a.shape, lambda c, y, x: a[c, y, x] * a[3, y, x], name="plane")

    def around(c: Any, y: Any, x: Any) -> Any:
        return sum(plane.at(c, y - 9, 2 * x + k - 7, mode="clamp") for k in range(3))

    near = te.compute((4, 140, 131), around, name="near")
    out = te.compute((4, 140, 131), lambda c, y, x: te.exp(near[c, y, x]) + near[3 - c, 139 - y, x], name="out")
    values = CHANCE.integers(0, 2, a.shape).astype("float32")
    kernel = te.build(a, out)
    np.testing.assert_allclose(kernel(values), te.interpret(out, {a: values}), rtol=1e-6)
    assert len(kernel.program.calls) == 2
    assert re.search(r"for \(near\.s2\.\S+x_o\.rebased", kernel.source("stmt"))  # of the rows between the ends


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_a_column_held_at_its_ends_that_two_places_have_in_common(target: str) -> None:
    a = te.placeholder((4, 60, 96), name="a")
    out = te.compute((3, 60, 96), lambda c, y, x: a.at(c, y, x - 5, mode="clamp") * a.at(3, y, x - 5, mode="clamp"))
    s = te.Schedule(out)
    s[out].vectorize("x", 16).parallel("y")
    text = te.build(a, out, schedule=s, target=target).source("stmt")
    assert re.search(r"for \(\S+x_0\.rebased", text)  # loops of their own between the ends
    assert re.search(r"a\[ramp\(", text)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_tasks_are_not_what_is_cut_where_rows_are_held_at_their_ends(target: str) -> None:
    """Of the last task, which has fewer rows, each element was gathered."""
    a = te.placeholder((4, 60, 96), name="a")
    out = te.compute((4, 60, 48), lambda c, y, x: sum(a.at(c, y - 2, 2 * x + k - 1, mode="clamp") for k in range(3)))
    s = te.Schedule(out)
    y, _ = s[out].split("y", 7)
    s[out].vectorize("x", 16).parallel(y)
    text = te.build(a, out, schedule=s, target=target).source("stmt")
    assert re.search(r"for \(\S+x_0\.rebased", text)
    assert not re.search(r"for \(\S+x_0, 0, 3\)", text)
