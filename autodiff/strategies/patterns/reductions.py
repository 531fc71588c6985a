"""Reductions of one or several axes, into a scalar, a row or a column, and what is made of them."""

from __future__ import annotations

import math
import operator
from typing import Any

from hypothesis import strategies as st

from autodiff.strategies.patterns.canvas import Canvas, Source, loop
from tedsl.lang import reducers
from tedsl.lang.expr import Axis
from tedsl.lang.functions import clip, logical_and, select

__all__ = ["grouped", "normalized", "ranged", "reduced"]


def reduced(c: Canvas) -> Source:
    """Any axes of a tensor, of several or of none of the others left, with conditions and of several factors."""
    rank = c.pick((1, 2, 2, 3, 4))
    dims = c.dims(rank)
    x = c.source(dims, c.pick(("float32", "float32", "float64", "int32", "uint8", "int16")))
    gone = set(c.draw(_some(rank)))
    kind = c.pick(("sum", "sum", "sum", "max", "min", "argmax", "argmin"))
    power = c.pick((1, 1, 2))
    weights = c.source([dims[k] for k in sorted(gone)], x.dtype) if kind == "sum" and c.chance(3) else None
    condition = c.pick((None, None, None, "even", "order"))
    order = c.shuffled(sorted(gone))
    bound = 8.0 * math.prod(dims[k].size for k in gone)
    small = x.dtype not in ("float32", "float64") and c.chance(2)

    def body(*axes: Axis) -> Any:
        loops = {k: loop(dims[k], f"k{k}") for k in order}
        rest = iter(axes)
        index = tuple(loops[k] if k in gone else next(rest) for k in range(rank))
        value = x[index]
        if power == 2:
            value = value * value
        if weights is not None:
            value = value * weights[tuple(loops[k] for k in sorted(gone))]
        if kind == "sum" and not small:
            value = c.widened(value, bound)
        where = None
        if kind == "sum" and condition == "even":
            where = loops[order[-1]] % 2 == 0
        if kind == "sum" and condition == "order":
            where = loops[order[0]] >= (axes[0] if axes else loops[order[-1]] // 2)
        return getattr(reducers, kind)(value, axis=tuple(loops.values()), where=where)

    return c.stage([d for k, d in enumerate(dims) if k not in gone], body, bound)


def ranged(c: Canvas) -> Source:
    """Reductions over what lies before or behind a loop of the result, by a condition or a choice."""
    rows, terms, inner = c.dims(3, max(2, int(c.most**0.6)))
    ends = c.pick((terms, terms, terms + 2, c.dims(1, max(2, int(c.most**0.4)))[0]))
    kind, compare = c.pick(("sum", "sum", "max", "min")), c.pick((operator.le, operator.lt, operator.ge, operator.gt))
    away, shift, chooses, is_deep = c.pick((0, 0, -2, 1, 3)), c.pick((0, 0, 1)), c.chance(2), c.chance(2)
    reads_row = c.chance(2)
    x = c.source([rows, terms + 1, inner] if reads_row else [terms + 1, inner])
    last = c.chance(2)
    bound = 2.0 * terms.size * inner.size

    def body(*at: Axis) -> Any:
        row, end = at if last else at[::-1]
        k, deep = loop(terms, "k"), loop(inner, "l")
        column = deep if is_deep else 0
        value = x[row, k + shift, column] if reads_row else x[k + shift, column]
        value = c.widened(value, bound) if kind == "sum" else value
        holds = compare(k, end + away)
        if is_deep and not reads_row:
            holds = logical_and(holds, deep <= row)
        loops = (k, deep) if is_deep else (k,)
        nothing = 0.0 if kind == "sum" else -math.inf if kind == "max" else math.inf
        if chooses:
            return getattr(reducers, kind)(select(holds, value, nothing), axis=loops)
        return getattr(reducers, kind)(value, axis=loops, where=holds)

    def finite(*at: Axis) -> Any:
        found = body(*at)
        return found if kind == "sum" else clip(found, -bound, bound)

    return c.stage([rows, ends] if last else [ends, rows], finite, bound)


def grouped(c: Canvas) -> Source:
    """Groups of an axis, each reduced, and every element set against that of its group."""
    rows, groups, size = c.dims(3, max(2, c.most // 4))
    x = c.source([rows, groups * size])
    k = loop(size, "k")
    kind = c.pick(("sum", "max"))
    bound = 2.0 * size.size

    def total(i: Axis, g: Axis) -> Any:
        value = x[i, g * size.expr + k]
        return reducers.sum(c.widened(value, bound), axis=k) if kind == "sum" else reducers.max(value, axis=k)

    held = c.stage([rows, groups], total, bound)
    return c.stage([rows, groups * size], lambda i, j: x[i, j] - held[i, j // size.expr], bound + 2)


def normalized(c: Canvas) -> Source:
    """A row's extreme taken off, its sum, and both set against its elements: what a softmax reads."""
    rank = c.pick((1, 2, 2, 3))
    dims = c.dims(rank, max(2, c.most // 4))
    x = c.source(dims)
    gone = c.draw(_some(rank))
    rest = [d for k, d in enumerate(dims) if k not in gone]
    count = math.prod(dims[k].size for k in gone)

    def index(axes: tuple[Axis, ...], name: str) -> tuple[tuple[Any, ...], tuple[Axis, ...]]:
        loops = {k: loop(dims[k], f"{name}{k}") for k in gone}
        kept = iter(axes)
        return tuple(loops[k] if k in gone else next(kept) for k in range(rank)), tuple(loops.values())

    def top(*axes: Axis) -> Any:
        place, loops = index(axes, "m")
        return reducers.max(x[place], axis=loops)

    def total(*axes: Axis) -> Any:
        place, loops = index(axes, "s")
        return reducers.sum(c.widened(x[place] - best[axes], 4.0 * count), axis=loops)

    def result(*axes: Axis) -> Any:
        own = tuple(a for k, a in enumerate(axes) if k not in gone)
        return (x[axes] - best[own]) * 2 + held[own]

    best = c.stage(rest, top, 2.0)
    held = c.stage(rest, total, 4.0 * count)
    return c.stage(dims, result, 4.0 * count + 8) if c.chance(2) else held


def _some(rank: int) -> st.SearchStrategy[set[int]]:
    return st.sets(st.integers(0, rank - 1), min_size=1)
