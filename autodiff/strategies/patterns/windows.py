"""Windows that slide over their input: convolutions and their transposes, pooling, stencils."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autodiff.strategies.builder import MODES
from autodiff.strategies.patterns.canvas import Canvas, Dim, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis

__all__ = ["convolution", "depthwise", "pooling", "stencil", "transposed"]


@dataclass(frozen=True, eq=False)
class TapWindow:
    """Along one axis: how many taps, how far apart, and how far the window moves."""

    source: Dim
    result: Dim
    taps: int
    step: int
    apart: int
    border: int

    def at(self, place: Any, tap: Any) -> Any:
        return place * self.step + tap * self.apart - self.border


def window(c: Canvas, size: int, border: int | None = None) -> TapWindow:
    """A window over an axis whose result has about this size."""
    taps, step, apart = c.pick((1, 2, 3, 3, 4, 5)), c.pick((1, 1, 1, 2, 3)), c.pick((1, 1, 1, 2))
    border = c.pick((0, 0, 1, 2)) if border is None else border
    reach = apart * (taps - 1) + 1
    n = max(1, (size - 1) * step + reach - 2 * border, reach - 2 * border)
    source = c.dim(n)
    return TapWindow(source, (source + (2 * border - reach)) // step + 1, taps, step, apart, border)


def element(source: Source, index: Sequence[Any], spatial: Sequence[tuple[int, TapWindow]], mode: str) -> Any:
    """An element that may lie outside, by a mode or under a guard."""
    if all(w.border == 0 for _, w in spatial):
        return source[tuple(index)]
    if mode != "select":
        return source.at(*index, mode=mode)
    inside: Any = None
    for k, w in spatial:
        here = (index[k] >= 0) & (index[k] < w.source.expr)
        inside = here if inside is None else inside & here
    return fn.select(inside, source[tuple(index)], 0)


def _spatial(c: Canvas, least: int = 1) -> tuple[list[TapWindow], list[Axis]]:
    rank = c.pick((1, 2, 2, 2, 3))
    found = [window(c, n) for n in c.split(rank, c.most // (16 if c.large else 4), least=least)]
    return found, [loop(w.taps, f"v{k}") for k, w in enumerate(found)]


def _mode(c: Canvas, windows: Sequence[TapWindow]) -> str:
    mode = c.pick(("zero", "zero", "select", *MODES))
    # Reflection does not repeat the edge: of a single element there is nothing else.
    return "clamp" if mode == "reflect" and any(w.source.size < 2 for w in windows) else mode


def _rest(c: Canvas, windows: Sequence[TapWindow]) -> int:
    """How much larger a stage may be than its windows are."""
    return max(1, c.most // math.prod(w.result.size * w.taps for w in windows))


def convolution(c: Canvas) -> Source:
    """Filters over images, by groups, in either layout."""
    windows, loops = _spatial(c)
    groups = c.pick((1, 1, 1, 2, 3))
    batch, inputs, filters = c.split(3, max(1, _rest(c, windows) // groups))
    n, ci, co = c.dim(batch), c.dim(inputs), c.dim(filters * groups)
    last = c.chance(3)
    own = [w.source for w in windows]
    whole = Dim(ci.expr * groups, ci.size * groups)
    x = c.source([n, *own, whole] if last else [n, whole, *own])
    taps = [Dim(w.taps, w.taps) for w in windows]
    w = c.source([*taps, ci, co] if last else [co, ci, *taps], x.dtype)
    mode, bound = _mode(c, windows), 4.0 * ci.size * math.prod(v.taps for v in windows)
    flipped = c.chance(5)

    def body(*axes: Axis) -> Any:
        b, o = axes[0], axes[-1] if last else axes[1]
        places = axes[1:-1] if last else axes[2:]
        r = loop(ci, "c")
        channel = r if groups == 1 else o // (co.expr // groups) * ci.expr + r
        at = [v.at(i, t) for v, i, t in zip(windows, places, loops, strict=True)]
        index = [b, *at, channel] if last else [b, channel, *at]
        own = [v.taps - 1 - t if flipped else t for v, t in zip(windows, loops, strict=True)]
        weight = w[(*own, r, o) if last else (o, r, *own)]
        spatial = [(k + (1 if last else 2), v) for k, v in enumerate(windows)]
        return reducers.sum(c.widened(element(x, index, spatial, mode) * weight, bound), axis=(r, *loops))

    results = [v.result for v in windows]
    return c.stage([n, *results, co] if last else [n, co, *results], body, bound)


def depthwise(c: Canvas) -> Source:
    """A filter for each channel."""
    windows, loops = _spatial(c)
    n, ch = c.dims(2, _rest(c, windows))
    last = c.chance(2)
    own = [w.source for w in windows]
    x = c.source([n, *own, ch] if last else [n, ch, *own])
    taps = [Dim(w.taps, w.taps) for w in windows]
    w = c.source([*taps, ch] if last else [ch, *taps], x.dtype)
    mode, bound = _mode(c, windows), 4.0 * math.prod(v.taps for v in windows)

    def body(*axes: Axis) -> Any:
        b, o = axes[0], axes[-1] if last else axes[1]
        at = [v.at(i, t) for v, i, t in zip(windows, axes[1:-1] if last else axes[2:], loops, strict=True)]
        spatial = [(k + (1 if last else 2), v) for k, v in enumerate(windows)]
        value = element(x, [b, *at, o] if last else [b, o, *at], spatial, mode)
        return reducers.sum(c.widened(value * w[(*loops, o) if last else (o, *loops)], bound), axis=tuple(loops))

    results = [v.result for v in windows]
    return c.stage([n, *results, ch] if last else [n, ch, *results], body, bound)


def pooling(c: Canvas) -> Source:
    """The largest, the least, the sum or the place of the largest element of a window."""
    windows, loops = _spatial(c)
    (n,) = c.dims(1, _rest(c, windows))
    last = c.chance(3)
    own = [w.source for w in windows]
    x = c.source([*own, n] if last else [n, *own])
    kind = c.pick(("max", "max", "min", "sum", "argmax"))
    mode = _mode(c, windows)
    if kind != "sum" and mode == "select":
        mode = "clamp"
    bound = 2.0 * math.prod(v.taps for v in windows)

    def body(*axes: Axis) -> Any:
        at = [v.at(i, t) for v, i, t in zip(windows, axes[:-1] if last else axes[1:], loops, strict=True)]
        spatial = [(k if last else k + 1, v) for k, v in enumerate(windows)]
        value = element(x, [*at, axes[-1]] if last else [axes[0], *at], spatial, mode)
        value = c.widened(value, bound) if kind == "sum" else value
        return getattr(reducers, kind)(value, axis=tuple(loops))

    results = [v.result for v in windows]
    return c.stage([*results, n] if last else [n, *results], body, bound)


def stencil(c: Canvas) -> Source:
    """A few stages, each of which reads neighbours of the one before."""
    rank, depth = c.pick((1, 2, 2, 3)), c.number(1, 4)
    dims = c.dims(rank, c.most // 4)
    now = c.source(dims)
    modes = [m for m in MODES if m != "reflect" or all(d.size > 1 for d in dims)]
    for _ in range(depth):
        mode, along = c.pick(modes), c.number(0, rank - 1)
        offsets = [c.pick((-2, -1, 0, 0, 1, 2)) for _ in range(c.number(2, 3))]
        both = c.chance(2) and rank > 1

        def body(*axes: Axis, now: Source = now, mode: str = mode, along: int = along,
                 offsets: Sequence[int] = offsets, both: bool = both) -> Any:  # fmt: skip
            total = now[axes] * 2
            for o in offsets:
                moved = [a + o if k == along or (both and k == 0) else a for k, a in enumerate(axes)]
                total = total + now.at(*moved, mode=mode)
            return total

        now = c.stage(dims, body, now.bound * (2 + len(offsets)))
    return now


def transposed(c: Canvas) -> Source:
    """A convolution whose window moves in fractions of an element: by quotient and remainder, or where divisible."""
    rank, step = c.pick((1, 1, 2)), c.pick((2, 2, 3))
    reach = [c.pick((1, 2, 2)) for _ in range(rank)]  # taps for each element, of one of the phases
    border = c.number(0, 1)
    sizes = c.split(rank, max(1, c.most // (8 * step**rank)), least=2)
    batch, inputs, filters = c.split(3, max(1, c.most // math.prod(n * step * k for n, k in zip(sizes, reach))))
    n, ci, co = c.dim(batch), c.dim(inputs), c.dim(filters)
    own = [c.dim(s) for s in sizes]
    x = c.source([n, ci, *own])
    taps = [Dim(step * k, step * k) for k in reach]
    w = c.source([ci, co, *taps], x.dtype)
    divisible = c.chance(2)
    results = [(d - 1) * step + (t.size - 2 * border) for d, t in zip(own, taps, strict=True)]
    bound = 4.0 * ci.size * math.prod(t.size for t in taps)

    def body(b: Axis, o: Axis, *places: Axis) -> Any:
        r = loop(ci, "c")
        if divisible:
            loops = [loop(t, f"v{k}") for k, t in enumerate(taps)]
            moved = [i + border - v for i, v in zip(places, loops, strict=True)]
            where: Any = None
            for m, d in zip(moved, own, strict=True):
                here = (m >= 0) & (m < d.expr * step) & (m % step == 0)
                where = here if where is None else where & here
            value = x.read(b, r, *(m // step for m in moved)) * w.read(r, o, *loops)
            return reducers.sum(c.widened(value, bound), axis=(r, *loops), where=where)
        loops = [loop(k, f"v{d}") for d, k in enumerate(reach)]
        at = [(i + border) // step - v for i, v in zip(places, loops, strict=True)]
        phase = [(i + border) % step + step * v for i, v in zip(places, loops, strict=True)]
        value = x.at(b, r, *at, mode="zero") * w.read(r, o, *phase)
        return reducers.sum(c.widened(value, bound), axis=(r, *loops))

    return c.stage([n, co, *results], body, bound)
