"""Rows of pixels become rows of numbers where windows move along them, and nothing but speed tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from schedules.interleaving import MANY, interleaved
from schedules.other_axes import on_other_axes
from tests.levels import LEVELS_HERE


def place(name: str, *shape: Any, dtype: str = "float32") -> te.Tensor:
    made: te.Tensor = te.placeholder(shape, dtype, name=name)
    return made


def shapes(inputs: list[te.Tensor], *outputs: te.Tensor) -> Any:
    """The shapes of inputs and outputs with rows of numbers; None where there are none."""
    found = interleaved(inputs, outputs)
    return None if found is None else ([t.shape for t in found.inputs], [t.shape for t in found.outputs])


def blurred(x: te.Tensor, g: te.Tensor, mode: str) -> te.Tensor:
    """Columns first, then rows."""
    height, width, channels = x.shape
    taps = g.shape[0]
    k, q = te.reduce_axis(taps, "k"), te.reduce_axis(taps, "q")
    first = te.compute(x.shape, lambda i, j, c: te.sum(x.at(i + k - taps // 2, j, c, mode=mode) * g[k], axis=k))
    return te.compute(
        (height, width, channels),
        lambda i, j, c: te.sum(first.at(i, j + q - taps // 2, c, mode=mode) * g[q], axis=q),
    )


def agree(inputs: list[te.Tensor], out: te.Tensor, target: str = "host") -> None:
    """The kernel gives to the bit what loops as they are written give."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 256, t.shape).astype("uint8") if str(t.dtype) == "uint8" else rng.random(t.shape, "float32")
        for t in inputs
    ]
    kernel, plain = (
        te.build(inputs, out, schedule=s, target=target) for s in (None, te.Schedule(out).auto(loops=False))
    )
    np.testing.assert_array_equal(kernel(*arrays), plain(*arrays))


def test_windows_make_rows_of_numbers() -> None:
    x, g = place("x", 12, 20, 3), place("g", 5)
    assert shapes([x, g], blurred(x, g, "reflect")) == ([(12, 60), (5,)], [(12, 60)])
    valid = te.compute((12, 16, 3), lambda i, j, c: te.sum(lambda k: x[i, j + k, c] * g[k]))
    assert shapes([x, g], valid) == ([(12, 60), (5,)], [(12, 48)])
    assert shapes([x], x * 2) is None  # one axis, as `merging` knows
    batch = place("b", 2, 9, 16, 4)
    moved = te.compute(
        (2, 9, 15, 4), lambda n, i, j, c: te.sum(lambda k: batch[n, i, j + k, c], axis=te.reduce_axis(2))
    )
    assert shapes([batch], moved) == ([(2, 9, 64)], [(2, 9, 60)])


def test_readers_of_pixels_read_out_of_rows() -> None:
    x, g, w = place("x", 12, 20, 3), place("g", 5), place("w", 3)
    b = blurred(x, g, "clamp")
    grey = te.compute((12, 20), lambda i, j: te.sum(lambda c: b[i, j, c] * w[c]))
    assert shapes([x, g, w], grey) == ([(12, 60), (5,), (3,)], [(12, 20)])
    agree([x, g, w], grey)


def test_what_windows_of_all_channels_read_stays() -> None:
    x, g, w = place("x", 12, 20, 3), place("g", 5), place("w", 8, 3, 3)
    b = blurred(x, g, "clamp")
    mixed = te.compute((12, 18, 8), lambda i, j, o: te.sum(lambda q, c: b[i, j + q, c] * w[o, q, c]))
    found = interleaved([x, g, w], [mixed])
    assert found is None
    half = te.compute((12, 9, 3), lambda i, j, c: te.sum(lambda k: x[i, 2 * j + k, c] * g[k], axis=te.reduce_axis(2)))
    assert shapes([x, g], half) is None


@pytest.mark.parametrize(
    ("channels", "width", "taps", "mode"),
    [(3, 41, 9, "reflect"), (4, 23, 5, "clamp"), (3, 17, 7, "wrap"), (2, 37, 3, "zero"), (7, 16, 5, "reflect")],
)
def test_rows_go_on_pixel_by_pixel(channels: int, width: int, taps: int, mode: str) -> None:
    x, g = place("x", 11, width, channels, dtype="uint8"), place("g", taps)
    out = te.cast(te.clip(te.round(blurred(te.cast(x, "float32"), g, mode)), 0, 255), "uint8")
    agree([x, g], out)


