"""Rows of a table at computed places: copied, turned and summed up, they are what the reference reads."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.schedules.comparison import compare

RANDOM = np.random.default_rng(17)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def sliced(channels: int, rows: int, columns: int, mode: str) -> tuple[list[te.Tensor], te.Tensor]:
    """Linear between the layers of a grid, at depths that are data."""
    depth, cells = 6, 5
    grid, guide = te.placeholder((channels, depth, cells), name="grid"), te.placeholder((rows, columns), name="guide")

    def body(c: Any, i: Any, j: Any) -> Any:
        low, far = te.cast(te.floor(guide[i, j]), "int32"), guide[i, j] - te.floor(guide[i, j])
        near = grid.at(c, low, j % cells, mode=mode) * (1.0 - far) * te.cast(i + 1, "float32")
        return near + grid.at(c, low + 1, (i + j) % cells, mode=mode) * far

    return [grid, guide], te.compute((channels, rows, columns), body, name="sliced")


@pytest.mark.parametrize(
    ("channels", "rows", "columns", "mode"), [(12, 9, 70, "clamp"), (17, 5, 131, "zero"), (40, 3, 64, "clamp")]
)
def test_a_grid_and_its_gradients(channels: int, rows: int, columns: int, mode: str) -> None:
    inputs, y = sliced(channels, rows, columns, mode)
    head = te.placeholder(y.shape, name="head")
    grads = te.differentiate(y, inputs, head=head)
    kernel = te.build([*inputs, head], [y, *grads])
    assert str(kernel.loop_nest()).count("consume sliced_table") == 1
    assert str(kernel.loop_nest()).count("produce dguide_rows") == 1
    arrays = [floats(channels, 6, 5), RANDOM.uniform(-2, 8, (rows, columns)).astype(np.float32), floats(*y.shape)]
    compare([*inputs, head], [y, *grads], arrays)
    assert (kernel(*arrays)[0] == te.interpret(y, dict(zip(inputs, arrays, strict=False)))).all()


def embedded(kind: str = "sum") -> tuple[list[te.Tensor], te.Tensor, te.Tensor]:
    """Columns of a table of codes, and a reduction over each of them."""
    table, codes = te.placeholder((10, 30), name="table"), te.placeholder((20, 66), "int32", name="codes")
    y = te.compute((10, 20, 66), lambda c, i, j: table[c, codes[i, j]] + te.cast(c, "float32"), name="y")
    c = te.reduce_axis(10, name="c")
    terms = {"sum": te.sum, "max": te.max}[kind]
    z = te.compute((20, 66), lambda i, j: terms(table[c, codes[i, j]] * 2.0, axis=c), name="z")
    return [table, codes], y, z


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_rows_are_reduced(kind: str) -> None:
    inputs, y, z = embedded(kind)
    assert "z_rows" in str(te.build(inputs, z).loop_nest())
    compare(inputs, [y, z], [floats(10, 30), RANDOM.integers(0, 30, (20, 66)).astype(np.int32)])


def test_a_code_that_leaves_the_table_is_told_as_it_was_written() -> None:
    inputs, y, z = embedded()
    codes = RANDOM.integers(0, 30, (20, 66)).astype(np.int32)
    codes[13, 65] = 30
    for output in (y, z):
        with pytest.raises(IndexError, match=rf"{output.name}.*codes.*30.* 30") as caught:
            te.build(inputs, output)(floats(10, 30), codes)
        assert "_table" not in str(caught.value)
        assert "_rows" not in str(caught.value)


def test_other_channels_of_a_table_are_read_as_they_are() -> None:
    table, codes = te.placeholder((30, 40), name="table"), te.placeholder((3, 66), "int32", name="codes")
    arrays = [floats(30, 40), RANDOM.integers(0, 40, (3, 66)).astype(np.int32)]
    bodies = {
        "strided": lambda c, i, j: table[2 * c, codes[i, j]],
        "clamped": lambda c, i, j: table[te.minimum(c, 4), codes[i, j]],
        "twice": lambda c, i, j: table[c, te.minimum(codes[i, j], c)],
        "wider": lambda c, i, j: table[c, codes[i, j]] - table[c + 1, codes[i, j]],
    }
    for name, body in bodies.items():
        y = te.compute((13, 3, 66), body, name=name)
        compare([table, codes], [y], arrays)


@pytest.mark.parametrize("own", ["index", "guard"])
def test_a_scatter_whose_channels_go_their_own_ways(own: str) -> None:
    channels, rows, columns = 5, 40, 200
    index: te.Tensor = te.placeholder((channels, rows, columns), "int32", name="index")
    x = te.placeholder((channels, rows, columns), name="x")
    c, i, j = (te.reduce_axis(n, name=a) for n, a in ((channels, "c"), (rows, "i"), (columns, "j")))
    place = index[c, i, j] if own == "index" else index[0, i, j]
    where = x[c, i, j] > 0.0 if own == "guard" else True
    y = te.scatter((channels, 50), [c, i, j], (c, place), 2.0 * x[c, i, j], name="y", where=where)
    arrays = [RANDOM.integers(0, 50, (channels, rows, columns)).astype(np.int32), floats(channels, rows, columns)]
    compare([index, x], [y], arrays)


@pytest.mark.parametrize("channels", [3, 13])
def test_a_scatter_of_rows_leaves_out_what_its_guard_says(channels: int) -> None:
    rows, columns = 90, 131
    index: te.Tensor = te.placeholder((rows, columns), "int32", name="index")
    x, w = te.placeholder((channels, rows, columns), name="x"), te.placeholder((rows, columns), name="w")
    c = te.reduce_axis(channels, name="c")
    i, j = te.reduce_axis((1, rows - 1), name="i"), te.reduce_axis((2, columns - 1), name="j")
    value = x[c, i, j + 1] * te.exp(w[i, j])
    y = te.scatter((channels, 6, 7), [c, i, j], (c, index[i, j], i % 7), value, name="y", where=w[i, j] > 0.0)
    assert "y_turned" in str(te.build([index, x, w], y).loop_nest())
    places, weights = RANDOM.integers(0, 6, (rows, columns)).astype(np.int32), floats(rows, columns)
    places[weights <= 0.0] = 1000
    compare([index, x, w], [y], [places, floats(channels, rows, columns), weights])
    places[20, 100], weights[20, 100] = -3, 1.0
    with pytest.raises(IndexError, match=r"y.*-3.* 6"):
        te.build([index, x, w], y)(places, floats(channels, rows, columns), weights)


@pytest.mark.parametrize("sizes", [(80, 9, 60), (9, 70, 15), (70, 30, 30)])
def test_a_scatter_of_rows_whose_axes_are_named_as_they_please(sizes: tuple[int, int, int]) -> None:
    index: te.Tensor = te.placeholder(sizes, "int32", name="index")
    x = te.placeholder((4, *sizes), name="x")
    c, *points = (te.reduce_axis(n, name=a) for n, a in zip((4, *sizes), ("c", "block", "within", "tap"), strict=True))
    y = te.scatter((4, 25), [c, *points], (c, index[tuple(points)]), x[(c, *points)], name="y")
    compare([index, x], [y], [RANDOM.integers(0, 25, sizes).astype(np.int32), floats(4, *sizes)])


@pytest.mark.parametrize(("rows", "width", "count"), [(4000, 40, 70), (50, 33, 130), (9000, 9, 64), (300, 127, 65)])
def test_rows_that_a_table_has_are_read_where_they_are(rows: int, width: int, count: int) -> None:
    table, places = te.placeholder((rows, width), name="table"), te.placeholder((count,), "int32", name="places")
    y = te.compute((width, count), lambda j, i: table[places[i], j] * 2.0 + te.cast(i, "float32"), name="y")
    nest = te.build([table, places], y).loop_nest()
    assert "y_rows" in nest
    assert "y_table" not in nest
    compare([table, places], [y], [floats(rows, width), RANDOM.integers(0, rows, count).astype(np.int32)])
    with pytest.raises(IndexError, match="places"):
        te.evaluate(y, {table: floats(rows, width), places: np.full(count, rows, np.int32)})


@pytest.mark.parametrize(("width", "lanes"), [(12, 8), (16, 16), (33, 16)])
def test_rows_shorter_than_a_vector_are_turned_in_shorter_ones(width: int, lanes: int) -> None:
    """Loaded across several of them, just written, they took twice as long with AVX-512 as without."""
    table, places = te.placeholder((500, width), name="table"), te.placeholder((400,), "int32", name="places")
    y = te.compute((width, 400), lambda j, i: table[te.clip(places[i], 0, 499), j] * 2.0, name="y")
    vectors = re.findall(r"for i_v < (\d+), vectorized", str(te.Schedule(y).auto(target="x86-64-v4")))
    assert int(vectors[-1]) == lanes
    compare([table, places], [y], [floats(500, width), RANDOM.integers(0, 500, 400).astype(np.int32)])


def test_a_short_sum_over_a_table_at_data_stays_a_loop() -> None:
    """Written out it was 120 look-ups, 2.7 s to compile for the mean of 2000 weights."""
    weights, classes = te.placeholder((5,), name="weights"), te.placeholder((2000,), "int64", name="classes")
    text = str(te.Schedule(weights[classes].mean()).auto(target="x86-64-v4"))
    assert not re.search(r"for r\w* < \d+, unrolled", text)


def test_vectors_of_look_ups_are_a_loop() -> None:
    """Eight vectors side by side and seven of the rest, written out, were 240 look-ups: a third of a loss's build."""
    weights, classes = te.placeholder((4,), name="weights"), te.placeholder((1003,), "int64", name="classes")
    looked_up = te.compute((1003,), lambda i: te.select(classes[i] == -100, 0.0, weights[classes[i]]), name="counts")
    text = str(te.Schedule(looked_up.sum()).auto(target="x86-64-v4"))
    assert "for lane_wo < 8:\n" in text
    assert "unrolled" not in text
    plain = te.placeholder((1003,), name="plain")
    assert "for lane_wo < 8, unrolled:\n" in str(te.Schedule(plain.sum()).auto(target="x86-64-v4"))


