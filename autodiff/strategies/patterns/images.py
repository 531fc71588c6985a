"""Pictures: sizes that change from stage to stage, chains of maxima, pixels of a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autodiff.strategies.builder import MODES
from autodiff.strategies.patterns.canvas import Canvas, Dim, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.expr import Axis

__all__ = ["extremes", "filtered", "pixels", "pyramid", "resampled"]


def resampled(c: Canvas) -> Source:
    """Every few elements, each element a few times, or the mean of neighbours along an axis."""
    rank = c.pick((1, 2, 2, 3))
    dims = c.dims(rank, max(4**rank, c.most // 8), least=2)
    return _changed(c, c.source(dims), c.number(0, rank - 1))


def _changed(c: Canvas, x: Source, along: int, kind: str = "") -> Source:
    """A stage of another size along an axis."""
    step, n = c.pick((2, 2, 3)), x.dims[along]
    kind = kind or c.pick(("skip", "sum", "repeat", "between", "filtered"))
    phase, mode = c.number(0, 1), c.pick(("clamp", "zero", "wrap"))
    out = list(x.dims)
    out[along] = n * step if kind in ("repeat", "between") else (n + (step - 1)) // step

    def body(*axes: Axis) -> Any:
        def read(place: Any) -> Any:
            return x.at(*(place if k == along else a for k, a in enumerate(axes)), mode=mode)

        i = axes[along]
        if kind == "skip":
            return read(i * step + phase)
        if kind == "repeat":
            return read(i // step)
        if kind == "between":
            return fn.select(i % step == 0, read(i // step) * 2, read(i // step) + read(i // step + 1))
        if kind == "filtered":
            return read(i * step - 1) + 2 * read(i * step) + read(i * step + 1)
        r = loop(step, "r")
        return reducers.sum(read(i * step + r), axis=r)

    return c.stage(out, body, x.bound * 4)


def filtered(c: Canvas) -> Source:
    """Filters one after another, of what the ones before made: rows and columns of windows, products, borders."""
    planes = [c.dim(c.number(1, 3))] if c.chance(3) else []
    rows, columns = c.pick((17, 32, 40, 65)), c.pick((1, 5, 8, 17, 33))
    if c.large:
        rows, columns = c.pick((256, 500, 1024)), c.pick((96, 255, 512))
    dims = [*planes, c.dim(rows), c.dim(columns)]
    made = [c.source(dims, "float64")]
    for _ in range(c.number(2, 4)):
        made.append(_filter(c, made))
    return made[-1]


def _filter(c: Canvas, made: Sequence[Source]) -> Source:
    """A few neighbours in one or two of the tensors so far; beyond a border by a mode, or the result is smaller."""
    mode = c.pick((*MODES, "select", "inside"))
    x, y = made[-1], c.pick((made[-1], *made[-3:]))
    reach = [0] * (len(x.dims) - 2) + [c.pick((0, 1, 1, 2)), c.pick((0, 0, 1, 2))]
    taps = [[c.number(-r, r) for r in reach] for _ in range(c.number(1, 5))]
    least = [min(a.size, b.size) for a, b in zip(x.dims, y.dims, strict=True)]
    if mode == "inside" and any(n <= 2 * r for n, r in zip(least, reach, strict=True)):
        mode = "clamp"
    shift = reach if mode == "inside" else [0] * len(reach)
    least = [n - 2 * s for n, s in zip(least, shift, strict=True)]
    dims = [a if a.size == n else Dim(n, n) for a, n in zip(x.dims, least, strict=True)]
    multiplies, alike = c.chance(4), c.chance(3)

    def body(*axes: Axis) -> Any:
        def near(s: Source, by: Sequence[int]) -> Any:
            place = [a + (o + m) for a, o, m in zip(axes, by, shift, strict=True)]
            if mode == "inside":
                return s[tuple(place)]
            if mode != "select":
                return s.at(*place, mode=mode)
            inside: Any = None
            for p, d in zip(place[-2:], s.dims[-2:], strict=True):
                here = (p >= 0) & (p < d.expr)
                inside = here if inside is None else inside & here
            return fn.select(inside, s[tuple(place)], 0)

        total: Any = near(y, [0] * len(reach))
        for k, by in enumerate(taps):
            value = near(x, by)
            total = total + (value * value if multiplies and k == 0 else value + value if alike else value * (k + 1))
        return total

    return c.stage(dims, body, max(x.bound, y.bound) * 20 * (x.bound if multiplies else 1))


def pyramid(c: Canvas) -> Source:
    """Levels of half the size, and a picture put together of them again."""
    rank = c.pick((1, 2, 2))
    levels = c.number(1, 3)
    sizes = c.split(rank, max(16, c.most // 16), least=2)
    dims = [Dim(n, n) for n in sizes]
    finest = c.source(dims, "float64" if rank * levels > 2 else None)
    held = [finest]
    mode = c.pick([m for m in MODES if m != "reflect"])
    for _ in range(levels):
        held.append(_half(c, held[-1], mode))
    now = held[-1]
    for below in reversed(held[:-1]):
        now = _doubled(c, now, below, mode)
    return now


def _half(c: Canvas, x: Source, mode: str) -> Source:
    for k in range(len(x.dims)):
        out = [(n + 1) // 2 if m == k else n for m, n in enumerate(x.dims)]

        def body(*axes: Axis, x: Source = x, k: int = k) -> Any:
            around = [[2 * a + o if m == k else a for m, a in enumerate(axes)] for o in (-1, 0, 1)]
            before, here, after = (x.at(*index, mode=mode) for index in around)
            return before + 2 * here + after

        x = c.stage(out, body, x.bound * 4)
    return x


def _doubled(c: Canvas, x: Source, below: Source, mode: str) -> Source:
    blend = c.pick(("add", "subtract", "weigh"))

    def body(*axes: Axis) -> Any:
        up = x.at(*(a // 2 for a in axes), mode=mode) + x.at(*((a + 1) // 2 for a in axes), mode=mode)
        own = below[axes]
        return (
            own + up if blend == "add" else own - up if blend == "subtract" else fn.select(axes[-1] % 2 == 0, own, up)
        )

    return c.stage(below.dims, body, below.bound + 2 * x.bound)


def extremes(c: Canvas) -> Source:
    """The largest or least of shifted reads, of the same tensor or of one each."""
    rank = c.pick((1, 2, 2))
    count = c.pick((2, 3, 4, 6, 9))
    dims = c.dims(rank, max(4, c.most // (2 * count)))
    along, fold = c.number(0, rank - 1), c.pick((fn.maximum, fn.minimum))
    wider = [d + (count - 1) if k == along else d for k, d in enumerate(dims)]
    apart = c.chance(2)
    x = c.source(wider)
    stages: Sequence[Source] = [x] * count
    if apart:
        stages = [c.stage(wider, lambda *axes, k=k: x[axes] * (k % 3 - 1), 2.0) for k in range(min(count, 4))]

    def body(*axes: Axis) -> Any:
        found: Any = None
        for k in range(count):
            index = tuple(a + k if d == along else a for d, a in enumerate(axes))
            value = stages[k % len(stages)][index]
            found = value if found is None else fold(found, value)
        return found

    return c.stage(dims, body, 2.0)


def pixels(c: Canvas) -> Source:
    """A few numbers in each pixel, innermost: a matrix of colours, a weight for each, a sum over them."""
    channels = c.pick((1, 2, 3, 3, 4))
    own = c.dims(c.pick((1, 2, 2)), c.most // (channels * channels))
    dims = [*own, Dim(channels, channels)]
    source = c.pick((None, "uint8", "int16", "float16"))
    x = c.source(dims, source)
    kind = c.pick(("matrix", "weights", "sum", "neighbours", "turned"))
    if kind == "matrix":
        m = c.source([Dim(3, 3), Dim(channels, channels)], "float32")

        def body(*axes: Axis) -> Any:
            r = loop(channels, "c")
            return reducers.sum(m[axes[-1], r] * fn.cast(x.read(*axes[:-1], r), "float32"), axis=r)

        return c.stage([*own, Dim(3, 3)], body, 16.0)
    if kind == "sum":
        r = loop(channels, "c")
        return c.stage(own, lambda *axes: reducers.sum(c.widened(x.read(*axes, r), 8.0), axis=r), 8.0)
    if kind == "neighbours":
        mode = c.pick(("clamp", "wrap", "zero"))
        return c.stage(dims, lambda *a: x[a] + x.at(a[0] + 1, *a[1:], mode=mode) * 2, 6.0)
    if kind == "turned":
        return c.stage([dims[-1], *own], lambda ch, *a: x.read(*a, ch) * 2, 4.0)
    w = c.source([dims[-1]], source)
    return c.stage(dims, lambda *a: x[a] * w[a[-1]] + 1, 6.0)
