"""Applications of Halide that take several arrays: a product of matrices, layers of a network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_kit import App, extent, func, host

__all__ = ["LAYERS"]

LARGE = 4000  # places from which on there are as many channels as in the application


def _uniform(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.random(shape, dtype=np.float32) - np.float32(0.3) for shape in shapes)


def _bounded(buffer: Any, extents: tuple[int, ...]) -> None:
    """A dense buffer whose sizes are known."""
    for k, n in enumerate(extents):
        buffer.dim(k).set_bounds(0, n).set_stride(math.prod(extents[:k]))


# --- a product of matrices, 2 a b + 3 c


def product_expert(hl: Any, right: Any, left: Any, more: Any) -> Any:
    """Columns are what rows are here: the factors change places."""
    n, lanes = right.width(), host(hl).natural_vector_size(hl.Float(32))
    i, j, k, io, jo, ii, ji, task = (hl.Var(v) for v in ("i", "j", "k", "io", "jo", "ii", "ji", "task"))
    tall, ti, tj, tii, tji = 2 * lanes, *(hl.Var(v) for v in ("ti", "tj", "tii", "tji"))
    inside = func(hl, "inside", (i, j), hl.BoundaryConditions.constant_exterior(right, hl.f32(0))[i, j])
    strips = func(hl, "strips", (i, j, io), inside[io * tall + i, j])
    packed = func(hl, "packed", (i, j), strips[i % tall, j, i // tall])
    term = func(hl, "term", (k, i, j), packed[i, k] * left[k, j])
    total, r = func(hl, "total", (i, j), hl.f32(0)), hl.RDom([(0, n)])
    total[i, j] += term[r, i, j]
    out = func(hl, "out", (i, j), 2.0 * total[i, j] + 3.0 * more[i, j])
    out.tile(i, j, ti, tj, i, j, 2 * tall, 2 * tall, hl.TailStrategy.GuardWithIf)
    out.tile(i, j, ii, ji, tall, 4).tile(i, j, tii, tji, i, j, 1, tall // 4)
    out.fuse(tj, ti, task).parallel(task).bound(i, 0, n).bound(j, 0, n)
    strips.compute_root().split(j, jo, ji, tall).reorder(i, ji, io, jo).unroll(i).vectorize(ji).parallel(jo, 4)
    inside.compute_at(strips, io).vectorize(i).unroll(j)
    total.compute_at(out, i).bound_extent(j, 4).unroll(j).bound_extent(i, tall).vectorize(i)
    total.update().reorder(i, j, r.x).unroll(j).unroll(r.x, 2).vectorize(i)
    for buffer in (right, left, more, out.output_buffer()):
        buffer.dim(0).set_bounds(0, n).dim(1).set_bounds(0, n)
    return out


def product(right: te.Tensor, left: te.Tensor, more: te.Tensor) -> te.Tensor:
    n = extent(left, 0)
    total = te.compute((n, n), lambda j, i: te.sum(lambda k: left[j, k] * right[k, i]))
    out: te.Tensor = te.compute((n, n), lambda j, i: 2.0 * total[j, i] + 3.0 * more[j, i])
    return out


# --- a convolution of 3 x 3 with a bias, positive values only, channels last


def _convolved(h: int, w: int) -> tuple[np.ndarray, ...]:
    channels = 128 if h * w >= LARGE else 48
    return _uniform((1, h + 2, w + 2, channels), (channels, 3, 3, channels), (channels,))


def convolution_expert(hl: Any, image: Any, weights: Any, bias: Any) -> Any:
    c, x, y, n, co, ci, xo, xi = (hl.Var(v) for v in ("c", "x", "y", "n", "co", "ci", "xo", "xi"))
    target = host(hl)
    lanes = target.natural_vector_size(hl.Float(32))
    channels = image.dim(0).extent()
    r = hl.RDom([(0, channels), (0, 3), (0, 3)])
    total = func(hl, "total", (c, x, y, n), bias[c])
    total[c, x, y, n] += weights[c, r.y, r.z, r.x] * image[r.x, x + r.y, y + r.z, n]
    out = func(hl, "out", (c, x, y, n), hl.max(hl.f32(0), total[c, x, y, n]))
    wide, tall = (4, 5) if target.has_feature(hl.TargetFeature.AVX512_Skylake) else (3, 4)
    out.split(c, co, ci, lanes * wide).split(x, xo, xi, tall).reorder(ci, xi, xo, y, n, co)
    out.vectorize(ci, lanes).unroll(ci).unroll(xi).parallel(y).parallel(n).parallel(co)
    total.compute_at(out, xo).vectorize(c, lanes).unroll(c).unroll(x).unroll(y)
    total.update().reorder(c, x, y, r.x, r.y, r.z, n).vectorize(c, lanes).unroll(c).unroll(x).unroll(y).unroll(r.x, 2)
    weights.in_().compute_at(total, r.x).vectorize(hl._0, lanes).unroll(hl._0).unroll(hl._3)
    image.in_().compute_at(total, x).unroll(hl._0)
    return out


def convolution(a: te.Tensor, weights: te.Tensor, bias: te.Tensor) -> te.Tensor:
    _, h, w, channels = (extent(a, k) for k in range(4))
    shape = (1, h - 2, w - 2, channels)
    total = te.compute(
        shape, lambda n, y, x, c: te.sum(lambda dy, dx, k: weights[k, dy, dx, c] * a[n, y + dy, x + dx, k])
    )
    out: te.Tensor = te.compute(shape, lambda n, y, x, c: te.relu(bias[c] + total[n, y, x, c]))
    return out


# --- a filter for each channel, then products over channels


def _separable(h: int, w: int) -> tuple[np.ndarray, ...]:
    return _uniform((4 if h * w >= LARGE else 1, h, w, 32), (3, 3, 32, 1), (32, 16), (16,))


def separable_expert(hl: Any, image: Any, filters: Any, weights: Any, bias: Any) -> Any:
    d, x, y, n, di, xi, yi = (hl.Var(v) for v in ("d", "x", "y", "n", "di", "xi", "yi"))
    lanes = host(hl).natural_vector_size(hl.Float(32))
    channels, w, h = (image.dim(k).extent() for k in range(3))
    inside = (x >= 0) & (x < w) & (y >= 0) & (y < h)
    held = image[d, hl.clamp(x, 0, w - 1), hl.clamp(y, 0, h - 1), n]
    whole = func(hl, "whole", (d, x, y, n), hl.select(inside, held, hl.f32(0)))
    r, k = hl.RDom([(0, 1), (0, 3), (0, 3)]), hl.RDom([(0, channels)])
    each = func(hl, "each", (d, x, y, n), hl.f32(0))
    each[d, x, y, n] += filters[r.x, d, r.y, r.z] * whole[d, x + r.y - 1, y + r.z - 1, n]
    total = func(hl, "total", (d, x, y, n), bias[d])
    total[d, x, y, n] += weights[d, k] * each[k, x, y, n]
    out = func(hl, "out", (d, x, y, n), hl.max(total[d, x, y, n], hl.f32(0)))
    deep, wide, tall = (lanes, 6, 4) if lanes == 16 else (2 * lanes, 3, 2)
    outer, inner = hl.RVar("outer"), hl.RVar("inner")
    out.tile([d, x, y], [di, xi, yi], [deep, wide, tall]).vectorize(di).unroll(xi).unroll(yi).fuse(y, n, n).parallel(n)
    total.compute_at(out, d).vectorize(d).unroll(x).unroll(y)
    total.update().reorder(d, x, y, k.x, n).vectorize(d).unroll(x).unroll(y).split(k.x, outer, inner, deep)
    each.store_in(hl.MemoryType.Stack).bound_extent(d, deep).compute_at(total, outer)
    each.vectorize(d).reorder(x, y, d).unroll(x).unroll(y)
    each.update().vectorize(d).reorder(x, y, d, r.x, r.y, r.z, n).unroll(x).unroll(y)
    whole.store_in(hl.MemoryType.Stack).compute_at(total, outer)
    whole.tile(d, x, di, xi, lanes, 4, hl.TailStrategy.RoundUp).vectorize(di).unroll(xi)
    filters.dim(1).set_stride(1)
    return out


def separable(a: te.Tensor, filters: te.Tensor, weights: te.Tensor, bias: te.Tensor) -> te.Tensor:
    n, h, w, channels = (extent(a, k) for k in range(4))

    def near(i: Any, y: Any, x: Any, d: Any) -> Any:
        return te.sum(lambda dy, dx: filters[dy, dx, d, 0] * a.at(i, y + dy - 1, x + dx - 1, d, mode="zero"))

    each = te.compute((n, h, w, channels), near)
    shape = (n, h, w, extent(weights, 1))
    total = te.compute(shape, lambda i, y, x, d: te.sum(lambda k: weights[k, d] * each[i, y, x, k]))
    out: te.Tensor = te.compute(shape, lambda i, y, x, d: te.relu(bias[d] + total[i, y, x, d]))
    return out


LAYERS = (
    App(
        "product of matrices",
        lambda h, w: _uniform((w, w), (w, w), (w, w)),
        product_expert,
        product,
        (768, 768),
        (64, 64),
    ),
    App("convolution layer", _convolved, convolution_expert, convolution, (80, 100), (8, 12)),
    App("depthwise separable convolution", _separable, separable_expert, separable, (112, 112), (8, 12)),
)