def graded(
    spelling: str, rows: int | te.Expr = 20, columns: int | te.Expr = 150, channels: int = 3
) -> tuple[list[te.Tensor], te.Tensor]:
    """An image whose colors are looked up between the entries of a table, channels last."""
    image, table = te.placeholder((rows, columns, 3), name="image"), te.placeholder((5, 5, 5, channels), name="table")
    place = te.clip(image, 0.0, 1.0) * 4.0
    low = te.clip(te.floor(place).astype("int32"), 0, 3)
    beside = place - low.astype("float32")

    def at(y: Any, x: Any, d: int) -> tuple[Any, Any]:
        if spelling == "stages":
            return low[y, x, d], beside[y, x, d]
        here = te.clip(image[y, x, d], 0.0, 1.0) * 4.0
        cell = te.clip(te.cast(te.floor(here), "int32"), 0, 3)
        return cell, here - te.cast(cell, "float32")

    def value(y: Any, x: Any, c: Any) -> Any:
        found = [at(y, x, d) for d in range(3)]
        ups = [te.reduce_axis(2, name=f"up{d}") for d in range(3)]
        share: Any = 1.0
        for (_, t), up in zip(found, ups, strict=True):
            share = share * te.select(up == 1, t, 1.0 - t)
        return te.sum(share * table[(*(i + up for (i, _), up in zip(found, ups, strict=True)), c)], axis=ups)

    def corner_by_corner(y: Any, x: Any, c: Any) -> Any:
        found = [at(y, x, d) for d in range(3)]
        total: Any = None
        for up in itertools.product((0, 1), repeat=3):
            share: Any = 1.0
            for (_, t), u in zip(found, up, strict=True):
                share = share * (t if u else 1.0 - t)
            term = share * table[(*(i + u for (i, _), u in zip(found, up, strict=True)), c)]
            total = term if total is None else total + term
        return total

    made = corner_by_corner if spelling == "corners" else value
    return [image, table], te.compute((rows, columns, channels), made, name="out")


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_pixels_whose_channels_lie_last_are_looked_up_in_vectors_of_pixels(target: str) -> None:
    """A row of three numbers was a vector of two, and for each pixel its place was computed by itself."""
    texts = {}
    for spelling in ("sum", "corners", "stages"):
        inputs, out = graded(spelling)
        texts[spelling] = te.build(inputs, out, target=target).loop_nest()
        assert f"vectorized x.x_v in [0, {7 if target.endswith('3') else 15}]" in texts[spelling]
        assert "unrolled c.c_u in [0, 2]" in texts[spelling]
    assert texts["sum"] == texts["corners"] == texts["stages"]


