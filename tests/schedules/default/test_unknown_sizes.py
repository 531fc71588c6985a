"""Programs whose sizes are known when they are called: right for all of them, and scheduled as if they were numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import LEVELS_HERE, processor

CHANCE = np.random.default_rng(11)
ROWS = [(1, 1), (3, 2), (5, 15), (4, 16), (2, 17), (7, 64), (9, 131), (1, 300)]


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64", "uint8"])
def test_the_first_extreme_of_rows_of_unknown_length(dtype: str, level: str) -> None:
    """Vectors of values, then of places, also over several axes; the first of equal ones, and of NaNs."""
    n, m, w = te.var("n"), te.var("m"), te.var("w")
    x = te.placeholder((n, m, w), dtype, name="x")
    results = [x.argmax(2), x.argmin(1), x.argmax((1, 2)), x.argmin(), te.argmax(x, axis=0)]
    with processor(level):
        kernel = te.build(x, results)
        if dtype == "float32":
            assert "x_argmax_first_partial" in str(te.Schedule(results[0]).auto())
    for shape in ((1, 1, 1), (2, 3, 5), (3, 1, 16), (1, 4, 70), (5, 2, 33), (2, 2, 200)):
        a = CHANCE.integers(0, 4, shape).astype(dtype)
        if dtype.startswith("float"):
            a[shape[0] // 2, :, shape[2] // 2 :] = np.nan
        flat = a.reshape(shape[0], -1)
        want = [a.argmax(2), a.argmin(1), flat.argmax(1), a.argmin(), a.argmax(0)]
        for found, expected in zip(kernel(a), want, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_the_first_extreme_of_no_values_is_at_0() -> None:
    x = te.placeholder((te.var("n"), te.var("w")), name="x")
    kernel = te.build(x, [x.argmax(1), x.argmin(0)])
    first, second = kernel(np.zeros((3, 0), "float32"))
    np.testing.assert_array_equal(first, [0, 0, 0])
    assert second.shape == (0,)


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "uint8"])
def test_recurrences_of_unknown_length(dtype: str, level: str) -> None:
    """Rows and steps side by side, forwards and backwards, along rows and along columns: bits as for numbers."""
    n, w = te.var("n"), te.var("w")

    def programs(shape: tuple) -> tuple[te.Tensor, list[te.Tensor]]:
        x = te.placeholder(shape, dtype, name="x")
        rows, columns = shape
        down = te.scan(shape, lambda s, t, i: te.select(t == 0, x[0, i], s[t - 1, i] + x[t, i]), name="down")
        made = [te.cumsum(x, 1), te.cumsum(x, 0), te.cumprod(x, 1), down]
        if dtype == "float32":
            made += te.differentiate(te.sum(x.prod(1) + te.cumsum(x * x, 1).sum(1)), [x])
        return x, made

    with processor(level):
        x, results = programs((n, w))
        kernel = te.build(x, results)
        for shape in ROWS:
            a = CHANCE.integers(0, 3, shape).astype(dtype)
            known, same = programs(shape)
            for found, expected, bits in zip(
                kernel(a), te.interpret(results, {x: a}), te.build(known, same)(a), strict=True
            ):
                np.testing.assert_array_equal(found, expected)
                np.testing.assert_array_equal(found, bits)
    assert "unrolled" in str(te.Schedule(results[0]).auto())


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("mode", ["reflect", "wrap", "clamp"])
@pytest.mark.parametrize("widths", [((1, 1), (2, 2)), ((0, 3), (5, 0))])
def test_gradients_of_borders_of_unknown_sizes(mode: str, widths: tuple, level: str) -> None:
    """Rows that are shorter than their borders go round them several times, others once: a program knows both."""
    x = te.placeholder((te.var("n"), te.var("w")), name="x")
    (up, down), (left, right) = widths
    y = te.compute(
        (x.shape[0] + (up + down), x.shape[1] + (left + right)),
        lambda i, j: x.at(i - up, j - left, mode=mode) * (1.0 + te.cast(j % 3, "float32")),
        name="y",
    )
    (gradient,) = te.differentiate(te.sum(y * y), [x])
    with processor(level):
        kernel = te.build(x, gradient)
        for shape in ((1, 1), (1, 4), (2, 2), (3, 1), (3, 5), (4, 3), (5, 8), (7, 16), (8, 33), (40, 50)):
            a = CHANCE.integers(-4, 5, shape).astype("float32")
            np.testing.assert_allclose(kernel(a), te.interpret(gradient, {x: a}), rtol=1e-6)
            z = te.placeholder(shape, name="z")
            same = te.compute(
                (shape[0] + up + down, shape[1] + left + right),
                lambda i, j, z=z: z.at(i - up, j - left, mode=mode) * (1.0 + te.cast(j % 3, "float32")),
                name="same",
            )
            (known,) = te.differentiate(te.sum(same * same), [z])
            np.testing.assert_allclose(kernel(a), te.interpret(known, {z: a}), rtol=1e-6)


def test_a_row_longer_than_its_borders_goes_back_once_at_each_end() -> None:
    """Of nine parts in two dimensions, not of 35: those are there for shorter rows alone."""
    x = te.placeholder((te.var("n"), te.var("w")), name="x")
    (gradient,) = te.differentiate(te.sum(te.pad(x, ((1, 1), (2, 2)), "reflect") ** 2), [x])
    text = str(te.Schedule(gradient).auto())
    assert re.search(r"if \(maximum\(2 \* \(n - 1\), 1\) >= 4\) & \(maximum\(2 \* \(w - 1\), 1\) >= 8\):", text)


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("least", [{}, LOWEST])
def test_windows_of_unknown_sizes(least: dict, level: str) -> None:
    """Sums and extremes of a few neighbors, whole and cut off at the ends, with their gradients."""
    x = te.placeholder((te.var("n"), te.var("h"), te.var("w")), name="x")

    def window(step: int, size: int, reducer: object) -> te.Tensor:
        r, s = te.reduce_axis(size, "r"), te.reduce_axis(size, "s")
        extents = [(e + step - 1) // step for e in x.shape[1:]]
        value = lambda k, i, j: x.at(k, i * step + r - 1, j * step + s - 1, mode="zero")  # noqa: E731
        return te.compute((x.shape[0], *extents), lambda k, i, j: reducer(value(k, i, j), axis=(r, s)), name="window")

    results = [window(2, 3, te.sum), window(1, 3, te.max), window(3, 2, te.sum), te.ops.avg_pool2d(x[None], 2)[0]]
    results += te.differentiate(te.sum(results[0] * results[0]), [x])
    with processor(level), assuming(least):
        kernel = te.build(x, results)
        for shape in ((1, 2, 2), (2, 3, 5), (1, 7, 16), (3, 8, 33), (2, 17, 70)):
            a = CHANCE.integers(-4, 5, shape).astype("float32")
            for found, expected in zip(kernel(a), te.interpret(results, {x: a}), strict=True):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 2, 511, 600])
def test_what_is_read_beside_blocks_of_a_size_is_there_without_blocks(size: int) -> None:
    """In a block of n // 512 the place 1 % n is 1: arrays of one element were refused."""
    n = te.var("n")
    x = te.placeholder((n,), "float64", name="x")
    j = te.reduce_axis(n, "j")
    out = te.compute((), lambda: te.sum(te.cos(x[1 % n]), axis=j), name="out")
    given = np.arange(1.0, size + 1)
    np.testing.assert_allclose(te.build([x], out)(given), size * np.cos(given[1 % size]), rtol=1e-12)


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_sums_over_what_a_size_leaves_empty(lag: int) -> None:
    """Differences of neighbors are a stage: of none Halide asks for the first one all the same."""
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n,), "float64", name="x"), te.placeholder((m, n), "float64", name="y")
    programs = [
        (x[lag:] - x[:-lag]).sum(), ((x[lag:] - x[:-lag]) ** 2).sum(), (x[lag:] * x[:-lag]).sum(),
        te.abs(y[:, lag:] - y[:, :-lag]).sum(), (y[:, lag:] * y[:, :-lag]).sum(1),
    ]  # fmt: skip
    kernels = [te.build([x, y], p) for p in programs]
    for size in (lag, lag + 1, lag + 9):
        a, b = np.arange(1.0, size + 1) ** 2, np.arange(1.0, 3 * size + 1).reshape(3, size) ** 1.5
        d, e = a[lag:] - a[:-lag], np.abs(b[:, lag:] - b[:, :-lag])
        wanted = [d.sum(), (d * d).sum(), (a[lag:] * a[:-lag]).sum(), e.sum(), (b[:, lag:] * b[:, :-lag]).sum(1)]
        for kernel, want in zip(kernels, wanted, strict=True):
            np.testing.assert_allclose(kernel(a, b), want, rtol=1e-12)


