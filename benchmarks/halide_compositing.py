"""Compositing of layers as Halide's application does it: how each layer goes with those below is said when it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_kit import App, extent, func, host

__all__ = ["COMPOSITING"]

COUNT, MODES = 6, 5


def _layers(h: int, w: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return *(rng.integers(1, 256, (4, h, w), "uint8") for _ in range(COUNT)), np.array([0, 2, 1, 4, 0], "int32")


def _modes(scale: Callable[[Any, Any], Any], a: Sequence[Any], b: Sequence[Any]) -> list[list[Any]]:
    """A layer `b` over `a`, atop of it, either of them, `a` within `b` and `a` without it: colours, then opacities."""
    under, above = b[3], a[3]
    rest = [scale(v, ~under) for v in a]
    return [
        [v + r for v, r in zip(b, rest, strict=True)],
        [*(scale(v, above) + r for v, r in zip(b[:3], rest[:3], strict=True)), above],
        [scale(v, ~above) + r for v, r in zip(b, rest, strict=True)],
        [scale(v, under) for v in a],
        rest,
    ]


def compositing_expert(hl: Any, *images: Any) -> Any:
    x, y, c, yo, yi = (hl.Var(v) for v in ("x", "y", "c", "yo", "yi"))
    *layers, codes = images
    byte: Any = lambda v: hl.cast(hl.UInt(8), v)  # noqa: E731

    def scale(a: Any, b: Any) -> Any:
        wide = hl.widening_mul(a, hl.cast(a.type(), b))
        wide = wide + hl.rounding_shift_right(wide, hl.cast(wide.type(), 8))
        return hl.cast(a.type(), hl.rounding_shift_right(wide, hl.cast(wide.type(), 8)))

    def premultiplied(rgba: Sequence[Any]) -> list[Any]:
        return [*(hl.widening_mul(v, rgba[3]) for v in rgba[:3]), rgba[3]]

    r = hl.RDom([(0, MODES), (0, COUNT - 1)])
    r.where(r.x == codes[r.y])
    blended = func(hl, "blended", (x, y), tuple(premultiplied([layers[0][x, y, k] for k in range(4)])))
    each = [hl.mux(r.y + 1, [image[x, y, k] for image in layers]) for k in range(4)]
    modes = _modes(scale, [hl.Expr(blended[x, y][k]) for k in range(4)], premultiplied(each))
    blended[x, y] = tuple(hl.mux(r.x, [mode[k] for mode in modes]) for k in range(4))
    *colours, alpha = (hl.Expr(blended[x, y][k]) for k in range(4))
    half, by = hl.f32(alpha / 2), hl.f32(hl.max(alpha, 1))  # of 17 bits by 8, which floats of 32 hold exactly
    divided = [hl.u8(hl.min((hl.f32(v) + half) / by, 255)) for v in colours]
    out = func(hl, "out", (x, y, c), hl.mux(c, [*divided, byte(alpha)]))
    lanes = host(hl).natural_vector_size(hl.UInt(8))
    out.split(y, yo, yi, 8).parallel(yo).vectorize(x, lanes).reorder(c, x, yi, yo).bound(c, 0, 4).unroll(c)
    blended.store_in(hl.MemoryType.Stack).compute_at(out, yi).vectorize(x, lanes)
    blended.update().reorder(x, r.x, r.y).unroll(r.x).unroll(r.y).vectorize(x, lanes)
    return out


def compositing(*inputs: te.Tensor) -> te.Tensor:
    *layers, codes = inputs
    plane = extent(layers[0], 1), extent(layers[0], 2)

    def scale(a: Any, b: Any) -> Any:
        wide = "uint16" if str(a.dtype) == "uint8" else "uint32"
        product = te.cast(a, wide) * te.cast(b, wide)
        product = product + ((product + 128) >> 8)
        return te.cast((product + 128) >> 8, str(a.dtype))

    def premultiplied(t: te.Tensor, y: Any, x: Any) -> list[Any]:
        return [*(te.cast(t[k, y, x], "uint16") * te.cast(t[3, y, x], "uint16") for k in range(3)), t[3, y, x]]

    def below(parts: tuple[te.Tensor, ...], k: int) -> tuple[te.Tensor, ...]:
        def body(y: Any, x: Any) -> tuple[Any, ...]:
            modes = _modes(scale, [t[y, x] for t in parts], premultiplied(layers[k + 1], y, x))
            return tuple(
                functools.reduce(lambda other, m: te.select(codes[k] == m, modes[m][p], other), range(3, -1, -1), last)
                for p, last in enumerate(modes[4])
            )

        return te.compute(plane, body, name=f"blended_{k}")

    made = te.compute(plane, lambda y, x: tuple(premultiplied(layers[0], y, x)), name="lowest")
    *colours, alpha = functools.reduce(below, range(COUNT - 1), made)

    def channel(c: Any, y: Any, x: Any) -> Any:
        by = te.cast(alpha[y, x], "uint16")
        divided = [te.minimum((te.cast(t[y, x], "int32") + by // 2) // te.maximum(by, 1), 255) for t in colours]
        return te.cast(
            te.select(c == 0, divided[0], te.select(c == 1, divided[1], te.select(c == 2, divided[2], by))), "uint8"
        )

    composed: te.Tensor = te.compute((4, *plane), channel)
    return composed


COMPOSITING = App(
    "compositing by codes",
    _layers,
    compositing_expert,
    compositing,
    (2560, 1536),
    differentiable=False,
    off=1e-3,
    by=255,
)