@pytest.mark.share(4)
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("spelling", ["sum", "corners", "stages"])
def test_pixels_looked_up_in_vectors_have_the_bits_of_plain_loops(spelling: str, channels: int) -> None:
    inputs, out = graded(spelling, 9, 77, channels)
    arrays = [RANDOM.uniform(-0.1, 1.1, (9, 77, 3)).astype(np.float32), floats(5, 5, 5, channels)]
    found = te.build(inputs, out)(*arrays)
    np.testing.assert_array_equal(found, te.build(inputs, out, schedule=te.Schedule(out))(*arrays))
    expected = te.interpret(out, dict(zip(inputs, arrays, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_pixels_of_unknown_sizes_are_looked_up_in_vectors() -> None:
    h, w = te.var("h"), te.var("w")
    inputs, out = graded("sum", h, w)
    kernel = te.build(inputs, out)
    for rows, columns in ((9, 77), (3, 5), (1, 16), (0, 4)):
        arrays = [RANDOM.uniform(0, 1, (rows, columns, 3)).astype(np.float32), floats(5, 5, 5, 3)]
        expected = te.interpret(out, dict(zip(inputs, arrays, strict=True)))
        np.testing.assert_allclose(kernel(*arrays), expected, rtol=1e-5, atol=1e-5)