@pytest.mark.parametrize("target", LEVELS_HERE)
@pytest.mark.parametrize(
    ("channels", "taps", "mode"), [(6, 5, "zero"), (3, 3, "clamp"), (7, 3, "reflect"), (2, 1, "zero")]
)
def test_filters_of_each_channel_have_a_weight_for_each_number(
    channels: int, taps: int, mode: str, target: str
) -> None:
    x, w = place("x", 2, 11, 23, channels), place("w", channels, taps, 3)
    y = te.compute(
        x.shape,
        lambda b, i, j, c: te.sum(
            lambda u, v: x.at(b, i + u - taps // 2, j + v - 1, c, mode=mode) * w[c, u, v],
            axis=(te.reduce_axis(taps, "u"), te.reduce_axis(3, "v")),
        ),
    )
    assert shapes([x, w], y) == ([(2, 11, 23 * channels), (channels, taps, 3)], [(2, 11, 23 * channels)])
    agree([x, w], y, target)


def test_weights_that_lie_as_rows_do_too() -> None:
    x, w = place("x", 9, 12, 6), place("w", 3, 7, 6)
    y = te.compute((7, 6, 6), lambda i, j, c: te.sum(lambda u, v: x[i + u, j + v, c] * w[u, v, c]))
    assert interleaved([x, w], [y]) is None  # too few rows for a table
    x = place("x", 19, 12, 6)
    y = te.compute((17, 6, 6), lambda i, j, c: te.sum(lambda u, v: x[i + u, j + v, c] * w[u, v, c]))
    assert interleaved([x, w], [y]) is not None
    agree([x, w], y)


def filtered(x: te.Tensor, w: te.Tensor, order: str, mode: str) -> te.Tensor:
    """Each channel by a filter of its own, however its weights lie, or all by one."""

    def weight(u: te.Axis, v: te.Axis, c: te.Axis) -> te.Expr:
        return {"cuv": lambda: w[c, u, v], "ucv": lambda: w[u, c, v], "uvc": lambda: w[u, v, c], "uv": lambda: w[u, v]}[
            order
        ]()

    axes = {a: te.reduce_axis(w.shape[order.index(a)]) for a in "uv"}
    u, v = axes.values()
    away = w.shape[order.index("u")] // 2
    return te.compute(
        x.shape, lambda i, j, c: te.sum(x.at(i + u - away, j + v - away, c, mode=mode) * weight(u, v, c), axis=(u, v))
    )


WEIGHTS = {"cuv": (3, 3, 3), "ucv": (3, 3, 3), "uvc": (3, 3, 3), "uv": (3, 3)}


@pytest.mark.parametrize("order", WEIGHTS)
def test_gradients_of_filters_are_sums_over_rows_first(order: str) -> None:
    x, w, head = place("x", 16, 20, 3), place("w", *WEIGHTS[order]), place("head", 16, 20, 3)
    y = filtered(x, w, order, "zero")
    grads = te.differentiate([y], [x, w], head=[head])
    rows = (16, 60)
    assert shapes([x, w, head], y, *grads) == ([rows, w.shape, rows], [rows, rows, w.shape])


@pytest.mark.share(5)
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("mode", ["reflect", "zero", "clamp", "wrap"])
@pytest.mark.parametrize("order", WEIGHTS)
def test_gradients_of_filters_are_those_of_the_reference(order: str, mode: str, dtype: str) -> None:
    x, w = place("x", 13, 17, 3, dtype=dtype), place("w", *WEIGHTS[order])
    loss = (filtered(x, w, order, mode) ** 2).mean()
    (found,) = te.differentiate([loss], [w])
    rng = np.random.default_rng(0)
    feeds = {x: rng.integers(0, 9, x.shape).astype(dtype), w: rng.random(w.shape, "float32")}
    kernel = te.build([x, w], found)
    np.testing.assert_allclose(kernel(*feeds.values()), te.interpret(found, feeds), rtol=1e-5)


def test_sums_by_channel_stay_where_rows_are_few() -> None:
    x, w, head = place("x", 4, 20, 3), place("w", 3, 3, 3), place("head", 4, 20, 3)
    (found,) = te.differentiate([filtered(x, w, "cuv", "zero")], [w], head=[head])
    assert interleaved([x, head], [found]) is None


def test_extremes_by_channel_are_found_over_rows_first() -> None:
    x, head = place("x", 16, 20, 3), place("head", 16, 20, 3)
    y = te.compute((3, 3), lambda u, c: te.max(lambda i, j: x.at(i, j + u - 1, c, mode="clamp") - head[i, j, c]))
    assert shapes([x, head], y) == ([(16, 60), (16, 60)], [(3, 3)])
    agree([x, head], y)


def test_weights_of_wide_pictures_are_a_row_of_numbers_each() -> None:
    x, w = place("x", 16, 2048, 3), place("w", 3, 5, 5)
    assert shapes([x, w], filtered(x, w, "cuv", "reflect")) == ([(16, 6144), (3, 5, 5)], [(16, 6144)])


@pytest.mark.parametrize("mode", ["clamp", "reflect", "zero"])
def test_windows_of_bytes_move_along_rows(mode: str) -> None:
    x = place("x", 11, 19, 3, dtype="uint8")
    window = (te.reduce_axis(3), te.reduce_axis(3))
    agree(
        [x],
        te.compute(x.shape, lambda i, j, c: te.max(lambda a, b: x.at(i + a - 1, j + b - 1, c, mode=mode), axis=window)),
    )


def test_results_may_lie_where_inputs_lay() -> None:
    x, g = place("x", 6, 16, 3), place("g", 5)
    kernel = te.build(
        [x, g], te.compute(x.shape, lambda i, j, c: te.sum(lambda q: x.at(i, j - q, c, mode="zero") * g[q]))
    )
    a, weights = np.random.default_rng(0).random((6, 16, 3), "float32"), np.ones(5, "float32")
    want, there = kernel(a, weights), a.copy()
    kernel(there, weights, out=there)
    np.testing.assert_array_equal(there, want)


POINTWISE = {
    "neighbors": lambda x, at: at(0, -1) + at(0, 1),
    "sobel": lambda x, at: at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1),
    "costly": lambda x, at: te.exp(at(0, 2) - at(0, 0)),
}


