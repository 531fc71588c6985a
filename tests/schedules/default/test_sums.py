"""Sums of floats: however many terms go into however few elements, and in whichever axes they lie, few digits are lost.

Positive terms lose none to cancellation. A running sum of n terms loses some sqrt(n) units of the last place, blocks of
terms hardly more than one block does.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.arrays import floats

UNIT = 2.0**-24
LOST = 16  # units of the last place, at most: of 500 terms in a row, and of as many blocks
CASES = [
    ((1_000_000,), (0,)), ((100_000, 10), (0, 1)), ((100_000, 10), (0,)), ((10, 100_000), (1,)),
    ((1000, 10, 100), (0, 2)), ((100, 100, 100), (0, 1, 2)), ((3, 1_000_003), (0, 1)),
    ((1_000_003, 3), (0, 1)), ((2000, 512), (0,)), ((200_000, 16), (0,)), ((7,) * 7, tuple(range(7))),
    ((5, 200_000, 5), (1,)), ((1, 300_000, 2, 1), (1, 2)), ((2053, 300), (0, 1)),
]  # fmt: skip


def error(got: Any, array: np.ndarray[Any, Any], axes: tuple[int, ...]) -> float:
    """The largest relative error, in units of the last place."""
    want = array.astype("float64").sum(axes)
    return float(np.abs(got / want - 1).max() / UNIT)


@pytest.mark.parametrize(("shape", "axes"), CASES)
def test_sums_into_few_elements_keep_their_digits(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x, a = te.placeholder(shape, name="x"), np.abs(floats(*shape)) + 0.1
    assert error(te.evaluate(x.sum(axes), {x: a}), a, axes) <= LOST


def test_trees_of_lanes_are_not_written_out_for_many_blocks() -> None:
    """Each of their vectors is gathered: written out they were half of a megabyte of code."""
    x = te.placeholder((4, 64, 112, 112), name="x")
    kernel = te.build([x], x.mean((0, 2, 3)), target="x86-64-v3")
    assert len(kernel.source("llvm")) < 60_000


@pytest.mark.parametrize("shape", [(1_000_000,), (100_000, 10), (10, 100_000), (100, 100, 100)])
def test_so_do_sums_over_extents_that_are_not_known(shape: tuple[int, ...]) -> None:
    x = te.placeholder(tuple(te.var(f"n{d}") for d in range(len(shape))), name="x")
    a = np.abs(floats(*shape)) + 0.1
    axes = tuple(range(len(shape)))
    assert error(te.evaluate(x.sum(axes), {x: a}), a, axes) <= 2 * LOST


@pytest.mark.parametrize("shape", [(100_000, 10), (1_000_000,), (10, 100_000), (100, 100, 100)])
def test_the_largest_element_of_a_spelled_out_softmax_over_all_axes(shape: tuple[int, ...]) -> None:
    """Its gradient is 1 less the sum of all the others, and 1 again: all digits are lost that the sum does not have."""
    x = te.placeholder(shape, name="x")
    first, second = ([te.reduce_axis(n) for n in shape] for _ in range(2))
    top = te.compute((), lambda: te.max(x[tuple(first)], axis=first), name="top")
    total = te.compute((), lambda: te.sum(te.exp(x[tuple(second)] - top[()]), axis=second), name="total")
    result = te.compute((), lambda: te.log(total[()]) + top[()], name="result")
    (gradient,) = te.differentiate(result, [x])
    a = np.random.default_rng(0).standard_normal(shape).astype("float32")
    want = np.exp(a.astype("float64") - a.max())
    want /= want.sum()
    found = te.evaluate(gradient, {x: a})
    # The sum is 1, and right to its last place: this much of one element.
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=4 * UNIT)


def test_a_factor_without_axes_beside_a_unit_axis() -> None:
    b, s = te.placeholder((300, 256), name="b"), te.placeholder((), name="s")
    k = te.reduce_axis(300, "k")
    halves = te.compute((1, 256), lambda _, j: te.sum(0.5 * b[k, j], axis=k), name="halves")
    scaled = te.compute((256, 1), lambda j, _: te.sum(s[()] * b[k, j], axis=k), name="scaled")
    values = floats(300, 256)
    found = te.evaluate([halves, scaled], {b: values, s: np.float32(2)})
    want = values.astype("float64").sum(0)
    np.testing.assert_allclose(found[0][0], 0.5 * want, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(found[1][:, 0], 2 * want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("terms", [2053, 4099, 6000, 8192])
def test_products_whose_sum_has_no_handy_divisor(terms: int) -> None:
    a, b = te.placeholder((40, terms), name="a"), te.placeholder((terms, 48), name="b")
    own = np.random.default_rng(terms)  # the same numbers whatever runs before: some sums round worse than others
    x, y = (own.standard_normal(t.shape).astype("float32") for t in (a, b))
    want = x.astype("float64") @ y.astype("float64")
    np.testing.assert_allclose(te.evaluate(a @ b, {a: x, b: y}), want, atol=UNIT * 64 * np.sqrt(terms))


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "most"), [(300, 3000, 300, 8), (100, 5000, 800, 20), (512, 4096, 512, 1)]
)
def test_what_blocks_of_a_sum_write_is_little_beside_their_products(
    rows: int, terms: int, columns: int, most: int
) -> None:
    a, b = te.placeholder((terms, rows), name="a"), te.placeholder((terms, columns), name="b")
    nest = str(te.build([a, b], a.T @ b, target="x86-64-v3").loop_nest())
    blocks = re.search(r"_b in \[0, (\d+)\]", nest)
    assert (int(blocks[1]) + 1 if blocks else 1) <= most


def test_blocks_of_a_sum_do_not_meet_infinite_neighbours() -> None:
    """A block that reaches past the end repeats the last element, which counts for nothing."""
    a, b = te.placeholder((40, 4099), name="a"), te.placeholder((4099, 48), name="b")
    x, y = np.ones((40, 4099), "float32"), np.ones((4099, 48), "float32")
    x[3, -1] = np.inf
    want = np.full((40, 48), 4099.0)
    want[3] = np.inf
    np.testing.assert_array_equal(te.evaluate(a @ b, {a: x, b: y}), want)


@pytest.mark.parametrize("rows", [slice(1, None), slice(33, None), slice(40, 41)])
@pytest.mark.parametrize("columns", [slice(None), slice(17, None)])
@pytest.mark.parametrize("size", [96, 100])
def test_products_of_which_a_part_is_read(rows: slice, columns: slice, size: int) -> None:
    """Their tiles begin where the part begins, and the last one reaches past the end."""
    a, b = (te.placeholder((size, size), "float64", name=n) for n in "ab")
    part = (a @ b)[rows, columns] + 1.0
    x, y = np.random.default_rng(0).standard_normal((2, size, size))
    np.testing.assert_allclose(te.evaluate(part, {a: x, b: y}), (x @ y)[rows, columns] + 1.0, rtol=1e-11, atol=1e-11)


def test_products_under_a_triangle_of_the_result() -> None:
    """Halide needs the rows of the product from the first that is asked for."""
    a, b = (te.placeholder((100, 70), "float64", name=n) for n in "ab")
    low = te.compute((100, 100), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k], where=lambda k: i > j))
    x, y = np.random.default_rng(0).standard_normal((2, 100, 70))
    np.testing.assert_allclose(te.evaluate(low, {a: x, b: y}), np.tril(x @ y.T, -1), rtol=1e-11, atol=1e-11)


WIDTHS = [2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 33]


@pytest.mark.share(2)
@pytest.mark.parametrize(("width", "dtype"), [
    *zip(WIDTHS, itertools.cycle(["float32", "int64"]), strict=False),
    *zip(WIDTHS, itertools.cycle(["int32", "float64"]), strict=False),
])  # fmt: skip
def test_short_rows_are_reduced_by_vectors_as_long_as_they_are(width: int, dtype: str) -> None:
    """Over one axis, over two that lie side by side, and where the extreme is: with a NaN, too."""
    x = te.placeholder((5, 12, width), dtype, name="x")
    a = np.random.default_rng(width).integers(-9, 9, (5, 12, width)).astype(dtype)
    if dtype.startswith("float"):
        a[2, 3, width // 2] = np.nan
    results = [x.sum(2), x.sum((1, 2)), x.max(2), x.min((0, 1, 2)), x.argmax(2), x.argmin(2), x.argmax()]
    found = te.build(x, results)(a)
    want = [a.sum(2), a.sum((1, 2)), a.max(2), a.min(), a.argmax(2), a.argmin(2), a.argmax()]
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, expected)
    loops = str(te.Schedule(x.max(2)).auto())
    assert ("partial" in loops) == (width >= 8)


def test_taps_of_a_sum_share_the_factor_that_does_not_move() -> None:
    """Gradients of the weights of a depthwise layer: a vector of the head for all nine products."""
    x, head = te.placeholder((4, 31, 59, 59), name="x"), te.placeholder((4, 31, 59, 59), name="head")
    a, b, c = (te.reduce_axis(n, name) for n, name in ((4, "a"), (59, "b"), (59, "c")))
    y = te.compute(
        (31, 3, 3),
        lambda i, j, k: te.sum(head[a, i, b, c] * x.at(a, i, b + j - 1, c + k - 1, mode="zero"), axis=(a, b, c)),
    )
    lines = [line.strip() for line in str(te.Schedule(y).auto(target="x86-64-v4")).splitlines()]
    inner = lines[lines.index("for c_o < 3:") :]
    assert inner[1:3] == ["for j < 3, unrolled:", "for k < 3, unrolled:"]


AWKWARD = [3141, 70_001, 141_600, 262_147]  # terms: neither vectors nor blocks of these are whole


def _of_rows(x: te.Tensor, y: te.Tensor) -> list[te.Tensor]:
    """Reductions of awkward sizes, in several spellings."""
    (n,) = x.shape
    k = te.reduce_axis(n, "k")
    written = te.compute((), lambda: te.sum(x[k] * y[k], axis=k), name="written")
    return [x.sum(), x.mean(), (x * y).sum(), written, te.sqrt((x * x).sum()), x.max(), x.argmin(), te.sum(te.exp(x))]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("terms", AWKWARD)
def test_no_loop_over_many_terms_asks_whether_it_has_come_to_the_end(terms: int, target: str) -> None:
    """Sums whose sizes were no multiple of a block took up to three times as long, products of rows more."""
    x, y = te.placeholder((terms,), name="x"), te.placeholder((terms,), name="y")
    for result in _of_rows(x, y):
        lines = str(te.Schedule(result).auto(target=target)).splitlines()
        asked = [k for k, line in enumerate(lines) if line.lstrip().startswith("if lane")]
        assert not [line for line in lines if line.lstrip().startswith("if") and "_o *" in line]
        assert all(any("_r < 1" in line for line in lines[k - 6 : k]) for k in asked)  # vectors side by side, once


@pytest.mark.parametrize("shape", [(3, 5003), (131, 1100), (7, 33), (2, 9, 131), (70_001,)])
def test_what_rows_of_lanes_leave_over_counts_once(shape: tuple[int, ...]) -> None:
    """Its vectors begin before it: what they hold that was counted must not be counted again, not even an infinity."""
    x = te.placeholder(shape, name="x", dtype="int32")
    a = np.random.default_rng(3).integers(-(1 << 20), 1 << 20, shape, "int32")
    results = [x.sum(-1), x.max(-1), x.sum(), te.sum(x * x, axis=-1), x.argmax(-1)]
    want = [a.sum(-1), a.max(-1), a.sum(), (a * a).sum(-1), a.argmax(-1)]
    for got, expected in zip(te.build(x, results)(a), want, strict=True):
        np.testing.assert_array_equal(got, expected)
    y = te.placeholder(shape, name="y")
    for place in (0, shape[-1] // 2, shape[-1] - 9, shape[-1] - 1):
        b = np.ones(shape, "float32")
        b[..., place] = np.inf
        for got, expected in zip(te.build(y, [y.sum(-1), y.prod(-1)])(b), [b.sum(-1), b.prod(-1)], strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_function_of_the_terms_of_a_sum_is_not_stored() -> None:
    """Blocks of the sum and what these leave over compute different terms."""
    x = te.placeholder((300_001,), name="x")
    assert "exp inline" in str(te.Schedule(te.exp(x).named("exp").sum()).auto())


def test_long_steps_that_share_nothing_are_not_written_out() -> None:
    """16 steps of the gradient of a stencil, written out, took three times as long to compile and ran no faster."""
    a, b = (te.placeholder((16, 48, 48), "float64", name=name) for name in "ab")
    k = te.reduce_axis(16, name="k")
    long = te.compute((48, 48), lambda i, j: te.sum((a[k, i, j] - b[k, i, j]) * te.abs(a[k, i, j] + 1), axis=k))
    short = te.compute((48, 48), lambda i, j: te.sum(a[k, i, j], axis=k))
    for output, is_written in ((long, False), (short, True)):
        text = te.build([a, b], output, target="x86-64-v4").loop_nest()
        assert bool(re.search(r"unrolled k\S* in \[0, 15\]", text)) == is_written
