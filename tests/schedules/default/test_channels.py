"""Windows over rows of channels: copies with borders, and tiles of sums whose last ones are shifted inwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.levels import LEVELS_HERE

CHANCE = np.random.default_rng(11)
AVX2 = "x86-64-v3"


def whole(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return CHANCE.integers(-3, 4, shape).astype(dtype)


def filters(
    n: int, channels: int, taps: int, step: int = 1, mode: str = "zero", dtype: str = "float32", last: bool = False,
    times: int = 1,
) -> tuple[list[te.Tensor], te.Tensor]:  # fmt: skip
    """Each channel of an image, channels last, by filters of its own; weights by channel first or last."""
    x = te.placeholder((2, n, n + 3, channels), dtype, name="x")
    filters = channels * times
    w = te.placeholder((taps, taps, filters) if last else (filters, taps, taps), dtype, name="w")
    border = taps // 2

    def element(b: Any, i: Any, j: Any, c: Any) -> Any:
        def tap(u: Any, v: Any) -> Any:
            weight = w[u, v, c] if last else w[c, u, v]
            return x.at(b, i * step + u - border, j * step + v - border, c // times, mode=mode) * weight

        return te.sum(tap)

    return [x, w], te.compute((2, (n - 1) // step + 1, (n + 2) // step + 1, filters), element, name="y")


def check(inputs: list[te.Tensor], outputs: list[te.Tensor], **options: Any) -> None:
    feeds = {t: whole(*map(int, t.shape), dtype=str(t.dtype)) for t in inputs}
    found = te.build(inputs, outputs, **options)(*feeds.values())
    for got, want in zip(found, te.interpret(outputs, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def with_gradients(inputs: list[te.Tensor], y: te.Tensor) -> tuple[list[te.Tensor], list[te.Tensor]]:
    head = te.placeholder(y.shape, y.dtype, name="head")
    return [*inputs, head], [y, *te.differentiate(y, inputs, head=head)]


CASES = [
    (9, 21, 3, 1, "zero", "float32", False), (9, 8, 3, 2, "zero", "float32", True),
    (7, 13, 5, 1, "clamp", "float64", True), (12, 69, 3, 1, "reflect", "float32", False),
    (5, 33, 5, 2, "wrap", "float32", True), (2, 40, 3, 1, "zero", "float32", True),
    (27, 9, 3, 1, "zero", "float32", False), (14, 11, 3, 2, "zero", "float32", False, 3),
    (6, 24, 2, 3, "reflect", "float32", True, 2), (11, 10, 3, 1, "zero", "float64", False, 4),
    (9, 17, 5, 1, "zero", "float32", False, 3),
]  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("level", LEVELS_HERE)
def test_filters_of_channels_and_their_gradients(case: Any, level: str) -> None:
    check(*with_gradients(*filters(*case)), target=level)


def test_the_last_tiles_are_shifted_and_nothing_is_asked_inside() -> None:
    inputs, y = filters(16, 21, 3)
    text = str(te.Schedule(y).auto(target=AVX2))
    inner = text.split("y_window[b, i, j, c] +=")[1].splitlines()[0]
    assert "select" not in inner
    assert "y_bordered" in inner
    assert "minimum(c_o*8, 13)" in text


def test_a_copy_is_made_in_strips_of_rows() -> None:
    """Whole it would go to memory and back, and its threads take longer to start than it takes."""
    inputs, y = filters(60, 64, 3)
    text = str(te.Schedule(y).auto(target=AVX2))
    assert "y_bordered: what y needs here" in text
    z = te.compute(y.shape, lambda *at: y[at] - y[at[0], 0, 0, at[3]], name="z")
    assert "y_bordered" in str(te.Schedule([y, z]).auto(target=AVX2))
    check(inputs, [y])


def test_a_result_may_lie_on_the_image_that_is_copied_first() -> None:
    inputs, y = filters(24, 32, 3)
    arrays = [whole(*map(int, t.shape)) for t in inputs]
    want = te.interpret(y, dict(zip(inputs, arrays, strict=True)))
    found = te.build(inputs, y, alias={y: inputs[0]})(*arrays)
    assert found is arrays[0]
    np.testing.assert_array_equal(found, want)


def test_filters_of_one_channel_lie_side_by_side() -> None:
    """Vectors of filters, as many as there are: a copy has each channel as often as it has filters."""
    inputs, y = filters(32, 21, 3, times=3)
    text = str(te.Schedule(y).auto(target=AVX2))
    assert "c // 3" not in text.split("y_window[b, i, j, c] +=")[1].splitlines()[0]
    check(inputs, [y])


def test_gradients_of_filters_of_one_channel_read_them_side_by_side() -> None:
    """Sums over the filters of a channel: copies have a channel of all pixels next to the next one's."""
    inputs, outputs = with_gradients(*filters(20, 21, 3, times=3))
    text = str(te.Schedule(outputs).auto(target=AVX2))
    (line,) = (row for row in text.splitlines() if "_window[" in row and "+= dx_" in row)
    assert "* 3" not in line
    assert "select" not in line


