"""Tensors as a whole: reshaped, transposed, sliced, interleaved, broadcast, of several dtypes."""

from __future__ import annotations

import math
from typing import Any

from autodiff.strategies.patterns.canvas import Canvas, Dim, Source
from tedsl.lang import functions as fn
from tedsl.lang.expr import Axis

__all__ = ["broadcast", "interleaved", "reshaped"]

DTYPES = ("bool", "uint8", "int8", "int16", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def broadcast(c: Canvas) -> Source:
    """Arithmetic of tensors of several dtypes, of which each has some of the axes."""
    rank = c.pick((1, 2, 2, 3))
    dims = c.dims(rank)
    count = c.number(2, 4)
    sources = [c.source([d for d in dims if c.chance(2) or k == 0], c.pick(DTYPES)) for k in range(count)]
    sources = [c.source(c.shuffled(dims)) if k == 0 else s for k, s in enumerate(sources)]
    steps = [c.pick(("add", "subtract", "multiply", "larger", "chosen")) for _ in sources]

    def body(*axes: Axis) -> Any:
        place = {id(d): a for d, a in zip(dims, axes, strict=True)}
        found: Any = None
        for step, source in zip(steps, sources, strict=True):
            value = source[tuple(place[id(d)] for d in source.dims)]
            value = fn.cast(value, "float64")
            if found is None:
                found = value
            elif step == "chosen":
                found = fn.select(value > 0, found, value)
            else:
                found = fn.maximum(found, value) if step == "larger" else _applied(step, found, value)
        return found

    return c.stage(dims, body, 4.0**count)


def _applied(step: str, a: Any, b: Any) -> Any:
    return a + b if step == "add" else a - b if step == "subtract" else a * b


def reshaped(c: Canvas) -> Source:
    """One view after another of a tensor, then arithmetic with what it was."""
    sizes = c.split(c.pick((1, 2, 3)), c.most)
    x = c.source([Dim(n, n) for n in sizes])
    now, shape = x.tensor, list(sizes)
    for _ in range(c.number(1, 3)):
        kind = c.pick(("transposed", "flat", "split", "sliced", "reversed", "widened"))
        if kind == "transposed":
            order = c.shuffled(range(len(shape)))
            now, shape = now.transpose(*order), [shape[k] for k in order]
        elif kind == "flat":
            now, shape = now.reshape(math.prod(shape)), [math.prod(shape)]
        elif kind == "split":
            factor = c.pick([f for f in (1, 2, 3, 4, 8) if shape[-1] % f == 0])
            shape = [*shape[:-1], factor, shape[-1] // factor]
            now = now.reshape(*shape)
        elif kind == "sliced":
            begin, step = c.pick((0, 0, 1)), c.pick((1, 2, 3))
            begin = min(begin, shape[-1] - 1)
            now = now[..., begin::step]
            shape = [*shape[:-1], -(-(shape[-1] - begin) // step)]
        elif kind == "reversed":
            now = now[..., ::-1]
        else:
            now, shape = now[..., None], [*shape, 1]
        if len(shape) > 4:
            now, shape = now.reshape(math.prod(shape)), [math.prod(shape)]
    now = now * 2 + now if c.chance(2) else now + 0
    return c.kept(now, [Dim(n, n) for n in shape], 6.0)


def interleaved(c: Canvas) -> Source:
    """Elements of two tensors in turn, or one behind the other."""
    rank = c.pick((1, 2, 2))
    dims = c.dims(rank, max(2, c.most // 2))
    a, b = c.source(dims, "float32"), c.source(dims, "float32")
    along = c.number(0, rank - 1)
    n = dims[along]
    out = [d * 2 if k == along else d for k, d in enumerate(dims)]
    turns = c.chance(2)

    def body(*axes: Axis) -> Any:
        i = axes[along]
        first, inner, other = (i % 2 == 0, i // 2, i // 2) if turns else (i < n.expr, i, i - n.expr)
        at = [tuple(p if k == along else x for k, x in enumerate(axes)) for p in (inner, other)]
        return fn.select(first, a[at[0]], b[at[1]])

    return c.stage(out, body, 2.0)
