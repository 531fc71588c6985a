"""The default schedule never changes a result: programs large enough for every pattern, against the reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.default import LOWEST, assuming
from tests.levels import processor
from tests.schedules.comparison import compare
from tests.work import calls_in

RANDOM = np.random.default_rng(7)
Case = tuple[list[te.Tensor], list[te.Tensor]]


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def matmul(m: int, k: int, n: int, layout: str) -> Case:
    a = te.placeholder((m, k) if layout[0] == "N" else (k, m), name="a")
    b = te.placeholder((k, n) if layout[1] == "N" else (n, k), name="b")
    read_a = (lambda i, r: a[i, r]) if layout[0] == "N" else (lambda i, r: a[r, i])
    read_b = (lambda r, j: b[r, j]) if layout[1] == "N" else (lambda r, j: b[j, r])
    r = te.reduce_axis(k, name="r")
    return [a, b], [te.compute((m, n), lambda i, j: te.sum(read_a(i, r) * read_b(r, j), axis=r), name="c")]


def conv(n: int, ci: int, co: int, h: int, k: int, stride: int, pad: int, dilation: int, which: str) -> Case:
    out = (h + 2 * pad - dilation * (k - 1) - 1) // stride + 1
    x, w = te.placeholder((n, ci, h, h), name="x"), te.placeholder((co, ci, k, k), name="w")
    g = te.placeholder((n, co, out, out), name="g")

    def at(b: Any, c: Any, y: Any, z: Any) -> Any:
        return x.at(b, c, y, z, mode="zero") if pad else x[b, c, y, z]

    y = te.compute(
        (n, co, out, out),
        lambda b, o, i, j: te.sum(
            lambda c, p, q: at(b, c, i * stride + p * dilation - pad, j * stride + q * dilation - pad) * w[o, c, p, q]
        ),
        name="y",
    )
    if which == "forward":
        return [x, w], [y]
    gradients = dict(zip("xw", te.differentiate(y, [x, w], head=g), strict=True))
    return [g, w if which == "x" else x], [gradients[which]]


def rows(function: Callable[[te.Tensor], te.Tensor], n: int, m: int, *, gradient: bool) -> Case:
    x, g = te.placeholder((n, m), name="x"), te.placeholder((n, m), name="g")
    y = function(x)
    return ([x, g], [y, te.differentiate(y, x, head=g)]) if gradient else ([x], [y])


def softmax(x: te.Tensor) -> te.Tensor:
    e = te.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def normalized(x: te.Tensor) -> te.Tensor:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / te.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)


def gelu(x: te.Tensor) -> te.Tensor:
    return 0.5 * x * (1 + te.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def reduced(kind: str, shape: tuple[int, ...], axis: int | None) -> Case:
    x = te.placeholder(shape, name="x")
    return [x], [getattr(x, kind)(axis) if axis is not None else getattr(x, kind)()]


def grouped(groups: int, which: str) -> Case:
    """Filters of their own for each group of channels."""
    x, w = te.placeholder((2, groups, 6, 12, 12), name="x"), te.placeholder((groups, 16, 6, 3, 3), name="w")
    y = te.compute(
        (2, groups, 16, 10, 10),
        lambda b, h, o, i, j: te.sum(lambda c, p, q: x[b, h, c, i + p, j + q] * w[h, o, c, p, q]),
        name="y",
    )
    g = te.placeholder(y.shape, name="g")
    if which == "forward":
        return [x, w], [y]
    gradients = dict(zip("xw", te.differentiate(y, [x, w], head=g), strict=True))
    return [g, w if which == "x" else x], [gradients[which]]


def windowed(how: str) -> Case:
    """A sum over windows that reach over both ends: under its condition alone the reads are in bounds."""
    x, w = te.placeholder((12, 256), name="x"), te.placeholder((24, 256), name="w")
    t = te.reduce_axis(64, name="t")

    def body(c: Any, k: Any, b: Any) -> Any:
        at = b * 32 + t - 16
        inside = (at >= 0) & (at < 256)
        if how == "select":
            return te.sum(te.select(inside, x[c, at] * w[k, at], 0.0), axis=t)
        return te.sum(x[c, at] * w[k, at if how == "where" else te.clip(at, 0, 255)], axis=t, where=inside)

    return [x, w], [te.compute((12, 24, 8), body, name="y")]


def batched(b: int, m: int, k: int, n: int) -> Case:
    a, c = te.placeholder((b, m, k), name="a"), te.placeholder((b, k, n), name="c")
    return [a, c], [a @ c]


def transposed(n: int, m: int) -> Case:
    x = te.placeholder((n, m), name="x")
    return [x], [te.compute((m, n), lambda i, j: x[j, i] * 2.0, name="t")]


def pooled(n: int, c: int, h: int, *, gradient: bool) -> Case:
    x = te.placeholder((n, c, h, h), name="x")
    out = (h + 2 - 3) // 2 + 1
    y = te.compute(
        (n, c, out, out),
        lambda b, k, i, j: te.max(lambda p, q: te.select(
            (i * 2 + p >= 1) & (i * 2 + p <= h) & (j * 2 + q >= 1) & (j * 2 + q <= h),
            x[b, k, i * 2 + p - 1, j * 2 + q - 1], float("-inf"))),
        name="y",
    )  # fmt: skip
    if not gradient:
        return [x], [y]
    g = te.placeholder(y.shape, name="g")
    return [x, g], [te.differentiate(y, x, head=g)]


def depthwise(n: int, c: int, h: int, which: str) -> Case:
    x, w = te.placeholder((n, c, h, h), name="x"), te.placeholder((c, 3, 3), name="w")
    y = te.compute(
        (n, c, h, h),
        lambda b, k, i, j: te.sum(lambda p, q: x.at(b, k, i + p - 1, j + q - 1, mode="zero") * w[k, p, q]),
        name="y",
    )
    g = te.placeholder(y.shape, name="g")
    if which == "forward":
        return [x, w], [y]
    gradients = dict(zip("xw", te.differentiate(y, [x, w], head=g), strict=True))
    return [g, w if which == "x" else x], [gradients[which]]


def cumulated(axis: int) -> Case:
    x = te.placeholder((400, 512), name="x")
    if axis == 0:
        y = te.scan((400, 512), lambda s, t, i: te.select(t == 0, x[0, i], s[t - 1, i] + x[t, i]), axis=0)
    else:
        y = te.scan((400, 512), lambda s, i, t: te.select(t == 0, x[i, 0], s[i, t - 1] + x[i, t]), axis=1)
    return [x], [y]


def filtered(shape: tuple[int, ...], axis: int, lag: int, *, reverse: bool, first: bool) -> Case:
    """A recurrence with a lag whose first steps are one branch or the other of a select."""
    x = te.placeholder(shape, name="x")

    def body(s: Any, *place: Any) -> Any:
        t = place[axis]
        before = [*place]
        before[axis] = t + lag if reverse else t - lag
        starts = t >= shape[axis] - lag if reverse else t < lag
        goes_on = 0.5 * s[tuple(before)] + x[place]
        return te.select(starts, x[place], goes_on) if first else te.select(~starts, goes_on, x[place])

    return [x], [te.scan(shape, body, axis=axis, reverse=reverse)]


CASES: dict[str, Callable[[], Case]] = {
    **{f"matmul {s}{t}": lambda s=s, t=t: matmul(*s, t)
       for s in ((64, 64, 64), (37, 50, 41), (130, 33, 97)) for t in ("NN", "NT", "TN", "TT")},
    "matmul, few columns": lambda: matmul(200, 300, 3, "NN"),
    "matmul, one column": lambda: matmul(300, 300, 1, "NN"),
    "matmul, few columns side by side": lambda: matmul(100, 150, 10, "NN"),
    "matmul, small result": lambda: matmul(24, 1024, 100, "TN"),
    "matmul, small result, rest": lambda: matmul(48, 900, 144, "NN"),
    "matmul, few rows": lambda: matmul(3, 300, 200, "NN"),
    "matmul, long sum": lambda: matmul(16, 6000, 16, "TN"),
    "matmul, large": lambda: matmul(250, 260, 270, "NN"),
    **{f"matmul, turned by blocks of {k}, {t}": lambda t=t, k=k: matmul(70, k, 150, t)
       for k in (128, 129, 111) for t in ("NT", "TT")},
    "batched": lambda: batched(5, 33, 40, 29),
    **{f"grouped {which}": lambda which=which: grouped(3, which) for which in ("forward", "x", "w")},
    **{f"conv 1x1, wide, {which}": lambda which=which: conv(2, 20, 40, 36, 1, 1, 0, 1, which)
       for which in ("forward", "x", "w")},
    **{f"windowed, {how}": lambda how=how: windowed(how) for how in ("where", "select", "where, clip")},
    **{f"conv {which} k{k} s{s} p{p} d{d}":
       lambda k=k, s=s, p=p, d=d, which=which: conv(2, 5, 18, 15, k, s, p, d, which)
       for k, s, p, d in ((3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (1, 1, 0, 1), (5, 2, 0, 1), (4, 3, 1, 1))
       for which in ("forward", "x", "w")},
    **{f"conv, few channels, {which}": lambda which=which: conv(2, 3, 12, 70, 5, 2, 2, 1, which)
       for which in ("forward", "x", "w")},
    "conv, few filters": lambda: conv(3, 12, 3, 37, 3, 1, 1, 1, "forward"),
    "conv, few filters, no border": lambda: conv(1, 12, 5, 70, 3, 1, 0, 2, "forward"),
    **{f"conv, few filters, k{k} s{s} p{p} d{d}": lambda k=k, s=s, p=p, d=d: conv(2, 6, 3, 61, k, s, p, d, "forward")
       for k, s, p, d in ((7, 2, 3, 1), (7, 2, 0, 2), (9, 3, 3, 1), (11, 4, 1, 1), (3, 1, 1, 1))},
    "conv, few filters, narrow": lambda: conv(2, 12, 3, 21, 5, 1, 2, 1, "forward"),
    "conv, large, forward": lambda: conv(2, 16, 40, 30, 3, 1, 1, 1, "forward"),
    "conv, large, image": lambda: conv(2, 16, 40, 30, 3, 1, 1, 1, "x"),
    "conv, large, weights": lambda: conv(4, 16, 40, 30, 3, 1, 1, 1, "w"),
    **{f"{f.__name__} {m} {'both' if g else 'forward'}": lambda f=f, m=m, g=g: rows(f, 37, m, gradient=g)
       for f in (softmax, normalized, gelu) for m in (129, 256) for g in (False, True)},
    **{f"{kind} {shape} {axis}": lambda kind=kind, shape=shape, axis=axis: reduced(kind, shape, axis)
       for kind in ("sum", "max", "min", "prod", "argmax", "argmin")
       for shape, axis in (((40, 1000), 1), ((513, 77), 0))},
    "sum of all": lambda: reduced("sum", (700, 300), None),
    "max of all": lambda: reduced("max", (700, 301), None),
    **{f"filter {shape} {axis} {lag} {reverse} {first}":
       lambda a=(shape, axis, lag), r=reverse, f=first: filtered(*a, reverse=r, first=f)
       for shape, axis, lag, reverse, first in (
           ((13, 37), 1, 1, False, True), ((13, 37), 1, 2, True, False), ((37, 70), 0, 3, False, False),
           ((3, 9, 21), 1, 1, True, True), ((5, 6, 300), 2, 1, False, True), ((3, 50), 1, 1, False, True),
           ((40, 128), 0, 1, True, True), ((401, 513), 1, 1, False, True))},
    "scan along columns": lambda: cumulated(0),
    "scan along rows": lambda: cumulated(1),
    "transpose": lambda: transposed(65, 130),
    "max pool": lambda: pooled(2, 3, 33, gradient=False),
    "max pool, gradient": lambda: pooled(2, 3, 33, gradient=True),
    "depthwise": lambda: depthwise(2, 5, 40, "forward"),
    "depthwise, image": lambda: depthwise(2, 5, 40, "x"),
    "depthwise, weights": lambda: depthwise(2, 5, 40, "w"),
}  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference(name: str) -> None:
    """On the same numbers in any order of the tests: a sum of 210 000 that is nearly 0 has few right digits left."""
    inputs, outputs = CASES[name]()
    chance = np.random.default_rng(7)
    compare(inputs, outputs, [chance.standard_normal(t.shape).astype(np.float32) for t in inputs])


@pytest.mark.parametrize("which", ["forward", "x", "w", "x of few channels"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_stay_where_they_belong(which: str, value: float) -> None:
    few = which.endswith("channels")
    inputs, outputs = conv(1, 3, 16, 66, 3, 2, 1, 1, "x") if few else conv(1, 8, 16, 12, 3, 1, 1, 1, which)
    kernel = te.build(inputs, outputs[0])
    for position in range(2):
        arrays = [floats(*t.shape) for t in inputs]
        arrays[position].flat[5] = value
        found, expected = kernel(*arrays), te.interpret(outputs[0], dict(zip(inputs, arrays, strict=True)))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("taps", "step"), [(7, 2), (9, 3), (11, 4)])
def test_few_filters_that_move_by_several_pixels_read_these_side_by_side(taps: int, step: int, target: str) -> None:
    _, (y,) = conv(2, 6, 3, 61, taps, step, 1, 1, "forward")
    text = str(te.Schedule(y).auto(target=target))
    assert "y_sums" in text
    assert f"y_columns[b, c, i * {step} + p, q % {step}, j + q // {step}]" in text


def spread() -> tuple[list[te.Tensor], te.Tensor]:
    """Rows of an image and of a window meet where both lie inside: a condition for either factor."""
    a, w = te.placeholder((2, 8, 6, 90), name="a"), te.placeholder((8, 12, 9, 7), name="w")

    def element(b: Any, j: Any, k: Any, m: Any) -> Any:
        f, i, v = te.reduce_axis(8, "f"), te.reduce_axis(6, "i"), te.reduce_axis(7, "v")
        inside = (k - i >= 0) & (k - i < 9) & (m - v >= 0) & (m - v < 90)
        return te.sum(a[b, f, i, m - v] * w[f, j, k - i, v], axis=[f, i, v], where=inside)

    return [a, w], te.compute((2, 12, 14, 96), element, name="y")


@pytest.mark.parametrize("position", [None, 0, 1])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_conditions_in_both_factors(value: float, position: int | None) -> None:
    inputs, y = spread()
    assert "y_sums" in str(te.Schedule(y).auto(target="x86-64-v3"))
    arrays = [floats(*t.shape) for t in inputs]
    if position is not None:
        arrays[position].flat[200] = value
    found, expected = te.build(inputs, y)(*arrays), te.interpret(y, dict(zip(inputs, arrays, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_first_of_equal_values_and_nan_win_an_argmax() -> None:
    x = te.placeholder((4, 200), name="x")
    a = np.zeros((4, 200), np.float32)
    a[1, 50] = a[1, 150] = 3
    a[2, 60] = a[2, 160] = np.nan
    a[3] = -np.inf
    np.testing.assert_array_equal(te.build([x], x.argmax(1))(a), [0, 50, 60, 0])


@pytest.mark.parametrize("name", ["max", "min"])
def test_a_winner_is_found_by_the_extreme_that_is_there(name: str) -> None:
    x = te.placeholder((8, 256), "float32", name="x")
    top, head = getattr(x, name)(axis=1), te.placeholder((8,), "float32", name="head")
    (dx,) = te.differentiate(top, [x], head=head)
    kern = te.build([x, head], [top, dx])
    assert "best" not in kern.loop_nest()  # no maximum of its own
    a, g = floats(8, 256), floats(8)
    a[1, 7], a[2, 9], a[2, 200], a[3, 100:], a[4] = np.nan, np.inf, np.inf, -np.nan, -0.0
    a[4, 60:] = 0.0
    wanted = te.interpret([top, dx], {x: a, head: g})
    for found, expected in zip(kern(a, g), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(64, 48), (64, 21), (18, 48), (3, 16, 32)])
def test_rows_that_are_divided_by_the_same_numbers(shape: tuple[int, ...]) -> None:
    x, y = te.placeholder(shape, "float32", name="x"), te.placeholder(shape[-1:], "float32", name="y")
    kern = te.build([x, y], (x - 1) / y)
    assert ("unrolled" in kern.loop_nest()) == (shape[-2] % 4 == 0)
    a, b = floats(*shape), floats(*shape[-1:])
    a.flat[5], a.flat[7], b[2] = np.inf, 1.0, 0.0
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kern(a, b), (a - 1) / b)


def test_what_pixels_of_two_numbers_are_computed_from_is_computed_for_a_row_of_them() -> None:
    """The gradient of the places at which a picture is read: two numbers for each pixel, a sum over colours each."""
    image, at = te.placeholder((3, 64, 64), name="image"), te.placeholder((64, 64, 2), name="at")

    def between(c: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        y, x = (te.cast(te.floor(at[i, j, k]), "int32") for k in range(2))
        fy, fx = (at[i, j, k] - te.floor(at[i, j, k]) for k in range(2))
        top, left = (te.clip(v, 0, 62) for v in (y, x))
        return image[c, top, left] * (1 - fy) * (1 - fx) + image[c, top + 1, left + 1] * fy * fx

    warped, head = te.compute((3, 64, 64), between, name="warped"), te.placeholder((3, 64, 64), name="head")
    slope = te.differentiate(warped, at, head=head)
    kern = te.build([image, at, head], slope)
    nest = kern.loop_nest()
    assert nest.count("vectorized j") >= 4  # both sums, and where they begin
    arrays = [floats(*t.shape) for t in (image, at, head)]
    arrays[1] += 20
    np.testing.assert_allclose(
        kern(*arrays), te.interpret(slope, dict(zip((image, at, head), arrays, strict=True))), rtol=1e-4, atol=1e-4
    )


def test_two_runs_give_the_same_bits() -> None:
    inputs, outputs = conv(4, 16, 32, 28, 3, 1, 1, 1, "w")
    arrays = [floats(*t.shape) for t in inputs]
    kernel = te.build(inputs, outputs[0])
    np.testing.assert_array_equal(kernel(*arrays), kernel(*arrays))


def test_four_times_the_stages_take_about_four_times_the_work_to_build() -> None:
    x, a, spent = te.placeholder((64, 64), name="x"), floats(64, 64), {}
    for stages in (1, 25, 100):  # the first build of a process is no measure
        y = x
        for _ in range(stages):
            y = te.tanh(y * 1.01 + y * y * 0.01)
        built = list[np.ndarray]()
        spent[stages] = calls_in(lambda y=y, built=built: built.append(te.build([x], y)(a)))
        np.testing.assert_allclose(*built, te.interpret(y, {x: a}), rtol=1e-3, atol=1e-5)
    assert spent[100] < 7 * spent[25]


def test_tiles_that_reach_past_the_end_read_what_was_computed() -> None:
    """Denormal numbers in memory that nobody wrote made a convolution eight times slower."""
    kern = te.build(*conv(1, 8, 8, 8, 3, 1, 1, 1, "forward"))
    allocated = re.search(r"allocate y_rows\[float32 \* \d+ \* (\d+) \* \d+\]", kern.source("stmt"))
    (last,) = re.findall(r"produce y_rows:\n +for d0 .*\n +for d1 in \[0, (\d+)\]", kern.loop_nest())
    assert allocated is not None
    assert int(last) + 1 == int(allocated[1])


@pytest.mark.parametrize("size", [17, 34])
def test_vectors_with_one_element_more_than_a_register(size: int) -> None:
    """Nine rows of a tile along the last axis: stored under a mask, the ninth one ended the process."""
    shape = (1, 5, size + 2, size + 2)
    x, w = te.placeholder(shape, "float64", name="x"), te.placeholder((20, 5, 3, 3), "float64", name="w")
    y = te.compute(
        (1, 20, size, size), lambda b, o, i, j: te.sum(lambda c, p, q: x[b, c, i + p, j + q] * w[o, c, p, q]), name="y"
    )
    image, weights = floats(*shape).astype("f8"), floats(20, 5, 3, 3).astype("f8")
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    want = np.einsum("bcijpq,ocpq->boij", windows, weights)
    np.testing.assert_allclose(te.build([x, w], y)(image, weights), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("between", [1, 3])
def test_rows_of_windows_may_stand_between_their_batches(between: int) -> None:
    """The loop over such rows had no place among those that blocks of windows leave: it kept two from being fused."""
    head, table = te.placeholder((5, 2), name="head"), te.placeholder((7, 2, 5, 7), name="table")
    out = te.compute(
        (5, between, 7, 1, 7), lambda i, j, k, u, m: te.sum(lambda a: head[i, a] * table[k, a, i, m]), name="out"
    )
    h, t = (RANDOM.integers(-2, 3, shape).astype("f4") for shape in ((5, 2), (7, 2, 5, 7)))
    want = np.broadcast_to(np.einsum("ia,kaim->ikm", h, t)[:, None, :, None, :], (5, between, 7, 1, 7))
    with assuming({**LOWEST, "cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}):
        np.testing.assert_array_equal(te.build([head, table], out)(h, t), want)


def test_loops_over_many_sizes_that_are_not_known_are_cut_into_tasks() -> None:
    """How many iterations they may have is more than a factor can say."""
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, 8, m, 7, 1), name="a"), te.placeholder((n, n), name="b")
    scale, head = te.placeholder((7, 8, n), name="scale"), te.placeholder((7, 8, n), name="head")
    k, r, one = te.reduce_axis(m), te.reduce_axis(n), te.reduce_axis(1)

    def sums(i: Any, j: Any, c: Any) -> Any:
        return te.sum(a[r, j, k, i, one] * (0.5 * b[r, c]), axis=(k, r, one), where=(c + one) % 3 != 1)

    t = te.compute((7, 8, n), sums, name="t")
    y = te.compute((7, 8, n), lambda *at: (t[at] * scale[at] - t[at]) * 2.0, name="y")
    sources = [a, b, scale]
    gradients = list(te.differentiate([y], sources, head=[head]))
    sizes = {n: 1, m: 17}
    shapes = [(1, 8, 17, 7, 1), (1, 1), (7, 8, 1), (7, 8, 1)]
    feeds = {x: RANDOM.integers(-2, 3, s).astype("float32") for x, s in zip([*sources, head], shapes, strict=True)}
    small = {"cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10, "kernels": 2}
    with assuming({**LOWEST, **small}), processor("x86-64-v2"):
        found = te.evaluate(gradients, feeds)
    for got, want in zip(found, te.interpret(gradients, feeds, sizes), strict=True):
        np.testing.assert_array_equal(got, want)


def test_sums_with_a_small_result_are_cut_where_their_columns_are_large() -> None:
    def names(m: int, terms: int, n: int) -> set[str]:
        a, b = te.placeholder((terms, m), name="a"), te.placeholder((terms, n), name="b")
        return set(te.Schedule((a.T @ b).named("c")).auto(target="x86-64-v4").plan.program.stages)

    assert "c_partial" in names(48, 2048, 192)
    assert "c_partial" in names(64, 4096, 64)
    assert "c_partial" not in names(64, 512, 48)  # whose columns are in the cache as they are
    assert "c_partial" not in names(512, 1024, 512)


def test_lanes_are_few_columns_that_lie_side_by_side_before_many_that_do_not() -> None:
    x, w, wide = (te.placeholder(s, name=n) for s, n in (((500, 784), "x"), ((784, 10), "w"), ((784, 600), "wide")))
    assert "c_columns[p0, d1, lane] = w[" in str(te.Schedule((x @ w).named("c")).auto())
    assert "c_columns[p0, d1, lane] = wide[" in str(te.Schedule((x @ wide).named("c")).auto())


def test_sums_of_rows_are_stored_for_readers_of_many_rows() -> None:
    """Inlined into vectors of rows, each partial sum was gathered: a mean of squares took 2 s to compile."""
    x, w, y = te.placeholder((300, 40), name="x"), te.placeholder((40,), name="w"), te.placeholder((300,), name="y")
    for loss in (((x @ w - y) ** 2).mean(), te.tanh(x @ w), te.sqrt((x * x).sum(axis=1)).sum()):
        text = str(te.Schedule(loss).auto(target="x86-64-v4"))
        (line,) = [line for line in text.splitlines() if "_folded[i, 0] + " in line]
        assert "inline" not in line


@pytest.mark.parametrize(("columns", "last"), [(4, 3), (5, 7), (8, 7), (9, 15)])
def test_few_columns_take_the_part_of_a_register_that_holds_them(columns: int, last: int) -> None:
    inputs, outputs = matmul(64, 40, columns, "NN")
    loops = te.build(inputs, outputs, target="x86-64-v4").loop_nest()
    assert set(re.findall(r"vectorized j\S* in \[0, (\d+)\]", loops)) == {str(last)}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_lanes_that_are_loaded_one_by_one_are_sixteen(dtype: str) -> None:
    x = te.placeholder((512, 512), dtype, name="x")
    loops = te.build([x], te.transpose(x), target="x86-64-v4").loop_nest()
    assert re.findall(r"vectorized \S+ in \[0, (\d+)\]", loops) == ["15"]


@pytest.mark.parametrize("columns", [3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("layout", ["NN", "TN", "NT"])
def test_few_columns_are_multiplied_right(columns: int, layout: str) -> None:
    inputs, outputs = matmul(37, 41, columns, layout)
    compare(inputs, outputs, [floats(*t.shape) for t in inputs])


def test_windows_that_some_sizes_have_none_of() -> None:
    """Reflected borders of rows of any length: where no window folds twice, the table of those had -2 columns."""
    m, n = te.var("m"), te.var("n")
    x, w = te.placeholder((m, 9, n, 4), name="x"), te.placeholder((2, 3, 4, m), name="w")
    head = te.placeholder((m, 8, (n + 1) // 3 + 1, m), name="head")

    def window(b: Any, i: Any, j: Any, o: Any) -> Any:
        return te.sum(lambda c, u, v: x.at(b, i + u, 3 * j + v - 2, c, mode="reflect") * w[u, v, c, o])

    y = te.compute(head.shape, window, name="y")
    gradients = list(te.differentiate([y], [x, w], head=[head]))
    shapes = {x: (1, 9, 17, 4), w: (2, 3, 4, 1), head: (1, 8, 7, 1)}
    feeds = {t: RANDOM.integers(-2, 3, shape).astype("float32") for t, shape in shapes.items()}
    with assuming({**LOWEST, "cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}):
        found = te.evaluate(gradients, feeds)
    for got, want in zip(found, te.interpret(gradients, feeds, {m: 1, n: 17}), strict=True):
        np.testing.assert_array_equal(got, want)


def test_many_small_products_are_few_tasks() -> None:
    a, b = te.placeholder((20_000, 4, 13), name="a"), te.placeholder((20_000, 13, 16), name="b")
    y = te.compute((20_000, 4, 16), lambda t, i, j: te.sum(lambda k: a[t, i, k] * b[t, k, j]), name="y")
    loops = te.build([a, b], y, target="x86-64-v3").loop_nest()
    assert "parallel t.ts" in loops
    assert "for t.t_one" in loops
    x, w = te.placeholder((8, 256, 256), name="x"), te.placeholder((256, 256), name="w")
    z = te.compute((8, 256, 256), lambda t, i, j: te.sum(lambda k: x[t, i, k] * w[k, j]), name="z")
    assert "_one" not in te.build([x, w], z, target="x86-64-v3").loop_nest()


def test_windows_as_columns_are_no_transposition() -> None:
    """The loop of the vectors runs along memory, whatever else the last index is made of."""
    x = te.placeholder((4, 64, 56, 56), name="x")
    y = te.ops.unfold(x, 3, padding=1)
    assert "16, unrolled" not in str(te.Schedule([y]).auto())


@pytest.mark.parametrize("name", ["unfold", "bilateral_slice"])
def test_pieces_are_little_code(name: str) -> None:
    """Within pieces a period of quotients is not written out, and of reads at places that are data there are few."""
    x, y = te.placeholder((2, 16, 14, 14), name="x"), te.placeholder((1, 32, 32), name="y")
    grid = te.placeholder((1, 4, 4, 4, 4), name="grid")
    inputs, made = {
        "unfold": ([x], lambda: te.ops.unfold(x, 3, padding=1)),
        "bilateral_slice": ([grid, y], lambda: te.ops.bilateral_slice(grid, y)),
    }[name]
    assert len(te.build(inputs, made(), target="x86-64-v3").source("llvm")) < 120_000


@pytest.mark.parametrize("terms", [1, 8])
def test_tiles_that_are_turned_stay_loops(terms: int) -> None:
    """The gradient of a soft alignment, written out sixteen times in pieces of its borders, took 17 s to compile."""
    x = te.placeholder((160, 320), name="x")
    y = te.compute((320, 160), lambda i, j: sum(te.tanh(x[j, i] * c) for c in range(1, terms + 1)), name="y")
    assert "unrolled" not in str(te.Schedule(y).auto())


def test_a_window_that_is_turned_is_computed_along_its_own_rows() -> None:
    """Read lane by lane at each tap, its gradient took 35 s to compile and six times as long to run."""
    x = te.placeholder((768, 512, 3), name="x")
    rows = te.ops.box_blur(te.moveaxis(x, -1, 0), 4)
    y = te.moveaxis(rows, 0, -1)
    printed = str(te.Schedule(te.differentiate((y**2).sum(), x)).auto())
    assert "dx_T_box_blur_rows inline" not in printed
    turned = te.compute((512, 768), lambda i, j: te.exp(x[j, i, 0]) - x.at(j + 1, i, 0, mode="clamp"), name="turned")
    assert "what is new" not in str(te.Schedule(turned).auto())


@pytest.mark.parametrize("shape", [(64, 96), (50, 40, 64)])
def test_what_is_turned_is_kept_whole_or_not_at_all(shape: tuple[int, ...]) -> None:
    """A strip of a pipeline along its vectors would hold one element of each."""
    x = te.placeholder(shape, name="x")
    rows = te.exp(x) - te.roll(x, 1, axis=0) * te.log(abs(x) + 1)
    y = te.moveaxis(rows, -1, 0)
    assert "what is new" not in str(te.Schedule(y).auto())
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(te.build(x, y)(a), te.interpret(y, {x: a}), rtol=1e-5, atol=1e-6)


def test_long_elements_of_bytes_are_computed_a_vector_at_a_time() -> None:
    """Whole vectors of bytes are four of floats: of 25 taps under a border these took 14 s to compile."""
    n, m = te.var("n"), te.var("m")
    image, taps = te.placeholder((n, m, 3), name="image"), te.placeholder((5, 5), name="taps")
    blurred = te.compute(
        (n, m, 3), lambda y, x, c: te.sum(lambda i, j: taps[i, j] * image.at(y + i - 2, x + j - 2, c, mode="reflect"))
    )
    kept = te.build([image, taps], te.cast(te.clip(blurred, 0, 255), "uint8"), target="x86-64-v4")
    assert "in [0, 15]" in kept.loop_nest()
    assert "in [0, 63]" not in kept.loop_nest()
    short = te.build([image], te.cast(te.clip(image * 2.0, 0, 255), "uint8"), target="x86-64-v4")
    assert "in [0, 63]" in short.loop_nest()


def test_outputs_along_one_axis_that_share_what_they_read_are_one_nest() -> None:
    inputs = [te.placeholder((100_000,), name=n) for n in "pgms"]
    count = te.placeholder((), "int32", name="count")
    text = te.build([*inputs, count], list(te.ops.optim.adam_step(*inputs, count)), target="x86-64-v3").loop_nest()
    assert text.count("parallel") == 1
    apart = [inputs[0] * 2, inputs[1] * 3]  # have nothing in common
    assert te.build(inputs[:2], apart, target="x86-64-v3").loop_nest().count("parallel") == 2
