"""Places that are data or computed: lookups on any axis, windows at the floor of an affine function, scatters."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from autodiff.strategies.patterns.canvas import Canvas, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.axes import reduce_axis
from tedsl.lang.expr import Axis
from tedsl.lang.scatter import scatter

__all__ = ["histogram", "lookup", "placed"]

RATIOS = (0.5, 0.5, 0.25, 0.75, 1.5, 2.0)


def lookup(c: Canvas) -> Source:
    """An element or a row at a place that a tensor of any integer dtype holds, on any axis."""
    rank = c.pick((1, 2, 2, 3))
    dims = c.dims(rank, max(8, c.most // 4))
    x = c.source(dims)
    along = c.draw(_some(rank))
    shape = c.dims(c.pick((1, 1, 2)), max(1, c.most // math.prod(d.size for k, d in enumerate(dims) if k not in along)))
    places = {k: c.places(shape, dims[k].size) for k in along}
    first = c.chance(2)
    rest = [d for k, d in enumerate(dims) if k not in along]
    weights = c.source(shape, x.dtype) if c.chance(3) else None
    shift = c.pick((None, None, None, "clamp", "wrap", "zero"))
    summed = c.chance(4)

    def body(*axes: Axis) -> Any:
        at: tuple[Any, ...]
        if summed:
            at, own = tuple(loop(d, f"p{k}") for k, d in enumerate(shape)), list(axes)
        else:
            at, own = (axes[: len(shape)], list(axes[len(shape) :])) if first else (
                axes[len(rest) :], list(axes[: len(rest)])
            )  # fmt: skip
        rows = iter(own)
        index: list[Any] = [places[k][at] if k in places else next(rows) for k in range(rank)]
        if shift is not None:
            index = [i + 1 if k in places else i for k, i in enumerate(index)]
        value = x[tuple(index)] if shift is None else x.at(*index, mode=shift)
        if weights is not None:
            value = value * weights[at]
        return reducers.sum(c.widened(value, bound), axis=at) if summed else value

    bound = 4.0 * (math.prod(d.size for d in shape) if summed else 1)
    out = rest if summed else [*shape, *rest] if first else [*rest, *shape]
    return c.stage(out, body, bound)


def placed(c: Canvas) -> Source:
    """Windows at the floor of an affine function of floats, as every resampler has them."""
    dtype = c.pick(("float32", "float64"))
    rank = c.pick((1, 2, 2))
    taps = c.pick((1, 2, 4))
    sizes = c.split(rank, max(4**rank, c.most // (4 * taps)), least=4)
    dims = [c.dim(n) for n in sizes]
    x = c.source(dims, dtype)
    along, ratio, offset = c.number(0, rank - 1), c.pick(RATIOS), c.pick((0.0, 0.25, -0.5))
    out = list(dims)
    out[along] = c.dim(max(1, int(dims[along].size / ratio)))
    computed = c.chance(3)
    weighted = c.chance(2)
    if computed:
        y = x
        x = c.stage(dims, lambda *axes: y[axes] * 2, 4.0)

    def body(*axes: Axis) -> Any:
        place = fn.cast(axes[along], dtype) * ratio + offset
        low = fn.clip(fn.cast(fn.floor(place), "int32"), 0, dims[along].expr - taps)
        r = loop(taps, "p")
        index = [low + r if k == along else a for k, a in enumerate(axes)]
        value = x[tuple(index)]
        if weighted:
            near = fn.maximum(1.0 - fn.abs(place - fn.cast(low + r, dtype)), 0.0)
            value = value * near
        return reducers.sum(value, axis=r)

    exact = not weighted or all(d.size < 4096 for d in dims)
    return c.stage(out, body, x.bound * taps * 16, exact=exact)


def histogram(c: Canvas) -> Source:
    """Points that meet: counts, sums by segment, rows that are added, the largest for each place."""
    points = c.dims(c.pick((1, 1, 2)), max(2, c.most // 4))
    count = math.prod(d.size for d in points)
    bins = c.dims(c.pick((0, 1, 1, 2)), max(1, min(4096, count)))
    width = c.dims(1, max(1, c.most // count)) if c.chance(2) else []
    places = [c.places(points, d.size) for d in bins]
    value = c.source([*points, *width])
    first = c.chance(2)
    axes = [reduce_axis(d.expr, name=f"p{k}") for k, d in enumerate(points)]
    rows = [reduce_axis(d.expr, name=f"w{k}") for k, d in enumerate(width)]
    at = [p[tuple(axes)] for p in places]
    op = c.pick(("add", "add", "add", "max", "min"))
    shape = [*bins, *width] if first else [*width, *bins]
    index = (*at, *rows) if first else (*rows, *at)
    given = value.read(*axes, *rows)
    bound = 2.0 * count
    if op == "add":
        given = c.widened(given, bound)
    init = c.source(shape, str(given.dtype)).tensor if c.chance(3) else None
    extents = tuple(d.expr for d in shape) if init is None else init.extents
    where = axes[-1] % 2 == 0 if c.chance(4) else None
    made = scatter(extents, [*axes, *rows], index, given, op=op, init=init, where=where, name=c.name("W"))
    return c.kept(made, shape, bound + 2)


def _some(rank: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, rank - 1), min_size=1, max_size=2)