@pytest.mark.share(7)
@pytest.mark.parametrize("target", LEVELS_HERE)
@pytest.mark.parametrize("mode", ["clamp", "reflect", "wrap", "zero"])
@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize(("width", "channels"), [(33, 3), (20, 2), (12, 7)])
def test_neighbors_along_rows_are_taken_without_a_sum_too(
    width: int, channels: int, name: str, mode: str, target: str
) -> None:
    """In vectors of channels a sum of two neighbors filled two of sixteen lanes."""
    x = place("x", 9, width, channels)
    y = te.compute(
        x.shape, lambda i, j, c: POINTWISE[name](x, lambda di, dj: x.at(i + di, j + dj, c, mode=mode)), name="y"
    )
    found = interleaved([x], [y], shifts=True)
    assert found is not None
    assert found.outputs[0].shape == (9, width * channels)
    agree([x], y, target)


def test_pixels_some_places_on_are_one_axis_where_they_can_be() -> None:
    """`merging` is asked between the two: a whole picture as one axis is better than rows."""
    x = place("x", 12, 20, 3)
    y = te.compute(x.shape, lambda i, j, c: x.at(i, j + 1, c, mode="zero"))
    assert interleaved([x], [y]) is None
    assert interleaved([x], [y], shifts=True) is not None


@pytest.mark.parametrize("target", LEVELS_HERE)
@pytest.mark.parametrize("channels", [3, 9, 20])
def test_rows_of_many_channels_that_go_round_are_two_straight_runs(channels: int, target: str) -> None:
    x = place("x", 9, 90, channels)
    y = te.compute(x.shape, lambda i, j, c: x[i, (j + 37) % 90, c] + 1.0, name="y")
    found = interleaved([x], [y], shifts=True, most=MANY)
    assert found is not None
    assert str(found.outputs[0].op.bodies[0]) == f"x.at(i, j_c + {37 * channels}, mode='wrap') + 1.0"
    agree([x], y, target)


