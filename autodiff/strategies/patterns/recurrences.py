"""Recurrences: sums so far, filters, states that are products with a matrix, tables filled along several axes."""

from __future__ import annotations

from itertools import product
from typing import Any

from autodiff.strategies.patterns.canvas import Canvas, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.expr import Axis
from tedsl.lang.scan import scan

__all__ = ["accumulated", "recurrent", "walked"]


def accumulated(c: Canvas) -> Source:
    """A sum or an extreme so far, forwards or backwards, of one state or two, along any axis."""
    rank = c.pick((1, 2, 2, 3))
    dims = c.dims(rank, max(2, c.most // 4))
    x = c.source(dims, c.pick(("float32", "float64", "int32", "int64")))
    along, reverse, two = c.number(0, rank - 1), c.chance(2), c.chance(3)
    fold = c.pick(("sum", "max", "clipped"))
    n = dims[along].expr

    def step(before: Any, now: Any) -> Any:
        if fold == "max":
            return fn.maximum(before, now)
        return before + now if fold == "sum" else fn.clip(before * 2 + now, -8, 8)

    def state(held: Any, axes: tuple[Axis, ...], lag: int) -> Any:
        t = axes[along]
        earlier = [(t + lag if reverse else t - lag) if k == along else a for k, a in enumerate(axes)]
        first = t + lag >= n if reverse else t < lag
        return fn.select(first, x[axes], step(held[tuple(earlier)], x[axes]))

    def one(y: Any, *axes: Axis) -> Any:
        return state(y, axes, 1)

    def both(a: Any, b: Any, *axes: Axis) -> Any:
        return state(a, axes, 1), state(b, axes, 2)

    shape = tuple(d.expr for d in dims)
    made = scan(shape, both if two else one, axis=along, reverse=reverse, dtype=x.dtype, name=c.name("Y"))
    bound = 2.0 * dims[along].size if fold == "sum" else 8.0
    found = [c.kept(t, dims, bound) for t in (made if isinstance(made, tuple) else (made,))]
    return found[0]


def recurrent(c: Canvas) -> Source:
    """A state that a matrix moves on, over a batch, kept small."""
    steps, batch, width = c.split(3, max(8, c.most // 2))
    width = min(width, 64)
    t, b, h = c.dim(steps), c.dim(batch), c.dim(width)
    x = c.source([t, b, h])
    w = c.source([h, h], x.dtype)
    turned = c.chance(2)

    def body(y: Any, s: Axis, i: Axis, j: Axis) -> Any:
        r = loop(h, "k")
        moved = reducers.sum(y[s - 1, i, r] * (w[j, r] if turned else w[r, j]), axis=r)
        return fn.select(s == 0, x[s, i, j], fn.clip(moved + x[s, i, j], -2, 2))

    made = scan((t.expr, b.expr, h.expr), body, axis=0, dtype=x.dtype, name=c.name("H"))
    return c.kept(made, [t, b, h], 4.0)


def walked(c: Canvas) -> Source:
    """A table filled along two axes or three, in any order, from neighbours that are there already."""
    count = c.pick((2, 2, 3))
    steps = c.split(count, 600 if c.large else 60)
    extents = [*steps, *([max(1, min(c.most // 100, 200))] if c.chance(2) else [])]
    dims = [c.dim(max(2, n)) for n in extents]
    order = c.shuffled(list(range(count)))
    x = c.source(dims)
    reverse, fold = c.chance(3), c.pick(("min", "max") if c.large else ("sum", "min", "max"))
    near = (-1, 0, 1) if count == 2 else (-1, 0)
    earlier = [o for o in product(near, repeat=count) if [o[d] for d in order] < [0] * count]
    offsets = [c.pick(earlier) for _ in range(c.number(1, 3))]

    def body(y: Any, *axes: Axis) -> Any:
        found: Any = x[axes]
        for offset in offsets:
            there = [a - o if reverse else a + o for a, o in zip(axes, offset)]
            inside: Any = None
            for place, dim, o in zip(there, dims, offset):
                if o:
                    within = (place >= 0) & (place < dim.expr)
                    inside = within if inside is None else inside & within
            read = fn.select(inside, y[tuple(there) + axes[count:]], fn.cast(0, x.dtype))
            found = found + read if fold == "sum" else (fn.minimum if fold == "min" else fn.maximum)(found, read)
        return fn.clip(found, -8, 8)

    shape = tuple(d.expr for d in dims)
    made = scan(shape, body, axis=order, reverse=reverse, dtype=x.dtype, name=c.name("W"))
    return c.kept(made, dims, 8.0)
