"""Sums of products: any roles of axes in any layout, unit axes, factors without axes, several axes summed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autodiff.strategies.patterns.canvas import BOUND, Canvas, Dim, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.expr import Axis

__all__ = ["product", "tropical"]

FACTORS = (None, None, None, "number", "scalar", "vector", "shared")


def product(c: Canvas) -> Source:
    """out[b, m, n] = sum over k of A[b, m, k] * B[b, n, k]."""
    batch, rows, columns, sums, idle = _roles(c)
    first, second = (c.source(c.shuffled(own)) for own in _operands(c, batch, rows, columns, sums))
    third = c.pick(FACTORS)
    extra = _extra(c, third, sums, first.dtype)
    terms = math.prod(d.size for d in sums)
    bound = 4.0 * terms * (2 if third else 1)
    out = c.shuffled([*batch, *rows, *columns, *idle])
    post = c.pick((None, None, "relu", "bias", "scaled"))
    bias = c.source([out[-1]], first.dtype) if post == "bias" and out else None
    condition = c.pick((None, None, None, None, "triangle", "even", "inside"))
    order = c.number(0, 2)

    def body(*axes: Axis) -> Any:
        loops = [loop(d, f"k{k}") for k, d in enumerate(sums)]
        place = {id(d): a for d, a in zip([*out, *sums], [*axes, *loops], strict=True)}
        a, b = (s[tuple(place[id(d)] for d in s.dims)] for s in (first, second))
        value = _multiplied(a, b, extra, loops, order)
        value = c.widened(value, bound)
        total = reducers.sum(value, axis=tuple(loops), where=_where(condition, [*axes], loops))
        if post == "relu":
            return fn.relu(total)
        if bias is not None:
            return total + bias[axes[-1]]
        return total * 2 if post == "scaled" else total

    return c.stage(out, body, 2 * bound + 2)


def tropical(c: Canvas) -> Source:
    """The least sum along a way of two steps: products of matrices in another algebra."""
    m, n, k = c.dims(3)
    a, b = c.source(c.shuffled([m, k])), c.source(c.shuffled([k, n]))
    fold = c.pick((reducers.min, reducers.max))

    def body(i: Axis, j: Axis) -> Any:
        r = loop(k, "k")
        place = {id(m): i, id(n): j, id(k): r}
        return fold(a[tuple(place[id(d)] for d in a.dims)] + b[tuple(place[id(d)] for d in b.dims)], axis=r)

    return c.stage([m, n], body, 4.0)


def _roles(c: Canvas) -> list[list[Dim]]:
    """Axes of each role; about one in four has a single element."""
    counts = [c.pick((0, 0, 0, 1)), c.pick((0, 1, 1, 1, 2)), c.pick((0, 1, 1, 1, 2)), c.pick((1, 1, 1, 2, 3))]
    counts.append(1 if c.chance(8) else 0)
    dims = c.dims(sum(counts))
    found: list[list[Dim]] = []
    for count in counts:
        found.append(dims[:count])
        del dims[:count]
    for role in found:
        if c.chance(4):
            role.insert(c.number(0, len(role)), Dim(1, 1))
    return found


def _operands(
    c: Canvas, batch: Sequence[Dim], rows: Sequence[Dim], columns: Sequence[Dim], sums: Sequence[Dim]
) -> tuple[list[Dim], list[Dim]]:
    """The axes of the two factors; a sum may run over one of them alone."""
    first, second = [*batch, *rows], [*batch, *columns]
    for d in sums:
        where = c.pick(("both", "both", "both", "first", "second"))
        if where != "second":
            first.append(d)
        if where != "first":
            second.append(d)
    return first, second


def _extra(c: Canvas, kind: str | None, sums: Sequence[Dim], dtype: str) -> Any:
    if kind == "scalar":
        return c.source([], dtype)
    if kind == "vector":
        return c.source([sums[0]], dtype)
    return 2 if kind == "number" and dtype not in BOUND else 0.5 if kind == "number" else None


def _multiplied(a: Any, b: Any, extra: Any, loops: Sequence[Axis], order: int) -> Any:
    if extra is None:
        return a * b
    factor = extra
    if isinstance(extra, Source):
        factor = extra[tuple(loops[: len(extra.dims)])]
    return (factor * a) * b if order == 0 else (a * b) * factor if order == 1 else a * (factor * b)


def _where(kind: str | None, axes: Sequence[Axis], loops: Sequence[Axis]) -> Any:
    if kind == "even":
        return loops[-1] % 2 == 0
    if kind is None or not axes:
        return None
    return loops[0] <= axes[0] if kind == "triangle" else (axes[-1] + loops[-1]) % 3 != 1
