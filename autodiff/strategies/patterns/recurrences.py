"""Recurrences: sums so far, filters, states that are products with a matrix."""

from __future__ import annotations

from typing import Any

from autodiff.strategies.patterns.canvas import Canvas, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.expr import Axis
from tedsl.lang.scan import scan

__all__ = ["accumulated", "recurrent"]


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
