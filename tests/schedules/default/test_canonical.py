"""Sums of products however they are spelled: taken apart into those that the patterns know, with the same result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tedsl as te
from schedules.default import LOWEST, assuming
from schedules.default.canonical.parts import parts_of
from schedules.thresholds import Thresholds
from tests.levels import PROCESSORS, processor

RANDOM = np.random.default_rng(3)
CHEAP = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
SMALL_CACHES = {"cores": 4, "l1": 2 << 10, "l2": 8 << 10, "l3": 32 << 10}
WORTH = Thresholds(product=64, product_lanes=1)


def whole(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.integers(-2, 3, shape).astype("f4")


def placeholders(*shapes: tuple[int, ...]) -> list[te.Tensor]:
    return [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]


def check(inputs: list[te.Tensor], output: te.Tensor, level: str = "") -> None:
    """Result and gradients, compiled with every pattern, are those of the reference."""
    head = te.placeholder(output.shape, name="head")
    gradients = list(te.differentiate(output, inputs, head=head))
    feeds = {t: whole(*map(int, t.shape)) for t in (*inputs, head)}
    with assuming({**LOWEST, **SMALL_CACHES}), processor(level):
        found = te.evaluate([output, *gradients], feeds)
    for got, want in zip(found, te.interpret([output, *gradients], feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def stages(output: te.Tensor) -> list[str]:
    """What a definition is taken apart into, one pass deep."""
    found = parts_of(output.op, WORTH)  # type: ignore[arg-type]
    return [] if found is None else [str(op.bodies[0]) for op in found.stages] + [str(found.body)]


def test_differences_of_products() -> None:
    a, b, c, d = placeholders(*[(9, 9)] * 4)
    k = te.reduce_axis(9, name="k")
    y = te.compute((9, 9), lambda i, j: te.sum(a[i, k] * b[k, j] - c[i, k] * d[k, j], axis=k), name="y")
    assert stages(y) == [
        "te.sum(x0[i, k] * x1[k, j], axis=k)",
        "te.sum(x2[i, k] * x3[k, j], axis=k)",
        "y_term0[i, j] - y_term1[i, j]",
    ]
    check([a, b, c, d], y)


@CHEAP
@given(PROCESSORS)
def test_complex_products_in_pairs(level: str) -> None:
    a, b = placeholders((9, 10, 2), (10, 11, 2))

    def element(i: Any, j: Any, c: Any) -> Any:
        def one(k: Any) -> Any:
            real = a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1]
            return te.select(c == 0, real, a[i, k, 0] * b[k, j, 1] + a[i, k, 1] * b[k, j, 0])

        return te.sum(one)

    y = te.compute((9, 11, 2), element, name="y")
    assert stages(y) == [
        "te.sum(x0[i, k, 0] * x1[k, j, 0] - x0[i, k, 1] * x1[k, j, 1], axis=k)",
        "te.sum(x0[i, k, 0] * x1[k, j, 1] + x0[i, k, 1] * x1[k, j, 0], axis=k)",
        "te.select(c == 0, y_case0[i, j], y_case1[i, j])",
    ]
    check([a, b], y, level)


@pytest.mark.parametrize("asked", ["result", "sum"])
def test_a_sum_for_each_place_along_a_short_axis(asked: str) -> None:
    """One factor, another one, none: `select` on an axis of the result or on a loop of the sum."""
    a, b, d = placeholders((9, 8, 3), (8, 9), (8, 9))

    def chosen(c: Any, i: Any, j: Any, k: Any) -> Any:
        return te.select(c == 1, a[i, k, c] * b[k, j], te.select(c == 2, d[k, i] * b[k, j], 0.0))

    if asked == "result":
        y = te.compute((9, 9, 3), lambda i, j, c: te.sum(lambda k: chosen(c, i, j, k)), name="y")
    else:
        c, k = te.reduce_axis(3, name="c"), te.reduce_axis(8, name="k")
        y = te.compute((9, 9), lambda i, j: te.sum(chosen(c, i, j, k), axis=[k, c], where=c != 0), name="y")
    assert "y_case2[i, j]" in stages(y)[-1]
    check([a, b, d], y)


@pytest.mark.parametrize(("length", "size", "hop"), [(61, 17, 6), (63, 20, 7), (57, 6, 6)])
def test_frames_that_overlap_by_a_table(length: int, size: int, hop: int) -> None:
    """The spectrogram's gradient: three factors, and a hop that the length is no multiple of."""
    x, window, table = placeholders((length,), (size,), (9, size))
    frames = (length - size) // hop + 1
    y = te.compute((frames, 9), lambda f, k: te.sum(lambda i: x[f * hop + i] * window[i] * table[k, i]), name="y")
    gradient = te.differentiate(y, x, head=te.placeholder(y.shape, name="head"))
    assert any("[i_q" in text and "i_r" in text for text in stages(gradient))
    check([x, window, table], y)


