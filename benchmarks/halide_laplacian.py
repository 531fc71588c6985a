"""Local Laplacian filters, an application of Halide: contrast is changed at each level of a pyramid, by curves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tedsl as te
from benchmarks.halide_kit import GRAY, App, extent, func

__all__ = ["LAPLACIAN"]

CURVES, MOST_LEVELS = 8, 8
STEPS = 256 * (CURVES - 1)  # of the curve, which is a table
Box = tuple[tuple[int, int], tuple[int, int]]  # the first and the last of rows and of columns
Read = Callable[..., Any]


def _levels(h: int, w: int) -> int:
    return min(MOST_LEVELS, min(h, w).bit_length() - 2)


def _photograph(h: int, w: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    rough = rng.random((3, h // 8 + 1, w // 8 + 1)).repeat(8, 1).repeat(8, 2)[:, :h, :w]
    return ((rough * 0.8 + 0.2 * rng.random((3, h, w))) * 65535).astype("uint16")


def _read(of: Any, *at: Any) -> Any:
    return of[at]


def _four(tap: Read) -> Any:
    return (tap(-1) + 3.0 * (tap(0) + tap(1)) + tap(2)) / 8.0


def laplacian_expert(hl: Any, image: Any, h: int, w: int) -> Any:
    x, y, c, k, yo = (hl.Var(v) for v in ("x", "y", "c", "k", "yo"))
    count, rows_first = _levels(h, w), []

    def halved(name: str, f: Any, *v: Any) -> Any:
        rows = func(hl, name + "_rows", (x, y, *v), _four(lambda d: _read(f, x, 2 * y + d, *v)))
        rows_first.append(rows)
        return func(hl, name, (x, y, *v), _four(lambda d: _read(rows, 2 * x + d, y, *v)))

    def doubled(f: Any, *v: Any) -> Any:
        def mix(i: Any, at: Read) -> Any:
            return hl.lerp(at((i + 1) // 2), at((i - 1) // 2), ((i % 2) * 2 + 1) / hl.f32(4))

        across = func(hl, f.name() + "_across", (x, y, *v), mix(x, lambda i: _read(f, i, y, *v)))
        return mix(y, lambda j: _read(across, x, j, *v))

    place = hl.f32(x) / 256.0
    curve = func(hl, "curve", (x,), hl.f32(1 / (CURVES - 1)) * place * hl.exp(-place * place / 2.0))
    whole = hl.BoundaryConditions.repeat_edge(image)
    floating = func(hl, "floating", (x, y, c), whole[x, y, c] / hl.f32(65535))
    gray = func(hl, "gray", (x, y), sum((hl.f32(g) * floating[x, y, i] for i, g in enumerate(GRAY)), hl.f32(0)))
    level = k * hl.f32(1 / (CURVES - 1))
    step = hl.clamp(hl.i32(gray[x, y] * hl.f32(CURVES - 1) * 256.0), 0, STEPS)
    curved = [func(hl, "curved_0", (x, y, k), (gray[x, y] - level) + level + curve[step - 256 * k])]
    plain = [func(hl, "plain_0", (x, y), gray[x, y])]
    for j in range(1, count):
        curved.append(halved(f"curved_{j}", curved[-1], k))
        plain.append(halved(f"plain_{j}", plain[-1]))
    fine = [func(hl, f"fine_{j}", (x, y, k), curved[j][x, y, k] - doubled(curved[j + 1], k)) for j in range(count - 1)]
    fine.append(curved[-1])
    made: list[Any] = [None] * count
    for j in reversed(range(count)):
        between = plain[j][x, y] * hl.f32(CURVES - 1)
        which = hl.clamp(hl.i32(between), 0, CURVES - 2)
        share = between - hl.f32(which)
        value = (1.0 - share) * fine[j][x, y, which] + share * fine[j][x, y, which + 1]
        made[j] = func(hl, f"made_{j}", (x, y), value if j == count - 1 else doubled(made[j + 1]) + value)
    colour = image[x, y, c] * (made[0][x, y] + hl.f32(0.01)) / (gray[x, y] + hl.f32(0.01))
    out = func(hl, "out", (x, y, c), hl.u16(hl.clamp(colour, 0.0, 65535.0)))
    curve.compute_root()
    out.reorder(c, x, y).split(y, yo, y, min(64, h)).parallel(yo).vectorize(x, 8)
    gray.compute_root().never_partition([y]).parallel(y, 32).vectorize(x, 8)
    for j in range(1, min(5, count)):
        plain[j].compute_root().parallel(y, 32).vectorize(x, 8)
        each = curved[j].compute_root().reorder_storage(x, k, y).reorder(k, y)
        each.split(y, yo, y, 8).parallel(yo).vectorize(x, 8)
        made[j].store_at(out, yo).compute_at(out, y).fold_storage(y, 4).vectorize(x, 8, hl.TailStrategy.RoundUp)
        if j > 1:
            plain[j].never_partition_all()
            curved[j].never_partition_all()
    curved[0].clone_in(rows_first[0]).store_at(curved[1], yo).compute_at(curved[1], y).vectorize(x, 8)
    made[0].compute_at(out, y).hoist_storage(out, yo).vectorize(x, 8, hl.TailStrategy.RoundUp)
    for j in range(5, count):
        plain[j].compute_root()
        curved[j].compute_root().parallel(k)
        made[j].compute_root()
    return out


def _places(h: int, w: int) -> tuple[list[Box], list[Box]]:
    """What each level is read at, on the way up and by all: beyond the image, as in Halide."""
    up: list[Box] = [((0, h - 1), (0, w - 1))]
    for _ in range(1, _levels(h, w)):
        (y0, y1), (x0, x1) = up[-1]
        up.append((((y0 - 1) // 2, (y1 + 1) // 2), ((x0 - 1) // 2, (x1 + 1) // 2)))
    down = list(up)
    for j in reversed(range(1, len(up) - 1)):
        (y0, y1), (x0, x1) = down[j]
        (p0, p1), (q0, q1) = down[j + 1]
        down[j] = ((min(y0, 2 * p0 - 1), max(y1, 2 * p1 + 2)), (min(x0, 2 * q0 - 1), max(x1, 2 * q1 + 2)))
    return up, down


def _shape(box: Box) -> tuple[int, int]:
    (y0, y1), (x0, x1) = box
    return y1 - y0 + 1, x1 - x0 + 1


def _at(t: te.Tensor, box: Box) -> Read:
    """The elements of a level by their places in the image."""
    (y0, _), (x0, _) = box
    return lambda *v: _read(t, *v[:-2], v[-2] - y0, v[-1] - x0)


def _halved(read: Read, box: Box, lead: tuple[int, ...], name: str) -> Read:
    """The next level, of `read(*lead, y, x)`, over a box."""
    (y0, _), (x0, _) = box
    rows, columns = _shape(box)

    def by_rows(*v: Any) -> Any:
        return _four(lambda d: read(*v[:-2], 2 * (v[-2] + y0) + d, v[-1] + 2 * x0 - 1))

    first = te.compute((*lead, rows, 2 * columns + 2), by_rows, name=name + "_rows")
    both = te.compute(
        (*lead, rows, columns), lambda *v: _four(lambda d: _read(first, *v[:-1], 2 * v[-1] + d + 1)), name=name
    )
    return _at(both, box)


def _doubled(read: Read, dtype: Any, *v: Any) -> Any:
    *lead, y, x = v

    def mix(i: Any, at: Read) -> Any:
        return at((i + 1) // 2) + (at((i - 1) // 2) - at((i + 1) // 2)) * ((te.cast(i % 2, dtype) * 2 + 1) / 4)

    return mix(y, lambda j: mix(x, lambda i: read(*lead, j, i)))


def laplacian(a: te.Tensor) -> te.Tensor:
    h, w = extent(a, 1), extent(a, 2)
    dtype = "float32" if a.dtype == "uint16" else a.dtype
    up, need = _places(h, w)
    gray = te.compute(
        (h, w), lambda y, x: sum(g * (te.cast(a[i, y, x], dtype) / 65535.0) for i, g in enumerate(GRAY)), name="gray"
    )

    def along(i: Any) -> Any:
        place = (te.cast(i, dtype) - STEPS) / 256
        return place / (CURVES - 1) * te.exp(-(place**2) / 2)

    curve = te.compute((2 * STEPS + 1,), along, name="curve")

    def curved_first(k: Any, y: Any, x: Any) -> Any:
        v = gray.at(y, x, mode="clamp")
        step = te.clip(te.cast(v * float(CURVES - 1) * 256.0, "int32"), 0, STEPS)
        return v + curve[step - 256 * k + STEPS]

    curved: list[Read] = [curved_first]
    plain: list[Read] = [lambda y, x: gray.at(y, x, mode="clamp")]
    for j in range(1, len(up)):
        curved.append(_halved(curved[-1], need[j], (CURVES,), f"curved_{j}"))
        plain.append(_halved(plain[-1], need[j], (), f"plain_{j}"))
    made: Read | None = None
    for j in reversed(range(len(up))):
        (y0, _), (x0, _) = up[j]

        def filtered(y: Any, x: Any, j: int = j, below: Read | None = made, y0: int = y0, x0: int = x0) -> Any:
            y, x = y + y0, x + x0
            between = plain[j](y, x) * float(CURVES - 1)
            which = te.clip(te.cast(between, "int32"), 0, CURVES - 2)
            share = between - te.cast(which, dtype)

            def fine(k: Any) -> Any:
                return curved[j](k, y, x) - (_doubled(curved[j + 1], dtype, k, y, x) if below is not None else 0.0)

            value = (1.0 - share) * fine(which) + share * fine(which + 1)
            return value if below is None else _doubled(below, dtype, y, x) + value

        made = _at(te.compute(_shape(up[j]), filtered, name=f"made_{j}"), up[j])

    def colour(c: Any, y: Any, x: Any) -> Any:
        assert made is not None
        changed = te.cast(a[c, y, x], dtype) * (made(y, x) + 0.01) / (gray[y, x] + 0.01)
        return te.cast(te.clip(changed, 0.0, 65535.0), a.dtype)

    out: te.Tensor = te.compute((3, h, w), colour, name="out")
    return out


LAPLACIAN = App(
    "local Laplacian filters",
    _photograph,
    laplacian_expert,
    laplacian,
    (1280, 768),
    (64, 48),
    off=1e-2,  # a gray value that rounds to the next step of the curve moves 16 bits by some 36
    by=128,
    sized=True,
    gradient_of="float32",
)
