"""More applications of Halide: tables and grids that are filled from an image, means of neighbours, resampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_kit import GRAY, App, extent, func, host, image as floats

__all__ = ["IMAGES"]


# --- histogram equalization: gray values are spread evenly, colours keep their distance from them

HUES = (1.4 * 0.713, -0.711 * 0.713, 0.0), (0.0, -0.343 * 0.564, 1.765 * 0.564)  # of red and of blue


def _bytes(h: int, w: int) -> np.ndarray:
    return (np.random.default_rng(0).random((3, h, w)) ** 2 * 256).astype("uint8")


def histogram_expert(hl: Any, image: Any) -> Any:
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    w, h, lanes = image.width(), image.height(), host(hl).natural_vector_size(hl.Float(32))
    gray = func(hl, "gray", (x, y), sum((hl.f32(g) * image[x, y, k] for k, g in enumerate(GRAY)), hl.f32(0)))
    column, row, rest = hl.RDom([(0, w)]), hl.RDom([(0, h)]), hl.RDom([(1, 255)])
    rows = func(hl, "rows", (x, y), hl.i32(0))
    rows[hl.i32(hl.clamp(gray[column, y], 0, 255)), y] += 1
    total = func(hl, "total", (x,), hl.i32(0))
    total[x] += rows[x, row]
    below = func(hl, "below", (x,), total[0])
    below[rest.x] = below[rest.x - 1] + total[rest.x]
    level = hl.u8(hl.clamp(gray[x, y], 0, 255))
    even = func(hl, "even", (x, y), hl.clamp(below[level] * (hl.f32(255) / hl.f32(w * h)), 0, 255))
    red, blue = image[x, y, 0] - gray[x, y], image[x, y, 2] - gray[x, y]
    colours = [even[x, y] + red * hl.f32(HUES[0][k]) + blue * hl.f32(HUES[1][k]) for k in range(3)]
    out = func(hl, "out", (x, y, c), hl.u8(hl.clamp(hl.mux(c, colours), 0, 255)))
    below.bound(x, 0, 256)
    gray.clone_in(rows).compute_at(rows.in_(), y).vectorize(x, lanes)
    rows.in_().compute_root().vectorize(x, lanes).parallel(y, 4)
    rows.compute_at(rows.in_(), y).vectorize(x, lanes).update().reorder(y, column.x).unroll(y)
    total.compute_root().vectorize(x, lanes).update().reorder(x, row.x).vectorize(x, lanes).unroll(x, 4).parallel(x)
    total.update().reorder(row.x, x)
    below.compute_root().update().unscheduled()
    out.reorder(c, x, y).bound(c, 0, 3).unroll(c).parallel(y, 8).vectorize(x, lanes * 2)
    return out


def histogram(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 1), extent(a, 2)
    byte: Any = lambda k, y, x: te.cast(a[k, y, x], "float32")  # noqa: E731
    gray = te.compute((h, w), lambda y, x: sum(g * byte(k, y, x) for k, g in enumerate(GRAY)))
    level: Any = lambda y, x: te.cast(te.clip(gray[y, x], 0.0, 255.0), "int32")  # noqa: E731
    row, column = te.reduce_axis(h), te.reduce_axis(w)
    total = te.scatter((256,), [row, column], (level(row, column),), te.const(1, "int32"))
    below = te.scan((256,), lambda b, i: te.select(i == 0, total[0], b[i - 1] + total[i]), axis=0)

    def colour(c: Any, y: Any, x: Any) -> Any:
        even = te.clip(te.cast(below[level(y, x)], "float32") * (255.0 / (h * w)), 0.0, 255.0)
        red, blue = byte(0, y, x) - gray[y, x], byte(2, y, x) - gray[y, x]
        made = [even + red * HUES[0][k] + blue * HUES[1][k] for k in range(3)]
        return te.cast(te.clip(te.select(c == 0, made[0], te.select(c == 1, made[1], made[2])), 0.0, 255.0), "uint8")

    out: te.Tensor = te.compute((3, h, w), colour)
    return out


# --- bilateral grid: means of cells of eight by eight pixels and ten levels, which are blurred, then read

CELL, LEVELS = 8, 10
TAPS = tuple(enumerate((1.0, 4.0, 6.0, 4.0, 1.0), -2))


def grid_expert(hl: Any, image: Any) -> Any:
    x, y, z, c = (hl.Var(v) for v in "xyzc")
    near = hl.BoundaryConditions.repeat_edge(image)
    r = hl.RDom([(0, CELL), (0, CELL)])
    value = hl.clamp(near[x * CELL + r.x - 4, y * CELL + r.y - 4], 0.0, 1.0)
    grid = func(hl, "grid", (x, y, z, c), hl.f32(0))
    grid[x, y, hl.i32(value * float(LEVELS) + 0.5), c] += hl.mux(c, [value, hl.f32(1)])
    deep = func(hl, "deep", (x, y, z, c), sum((grid[x, y, z + k, c] * hl.f32(w) for k, w in TAPS), hl.f32(0)))
    wide = func(hl, "wide", (x, y, z, c), sum((deep[x + k, y, z, c] * hl.f32(w) for k, w in TAPS), hl.f32(0)))
    blurred = func(hl, "blurred", (x, y, z, c), sum((wide[x, y + k, z, c] * hl.f32(w) for k, w in TAPS), hl.f32(0)))
    level = hl.clamp(image[x, y], 0.0, 1.0) * float(LEVELS)
    cell = hl.i32(level)
    parts = hl.f32(x % CELL) / CELL, hl.f32(y % CELL) / CELL, level - cell

    def read(c: int) -> Any:
        at: Any = lambda i, j, k: blurred[x // CELL + i, y // CELL + j, cell + k, c]  # noqa: E731
        rows = [[hl.lerp(at(0, j, k), at(1, j, k), parts[0]) for j in (0, 1)] for k in (0, 1)]
        return hl.lerp(*(hl.lerp(*row, parts[1]) for row in rows), parts[2])

    out = func(hl, "out", (x, y), read(0) / read(1))
    deep.compute_at(wide, y).reorder(c, z, x, y).vectorize(x, 8).unroll(c)
    grid.compute_at(deep, y)
    grid.update().reorder(c, r.x, r.y, x, y).unroll(c)
    wide.compute_root().reorder(c, x, z, y).parallel(y).vectorize(x, 8).unroll(c)
    blurred.compute_at(out, y).store_in(hl.MemoryType.Stack).reorder(c, x, y, z).reorder_storage(c, z, x, y)
    blurred.vectorize(x, 8).unroll(c)
    out.compute_root().parallel(y, 8).vectorize(x, 8)
    return out


def grid(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 0), extent(a, 1)
    rows, columns, depth = -(-h // CELL) + 5, -(-w // CELL) + 5, LEVELS + 6  # from -2 on along each axis
    axes = [te.reduce_axis(n) for n in (2, rows, columns, CELL, CELL)]
    part, j, i, dy, dx = axes
    value = te.clip(a.at((j - 2) * CELL + dy - 4, (i - 2) * CELL + dx - 4, mode="clamp"), 0.0, 1.0)
    level = te.cast(value * float(LEVELS) + 0.5, "int32") + 2
    sums = te.scatter((2, depth, rows, columns), axes, (part, level, j, i), te.select(part == 0, value, 1.0))
    for axis in (1, 3, 2):
        shape = [extent(sums, d) - 4 * (d == axis) for d in range(4)]

        def blurred(*at: Any, t: te.Tensor = sums, axis: int = axis) -> Any:
            return sum(t[tuple(i + (k + 2) * (d == axis) for d, i in enumerate(at))] * w for k, w in TAPS)

        sums = te.compute(shape, lambda c, z, y, x, of=blurred: of(c, z, y, x))

    def read(c: int, y: Any, x: Any) -> Any:
        level = te.clip(a[y, x], 0.0, 1.0) * float(LEVELS)
        cell = te.clip(te.cast(level, "int32"), 0, LEVELS)
        at: Any = lambda k, j, i: sums[c, cell + k, y // CELL + j, x // CELL + i]  # noqa: E731
        parts = te.cast(x % CELL, a.dtype) / CELL, te.cast(y % CELL, a.dtype) / CELL, level - te.cast(cell, a.dtype)
        mix: Any = lambda p, q, by: p + (q - p) * by  # noqa: E731
        levels = [mix(*(mix(at(k, j, 0), at(k, j, 1), parts[0]) for j in (0, 1)), parts[1]) for k in (0, 1)]
        return mix(*levels, parts[2])

    out: te.Tensor = te.compute((h, w), lambda y, x: read(0, y, x) / read(1, y, x))
    return out


# --- non-local means: each pixel is a mean of its neighbours, weighted by how alike the patches around them are

REACH, PATCH, SHARP = 3, 3, -1.0 / (0.12**2 * 49)
WIDE = 2 * REACH + 1


def means_expert(hl: Any, image: Any) -> Any:
    x, y, i, j, c, tile_x, tile_y = (hl.Var(v) for v in ("x", "y", "i", "j", "c", "tile_x", "tile_y"))
    lanes = host(hl).natural_vector_size(hl.Float(32))
    near = hl.BoundaryConditions.repeat_edge(image)
    apart = func(hl, "apart", (x, y, i, j, c), (near[x, y, c] - near[x + i, y + j, c]) ** 2)
    channel, patch = hl.RDom([(0, 3)]), hl.RDom([(-PATCH, 2 * PATCH + 1)])
    d = func(hl, "d", (x, y, i, j), hl.sum(apart[x, y, i, j, channel]))
    down = func(hl, "down", (x, y, i, j), hl.sum(d[x, y + patch, i, j]))
    both = func(hl, "both", (x, y, i, j), hl.sum(down[x + patch, y, i, j]))
    weight = func(hl, "weight", (x, y, i, j), hl.fast_exp(both[x, y, i, j] * hl.f32(SHARP)))
    with_one = func(hl, "with_one", (x, y, c), hl.mux(c, [near[x, y, 0], near[x, y, 1], near[x, y, 2], hl.f32(1)]))
    r = hl.RDom([(-REACH, WIDE), (-REACH, WIDE)])
    total = func(hl, "total", (x, y, c), hl.f32(0))
    total[x, y, c] += weight[x, y, r.x, r.y] * with_one[x + r.x, y + r.y, c]
    out = func(hl, "out", (x, y, c), hl.clamp(total[x, y, c] / total[x, y, 3], 0.0, 1.0))
    out.output_buffer().dim(2).set_bounds(0, 3)
    out.compute_root().reorder(c, x, y).tile(x, y, tile_x, tile_y, x, y, 16, 8).parallel(tile_y).vectorize(x, lanes)
    down.compute_at(out, tile_x).hoist_storage(out, tile_y).reorder(y, x).vectorize(x, lanes)
    d.compute_at(out, tile_x).hoist_storage(out, tile_y).vectorize(x, lanes)
    total.compute_at(out, x).reorder(c, x, y).bound(c, 0, 4).unroll(c).vectorize(x, lanes)
    total.update(0).reorder(c, x, y, r.x, r.y).unroll(c).vectorize(x, lanes)
    both.compute_at(total, x).vectorize(x, lanes)
    return out


def means(a: te.Tensor) -> te.Tensor:
    h, w, p, taps = extent(a, 1), extent(a, 2), PATCH, range(2 * PATCH + 1)
    at: Any = lambda c, y, x: a.at(c, y, x, mode="clamp")  # noqa: E731

    def apart(j: Any, i: Any, y: Any, x: Any) -> Any:
        return sum((at(c, y - p, x - p) - at(c, y - p + j - REACH, x - p + i - REACH)) ** 2 for c in range(3))

    d = te.compute((WIDE, WIDE, h + 2 * p, w + 2 * p), apart)
    down = te.compute((WIDE, WIDE, h, w + 2 * p), lambda j, i, y, x: sum(d[j, i, y + k, x] for k in taps))
    both = te.compute((WIDE, WIDE, h, w), lambda j, i, y, x: sum(down[j, i, y, x + k] for k in taps))
    weight = te.compute((WIDE, WIDE, h, w), lambda j, i, y, x: te.exp(both[j, i, y, x] * SHARP))
    total = te.compute(
        (3, h, w), lambda c, y, x: te.sum(lambda j, i: weight[j, i, y, x] * at(c, y + j - REACH, x + i - REACH))
    )
    whole = te.compute((h, w), lambda y, x: te.sum(lambda j, i: weight[j, i, y, x]))
    out: te.Tensor = te.compute((3, h, w), lambda c, y, x: te.clip(total[c, y, x] / whole[y, x], 0.0, 1.0))
    return out


# --- resize: twice as large, by cubic splines that are computed for every row and column

TWICE = 2


def _cubic(pick: Callable[..., Any], u: Any) -> Any:
    inside, outside = 1.5 * u * u * u - 2.5 * u * u + 1.0, -0.5 * u * u * u + 2.5 * u * u - 4.0 * u + 2.0
    return pick(u < 1.0, inside, pick(u < 2.0, outside, 0.0))


def resize_expert(hl: Any, image: Any) -> Any:
    x, y, c, k, xi, yi = (hl.Var(v) for v in ("x", "y", "c", "k", "xi", "yi"))
    lanes = host(hl).natural_vector_size(hl.Float(32))
    r = hl.RDom([(0, 4)])
    raw, total, taps, begin = [], [], [], []
    for v, size, name in (x, image.width(), "x"), (y, image.height(), "y"):
        source = (v + 0.5) * hl.f32(1 / TWICE) - 0.5
        begin.append(hl.clamp(hl.i32(hl.ceil(source - 2.0)), 0, size - 4))
        pick = lambda p, a, b: hl.select(p, a, b if hasattr(b, "type") else hl.f32(b))  # noqa: E731
        raw.append(func(hl, "raw_" + name, (v, k), _cubic(pick, hl.abs(hl.f32(k + begin[-1]) - source))))
        total.append(func(hl, "total_" + name, (v,), hl.sum(raw[-1][v, r])))
        taps.append(func(hl, "taps_" + name, (v, k), raw[-1][v, k] / total[-1][v]))
    across = func(hl, "across", (x, y, c), hl.sum(taps[0][x, r] * image[r + begin[0], y, c]))
    down = func(hl, "down", (x, y, c), hl.sum(taps[1][y, r] * across[x, r + begin[1], c]))
    out = func(hl, "out", (x, y, c), hl.clamp(down[x, y, c], 0.0, 1.0))
    raw[0].compute_at(taps[0], x).store_in(hl.MemoryType.Stack).vectorize(x)
    total[0].compute_at(taps[0], x).vectorize(x)
    taps[0].compute_root().reorder(k, x).vectorize(x, lanes)
    raw[1].compute_at(taps[1], y).vectorize(y, lanes)
    total[1].compute_at(taps[1], y).vectorize(y)
    taps[1].compute_at(out, y).reorder(k, y).vectorize(y, lanes)
    out.tile(x, y, xi, yi, 16, 64).parallel(y).vectorize(xi)
    across.compute_at(out, x).hoist_storage(out, y).vectorize(x)
    down.compute_at(out, xi).unroll(c)
    return out


def resize(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 1), extent(a, 2)
    taps, begin = [], []
    source: Any = lambda i: (i + 0.5) * (1 / TWICE) - 0.5  # noqa: E731
    for size in (w, h):

        def first(i: Any, size: int = size) -> Any:
            return te.clip(te.cast(te.ceil(source(i) - 2.0), "int32"), 0, size - 4)

        raw = te.compute(
            (size * TWICE, 4),
            lambda i, k, at=first: te.cast(_cubic(te.select, te.abs(te.cast(k + at(i), a.dtype) - source(i))), a.dtype),
        )
        taps.append(te.compute((size * TWICE, 4), lambda i, k, of=raw: of[i, k] / sum(of[i, p] for p in range(4))))
        begin.append(first)
    across = te.compute((3, h, w * TWICE), lambda c, y, x: te.sum(lambda k: taps[0][x, k] * a[c, y, k + begin[0](x)]))
    down = te.compute(
        (3, h * TWICE, w * TWICE), lambda c, y, x: te.sum(lambda k: taps[1][y, k] * across[c, k + begin[1](y), x])
    )
    out: te.Tensor = te.compute((3, h * TWICE, w * TWICE), lambda c, y, x: te.clip(down[c, y, x], 0.0, 1.0))
    return out


IMAGES = (
    App("histogram equalization of bytes", _bytes, histogram_expert, histogram, differentiable=False, off=5e-3, by=3),
    App("bilateral grid", floats(0), grid_expert, grid, small=(32, 128)),
    App("non-local means", floats(3), means_expert, means, (320, 256), (16, 32)),
    App("resize by cubic splines", floats(3), resize_expert, resize, (640, 384), (32, 64)),
)
