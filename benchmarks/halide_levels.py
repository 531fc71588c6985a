"""Applications of Halide whose stages are levels: pyramids, recurrences along both axes, maxima by doubling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_kit import App, extent, func, host, image as floats

__all__ = ["LEVELS"]


# --- interpolation: what is not opaque is filled from coarser levels


def _half_opaque(h: int, w: int) -> np.ndarray:
    made = floats(4)(h, w)
    made[3] = np.where(made[3] > 0.6, made[3], 0.02)
    return made


def _levels(h: int, w: int) -> int:
    return min(h, w).bit_length()


def interpolation_expert(hl: Any, image: Any, h: int, w: int) -> Any:
    x, y, c, xo, yo, xi, yi = (hl.Var(v) for v in ("x", "y", "c", "xo", "yo", "xi", "yi"))
    lanes, count = host(hl).natural_vector_size(hl.Float(32)), _levels(h, w)
    image.dim(2).set_bounds(0, 4)
    whole = hl.BoundaryConditions.repeat_edge(image)
    opaque = hl.select(c < 3, whole[x, y, c] * whole[x, y, 3], whole[x, y, 3])
    down: list[Any] = [func(hl, "down_0", (x, y, c), opaque)]
    narrow: list[Any] = [None]
    made: list[Any] = [None] * count
    for k in range(1, count):
        last = down[-1]
        if k == 4:
            last = func(hl, "held", (x, y, c), last[hl.clamp(x, 0, w // 8), hl.clamp(y, 0, h // 8), c])
        across = (last[x * 2 - 1, y, c] + 2.0 * last[x * 2, y, c] + last[x * 2 + 1, y, c]) * 0.25
        narrow.append(func(hl, f"narrow_{k}", (x, y, c), across))
        each = narrow[k]
        both = (each[x, y * 2 - 1, c] + 2.0 * each[x, y * 2, c] + each[x, y * 2 + 1, c]) * 0.25
        down.append(func(hl, f"down_{k}", (x, y, c), both))
    made[-1] = func(hl, f"made_{count - 1}", (x, y, c), down[-1][x, y, c])
    for k in reversed(range(count - 1)):
        finer = made[k + 1]
        wide = func(hl, f"wide_{k}", (x, y, c), (finer[x // 2, y, c] + finer[(x + 1) // 2, y, c]) / 2.0)
        up = func(hl, f"up_{k}", (x, y, c), (wide[x, y // 2, c] + wide[x, (y + 1) // 2, c]) / 2.0)
        made[k] = func(hl, f"made_{k}", (x, y, c), down[k][x, y, c] + (1.0 - down[k][x, y, 3]) * up[x, y, c])
    out = func(hl, "out", (x, y, c), made[0][x, y, c] / made[0][x, y, 3])
    for k in range(1, count - 1):
        root = down[k].compute_root().never_partition([x]).reorder(x, c, y)
        root.split(y, yo, yi, 8).parallel(yo).vectorize(x, lanes)
    first = down[0].clone_in(narrow[1]).store_at(down[1], yo).compute_at(down[1], yi)
    first.reorder(c, x, y).unroll(c).vectorize(x, lanes).never_partition([y])
    out.bound(x, 0, w).bound(y, 0, h).bound(c, 0, 3).never_partition([y]).split(x, xo, xi, lanes).split(y, yo, yi, 32)
    out.reorder(xi, c, xo, yi, yo).unroll(c).vectorize(xi).parallel(yo)
    for k in range(1, count):
        made[k].store_at(out, yo).compute_at(out, yi).never_partition_all().vectorize(x, lanes)
    return out


def interpolation(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 1), extent(a, 2)
    count = _levels(h, w)
    size = [(h, w)]
    for _ in range(1, count):  # the places of each level that are read on the way up
        size.append((size[-1][0] // 2 + 1, size[-1][1] // 2 + 1))
    begins = [[(0, 0), size[k]] for k in range(count)]  # and down, from where to where
    for k in reversed(range(1, count - 1)):
        end = [max(own, 2 * n) for own, n in zip(size[k], begins[k + 1][1], strict=True)]
        begin = [2 * n - 1 for n in begins[k + 1][0]]
        if k == 3:  # held there
            begin, end = [0, 0], [max(own, n // 8 + 1) for own, n in zip(size[k], (h, w), strict=True)]
        begins[k] = [(begin[0], begin[1]), (end[0], end[1])]
    opaque = te.compute((4, h, w), lambda c, y, x: te.select(c < 3, a[c, y, x] * a[3, y, x], a[3, y, x]))
    down: list[Any] = [lambda c, y, x: opaque.at(c, y, x, mode="clamp")]
    for k in range(1, count):
        down.append(_halved(down[-1], begins[k], (h // 8, w // 8) if k == 4 else None))
    last = size[-1]
    made = te.compute((4, *last), down[-1])
    for k in reversed(range(count - 1)):

        def filled(c: Any, y: Any, x: Any, below: te.Tensor = made, k: int = k) -> Any:
            def across(y: Any) -> Any:
                return (below[c, y, x // 2] + below[c, y, (x + 1) // 2]) / 2.0

            return down[k](c, y, x) + (1.0 - down[k](3, y, x)) * ((across(y // 2) + across((y + 1) // 2)) / 2.0)

        made = te.compute((4, *size[k]), filled)
    out: te.Tensor = te.compute((3, h, w), lambda c, y, x: made[c, y, x] / made[3, y, x])
    return out


def _halved(last: Any, box: list[tuple[int, int]], held: tuple[int, int] | None) -> Any:
    """The next level of a pyramid over a box, as a function of a place."""
    (y0, x0), (y1, x1) = box
    rows, columns = y1 - y0, x1 - x0

    def read(c: Any, y: Any, x: Any) -> Any:
        return last(c, te.clip(y, 0, held[0]), te.clip(x, 0, held[1])) if held else last(c, y, x)

    def tap(at: Any) -> Any:
        return (at(-1) + 2.0 * at(0) + at(1)) * 0.25

    across = te.compute(
        (4, 2 * rows + 1, columns), lambda c, y, x: tap(lambda d: read(c, y + 2 * y0 - 1, 2 * (x + x0) + d))
    )
    both = te.compute((4, rows, columns), lambda c, y, x: tap(lambda d: across[c, 2 * y + 1 + d, x]))
    return lambda c, y, x: both[c, y - y0, x - x0]


# --- a recursive blur: down and up, then right and left

SHARE = 0.1


def recursive_expert(hl: Any, image: Any) -> Any:
    x, y, c, xo, yo, yi, task = (hl.Var(v) for v in ("x", "y", "c", "xo", "yo", "yi", "task"))
    lanes, sizes = host(hl).natural_vector_size(hl.Float(32)), (image.width(), image.height(), 3)

    def turned(of: Any, height: int) -> Any:
        blur, r = func(hl, "blur", (x, y, c), hl.undef(hl.Float(32))), hl.RDom([(1, height - 1)])
        up = height - r - 1
        blur[x, 0, c] = of[x, 0, c]
        blur[x, r, c] = hl.f32(1 - SHARE) * blur[x, r - 1, c] + hl.f32(SHARE) * of[x, r, c]
        blur[x, up, c] = hl.f32(1 - SHARE) * blur[x, up + 1, c] + hl.f32(SHARE) * blur[x, up, c]
        made = func(hl, "turned", (x, y, c), blur[y, x, c])
        made.compute_root().tile(x, y, xo, yo, x, y, lanes, lanes * 4).split(y, y, yi, lanes)
        made.vectorize(yi).vectorize(x).fuse(yo, c, task).parallel(task)
        blur.compute_at(made, task)
        blur.update(0).unscheduled()
        for k in (1, 2):
            blur.update(k).reorder(x, r.x).vectorize(x)
        return made

    out = turned(turned(image, sizes[1]), sizes[0])
    for buffer in (image, out.output_buffer()):
        for k, n in enumerate(sizes):
            buffer.dim(k).set_bounds(0, n).set_stride(math.prod(sizes[:k]))
    return out


def recursive(a: te.Tensor) -> te.Tensor:
    made = a
    for axis, size in ((1, extent(a, 1)), (2, extent(a, 2))):
        for reverse in (False, True):

            def step(
                s: Any, *at: Any, of: te.Tensor = made, axis: int = axis, size: int = size, up: bool = reverse
            ) -> Any:
                before = [i + (1 if up else -1) if k == axis else i for k, i in enumerate(at)]
                mixed = (1 - SHARE) * s[tuple(before)] + SHARE * of[at]
                return te.select(at[axis] == (size - 1 if up else 0), of[at], mixed)

            made = te.scan(a.shape, lambda s, c, y, x, step=step: step(s, c, y, x), axis=axis, reverse=reverse)
    return made


# --- the largest of a disk, by columns of every height: each is two columns of a power of two

RADIUS = 26
HEIGHTS = [sum(d * d + e * e < (RADIUS + 0.25) ** 2 for e in range(RADIUS + 1)) for d in range(-RADIUS, RADIUS + 1)]
DOUBLED = math.ceil(math.log2(RADIUS)) + 1


def largest_expert(hl: Any, image: Any, h: int, w: int) -> Any:
    x, y, c, t, strip, task = (hl.Var(v) for v in ("x", "y", "c", "t", "strip", "task"))
    whole = hl.BoundaryConditions.repeat_edge(image, [(0, w), (0, h)])
    doubled = func(hl, "doubled", (x, y, c, t), whole[x, y, c])
    r = hl.RDom([(-RADIUS, h + RADIUS), (1, DOUBLED - 1)])
    further = r.x + hl.clamp(hl.i32(1) << (r.y - 1), 0, RADIUS * 2)
    doubled[x, r.x, c, r.y] = hl.max(doubled[x, r.x, c, r.y - 1], doubled[x, further, c, r.y - 1])
    slices = func(hl, "slices", (t,), hl.i32(hl.floor(hl.log(hl.f32(2 * t + 1)) / hl.f32(math.log(2)))))
    own = hl.clamp(slices[t], 0, DOUBLED)
    lower = doubled[x, y + t + 1 - hl.clamp(hl.i32(1) << own, 0, 2 * RADIUS), c, own]
    columns = func(hl, "columns", (x, y, c, t), hl.max(doubled[x, y - t, c, own], lower))
    dy, dx = hl.RDom([(0, RADIUS + 1)]), hl.RDom([(-RADIUS, 2 * RADIUS + 1)])
    inside = hl.f32(x * x + dy * dy) < (RADIUS + 0.25) * (RADIUS + 0.25)
    heights = func(hl, "heights", (x,), hl.sum(hl.select(inside, 1, 0)))
    out = func(hl, "out", (x, y, c), hl.maximum(columns[x + dx, y, c, hl.clamp(heights[dx], 0, RADIUS + 1)]))
    slices.compute_root()
    heights.compute_root()
    tail = hl.TailStrategy.GuardWithIf if w < 256 else hl.TailStrategy.Auto
    out.compute_root().split(x, strip, x, 256, tail).reorder(x, y, c, strip)
    out.fuse(c, strip, task).parallel(task).vectorize(x, 8)
    doubled.compute_at(out, task).vectorize(x, 8)
    doubled.update().reorder(x, r.x, r.y, c).vectorize(x, 8)
    columns.compute_at(out, y).vectorize(x, 8)
    return out


def largest(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 1), extent(a, 2)
    rows, wide = h + 2 * RADIUS + 4, w + 2 * RADIUS
    begin = RADIUS + 2
    doubled = [te.compute((3, rows, wide), lambda c, y, x: a.at(c, y - begin, x - RADIUS, mode="clamp"))]
    for k in range(DOUBLED - 1):
        doubled.append(_larger(doubled[-1], (3, rows, wide), 0, 1 << k))
    columns = {}
    for t in sorted(set(HEIGHTS)):
        k = min(int(math.log2(2 * t + 1)), DOUBLED - 1)
        columns[t] = _larger(doubled[k], (3, h, wide), begin - t, begin + t + 1 - (1 << k))

    def disk(c: Any, y: Any, x: Any) -> Any:
        made: Any = columns[HEIGHTS[0]][c, y, x]
        for d, t in enumerate(HEIGHTS[1:], 1):
            made = te.maximum(made, columns[t][c, y, x + d])
        return made

    out: te.Tensor = te.compute((3, h, w), disk)
    return out


def _larger(of: te.Tensor, shape: tuple[int, ...], one: int, other: int) -> te.Tensor:
    """The larger of the elements that are so many rows below."""
    made: te.Tensor = te.compute(
        shape,
        lambda c, y, x: te.maximum(of.at(c, y + one, x, mode="clamp"), of.at(c, y + other, x, mode="clamp")),
    )
    return made


LEVELS = (
    App(
        "interpolation by a pyramid",
        _half_opaque,
        interpolation_expert,
        interpolation,
        (1280, 768),
        (64, 64),
        sized=True,
    ),
    App("recursive blur", floats(3), recursive_expert, recursive, (1280, 768), (64, 96)),
    App("largest of a disk", floats(3), largest_expert, largest, (640, 384), (48, 64), sized=True),
)
