"""Sums of a few terms that many elements are made of: where they are summed, along which loop their vectors lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(5)


def checked(inputs: list[te.Tensor], out: te.Tensor, level: str) -> None:
    feeds = {t: CHANCE.integers(-4, 5, [int(n) for n in t.shape]).astype(str(t.dtype)) for t in inputs}
    found = te.build(inputs, out, target=level)(*feeds.values())
    np.testing.assert_array_equal(found, te.interpret(out, feeds))


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_a_window_that_a_product_reads_is_summed_where_it_is_stored(level: str) -> None:
    """Zeros are not written in loops of their own, and pixels of a few channels are no tasks of their own."""
    a, f = te.placeholder((2, 33, 70, 32), name="a"), te.placeholder((3, 3, 32, 1), name="f")
    p = te.placeholder((32, 16), name="p")

    def near(n: Any, y: Any, x: Any, d: Any) -> Any:
        return te.sum(lambda j, i: f[j, i, d, 0] * a.at(n, y + j - 1, x + i - 1, d, mode="zero"))

    deep = te.compute((2, 33, 70, 32), near, name="deep")
    out = te.compute((2, 33, 70, 16), lambda n, y, x, c: te.sum(lambda d: p[d, c] * deep[n, y, x, d]), name="out")
    text = str(te.Schedule(out).auto(target="x86-64-v3"))
    assert "deep_window: what deep needs here" in text
    assert "deep: what out needs here" in text  # of a few rows, by whoever multiplies them
    checked([a, f, p], out, level)


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_a_short_sum_along_memory_has_vectors_across(level: str) -> None:
    """The weights of a resampling lie along its taps."""
    a, w = te.placeholder((200, 300), name="a"), te.placeholder((600, 4), name="w")
    wide = te.compute((200, 600), lambda y, x: te.sum(lambda k: w[x, k] * a[y, te.clip(x // 2 - 1 + k, 0, 299)]))
    out = te.compute((100, 600), lambda y, x: te.sum(lambda k: wide[2 * y + k, x], axis=te.reduce_axis(2)), name="out")
    text = str(te.Schedule(wide).auto(target="x86-64-v3"))
    assert "x_v < 8, vectorized" in text
    checked([a, w], out, level)


def test_what_all_results_of_a_stage_are_made_of_is_stored_once() -> None:
    a, head = te.placeholder((90, 800), "float64", name="a"), te.placeholder((88, 798), "float64", name="head")
    slope = te.compute((88, 798), lambda y, x: (a[y + 2, x] - a[y, x] + 2 * (a[y + 1, x + 2] - a[y, x + 1])) / 12)
    out = te.compute((88, 798), lambda y, x: slope[y, x] * slope[y, x] * slope[y, x], name="out")
    gradient = te.differentiate(out, a, head=head)
    assert "_shared[" in str(te.Schedule(gradient).auto())
    feeds = {t: CHANCE.standard_normal([int(n) for n in t.shape]) for t in (a, head)}
    found = te.build([a, head], gradient)(*feeds.values())
    np.testing.assert_allclose(found, te.interpret(gradient, feeds), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cut", [np.s_[:], np.s_[::2], np.s_[:, ::2], np.s_[:, :, ::2], np.s_[:, :, 10:40, 3:4]])
def test_arrays_whose_last_axis_has_one_element(cut: Any) -> None:
    """The axis before it is the one along which vectors are read: unless something lies between its elements."""
    values = CHANCE.integers(-9, 9, (6, 8, 60, 7 if cut != np.s_[:] else 1)).astype("float32")[cut]
    values = values if values.shape[-1] == 1 else values[..., 2:3]
    a = te.placeholder(values.shape, name="a")
    out = te.compute(values.shape[:3], lambda i, j, k: a[i, j, k, 0] * 2.0 + i)
    np.testing.assert_array_equal(te.build(a, out)(values), te.interpret(out, {a: values}))
    twice = te.compute(values.shape, lambda i, j, k, u: a[i, j, k, u] * 2.0)
    place = np.empty((*values.shape[:3], 3), "float32")[..., 1:2]
    te.build(a, twice)(values, out=place)
    np.testing.assert_array_equal(place, values * 2)


@pytest.mark.parametrize("level", LEVELS_HERE)
def test_vectors_lie_along_the_last_axis_of_several_elements(level: str) -> None:
    """The gradient of a depthwise filter: each channel has sums of its own."""
    a, head = te.placeholder((3, 20, 30, 16), name="a"), te.placeholder((3, 18, 28, 16), name="head")
    near = lambda i, j, d, u: te.sum(lambda n, y, x: head[n, y, x, d] * a[n, y + i, x + j, d])  # noqa: E731
    out = te.compute((3, 3, 16, 1), near, name="out")
    assert "for d_v < 8, vectorized" in str(te.Schedule(out).auto(target="x86-64-v3"))
    checked([a, head], out, level)


@pytest.mark.parametrize("batch", [1, 2])
def test_means_of_windows_of_one_image_are_made_row_by_row_as_those_of_several(batch: int) -> None:
    """The sums were written to memory and read again where the first axis has one element."""
    x = te.placeholder((batch, 5, 41, 50), name="x")
    u, v = te.reduce_axis(3), te.reduce_axis(3)
    sums = te.compute((batch, 5, 20, 24), lambda b, c, i, j: te.sum(x[b, c, i * 2 + u, j * 2 + v], [u, v]), name="sums")
    mean = te.compute((batch, 5, 20, 24), lambda b, c, i, j: sums[b, c, i, j] / 9.0, name="mean")
    assert "what mean needs here" in str(te.Schedule(mean).auto(target="x86-64-v4"))
    a = np.random.default_rng(0).random(x.shape, "float32")
    np.testing.assert_allclose(te.build([x], mean)(a), te.interpret(mean, {x: a}), rtol=1e-6)


def test_two_long_windows_over_a_computed_image_are_scheduled() -> None:
    """Rows of windows that cost too much to be computed for each of their readers stay in memory."""
    image, weights = te.placeholder((480, 640), name="image"), te.placeholder((13,), name="weights")
    near = image / 255
    rows = te.compute((480, 640), lambda i, j: te.sum(lambda p: near.at(i + p - 6, j, mode="clamp") * weights[p]))
    blur = te.compute((480, 640), lambda i, j: te.sum(lambda q: rows.at(i, j + q - 6, mode="clamp") * weights[q]))
    assert "rows" in str(te.Schedule(blur).auto(target="x86-64-v3"))
    feeds = {image: CHANCE.integers(0, 255, (480, 640)).astype("f4"), weights: CHANCE.random(13).astype("f4")}
    np.testing.assert_allclose(te.evaluate(blur, feeds), te.interpret(blur, feeds), rtol=1e-5)