def test_sums_of_filters_are_tiles_too() -> None:
    inputs, outputs = with_gradients(*filters(32, 21, 3))
    text = str(te.Schedule(outputs).auto(target=AVX2))
    (line,) = (row for row in text.splitlines() if "_window[" in row and "+= head" in row)
    assert "select" not in line


@pytest.mark.parametrize("kind", ["largest", "mean"])
def test_pools_of_channels_with_borders(kind: str) -> None:
    x = te.placeholder((2, 11, 14, 19), name="x")

    def element(b: Any, i: Any, j: Any, c: Any) -> Any:
        u, v = te.reduce_axis(3), te.reduce_axis(3)
        p, q = i + u - 1, j + v - 1
        inside = (p >= 0) & (p < 11) & (q >= 0) & (q < 14)
        if kind == "mean":
            return te.sum(x[b, p, q, c], axis=[u, v], where=inside) / 9.0
        return te.max(te.select(inside, x[b, p, q, c], -1e9), axis=[u, v])

    y = te.compute((2, 11, 14, 19), element, name="y")
    assert "_bordered" in str(te.Schedule(y).auto(target=AVX2))
    check([x], [y])


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_numbers_that_are_not_finite_stay_where_they_belong(position: int, value: float) -> None:
    inputs, outputs = with_gradients(*filters(9, 21, 3))
    kernel = te.build(inputs, outputs)
    arrays = [whole(*map(int, t.shape)) for t in inputs]
    arrays[position].flat[7] = value
    for got, want in zip(kernel(*arrays), te.interpret(outputs, dict(zip(inputs, arrays, strict=True))), strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_computed_twice_is_added_once() -> None:
    inputs, y = filters(9, 21, 3)
    z = te.compute(y.shape, lambda *at: te.maximum(y[at], 0.0) + 1.0, name="z")
    arrays = [whole(*map(int, t.shape)) for t in inputs]
    kernel = te.build(inputs, z)
    out = whole(*map(int, z.shape))
    want = out + kernel(*arrays)
    np.testing.assert_array_equal(kernel(*arrays, out=out, mode="add"), want)


def test_what_is_computed_twice_does_not_read_what_it_wrote() -> None:
    inputs, y = filters(9, 21, 3)
    before = te.placeholder(y.shape, name="before")
    z = te.compute(y.shape, lambda *at: y[at] + 2.0 * before[at], name="z")
    arrays = [whole(*map(int, t.shape)) for t in (*inputs, before)]
    want = te.interpret(z, dict(zip((*inputs, before), arrays, strict=True)))
    kernel = te.build([*inputs, before], z, alias={z: before})
    np.testing.assert_array_equal(kernel(*arrays), want)


@pytest.mark.parametrize("banded", ["e", "x"])
def test_factors_that_are_read_outside_without_the_condition(banded: str) -> None:
    """The gradient of a window over time, by the values: both factors are read at the place that is asked for."""
    e, v = te.placeholder((2, 24, 7), name="e"), te.placeholder((2, 24, 32), name="v")
    places = (lambda i, w: e[i[0], i[1], w]) if banded == "e" else (lambda i, w: e[i[0], te.clip(i[1] + w, 0, 23), w])

    def element(b: Any, i: Any, d: Any) -> Any:
        return te.sum(lambda w: places((b, i), w) * v[b, te.clip(i + w - 3, 0, 23), d])

    y = te.compute((2, 24, 32), element, name="y")
    check(*with_gradients([e, v], y))


def to_filters(
    n: int, channels: int, count: int, taps: int, step: int = 1, mode: str = "zero", dtype: str = "float32"
) -> tuple[list[te.Tensor], te.Tensor]:
    """Filters over all channels of an image, channels and filters last, and a bias."""
    x, b = te.placeholder((2, n, n + 3, channels), dtype, name="x"), te.placeholder((count,), dtype, name="b")
    w = te.placeholder((count, channels, taps, taps), dtype, name="w")

    def element(m: Any, i: Any, j: Any, o: Any) -> Any:
        def tap(c: Any, u: Any, v: Any) -> Any:
            return x.at(m, i * step + u - taps // 2, j * step + v - taps // 2, c, mode=mode) * w[o, c, u, v]

        return te.sum(tap)

    y = te.compute((2, (n - 1) // step + 1, (n + 2) // step + 1, count), element, name="y")
    return [x, w, b], te.compute(y.shape, lambda m, i, j, o: te.relu(y[m, i, j, o] + b[o]), name="z")


FEW_FILTERS = [
    (21, 3, 3, 3), (21, 1, 1, 5), (17, 4, 2, 3, 1, "clamp"), (40, 3, 1, 3, 1, "reflect", "float64"),
    (33, 2, 3, 5, 2), (19, 5, 7, 7), (24, 3, 4, 1, 1, "wrap"), (25, 6, 3, 3, 1, "zero", "int32"), (35, 17, 2, 1),
    (30, 3, 5, 3), (15, 9, 6, 5), (41, 3, 3, 3, 2), (50, 3, 2, 5, 3), (33, 4, 6, 4, 4), (44, 16, 1, 3, 2, "clamp"),
]  # fmt: skip


@pytest.mark.share(2)
@pytest.mark.parametrize("case", FEW_FILTERS)
@pytest.mark.parametrize("level", LEVELS_HERE)
def test_few_filters_that_lie_last_and_their_gradients(case: Any, level: str) -> None:
    inputs, y = to_filters(*case)
    if y.dtype.is_float:
        check(*with_gradients(inputs, y), target=level)
    else:
        check(inputs, [y], target=level)


@pytest.mark.parametrize(
    ("channels", "count", "taps"), [(3, 3, 3), (1, 2, 7), (6, 3, 5), (3, 4, 5), (3, 2, 1), (3, 5, 7)]
)
def test_few_filters_that_lie_last_share_vectors_of_pixels(channels: int, count: int, taps: int) -> None:
    """Three filters were sums of four lanes of channels, seventy times slower: what lies last need not be the lanes."""
    _, z = to_filters(64, channels, count, taps)
    text = str(te.Schedule(z).auto(target=AVX2))
    assert "y_sums[m, i, o, j] += y_rows[o, " in text


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize(("channels", "count", "taps"), [(3, 3, 5), (1, 2, 9), (5, 1, 3)])
def test_few_filters_of_one_series(channels: int, count: int, taps: int, level: str) -> None:
    """There is no loop around the places then."""
    x, w = te.placeholder((900, channels), name="x"), te.placeholder((count, channels, taps), name="w")
    y = te.compute((901 - taps, count), lambda t, o: te.sum(lambda c, u: x[t + u, c] * w[o, c, u]), name="y")
    assert "y_sums[o, t] += y_rows[" in str(te.Schedule(y).auto(target=AVX2)) or count == 1
    check(*with_gradients([x, w], y), target=level)


@pytest.mark.parametrize(("count", "taps", "step"), [(3, 3, 2), (2, 5, 3), (2, 7, 4)])
def test_few_filters_that_move_by_several_pixels(count: int, taps: int, step: int) -> None:
    _, z = to_filters(64, 3, count, taps, step)
    inner = str(te.Schedule(z).auto(target=AVX2)).split("y_sums[")[1].split("]")[0]
    assert inner.endswith(", j")


def test_filters_that_fill_vectors_are_lanes_themselves() -> None:
    for channels, count, taps in ((3, 8, 7), (4, 4, 1), (64, 7, 2)):
        _, z = to_filters(64, channels, count, taps)
        assert "y_sums[m, i, j, o] +=" in str(te.Schedule(z).auto(target=AVX2))
