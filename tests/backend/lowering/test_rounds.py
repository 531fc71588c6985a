"""Reads that go round: what they read, and that vectors are loaded as they lie but where they go round."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import LEVELS_HERE, PROCESSORS, processor

CHANCE = np.random.default_rng(3)

SHIFTS = st.integers(-70, 70)
SIZES = st.sampled_from([1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 100])
DTYPES = st.sampled_from(["float32", "float64", "int8", "uint16", "int64"])


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    return (np.arange(np.prod(shape)) * 7 % 101).reshape(shape).astype(dtype)


def check(output: Any, feeds: Any) -> None:
    np.testing.assert_array_equal(te.evaluate(output, feeds), te.interpret(output, feeds))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(shifts=st.lists(SHIFTS, min_size=1, max_size=4), n=SIZES, longer=st.integers(0, 40), dtype=DTYPES)
def test_shifts_in_rows(shifts: list[int], n: int, longer: int, dtype: str) -> None:
    x = te.placeholder((3, n), dtype, name="x")

    def element(i: Any, j: Any) -> Any:
        reads = [x.at(i - 1, j - longer // 2 + s, mode="wrap") for s in shifts]
        return sum(reads[1:], reads[0])

    check(te.compute((3, n + longer), element), {x: numbers((3, n), dtype)})


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(shifts=st.lists(SHIFTS, min_size=2, max_size=3), n=SIZES, is_backward=st.booleans(), is_bare=st.booleans())
def test_lengths_that_are_not_known(shifts: list[int], n: int, is_backward: bool, is_bare: bool) -> None:
    size = te.var("n")
    x = te.placeholder((size,), name="x")
    length = size if is_bare else te.maximum(size, 1)

    def element(i: Any) -> Any:
        return sum((x[((s - i) if is_backward else (i + s)) % length] for s in shifts), te.const(0, "float32"))

    check(te.compute((size,), element), {x: numbers((n,), "float32")})


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(shifts=st.lists(st.integers(-9, 9), min_size=2, max_size=5), n=SIZES, is_known=st.booleans(), low=st.booleans())
def test_rings_of_rings(shifts: list[int], n: int, is_known: bool, low: bool) -> None:
    size = n if is_known else te.var("n")
    x = te.placeholder((2, size), name="x")
    y = x
    for s in shifts:
        before = y
        y = te.compute((2, size), lambda i, j: before.at(i, j + s, mode="wrap") - before.at(i, j - 1, mode="wrap"))  # noqa: B023
    with assuming(LOWEST if low else {}):
        check(y, {x: numbers((2, n), "float32")})


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(shift=SHIFTS, n=SIZES, is_known=st.booleans(), is_backward=st.booleans())
def test_gradients(shift: int, n: int, is_known: bool, is_backward: bool) -> None:
    size = n if is_known else te.var("n")
    x, h = te.placeholder((size,), name="x"), te.placeholder((size,), name="h")
    y = te.compute((size,), lambda i: x.at((shift - i) if is_backward else (i + shift), mode="wrap") * x[i])
    (dx,) = te.differentiate([y], [x], head=[h])
    values, heads = numbers((n,), "float32"), numbers((n,), "float32")[::-1].copy()
    places = (shift - np.arange(n) if is_backward else np.arange(n) + shift) % n
    expected = heads * values[places]
    np.add.at(expected, places, heads * values)
    np.testing.assert_allclose(te.evaluate(dx, {x: values, h: heads}), expected)


def test_circular_convolutions() -> None:
    x, w = te.placeholder((2, 3, 9, 37), name="x"), te.placeholder((4, 3, 3, 5), name="w")

    def element(b: Any, o: Any, i: Any, j: Any) -> Any:
        return te.sum(lambda c, u, v: x.at(b, c, i + u - 1, j + v - 2, mode="wrap") * w[o, c, u, v])

    y = te.compute((2, 4, 9, 37), element)
    feeds = {x: numbers((2, 3, 9, 37), "float32"), w: numbers((4, 3, 3, 5), "float32") % 5}
    check(y, feeds)
    for gradient in te.differentiate(y, [x, w], head=te.constant(np.ones((2, 4, 9, 37), "float32"))):
        check(gradient, feeds)


def innermost_loops(kernel: te.Kernel) -> list[str]:
    """The bodies of the loops that hold no other."""
    return re.findall(r"for \([^{}]*\{([^{}]*)\}", kernel.source("stmt"))


def test_vectors_are_loaded_as_they_lie() -> None:
    size = te.var("n")
    for n in (512, 500, size):
        x, h = te.placeholder((n,), name="x"), te.placeholder((n,), name="h")
        rolled = te.compute((n,), lambda i: x[(i + 7) % n])  # noqa: B023
        outputs = [
            rolled,
            te.compute((n,), lambda i: x.at(i - 1, mode="wrap") + x.at(i + 1, mode="wrap") - 2 * x[i]),  # noqa: B023
            te.compute((n + 6,), lambda i: x.at(i - 3, mode="wrap")),  # noqa: B023
            te.compute((n,), lambda i: x[((i + 3) % n + n - 5) % n]),  # noqa: B023
            te.differentiate(rolled, [x], head=h)[0] if n is not size else rolled,
        ]
        for output in outputs:
            loops = innermost_loops(te.build([x, h], output, target="x86-64-v4"))
            assert any("ramp(" in body and "%" not in body and "select" not in body for body in loops), loops


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_rows_that_are_read_at_the_same_places_are_loaded_as_they_lie(mode: str, target: str) -> None:
    """The place has a name of its own then, in which Halide looked for no loop."""
    x = te.placeholder((300, 512), name="x")
    taps = [(u, v) for u in (-1, 0, 1) for v in (-1, 1)]
    out = te.compute((300, 512), lambda i, j: sum(x.at(i + u, j + v, mode=mode) for u, v in taps))
    loops = innermost_loops(te.build([x], out, target=target))
    assert any("ramp(" in body and "select" not in body for body in loops), loops


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), level=PROCESSORS, mode=st.sampled_from(["reflect", "wrap"]), low=st.booleans())
def test_windows_that_go_round(data: st.DataObject, level: str, mode: str, low: bool) -> None:
    shape = data.draw(st.integers(2, 40)), data.draw(st.integers(2, 100))
    x = te.placeholder(shape, data.draw(st.sampled_from(["float32", "float64", "int32", "uint8"])), name="x")
    y: Any = x
    for height, width in data.draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=3)):
        taps = [(u, v) for u in range(height) for v in range(width)]
        read = y
        y = te.compute(
            shape,
            lambda i, j: sum(read.at(i + u - 1, j + v - width // 2, mode=mode) for u, v in taps),  # noqa: B023
        )
    with processor(level), assuming(LOWEST if low else {}):
        check(y, {x: CHANCE.integers(0, 4, shape).astype(str(x.dtype))})


def test_stages_that_go_round_are_not_computed_in_what_goes_round() -> None:
    x = te.placeholder((4096,), name="x")
    y = te.compute((4096,), lambda i: x.at(i + 1, mode="wrap") + x[i], name="y")
    z = te.compute((4096,), lambda i: y.at(i + 1, mode="wrap") + y[i])
    same = te.compute((4096,), lambda i: y[i] * 2)
    assert "y[" in te.build([x], z).source("stmt")
    assert "y[" not in te.build([x], same).source("stmt")


def test_nothing_is_checked_of_a_remainder_by_an_extent() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    kernel = te.build([x], te.compute((n,), lambda i: x[(i * i + 1) % n]))
    assert "check" not in kernel.source("stmt")
    assert kernel(np.zeros(0, "float32")).shape == (0,)


def test_a_remainder_by_zero_is_refused() -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n,), name="x")
    kernel = te.build([x], te.compute((m,), lambda i: x[i % n]))
    np.testing.assert_array_equal(kernel(np.arange(3, dtype="float32"), sizes={m: 7}), [0, 1, 2, 0, 1, 2, 0])
    with pytest.raises(ZeroDivisionError, match="i % n"):
        kernel(np.zeros(0, "float32"), sizes={m: 1})


@pytest.mark.parametrize("border", [1, 2, 3])
def test_mirrored_ends_of_rows_load_nothing_before_their_arrays(border: int) -> None:
    """A vector that goes back and then on was cut from a longer one, which began before the row."""
    x = te.placeholder((16, 64, 112, 112), name="x")
    y = te.ops.pad(x, (border, 1, 1, border), "reflect")
    assert "shuffle(x" not in te.build([x], y, target="x86-64-v4").source("stmt")


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("offsets", [(-2, 0, 2), (-9, 1), (7,), (-40, 33)])
def test_places_mirrored_in_rows_of_unknown_length(offsets: tuple[int, ...], level: str) -> None:
    """Between the ends vectors are loaded as they lie; further than a row away, it is mirrored again."""
    x = te.placeholder((te.var("n"), te.var("m")), name="x")
    y = te.compute(x.shape, lambda i, j: sum(x.at(i + d, j + d, mode="reflect") * (d + 1.0) for d in offsets), name="y")
    outputs = [y, *te.differentiate(te.sum(y * y), [x])]
    with processor(level):
        assert re.search(r"\bx\[ramp\(", te.build(x, y).source("stmt"))
        kernel = te.build(x, outputs)
    for shape in ((1, 1), (3, 2), (2, 17), (5, 64), (41, 130)):
        array = CHANCE.integers(-4, 5, shape).astype("float32")
        for found, want in zip(kernel(array), te.interpret(outputs, {x: array}), strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5)


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("widths", [(3, 3), (0, 9), (21, 1), (40, 33)])
def test_rows_of_unknown_length_whose_ends_are_there_twice(widths: tuple[int, int], level: str) -> None:
    x = te.placeholder((te.var("n"), te.var("m")), name="x")
    y = te.pad(x, ((2, 1), widths), "symmetric")
    with processor(level):
        assert re.search(r"\bx\[ramp\(", te.build(x, y).source("stmt"))
        kernel = te.build(x, [y, *te.differentiate(te.sum(y * y), [x])])
    for shape in ((1, 1), (3, 2), (2, 17), (5, 64), (41, 130)):
        array = CHANCE.integers(-4, 5, shape).astype("float32")
        found, gradient = kernel(array)
        np.testing.assert_array_equal(found, np.pad(array, ((2, 1), widths), "symmetric"))
        places = np.pad(np.arange(array.size).reshape(shape), ((2, 1), widths), "symmetric")
        expected = 2 * array.ravel() * np.bincount(places.ravel(), minlength=array.size)
        np.testing.assert_allclose(gradient.ravel(), expected, rtol=1e-5)
