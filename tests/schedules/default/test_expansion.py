"""Reductions of a few terms are written out where they read stages, or are read by them, through windows."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default.canonical.expansion import expanded, windows_between_stages
from schedules.machine import assuming
from schedules.thresholds import LOWEST
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import stages_of

LONG = 400 if os.environ.get("TEDSL_LONG") else 5
SMALL = {**LOWEST, "cores": 2, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}
WEIGHTS = np.array([0.3, 0.7, -0.2, 1.1, 0.6], np.float32)
MODES = ("clamp", "zero", "reflect", "wrap")


def window(
    t: te.Tensor, taps: tuple[int, int], body: Callable[..., Any], kind: str = "sum", mode: str = "clamp"
) -> Any:
    """A reduction over places around each element; `body` makes a term of what is read and of the place."""
    axes = [te.reduce_axis(n, name=name) for n, name in zip(taps, "pq", strict=True)]
    p, q = axes

    def at(y: Any, x: Any) -> Any:
        read = t.at(y + p - taps[0] // 2, x + q - taps[1] // 2, mode=mode)
        return getattr(te, kind)(body(read, p, q), axis=axes)

    return te.compute(t.shape, at)


def written(t: te.Tensor, taps: tuple[int, int], mode: str = "clamp") -> Any:
    """The sum over a window, written by hand."""
    p, q = taps
    around = [(i - p // 2, j - q // 2) for i in range(p) for j in range(q)]
    return te.compute(t.shape, lambda y, x: sum((t.at(y + i, x + j, mode=mode) for i, j in around[1:]),
                                                t.at(y + around[0][0], x + around[0][1], mode=mode)))  # fmt: skip


def loops(out: te.Tensor) -> list[str]:
    """The loops of a schedule, and where stages are computed, without names."""
    printed = str(te.Schedule(out).auto()).splitlines()
    return [
        re.sub(r"\b(T|window|written)(_\d+)?\b", "T", line) for line in printed if re.match(r" *for |.*: what", line)
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("taps", [((1, 3), (3, 1)), ((5, 1), (1, 5)), ((3, 3), (3, 3))])
def test_two_spellings_of_a_window_get_the_same_loops(mode: str, taps: tuple[tuple[int, int], ...]) -> None:
    a = te.placeholder((1100, 702), name="a")
    one = two = a
    for each in taps:
        one, two = window(one, each, lambda read, p, q: read, mode=mode), written(two, each, mode)
    assert loops(one) == loops(two)
    if mode != "wrap":  # the other end of a column is no neighbor
        assert any("what T needs" in line for line in loops(one))


def test_products_of_stages_are_summed_where_they_are_used() -> None:
    """Harris corners: what is multiplied went through memory."""
    a = te.placeholder((1200, 900), name="a")
    dy = te.compute(
        (1198, 898), lambda y, x: a[y + 2, x] + 3 * a[y + 2, x + 1] + a[y + 2, x + 2] - a[y, x] * a[y, x + 1]
    )
    dx = te.compute(
        (1198, 898), lambda y, x: a[y, x + 2] + 3 * a[y + 1, x + 2] + a[y + 2, x + 2] - a[y, x] * a[y + 1, x]
    )
    p, q = te.reduce_axis(3), te.reduce_axis(3)
    xx, yy, xy = (
        te.compute((1196, 896), lambda y, x, f=f, g=g: te.sum(f[y + p, x + q] * g[y + p, x + q], axis=(p, q)))
        for f, g in ((dx, dx), (dy, dy), (dx, dy))
    )
    out = te.compute((1196, 896), lambda y, x: xx[y, x] * yy[y, x] - xy[y, x] ** 2 - 0.04 * (xx[y, x] + yy[y, x]) ** 2)
    printed = str(te.Schedule(out).auto())
    assert printed.count("parallel") == 1
    assert printed.count("stored at") == 2
    assert "another order" not in printed


@pytest.mark.parametrize("factor", [1, 3, -3])
def test_places_of_terms_are_numbers(factor: int) -> None:
    """3 * 3 stood beside 6 and 12: it has as many nodes as 9 where the 3 is another part of the read, too."""
    x = te.placeholder((20, 60), name="x")
    stage = te.compute((20, 60), lambda y, i: te.sin(x[y, i]), name="f")
    out = te.compute(
        (10, 20), lambda y, i: te.sum(lambda k: stage[y + 3, i + 20 + factor * k] * (k * 3), axis=5), name="out"
    )
    line = next(
        line for line in str(te.Schedule(out).auto(loops=False)).splitlines() if line.lstrip().startswith("out[")
    )
    assert all(f"f[y + 3, i + {20 + factor * k}]" in line for k in range(5))
    assert all(f"cast({3 * k}, 'float32')" in line for k in range(5))


def test_one_window_of_arrays_keeps_its_loops() -> None:
    a = te.placeholder((300, 200), name="a")
    one = window(a, (3, 3), lambda read, p, q: read)
    assert not windows_between_stages([one.op])
    last = te.compute(one.shape, lambda y, x: te.sqrt(one[y, x]))
    assert not windows_between_stages([one.op, last.op])
    assert windows_between_stages([one.op, window(one, (3, 1), lambda read, p, q: read).op])


def test_windows_in_what_a_window_reads_are_written_out_too() -> None:
    """The first of a chain of means was summed in loops of its own, and went to memory and back."""
    a = te.placeholder((300, 200), name="a")
    first = window(a, (3, 3), lambda read, p, q: read)
    mean = te.compute(first.shape, lambda y, x: first[y, x] * (1 / 9))
    second = window(mean, (3, 3), lambda read, p, q: read)
    assert windows_between_stages([first.op, mean.op, second.op]) == {first.op, second.op}


@pytest.mark.parametrize(("taps", "written"), [((3, 3), True), ((5, 5), False)])
def test_terms_of_much_code_stay_in_their_loops(taps: tuple[int, int], written: bool) -> None:
    """25 exponentials, as a bilateral filter sums them, were written out, and again at each border of its gradient."""
    a = te.placeholder((60, 90), name="a")
    near = window(a, taps, lambda read, p, q: te.exp(read * read - 1))
    again = window(near, (3, 3), lambda read, p, q: read)
    assert (expanded(near.op) is not None) == written
    assert (near.op in windows_between_stages([near.op, again.op])) == written


@pytest.mark.parametrize(("step", "windows"), [(1, True), (2, True), (3, False), (4, False)])
def test_windows_that_share_nothing_are_computed_in_their_loops(step: int, windows: bool) -> None:
    x = te.placeholder((64, 64), name="x")
    waves = te.compute((64, 64), lambda i, j: te.exp(te.sin(x[i, j])) * te.cos(x[i, j]), name="waves")
    k = te.reduce_axis(3, name="k")
    pool = te.compute((15, 64), lambda i, j: te.sum(waves[step * i + k, j], axis=k), name="pool")
    assert (pool.op in windows_between_stages([waves.op, pool.op])) == windows


def test_what_is_no_window_stays_a_reduction() -> None:
    a, w, data = te.placeholder((60, 90)), te.placeholder((40, 3)), te.placeholder((3,), "int32")
    k, far = te.reduce_axis(3), te.reduce_axis(64)
    for body in (
        lambda i, j: te.sum(a[i, k] * w[j, k], axis=k),  # a product: each factor serves a whole axis
        lambda i, j: te.sum(a[i, j + data[k]], axis=k),
        lambda i, j: te.argmax(a[i, j + k], axis=k, where=data[k] > 0),
        lambda i, j: te.sum(a.at(i, j + far, mode="clamp"), axis=far),
    ):
        assert expanded(te.compute((20, 20), body).op) is None


def corners(table: te.Tensor, at: te.Tensor) -> te.Tensor:
    """A table of colors, looked up between its entries by a sum over the corners of a cell."""
    ends = [n - 2 for n in table.shape[:-1]]

    def value(i: Any, j: Any, c: Any) -> Any:
        places = [te.clip(at[i, j, d], 0, 1) * (n + 1) for d, n in enumerate(ends)]
        lows = [te.minimum(te.floor(p), n) for p, n in zip(places, ends, strict=True)]
        axes = [te.reduce_axis(2) for _ in ends]
        weights = [te.select(a == 1, p - low, 1 - (p - low)) for a, p, low in zip(axes, places, lows, strict=True)]
        read = table[(*(te.cast(low, "int32") + a for low, a in zip(lows, axes, strict=True)), c)]
        return te.sum(math.prod(weights[1:], start=weights[0]) * read, axis=axes)

    return te.compute((*at.shape[:-1], table.shape[-1]), value, name="colors")


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_corners_of_a_cell_are_written_out(dims: int) -> None:
    """What all corners share was computed for each of them, and in gradients for each channel of each."""
    table, at = te.placeholder((5,) * dims + (3,), name="table"), te.placeholder((20, 30, dims), name="at")
    colors = corners(table, at)
    assert windows_between_stages([colors.op]) == {colors.op}
    (gradient,) = te.differentiate((colors * colors).sum(), [at])
    sums = {op for op in stages_of([gradient]) if isinstance(op, Compute) and op.reduction is not None}
    assert windows_between_stages(list(stages_of([gradient]))) == sums
    draw = np.random.default_rng(0)
    arrays = [draw.random(t.shape, "float32") for t in (table, at)]
    made = te.build([table, at], [colors, gradient])(*arrays)
    wanted = te.interpret([colors, gradient], dict(zip([table, at], arrays, strict=True)))
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@settings(max_examples=LONG, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_bits_are_those_of_the_reduction(data: st.DataObject) -> None:
    """Fused where products are summed, from the identity on, guarded terms left out."""
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16", "bfloat16", "uint8", "int16", "int32"]))
    is_float = "float" in dtype
    shape = data.draw(st.integers(5, 30)), data.draw(st.integers(5, 70))
    a, w = te.placeholder(shape, dtype, name="a"), te.placeholder((5,), dtype, name="w")
    t: Any = a
    for _ in range(data.draw(st.integers(2, 3))):
        taps = data.draw(st.sampled_from([(1, 3), (3, 1), (3, 3), (1, 5), (5, 1), (2, 2)]))
        kind = data.draw(st.sampled_from(["sum", "sum", "sum", "max", "min", "prod" if is_float else "sum"]))
        bodies = [lambda r, p, q: r, lambda r, p, q: -(r * w[q]), lambda r, p, q: r * r, lambda r, p, q: w[p] * r]
        bodies.append(lambda r, p, q: te.select(p + q < 2, r * w[q], te.cast(0, dtype)))
        t = window(t, taps, data.draw(st.sampled_from(bodies)), kind, data.draw(st.sampled_from(MODES)))
    rng = np.random.default_rng(len(str(shape)))
    made = [rng.standard_normal(shape) * 0.7, rng.standard_normal(5)] if is_float else [
        rng.integers(0, 99, shape), rng.integers(0, 9, 5)]  # fmt: skip
    values = [te.interpret(te.compute(v.shape, lambda *i, x=x: te.cast(x[i], dtype)), {x: v})
              for v in made for x in [te.placeholder(v.shape, v.dtype.name)]]  # fmt: skip
    plain = te.build([a, w], t, schedule=te.Schedule(t))(*values)
    with assuming(SMALL):
        found = te.build([a, w], t)(*values)
    assert found.tobytes() == plain.tobytes()


def test_a_window_may_be_written_over_its_input() -> None:
    a = te.placeholder((90, 75), name="a")
    b = window(window(a, (1, 3), lambda read, p, q: read), (3, 1), lambda read, p, q: read)
    values = np.random.default_rng(0).random((90, 75), dtype=np.float32)
    expected = te.build(a, b)(values)
    with assuming(SMALL):
        kernel = te.build(a, b, alias={b: a})
        np.testing.assert_array_equal(kernel(values.copy()), expected)
        out = values.copy()
        np.testing.assert_array_equal(te.build(a, b)(out, out=out), expected)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_positions_are_those_of_the_first_of_the_best(kind: str, dtype: str) -> None:
    a = te.placeholder((40, 50), dtype, name="a")
    position = window(a, (3, 3), lambda read, p, q: read, kind)
    around = window(te.compute(a.shape, lambda y, x: position[y, x]), (3, 1), lambda read, p, q: read)
    assert expanded(position.op) is not None
    values = np.random.default_rng(1).integers(-2, 3, (40, 50)).astype(dtype)
    if dtype == "float32":
        values[np.random.default_rng(2).random((40, 50)) < 0.1] = np.nan
    outputs = [position, around]
    for got, expected in zip(te.build(a, outputs)(values), te.interpret(outputs, {a: values}), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_what_comes_before_a_guarded_term_is_written_once() -> None:
    """A choice between a sum with a term and without it has the sum twice: 28 terms were compiled for six minutes."""
    x, h = te.placeholder((4, 9), name="x"), te.placeholder((4, 9), name="h")
    k, j = te.reduce_axis(4, name="k"), te.reduce_axis(8, name="j")

    def total(term: Callable[..., Any]) -> te.Tensor:
        return te.compute((8,), lambda i: te.sum(term(i), axis=(k, j), where=j >= i), name="total")

    def length(node: Any) -> int:
        return 1 + sum(map(length, node.children))

    plain = total(lambda i: te.select(x[k, i] > 0, h[k, j], 0.0))
    body = expanded(plain.op)
    assert body is not None
    assert length(body) < 32 * 20
    product = total(lambda i: x[k, i] * h[k, j])
    assert not windows_between_stages([product.op, te.compute((7,), lambda i: product[i] + product[i + 1]).op])


def differences(disparities: int, size: tuple[int, int], taps: int) -> tuple[list[te.Tensor], te.Tensor]:
    """Sums over windows of the differences of two images, one of them moved."""
    one, two = (te.placeholder(size, "uint8", name=name) for name in ("one", "two"))

    def difference(d: Any, y: Any, x: Any) -> Any:
        p, q = one[y, x], two.at(y, x - d, mode="clamp")
        return te.cast(te.maximum(p, q) - te.minimum(p, q), "uint16")

    apart = te.compute((disparities, *size), difference, name="apart")
    p, q = te.reduce_axis(taps, name="p"), te.reduce_axis(taps, name="q")

    def total(d: Any, y: Any, x: Any) -> Any:
        return te.sum(apart.at(d, y + p - taps // 2, x + q - taps // 2, mode="clamp"), axis=(p, q))

    return [one, two], te.compute(apart.shape, total, name="total")


@pytest.mark.parametrize("taps", [3, 7, 11])
@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
def test_windows_over_differences_of_moved_images(taps: int, target: str) -> None:
    inputs, total = differences(4, (40, 90), taps)
    feeds = [np.random.default_rng(k).integers(0, 256, (40, 90)).astype("uint8") for k in range(2)]
    expected = te.interpret(total, dict(zip(inputs, feeds, strict=True)))
    np.testing.assert_array_equal(te.build(inputs, total, target=target)(*feeds), expected)


@pytest.mark.parametrize("taps", [3, 7])
def test_windows_over_cheap_stages_are_written_out_and_these_are_kept(taps: int) -> None:
    """49 differences of bytes, of which one is moved, took 815 ms and 12 s to compile; written out by hand 9 ms."""
    _, total = differences(32, (384, 640), taps)
    text = str(te.Schedule(total).auto())
    assert "for p" not in text
    assert "apart: what total needs here" in text


def test_larger_windows_are_loops_over_what_is_kept() -> None:
    _, total = differences(32, (384, 640), 11)
    text = str(te.Schedule(total).auto())
    assert "for p < 11" in text
    assert "apart inline" not in text


def test_steps_that_find_a_position_are_not_written_out() -> None:
    """128 of them, of four vectors side by side, took 6 s to compile and were no faster."""
    a = te.placeholder((32, 384, 640), "uint16", name="a")
    k = te.reduce_axis(32, name="k")
    text = str(te.Schedule(te.compute((384, 640), lambda y, x: te.argmin(a[k, y, x], axis=k))).auto())
    assert "for k < 32:" in text


@pytest.mark.parametrize("nested", [False, True])
def test_data_is_asked_for_where_an_earlier_condition_of_the_term_holds(nested: bool) -> None:
    """Joined with `i >= k`, the comparison read before the beginning, and the build was refused."""
    x, w = te.placeholder((9,), "float64", name="x"), te.placeholder((2,), "float64", name="w")

    def term(i: Any, k: Any) -> Any:
        made = te.select(x[i - k] > 0, w[k] * x[i - k], 0.0)
        return te.select(i >= k, made, 0.0) if nested else made

    where = (lambda i: None) if nested else (lambda i: lambda k: i >= k)
    y = te.compute((9,), lambda i: te.sum(lambda k: term(i, k), where=where(i)), name="y")
    outputs = [y, *te.differentiate((y * y).sum(), [x, w])]
    feeds = [np.random.default_rng(k).standard_normal(n) for k, n in enumerate((9, 2))]
    with assuming(LOWEST):
        found = te.build([x, w], outputs)(*feeds)
    for got, want in zip(found, te.interpret(outputs, {x: feeds[0], w: feeds[1]}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 5), (2, 13), (7, 7)])
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
def test_one_number_made_of_a_whole_array_is_no_window(kind: str, shape: tuple[int, int]) -> None:
    """Written out, a chain of extremes at constant places doubled Halide's time at each link: minutes of 25."""
    weights = te.placeholder(shape, "float64", name="weights")
    row = weights.reshape(math.prod(shape))
    one = getattr(row, kind)().named("one")
    out = te.exp(row - one).reshape(*shape)
    assert expanded(one.op) is None
    assert "[24]" not in str(te.Schedule(out).auto(target="x86-64-v3"))  # no term for each element
    values = np.random.default_rng(0).standard_normal(shape)
    got = te.build([weights], [out, *te.differentiate((out * values).sum(), [weights])])(values)
    want = te.interpret([out, *te.differentiate((out * values).sum(), [weights])], {"weights": values})
    for found, wanted in zip(got, want, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
