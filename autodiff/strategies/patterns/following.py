"""What is made of the result of a pattern: the stages that a schedule may put together with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autodiff.strategies.patterns.canvas import Canvas, Source, loop
from tedsl.lang import functions as fn, reducers
from tedsl.lang.expr import Axis

__all__ = ["followed"]


def followed(c: Canvas, x: Source) -> Source:
    """One more stage."""
    if not str(x.tensor.dtype).startswith("float") or any(d.size == 0 for d in x.dims):
        return c.stage(x.dims, lambda *axes: x[axes] + x[axes], 2 * x.bound)
    return c.pick(_FOLLOWING)(c, x)


def _biased(c: Canvas, x: Source) -> Source:
    bias = c.source(x.dims[-1:], x.dtype)
    return c.stage(x.dims, lambda *axes: fn.relu(x[axes] + bias[axes[-1:]]), x.bound + 2)


def _joined(c: Canvas, x: Source) -> Source:
    other = c.source(x.dims, x.dtype)
    return c.stage(x.dims, lambda *axes: x[axes] * other[axes] - x[axes], 3 * x.bound)


def _summed(c: Canvas, x: Source) -> Source:
    bound = x.bound * math.prod(d.size for d in x.dims)

    def body() -> Any:
        loops = tuple(loop(d, f"s{k}") for k, d in enumerate(x.dims))
        return reducers.sum(c.widened(x[loops], bound), axis=loops) if loops else x[()]

    return c.stage([], body, bound)


def _along_rows(c: Canvas, x: Source) -> Source:
    if not x.dims:
        return _summed(c, x)
    r, fold = loop(x.dims[-1], "s"), c.pick(("sum", "max"))
    bound = x.bound * x.dims[-1].size

    def body(*axes: Axis) -> Any:
        value = x.read(*axes, r)
        return reducers.max(value, axis=r) if fold == "max" else reducers.sum(c.widened(value, bound), axis=r)

    return c.stage(x.dims[:-1], body, bound)


def _neighbours(c: Canvas, x: Source) -> Source:
    if not x.dims:
        return _joined(c, x)
    along, mode = c.number(0, len(x.dims) - 1), c.pick(("clamp", "zero", "wrap"))

    def body(*axes: Axis) -> Any:
        moved = [a + 1 if k == along else a for k, a in enumerate(axes)]
        return x[axes] + x.at(*moved, mode=mode)

    return c.stage(x.dims, body, 2 * x.bound)


def _turned(c: Canvas, x: Source) -> Source:
    order = c.shuffled(range(len(x.dims)))
    return c.stage(
        [x.dims[k] for k in order], lambda *axes: x[tuple(axes[order.index(k)] for k in range(len(order)))] * 2,
        2 * x.bound,
    )  # fmt: skip


_FOLLOWING: tuple[Callable[[Canvas, Source], Source], ...] = (
    _biased, _joined, _summed, _along_rows, _neighbours, _turned,
)  # fmt: skip