def test_few_channels_of_a_transposed_convolution_are_split() -> None:
    """Their weights would be a table for each pixel."""
    x, w = te.placeholder((2, 10, 438), name="x"), te.placeholder((10, 5, 4), name="w")
    y = te.compute(
        (2, 5, 878),
        lambda b, f, i: te.sum(
            lambda k, t: x.at(b, k, i // 2 - t, mode="zero") * w[k, f, i % 2 + t * 2],
            [te.reduce_axis(10), te.reduce_axis(2)],
        ),
    )
    assert any("i_q" in text for text in stages(y))


@pytest.mark.parametrize(("channels", "filters", "step"), [(8, 17, 2), (16, 24, 2), (4, 17, 3)])
def test_a_window_that_moves_along_pixels_is_no_group_of_channels(channels: int, filters: int, step: int) -> None:
    """Of few terms, too, which one picture alone made loops without vectors side by side."""
    x, w = placeholders((1, channels, 7, 7), (channels, filters, 2 * step, 2 * step))
    loops = [te.reduce_axis(n) for n in (channels, 2, 2)]

    def element(b: Any, f: Any, i: Any, j: Any) -> Any:
        k, p, q = loops
        read = x.at(b, k, i // step - p, j // step - q, mode="zero")
        return te.sum(read * w[k, f, i % step + p * step, j % step + q * step], axis=loops)

    y = te.compute((1, filters, 8 * step, 8 * step), element, name="y")
    assert any("i_q - " in text and "//" not in text for text in stages(y))
    check([x, w], y)


def test_elements_that_nobody_asks_for_are_not_read_outside() -> None:
    """Whole and rest together are 56 elements here, for which `x` has no room."""
    x, w = placeholders((54, 9), (8, 9, 9))
    y = te.compute((54, 9), lambda i, j: te.sum(lambda k: x[i, k] * w[i % 8, k, j]), name="y")
    check([x, w], y)


def test_a_factor_without_a_loop_of_the_sum_stays_outside() -> None:
    a, b, s = placeholders((9, 10), (10, 11), (11,))
    k = te.reduce_axis(10, name="k")
    y = te.compute((9, 11), lambda i, j: te.sum(a[i, k] * s[j] * b[k, j], axis=k), name="y")
    assert stages(y) == ["te.sum(x0[i, k] * x1[k, j], axis=k)", "y_inner[i, j] * x2[j]"]
    check([a, b, s], y)


def test_factors_are_summed_in_the_cheapest_order() -> None:
    a, b, c = placeholders((5, 20), (20, 20), (20, 6))
    k, m = te.reduce_axis(20, name="k"), te.reduce_axis(20, name="m")
    y = te.compute((5, 6), lambda i, j: te.sum(a[i, k] * b[k, m] * c[m, j], axis=(k, m)), name="y")
    assert stages(y) == [
        "te.sum(x0[i, k] * x1[k, m], axis=k)",
        "te.sum(x2[m, j] * y_inner[i, m], axis=m)",
        "y_outer[i, j]",
    ]
    check([a, b, c], y)


def test_a_product_within_a_sum_of_three_factors_is_a_stage_though_that_is_no_less_work() -> None:
    a, b, c = placeholders((9, 10), (11, 10), (10,))
    y = te.compute((9, 11), lambda i, j: te.sum(lambda k: a[i, k] * b[j, k] * c[k]), name="y")
    h = te.placeholder((9, 11), name="h")
    (gradient,) = te.differentiate(y, [c], head=h)
    first, second, body = stages(gradient)
    assert first == "te.sum(h[i, j] * x1[j, i_1], axis=j)"
    assert "x0[" in second
    assert "dx2_inner[" in second
    assert body == "dx2_outer[i]"
    check([a, b, c], y)


def test_groups() -> None:
    x, w = placeholders((2, 6, 9), (12, 2, 3))
    c, p = te.reduce_axis(2, name="c"), te.reduce_axis(3, name="p")
    y = te.compute((2, 12, 7), lambda b, o, i: te.sum(x[b, o // 4 * 2 + c, i + p] * w[o, c, p], axis=(c, p)), name="y")
    assert stages(y) == [
        "te.sum(x0[b, o_q * 2 + c, i + p] * x1[o_q * 4 + o_r, c, p], axis=(c, p))",
        "y_split[b, o // 4, o % 4, i]",
    ]
    check([x, w], y)


@pytest.mark.parametrize(("size", "groups"), [(3, 16), (8, 5), (16, 2)])
def test_groups_whose_channels_lie_last_share_vectors(size: int, groups: int) -> None:
    """Cut into groups and their channels, a vector held the channels of one group, or pixels that lie apart."""
    x, w = placeholders((2, 9, size * groups), (size * groups, size))
    y = te.compute((2, 9, size * groups), lambda b, i, o: te.sum(lambda c: x[b, i, o // size * size + c] * w[o, c]))
    assert not any("_q" in text for text in stages(y))
    check([x, w], y)


def test_weights_that_the_gradient_of_groups_looks_up_are_a_table() -> None:
    x, w = placeholders((2, 9, 48), (48, 3))
    y = te.compute((2, 9, 48), lambda b, i, o: te.sum(lambda c: x[b, i, o // 3 * 3 + c] * w[o, c]), name="y")
    dx = te.differentiate(y, x, head=te.placeholder(y.shape, name="head"))
    text = str(te.Schedule(dx).auto(target="x86-64-v4"))
    assert "dx0_x1[o, k] = x1[k // 3 * 3 + o, k % 3]" in text
    assert "* dx0_x1[o, k]" in text
    check([x, w], y)


def test_what_a_condition_keeps_in_bounds_is_no_table() -> None:
    x, w = placeholders((90, 48), (47, 3))
    c = te.reduce_axis(3, "c")

    def element(i: Any, o: Any) -> Any:
        row = o // 3 * 3 + c
        return te.sum(x[i, o] * w[row, o % 3], axis=c, where=row < 47)

    y = te.compute((90, 48), element, name="y")
    check([x, w], y)


def test_groups_that_fill_no_vectors_are_products_of_rows_where_they_lie() -> None:
    x, w = placeholders((2, 40, 50), (100, 5))
    y = te.compute((2, 40, 100), lambda b, i, o: te.sum(lambda c: x[b, i, o // 10 * 5 + c] * w[o, c]), name="y")
    text = str(te.Schedule(y).auto(target="x86-64-v4"))
    assert "= x1[" in text.split("y_split_columns[")[1].splitlines()[0]  # the weights are turned, not the pixels
    assert "y_split_rows" not in text
    check([x, w], y)


@pytest.mark.parametrize("spelling", ["where", "gather"])
def test_transposed_convolutions_have_a_sum_for_each_phase(spelling: str) -> None:
    x, w = placeholders((2, 3, 6), (3, 5, 4))
    c, p, a = te.reduce_axis(3, name="c"), te.reduce_axis(4, name="p"), te.reduce_axis(2, name="a")

    def by_condition(b: Any, o: Any, i: Any) -> Any:
        value = x.at(b, c, (i + 1 - p) // 2, mode="zero") * w[c, o, p]
        return te.sum(value, axis=(c, p), where=(i + 1 - p) % 2 == 0)

    def by_taps(b: Any, o: Any, i: Any) -> Any:
        return te.sum(x.at(b, c, (i + 1) // 2 - a, mode="zero") * w[c, o, (i + 1) % 2 + 2 * a], axis=(c, a))

    y = te.compute((2, 5, 12), by_condition if spelling == "where" else by_taps, name="y")
    first, second, element = stages(y)
    assert "//" not in first + second
    assert "%" not in first + second
    assert element == "te.select(i % 2 == 0, y_phase0[b, o, i // 2], y_phase1[b, o, i // 2])"
    check([x, w], y)


def test_a_phase_that_stays_under_a_quotient_leaves_the_sum_as_it_is() -> None:
    x, w = placeholders((30,), (5, 9))
    p = te.reduce_axis(9, name="p")
    assert stages(te.compute((5, 12), lambda o, i: te.sum(x[(i + p) // 2] * w[o, p], axis=p), name="y")) == []


@CHEAP
@given(data=st.data())
def test_transposed_convolutions_of_any_stride(data: st.DataObject) -> None:
    draw = data.draw
    stride, taps, size = draw(st.integers(2, 4)), draw(st.integers(1, 5)), draw(st.integers(2, 6))
    shift, channels = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    x, w = placeholders((2, channels, size), (channels, 4, taps))
    c, p = te.reduce_axis(channels, name="c"), te.reduce_axis(taps, name="p")
    y = te.compute(
        (2, 4, size * stride + draw(st.integers(0, 2))),
        lambda b, o, i: te.sum(
            x.at(b, c, (i + shift - p) // stride, mode="zero") * w[c, o, p],
            axis=(c, p), where=(i + shift - p) % stride == 0,
        ),
        name="y",
    )  # fmt: skip
    check([x, w], y, draw(PROCESSORS))


@CHEAP
@given(data=st.data())
def test_groups_and_shuffles_of_any_size(data: st.DataObject) -> None:
    draw = data.draw
    groups, each, inner, side = (draw(st.integers(1, 4)) for _ in range(4))
    x, w = placeholders((2, groups * inner, 7), (groups * each, inner, 2))
    c, p = te.reduce_axis(inner, name="c"), te.reduce_axis(2, name="p")
    y = te.compute(
        (2, groups * each, 6 * side),
        lambda b, o, i: te.sum(x[b, o // each * inner + c, i // side + p] * w[o, c, (p + i % side) % 2], axis=(c, p)),
        name="y",
    )
    check([x, w], y, draw(PROCESSORS))


@CHEAP
@given(data=st.data())
def test_products_of_several_factors(data: st.DataObject) -> None:
    """Drawn einsums of two to four tensors, one of them perhaps a number, plus or minus another."""
    draw = data.draw
    names = "ijkmn"
    sizes = {name: draw(st.integers(1, 6)) for name in names}
    axes = {name: te.reduce_axis(sizes[name], name=name) for name in "kmn"}
    letters = draw(
        st.lists(st.text(names, max_size=3).map(lambda s: "".join(dict.fromkeys(s))), min_size=2, max_size=4)
    )
    inputs = placeholders(*[tuple(sizes[n] for n in word) for word in letters])

    def body(i: Any, j: Any) -> Any:
        known = {**axes, "i": i, "j": j}
        read = [t[tuple(known[n] for n in word)] for t, word in zip(inputs, letters, strict=True)]
        product = read[0] * read[1] * read[2] if len(read) > 2 else read[0] * read[1]
        return te.sum(product - read[3] * read[0] if len(read) > 3 else product, axis=tuple(axes.values()))

    check(inputs, te.compute((sizes["i"], sizes["j"]), body, name="y"), draw(PROCESSORS))


def test_a_condition_without_a_loop_of_the_sum_is_asked_once() -> None:
    a, b = placeholders((9, 10), (10, 9))
    k = te.reduce_axis(10, name="k")
    y = te.compute((9, 9), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, where=(i + j) % 3 > 0), name="y")
    assert stages(y) == ["te.sum(x0[i, k] * x1[k, j], axis=k)", "te.select((i + j) % 3 > 0, y_whole[i, j], 0.0)"]
    check([a, b], y)


def test_a_triangle_of_the_result_stays_with_the_sum() -> None:
    a, b = placeholders((9, 10), (10, 9))
    k = te.reduce_axis(10, name="k")
    y = te.compute((9, 9), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, where=i >= j), name="y")
    assert stages(y) == []
    check([a, b], y)


def test_a_condition_that_guards_a_read_stays() -> None:
    a, b = placeholders((9, 10), (10, 9))
    k = te.reduce_axis(10, name="k")
    y = te.compute((9, 9), lambda i, j: te.sum(a[i - 1, k] * b[k, j], axis=k, where=i > 0), name="y")
    assert stages(y) == []
    check([a, b], y)


def test_a_loop_that_one_of_two_factors_has_is_summed_before() -> None:
    """The mean of rows in a gradient of a covariance: n m instead of n m k."""
    a, b = placeholders((9, 9), (8, 9))
    k, j = te.reduce_axis(8, name="k"), te.reduce_axis(9, name="j")
    y = te.compute((9,), lambda i: te.sum(-(a[i, j] * (b[k, j] - 1.0)), axis=(k, j)), name="y")
    assert stages(y) == [
        "te.sum(x1[k, j] - 1.0, axis=k)", "te.sum(x0[i, j] * y_inner[j], axis=j)", "-y_outer[i]"
    ]  # fmt: skip
    check([a, b], y)


def test_a_condition_of_the_result_is_asked_about_a_sum_of_products() -> None:
    a, b, c = placeholders((9, 9), (9, 9), (9, 9))
    y = te.compute(
        (9, 9),
        lambda i, j: te.select(j <= i, te.sum(lambda k: a[j, k] * b[i, k] + b[j, k] * a[i, k]), c[i, j]), name="y",
    )  # fmt: skip
    check([a, b, c], y)
    product = te.compute((9, 9), lambda i, j: te.sum(lambda k: a[j, k] * b[i, k] + b[j, k] * a[i, k], where=j <= i))
    assert len(stages(product)) == 3


def transposed(size: int, taps: int, step: int) -> tuple[list[te.Tensor], te.Tensor]:
    """A transposed convolution spelled by a condition on what is a multiple."""
    x, w = placeholders((2, 5, size), (5, 9, taps))

    def element(b: Any, f: Any, i: Any) -> Any:
        def tap(k: Any, t: Any) -> Any:
            return te.select((i - t) % step == 0, x.at(b, k, (i - t) // step, mode="zero"), 0.0) * w[k, f, t]

        return te.sum(tap)

    return [x, w], te.compute((2, 9, (size - 1) * step + taps), element, name="y")


@pytest.mark.parametrize(
    ("size", "taps", "step", "parts"), [(12, 4, 2, 1), (12, 3, 3, 1), (11, 2, 2, 1), (12, 3, 2, 2), (9, 5, 3, 3)]
)
def test_terms_whose_factor_is_zero_by_a_condition_are_left_out(size: int, taps: int, step: int, parts: int) -> None:
    inputs, y = transposed(size, taps, step)
    found = parts_of(y.op, WORTH)  # type: ignore[arg-type]
    assert found is not None
    assert len(found.stages) == parts
    assert not any("%" in str(stage.bodies[0]) for stage in found.stages)
    assert parts_of(y.op, WORTH, plain=True) is None  # type: ignore[arg-type]
    check(inputs, y)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(("size", "taps", "step"), [(12, 4, 2), (12, 3, 3), (12, 3, 2)])
def test_terms_that_are_left_out_count_where_the_other_factor_is_not_finite(
    value: float, size: int, taps: int, step: int
) -> None:
    (x, w), y = transposed(size, taps, step)
    feeds = {x: whole(2, 5, size), w: whole(5, 9, taps)}
    kern = te.build([x, w], y)
    np.testing.assert_array_equal(kern(*feeds.values()), te.interpret(y, feeds))
    feeds[w][3, 4, taps - 1] = value
    np.testing.assert_array_equal(kern(*feeds.values()), te.interpret(y, feeds))
