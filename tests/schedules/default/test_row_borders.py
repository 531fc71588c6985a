"""Borders of rows in loops of their own: where they are cut off, and that results stay."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import LEVELS_HERE, PROCESSORS, processor

CHANCE = np.random.default_rng(11)
SQUARE = [(p, q) for p in (-1, 0, 1) for q in (-1, 0, 1)]


def stencil(shape: tuple[Any, ...], mode: str, taps: list[tuple[int, int]], dtype: str = "float32") -> Any:
    x = te.placeholder(shape, dtype, name="x")

    def element(*ix: Any) -> Any:
        *outer, i, j = ix
        return sum((x.at(*outer, i + p, j + q, mode=mode) * (p + 2 * q + 10) for p, q in taps), te.const(0, dtype))

    return x, te.compute(shape, element, name="y")


def cuts(output: Any, target: str) -> list[tuple[str, ...]]:
    plan = te.Schedule([output]).auto(target=target).plan
    return [d.positions for name in plan.program.stages for d in plan.cut_loops(name)]


def test_rows_that_choose_often_have_borders_of_their_own_where_the_last_vector_is_masked() -> None:
    assert cuts(stencil((40, 133), "zero", SQUARE)[1], "x86-64-v4") == [("1", "132")]
    assert cuts(stencil((40, 128), "zero", SQUARE)[1], "x86-64-v4") == []  # Halide cuts whole vectors itself
    assert cuts(stencil((40, 133), "clamp", SQUARE)[1], "x86-64-v4") == []  # nor are there choices
    assert cuts(stencil((40, 133), "zero", [(0, 0), (0, 1), (1, 0)])[1], "x86-64-v4") == []
    assert cuts(stencil((4, 133), "zero", SQUARE)[1], "x86-64-v4") == []
    assert cuts(stencil((40, 133), "zero", SQUARE)[1], "x86-64-v3") == []  # vectors without masks begin earlier


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("mode", ["clamp", "reflect"])
def test_gradients_of_stencils_choose_nothing_along_the_middle_of_rows(mode: str, target: str) -> None:
    x, y = stencil((60, 133), mode, SQUARE)
    (dx,) = te.differentiate(y, [x], head=te.constant(np.ones((60, 133), "float32")))
    edge = {"clamp": 1, "reflect": 2}[mode]
    assert cuts(dx, target) == [(str(edge), str(133 - edge))]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("mode", ["zero", "clamp", "reflect", "wrap"])
def test_rows_of_unknown_length_are_loaded_as_they_lie_between_their_borders(mode: str, target: str) -> None:
    x, y = stencil((te.var("h"), te.var("w")), mode, SQUARE)
    last = 2 if mode == "clamp" else 1
    assert cuts(y, target) == [("minimum(1, w)", f"maximum(w - {last}, minimum(1, w))")]
    vectors = re.findall(r"[^\n]*\by\[ramp\([^\n]*", te.build(x, y, target=target).source("stmt"))
    assert any(line.count("x[ramp(") == len(SQUARE) and line.count("x[") == len(SQUARE) for line in vectors), vectors
    (dx,) = te.differentiate(y, [x], head=te.placeholder(y.shape, name="head"))
    edge = 2 if mode == "reflect" else 1
    assert cuts(dx, target) == [(f"minimum({edge}, w)", f"maximum(w - {edge}, minimum({edge}, w))")]


def filtered(shape: tuple[Any, ...], taps: int, mode: str, *, sharp: bool = False) -> tuple[list[te.Tensor], te.Tensor]:
    """Pictures whose channels lie side by side, blurred by a square of weights, or what a blur takes away added."""
    x, g = te.placeholder(shape, name="x"), te.placeholder((taps, taps), name="g")
    f = x / 3 if sharp else x
    y = te.compute(
        shape,
        lambda i, j, c: te.sum(lambda u, v: g[u, v] * f.at(i + u - taps // 2, j + v - taps // 2, c, mode=mode)),
        name="y",
    )
    return [x, g], f + 0.5 * (f - y) if sharp else y


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("mode", ["clamp", "reflect", "wrap"])
@pytest.mark.parametrize("taps", [3, 5])
def test_windows_over_pixels_of_unknown_rows_are_loaded_as_they_lie(taps: int, mode: str, target: str) -> None:
    inputs, y = filtered((te.var("h"), te.var("w"), 3), taps, mode)
    kernel = te.build(inputs, y, target=target)
    lines = re.findall(r"[^\n]*\by\[ramp\([^\n]*", kernel.source("stmt"))
    assert any(line.count("x[ramp(") == taps**2 and line.count("x[") == taps**2 for line in lines), lines


@pytest.mark.parametrize("taps", [3, 5])
def test_windows_between_zeros_hold_several_vectors_of_sums(taps: int) -> None:
    inputs, y = filtered((te.var("h"), te.var("w"), 3), taps, "zero")
    nest = te.build(inputs, y, target="x86-64-v4").loop_nest()
    assert re.search(r"unrolled [^\n]* in \[0, 3\]:\n +vectorized [^\n]* in \[0, 15\]", nest), nest


@pytest.mark.parametrize("mode", ["clamp", "reflect"])
def test_long_windows_over_pixels_of_known_rows_need_no_copy(mode: str) -> None:
    """A copy without borders would have each pixel as often as the window is wide."""
    inputs, y = filtered((40, 133, 3), 7, mode)
    kernel = te.build(inputs, y, target="x86-64-v4")
    nest = kernel.loop_nest()
    assert "bordered" not in nest, nest
    assert "unrolled" in nest, nest


@pytest.mark.parametrize("mode", ["clamp", "reflect", "wrap"])
def test_long_windows_over_pixels_of_known_rows(mode: str) -> None:
    inputs, y = filtered((9, 41, 3), 7, mode)
    feeds = [CHANCE.integers(-4, 5, t.shape).astype("float32") for t in inputs]
    want = te.interpret(y, dict(zip(inputs, feeds, strict=True)))
    np.testing.assert_allclose(te.build(inputs, y)(*feeds), want, rtol=1e-5, atol=1e-4)


@pytest.mark.share(3)
@pytest.mark.parametrize("level", LEVELS_HERE[-1:])
@pytest.mark.parametrize("mode", ["zero", "clamp", "reflect", "wrap"])
@pytest.mark.parametrize(("taps", "sharp"), [(3, True), (5, False), (7, False)])
def test_windows_over_pixels_of_unknown_rows(taps: int, sharp: bool, mode: str, level: str) -> None:
    inputs, y = filtered((te.var("h"), te.var("w"), 3), taps, mode, sharp=sharp)
    with processor(level):
        kernel = te.build(inputs, y)
    for height, width in ((1, 1), (2, 1), (1, 3), (4, 2), (5, 4), (3, 5), (2, 7), (7, 16), (9, 41), (3, 130)):
        arrays = CHANCE.integers(-4, 5, (height, width, 3)), CHANCE.integers(-4, 5, (taps, taps))
        feeds = [a.astype("float32") for a in arrays]
        fixed, want = filtered((height, width, 3), taps, mode, sharp=sharp)
        want = te.interpret(want, dict(zip(fixed, feeds, strict=True)))
        np.testing.assert_allclose(kernel(*feeds), want, rtol=1e-5, atol=1e-4, err_msg=str((height, width)))


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("mode", ["zero", "clamp", "reflect", "wrap"])
def test_borders_of_rows_shorter_than_they_are(mode: str, level: str) -> None:
    taps = [(0, -3), (1, 2), (-1, 4), (0, 0)]
    x, y = stencil((te.var("h"), te.var("w")), mode, taps)
    outputs = [y, *te.differentiate(te.sum(y * y), [x])]
    with processor(level):
        kernel = te.build(x, outputs)
    for shape in ((1, 1), (2, 2), (3, 3), (1, 5), (2, 7), (9, 16), (2, 17), (3, 40), (2, 131)):
        array = CHANCE.integers(-4, 5, shape).astype("float32")
        for found, want in zip(kernel(array), te.interpret(outputs, {x: array}), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), level=PROCESSORS, mode=st.sampled_from(["zero", "clamp", "reflect", "wrap"]), low=st.booleans())
def test_random_stencils(data: st.DataObject, level: str, mode: str, low: bool) -> None:
    outer = data.draw(st.lists(st.integers(1, 4), max_size=2))
    shape = (*outer, data.draw(st.integers(3, 24)), data.draw(st.integers(33, 150)))
    taps = data.draw(st.lists(st.tuples(st.integers(-2, 2), st.integers(-4, 4)), min_size=2, max_size=9, unique=True))
    x, y = stencil(shape, mode, taps, data.draw(st.sampled_from(["float32", "float64", "int32", "uint8"])))
    outputs = [y, *(te.differentiate(te.sum(y * y), [x]) if x.dtype.is_float else ())]
    feeds = {x: CHANCE.integers(0, 4, shape).astype(str(x.dtype))}
    with processor(level), assuming(LOWEST if low else {}):
        found = te.evaluate(outputs, feeds)
    for one, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5)
