"""How the default schedule rewrites scatters, and shares what channels have in common, never changes a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te
from tests.schedules.comparison import compare

RANDOM = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def warp(side: int, channels: int) -> tuple[list[te.Tensor], te.Tensor]:
    image, at = te.placeholder((channels, side, side), name="image"), te.placeholder((side, side, 2), name="at")

    def body(c: Any, i: Any, j: Any) -> Any:
        y, x = at[i, j, 0], at[i, j, 1]
        top, left = te.cast(te.floor(y), "int32"), te.cast(te.floor(x), "int32")
        fy, fx = y - te.floor(y), x - te.floor(x)
        taps = [(0, 0, (1 - fy) * (1 - fx)), (0, 1, (1 - fy) * fx), (1, 0, fy * (1 - fx)), (1, 1, fy * fx)]
        return sum(image.at(c, top + p, left + q, mode="zero") * w for p, q, w in taps)

    return [image, at], te.compute((channels, side, side), body, name="warped")


@pytest.mark.parametrize(("side", "channels"), [(20, 3), (45, 5)])
def test_a_warp_and_its_gradients(side: int, channels: int) -> None:
    inputs, y = warp(side, channels)
    head = te.placeholder(y.shape, name="head")
    grads = te.differentiate(y, inputs, head=head)
    places = RANDOM.uniform(-2, side + 1, (side, side, 2)).astype(np.float32)
    kernel = te.build([*inputs, head], [y, *grads])
    assert str(kernel.loop_nest()).count("unrolled i.tap in [0, 3]") == 1  # the four scatters are one
    compare([*inputs, head], [y, *grads], [floats(channels, side, side), places, floats(*y.shape)])


@pytest.mark.share(2)
@pytest.mark.parametrize("op", ["add", "max", "min", "mul"])
@pytest.mark.parametrize("filled", [False, True])
def test_blocks_of_points_are_combined_in_order(op: str, filled: bool) -> None:
    rows, columns, channels, size = 37, 300, 13, 17  # nothing divides by blocks or vectors
    index: te.Tensor = te.placeholder((rows, columns), "int32", name="index")
    x, start = te.placeholder((channels, rows, columns), name="x"), te.placeholder((channels, size), name="start")
    c, i, j = (te.reduce_axis(n, name=a) for n, a in ((channels, "c"), (rows, "i"), (columns, "j")))
    y = te.scatter((channels, size), [c, i, j], (c, index[i, j]), x[c, i, j], op=op, init=start if filled else None)
    values = np.exp(0.01 * floats(channels, rows, columns)).astype(np.float32)
    arrays = [RANDOM.integers(0, size, (rows, columns)).astype(np.int32), values, floats(channels, size)]
    compare([index, x, start], [y], arrays)


def soft_histogram(count: int, bins: int) -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((count,), name="x")
    i, side = te.reduce_axis(count, name="i"), te.reduce_axis(2, name="side")
    place = te.cast(te.floor(x[i]), "int32") + side
    share = 1.0 - te.abs(x[i] - te.cast(place, "float32"))
    return x, te.scatter((bins,), [i, side], (place,), share, name="histogram", where=x[i] > 0.5)


def test_a_histogram_whose_terms_are_vectors() -> None:
    x, y = soft_histogram(70001, 12)
    kernel = te.build([x], y)
    assert "produce histogram_terms" in str(kernel.loop_nest())
    compare([x], [y], [RANDOM.uniform(0, 11, 70001).astype(np.float32)])


def test_an_index_that_leaves_its_bounds_is_told_as_it_was_written() -> None:
    x, y = soft_histogram(70001, 12)
    values = np.ones(70001, np.float32)
    values[40000] = 30.0
    with pytest.raises(IndexError, match=r"histogram.*30.* 12") as caught:
        te.build([x], y)(values)
    assert "_table" not in str(caught.value)
    assert "_terms" not in str(caught.value)


def test_a_dimension_is_free_though_another_index_reads_its_axis_too() -> None:
    rows, columns = 300, 120
    index: te.Tensor = te.placeholder((rows, columns), "int32", name="index")
    i, j = te.reduce_axis(rows, name="i"), te.reduce_axis(columns, name="j")
    counts = te.scatter((rows, 7), [i, j], (i, index[i, j]), te.const(1, "int32"), name="counts")
    places = RANDOM.integers(0, 7, (rows, columns)).astype(np.int32)
    compare([index], [counts], [places])
    te.Schedule(counts)[counts].parallel("i")  # rows never meet


def test_scatters_that_others_read_stay() -> None:
    index: te.Tensor = te.placeholder((900,), "int32", name="index")
    g = te.placeholder((900,), name="g")
    i, k = te.reduce_axis(900, name="i"), te.reduce_axis(900, name="k")
    first = te.scatter((40,), [i], (index[i],), g[i], name="first")
    second = te.scatter((40,), [k], (39 - index[k],), g[k] * 2.0, init=first, name="second")
    both = te.compute((40,), lambda n: first[n] * second[n], name="both")
    arrays = [RANDOM.integers(0, 40, 900).astype(np.int32), floats(900)]
    compare([index, g], [both], arrays)
    compare([index, g], [first, second], arrays)
    compare([index, g], [second], arrays)


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [((1000, 700), 1, 130), ((70, 40, 60), 2, 100), ((3, 70, 50), 2, 9000), ((40, 30, 20, 50), 3, 70)],
)
def test_rows_that_are_long_are_not_written_out(shape: tuple[int, ...], axis: int, count: int) -> None:
    """What every point does for its row is written out where the row is short, and only there."""
    x, places = te.placeholder(shape, name="x"), te.placeholder((count,), "int32", name="places")
    looked = (*shape[:axis], count, *shape[axis + 1 :])
    y = te.compute(looked, lambda *ix: x[(*ix[:axis], places[ix[axis]], *ix[axis + 1 :])], name="y")
    head = te.placeholder(looked, name="head")
    numbers, g = RANDOM.integers(0, shape[axis], count).astype(np.int32), floats(*looked)
    kernel = te.build([x, places, head], te.differentiate(y, x, head=head))
    assert len(kernel.source("llvm").splitlines()) < 2500
    want = np.zeros(shape)
    np.add.at(want, (*(slice(None),) * axis, numbers), g)
    np.testing.assert_allclose(kernel(np.zeros(shape, np.float32), numbers, g), want, atol=1e-3)


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis", "count", "dtype"),
    [((70, 500), 1, 700, "float32"), ((9, 3, 57, 21), 2, 70, "float64"), ((2, 40, 137), 2, 500, "int32")],
)
def test_rows_that_never_meet_are_made_one_after_another(
    shape: tuple[int, ...], axis: int, count: int, dtype: str, filled: bool
) -> None:
    """Each is begun, added to and written while it is in the cache."""
    x, places = te.placeholder(shape, dtype, name="x"), (*shape[:axis], count, *shape[axis + 1 :])
    index, g = te.placeholder(places, "int64", name="index"), te.placeholder(places, dtype, name="g")
    loops = [te.reduce_axis(n) for n in places]
    at = (*loops[:axis], index[tuple(loops)], *loops[axis + 1 :])
    op = "add" if dtype != "int32" else "max"
    y = te.scatter(shape, loops, at, g[tuple(loops)], op=op, init=x if filled else None, name="y")
    start = (10 * floats(*shape)).astype(dtype)
    arrays = [start, RANDOM.integers(0, shape[axis], places), (10 * floats(*places)).astype(dtype)]
    kernel = te.build([x, index, g], y)
    assert "produce y_rows" in str(kernel.loop_nest()).partition("produce y:")[2]
    compare([x, index, g], [y], arrays)
    if filled:  # into the memory that it starts from, and onto what is there
        expected = kernel(*arrays)
        own = te.build([x, index, g], y, alias={y: x})
        assert own(arrays[0].copy(), *arrays[1:]).tobytes() == expected.tobytes()
        assert not own.stats.copies
    elif op == "add":
        out = start.copy()
        kernel(*arrays, out=out, mode="add")
        np.testing.assert_allclose(out, start + kernel(*arrays), rtol=1e-5, atol=1e-4)


def test_corners_of_cells_are_taps() -> None:
    """What four corners are weighed with is computed where it is added, in vectors, at no loop over what is known."""
    height, width = 48, 264
    grid = te.placeholder((2, 9, height // 8 + 1, width // 8 + 1), name="grid")
    at, head = te.placeholder((height, width), name="at"), te.placeholder((height, width), name="head")

    def corners(c: int, y: te.Axis, x: te.Axis) -> te.Expr:
        z = te.clip(te.cast(at[y, x] * 7.0, "int32"), 0, 7)
        f, h = te.cast(x % 8, "float32") / 8, at[y, x] * 7.0 - te.cast(z, "float32")
        near = [((1 - h, h)[d] * (1 - f, f)[u], z + d, x // 8 + u) for d in (0, 1) for u in (0, 1)]
        return sum(w * grid[c, z, y // 8, x] for w, z, x in near)

    out = te.compute((height, width), lambda y, x: corners(0, y, x) / (corners(1, y, x) + 2.0), name="out")
    gradient = te.differentiate(out, grid, head=head)
    text = str(te.Schedule(gradient).auto())
    (added,) = [part for part in text.split("\nfor ") if "] += " in part and "tap" in part]
    assert "s0" not in added
    assert "tap < 8, unrolled:\n" in added
    rng = np.random.default_rng(0)
    feeds = {t: rng.random(tuple(map(int, map(str, t.shape))), dtype="float32") for t in (grid, at, head)}
    found = te.build(list(feeds), gradient)(*feeds.values())
    np.testing.assert_allclose(found, te.interpret(gradient, feeds), rtol=1e-4, atol=1e-4)


def test_cells_that_never_meet_have_no_tables_of_blocks() -> None:
    """Rows of cells go to threads, and what taps add is computed where it is added, however long its arithmetic."""
    cells, levels = 24, 12
    grid = te.placeholder((levels + 1, cells + 1, cells + 1), name="grid")
    x = te.placeholder((8 * cells, 8 * cells), name="x")

    def body(i: Any, j: Any) -> Any:
        level = te.clip(x[i, j], 0.0, levels - 1.0)
        k = te.clip(te.cast(level, "int32"), 0, levels - 1)
        shares = te.cast(i % 8, "float32") / 8, te.cast(j % 8, "float32") / 8, level - te.cast(k, "float32")
        at = lambda c, a, b: grid[k + c, i // 8 + a, j // 8 + b]  # noqa: E731
        mix = lambda p, q, by: p + (q - p) * by  # noqa: E731
        planes = [mix(*(mix(at(c, a, 0), at(c, a, 1), shares[1]) for a in (0, 1)), shares[0]) for c in (0, 1)]
        return mix(*planes, shares[2])

    y = te.compute(x.shape, body, name="y")
    head = te.placeholder(y.shape, name="head")
    d_grid = te.differentiate(y, [grid], head=head)[0]
    kernel = te.build([grid, x, head], d_grid, target="x86-64-v3")
    printed = str(te.Schedule(d_grid).auto())
    assert "_table" not in printed
    assert str(kernel.loop_nest()).count("produce") == 2  # factors that taps share, and the scatter
    arrays = [floats(*grid.shape), RANDOM.uniform(0, levels, (8 * cells, 8 * cells)).astype(np.float32)]
    compare([grid, x, head], [d_grid], [*arrays, floats(*y.shape)])


@pytest.mark.parametrize("rows", [16, 64])
def test_rows_of_a_scatter_of_three_loops(rows: int) -> None:
    """Where loops are not cut asks what is read: a scatter has other loops than dimensions (ValueError by zip)."""
    x: te.Tensor = te.placeholder((64, rows, 128), "int32", name="x")
    c, p, q = te.reduce_axis(64), te.reduce_axis(rows), te.reduce_axis(128)
    y = te.scatter((64, 256), [c, p, q], (c, te.clip(x[c, p, q], 0, 255)), 1.0)
    compare([x], [y], [RANDOM.integers(-3, 260, (64, rows, 128)).astype(np.int32)])


def test_one_number_for_all_points_of_a_scatter() -> None:
    """It is read at no index at all, not even at that of the lanes."""
    x, rows = te.placeholder((3, 2), name="x"), te.placeholder((2,), "int32", name="rows")
    total = te.compute((), lambda: te.sin(x[0, 0]))
    k, j = te.reduce_axis(2, "k"), te.reduce_axis(2, "j")
    y = te.scatter((3, 2), [k, j], (rows[k], j), te.sin(total[()]))
    given = floats(3, 2)
    found = te.evaluate(y, {x: given, rows: np.array([2, 2], "int32")})
    np.testing.assert_allclose(found, [[0, 0], [0, 0], [2 * np.sin(np.sin(given[0, 0]))] * 2], rtol=1e-5)


@pytest.mark.parametrize(("terms", "written"), [(1, True), (40, False)])
def test_short_loops_are_written_out_where_that_is_little(terms: int, *, written: bool) -> None:
    x = te.placeholder((400, 12, 64), name="x")
    i, j, k = te.reduce_axis(400, "i"), te.reduce_axis(64, "j"), te.reduce_axis(12, "k")
    place = te.cast(te.clip(x[i, k, j], 0, 7), "int32")
    value = sum(te.abs(x[i, k, j] - n) for n in range(terms))
    y = te.scatter((400, 8, 64), [i, j, k], (i, place, j), value, name="y")
    kernel = te.build(x, y)
    assert ("unrolled k.k in" in str(kernel.loop_nest())) == written
    array = RANDOM.integers(0, 8, x.shape).astype(np.float32)
    np.testing.assert_array_equal(kernel(array), te.interpret(y, {x: array}))