def test_many_channels_stay_where_pixels_would_be_told_apart() -> None:
    x, b = place("x", 9, 90, 20), place("b", 20)
    for y in (
        te.compute(x.shape, lambda i, j, c: x.at(i, j - 1, c, mode="clamp"), name="held"),
        te.compute(x.shape, lambda i, j, c: x[i, (j + 37) % 90, c] * b[c], name="weighted"),
        te.compute((9, 88, 20), lambda i, j, c: te.sum(lambda k: x[i, j + k, c], [te.reduce_axis(3)]), name="summed"),
    ):
        assert interleaved([x, b], [y], shifts=True, most=MANY) is None


@pytest.mark.parametrize("mode", ["clamp", "zero"])
def test_gradients_of_blurs_move_along_rows(mode: str) -> None:
    """The loss sends one number back to all pixels, and borders sum up a few columns."""
    x, g, y = place("x", 12, 120, 3), place("g", 5), place("y", 12, 120, 3)
    loss = ((blurred(x, g, mode) - y) ** 2).mean()
    grads = te.differentiate(loss, [x, g])
    found = interleaved([x, g, y], [loss, *grads])
    assert found is not None
    assert [t.shape for t in found.outputs] == [(), (12, 360), (5,)]
    assert [t.shape for t in found.inputs] == [(12, 360), (5,), (12, 360)]
    arrays = [np.random.default_rng(k).random(t.shape, "float32") for k, t in enumerate([x, g, y])]
    made = te.build([x, g, y], [loss, *grads])(*arrays)
    wanted = te.interpret([loss, *grads], dict(zip([x, g, y], arrays, strict=True)))
    for a, b in zip(made, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)


def test_what_fills_an_array_is_of_rows_where_its_readers_are() -> None:
    x = place("x", 12, 40, 3)
    s = te.placeholder((), name="s")
    full = te.compute(x.shape, lambda i, j, c: s[()] * 2)
    y = te.compute(
        (12, 38, 3), lambda i, j, c: te.sum(lambda k: x[i, j + k, c], axis=te.reduce_axis(3)) * full[i, j, c]
    )
    assert shapes([x, s], y) == ([(12, 120), ()], [(12, 114)])
    whole = te.compute((12, 40), lambda i, j: full[i, j, 0] + full[i, j, 1])
    assert shapes([x, s], whole) is None


@pytest.mark.parametrize(
    ("channels", "width", "mode"), [(3, 61, "reflect"), (3, 161, "clamp"), (4, 40, "wrap"), (2, 90, "reflect")]
)
def test_borders_of_gradients_are_few_numbers_beside_rows(channels: int, width: int, mode: str) -> None:
    x, g, head = place("x", 9, width, channels), place("g", 5), place("h", 9, width, channels)
    blur = blurred(x, g, mode)
    by_picture, by_taps = te.differentiate(blur, [x, g], head=head)
    rows = (9, width * channels)
    assert shapes([x, g, head], by_picture) == ([rows, (5,), rows], [rows])
    assert shapes([x, g, head], by_taps) == ([rows, (5,), rows], [(5,)])
    rng = np.random.default_rng(0)
    feeds = {t: rng.random(t.shape, "float32") for t in (x, g, head)}
    kernel = te.build([x, g, head], [blur, by_picture, by_taps])
    for found, tensor in zip(kernel(*feeds.values()), (blur, by_picture, by_taps), strict=True):
        np.testing.assert_allclose(found, te.interpret(tensor, feeds), rtol=1e-4)


def test_a_program_on_rows_of_numbers_is_one_kernel() -> None:
    x, g, head = place("x", 400, 500, 3), place("g", 7), place("h", 400, 500, 3)
    by_taps = te.differentiate(blurred(x, g, "reflect"), g, head=head)
    kernel = te.build([x, g, head], by_taps)
    assert kernel.core.facts.merging is not None