@pytest.mark.parametrize("level", LEVELS_HERE[-2:])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_pictures_turned_round_find_their_place_once_for_many_pixels(dtype: str, level: str) -> None:
    """Rows and columns were one loop, with a quotient and a remainder by the width for each pixel."""
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m, 3), dtype, name="x")
    results = [x[:, ::-1], x[::-1, ::-1], te.rot90(x), te.flip(x, (0, 1, 2)), x[::-1, ::-1, ::2]]
    with processor(level):
        kernel = te.build(x, results)
        for result in results[:-1]:
            printed = str(te.Schedule(result).auto())
            assert re.search(r"// \(\([nm] \+ 63\) // 64\)", printed), printed
            assert not re.search(r"f0 [%/]+ [nm]\b", printed), printed
    for shape in [(1, 1), (3, 2), (1, 64), (2, 65), (5, 63), (7, 200), (300, 1), (64, 130), (0, 5), (5, 0)]:
        a = CHANCE.integers(0, 200, (*shape, 3)).astype(dtype)
        want = [a[:, ::-1], a[::-1, ::-1], np.rot90(a), np.flip(a, (0, 1, 2)), a[::-1, ::-1, ::2]]
        for found, expected in zip(kernel(a), want, strict=True):
            np.testing.assert_array_equal(found, expected)