def test_stages_of_a_few_numbers_do_not_cut_a_program_on_rows() -> None:
    """As many as an optimizer's of a few parameters."""
    x, g, head = place("x", 400, 500, 3), place("g", 7), place("h", 400, 500, 3)
    total = te.differentiate(blurred(x, g, "reflect"), g, head=head).sum()
    for k in range(40):
        total = te.sqrt(total * total + k)
    kernel = te.build([x, g, head], total)
    assert kernel.core.facts.merging is not None


def images(height: Any, width: Any, channels: int = 3) -> te.Tensor:
    return place("x", height, width, channels)


@pytest.mark.parametrize("mode", ["zero", "clamp", "reflect", "wrap"])
def test_rows_of_unknown_length_are_rows_of_numbers(mode: str) -> None:
    h, w = te.var("h"), te.var("w")
    x, g = images(h, w), place("g", 5)
    found = interleaved([x, g], [blurred(x, g, mode)])
    assert found is not None
    (across,) = found.outputs
    assert [str(e) for e in across.extents] == ["h", "w * 3"]
    kernel = te.build([x, g], blurred(x, g, mode))
    nest = kernel.loop_nest()
    assert nest.count("vectorized") >= 2, nest
    assert " c in " not in nest, nest


@pytest.mark.parametrize("target", LEVELS_HERE)
@pytest.mark.parametrize("mode", ["zero", "clamp", "reflect", "wrap"])
def test_rows_of_unknown_length_give_what_known_ones_do(mode: str, target: str) -> None:
    h, w = te.var("h"), te.var("w")
    x, g = images(h, w), place("g", 5)
    kernel = te.build([x, g], blurred(x, g, mode), target=target)
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (2, 1), (1, 3), (4, 5), (7, 16), (9, 41), (40, 130)):
        fixed = images(*shape)
        arrays = rng.random((*shape, 3), "float32"), rng.random(5, "float32")
        want = te.interpret(blurred(fixed, g, mode), dict(zip((fixed, g), arrays, strict=True)))
        np.testing.assert_allclose(kernel(*arrays), want, rtol=1e-5, err_msg=str(shape))


def test_unknown_rows_beside_what_channels_share() -> None:
    n, w = te.var("n"), te.var("w")
    x, m = images(n, w), place("m", 3)
    scaled = (x - m) * 2
    found = on_other_axes([x, m], [scaled])
    assert found is not None
    assert [str(e) for e in found.outputs[0].extents] == ["n", "w * 3"]
    kernel = te.build([x, m], scaled)
    for shape in ((1, 1, 3), (3, 7, 3), (20, 33, 3)):
        a, b = np.random.default_rng(0).random(shape, "float32"), np.arange(3, dtype="float32")
        np.testing.assert_array_equal(kernel(a, b), (a - b) * 2)


@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_gradients_of_windows_over_unknown_rows_move_along_them(mode: str) -> None:
    """What is there for small pictures alone reads out of rows, and all places are known to lie inside."""
    h, w = te.var("h"), te.var("w")

    def gradient(height: Any, width: Any) -> tuple[list[te.Tensor], te.Tensor]:
        x, g, head = images(height, width), place("g", 5, 5), place("head", height, width, 3)
        y = te.compute(x.shape, lambda i, j, c: te.sum(lambda u, v: x.at(i + u - 2, j + v - 2, c, mode=mode) * g[u, v]))
        (dx,) = te.differentiate([y], [x], head=[head])
        return [x, g, head], dx

    inputs, dx = gradient(h, w)
    kernel = te.build(inputs, dx)
    assert not kernel.core.facts.checks_indices
    assert kernel.core.facts.merging is not None
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (2, 9), (9, 2), (3, 5), (4, 4), (5, 5), (6, 17), (9, 41)):
        fixed, want = gradient(*shape)
        arrays = rng.random((*shape, 3), "float32"), rng.random((5, 5), "float32"), rng.random((*shape, 3), "float32")
        expected = te.interpret(want, dict(zip(fixed, arrays, strict=True)))
        np.testing.assert_allclose(kernel(*arrays), expected, rtol=1e-5, atol=1e-5, err_msg=str(shape))
