"""Stages that read one tensor here and another one there: joined, stacked, rolled, padded, in many spellings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autodiff.strategies.patterns.canvas import Canvas, Dim, Source
from autodiff.strategies.patterns.layouts import DTYPES
from tedsl.lang import functions as fn
from tedsl.lang.expr import Axis
from tedsl.lang.joining import concatenate, pad, stack

__all__ = ["joined", "rolled"]

SPELLINGS = ("between", "not outside", "doubled", "turned", "upper", "lower")
ARMS = ("straight", "straight", "straight", "backwards", "rolled", "mirrored", "held")


def joined(c: Canvas) -> Source:
    """Tensors one behind the other along an axis, or side by side, by conditions on the axis."""
    count, rank = c.pick((2, 2, 3, 4)), c.pick((1, 2, 2, 3))
    dims = c.dims(rank, max(2, c.most // count))
    along = c.number(0, rank - 1)
    if c.chance(4):
        return _as_whole(c, count, dims, along)
    widths = [dims[along]] + [c.dim(max(1, dims[along].size // c.pick((1, 1, 2, 3)))) for _ in range(count - 1)]
    sources = [c.source(_with(dims, along, w), c.pick(DTYPES) if c.chance(6) else None) for w in widths]
    begins = [Dim(0, 0)]
    for w in widths:
        begins.append(begins[-1] + w)
    arms, spellings = [c.pick(ARMS) for _ in widths], [c.pick(SPELLINGS) for _ in widths]
    order = c.shuffled(range(count))
    scaled = c.chance(3)
    side = c.number(0, rank - 1) if c.chance(4) else None

    def body(*axes: Axis) -> Any:
        found: Any = None
        for k in order:
            local = _arm(arms[k], axes[along], begins[k], widths[k])
            value = fn.cast(sources[k][tuple(local if d == along else a for d, a in enumerate(axes))], "float64")
            inside = _inside(spellings[k], axes[along], begins[k], begins[k + 1])
            found = fn.select(inside, value, 0.0 if found is None else found)
        if side is not None:
            found = fn.select(axes[side] < dims[side].size // 2 if side != along else axes[side] > 1, found, -found)
        return found * 2 + axes[along] if scaled else found

    bound = 4.0 + begins[-1].size if scaled else 2.0
    return c.stage(_with(dims, along, begins[-1]), body, bound)


def _with(dims: Sequence[Dim], along: int, width: Dim) -> list[Dim]:
    return [width if k == along else d for k, d in enumerate(dims)]


def _as_whole(c: Canvas, count: int, dims: Sequence[Dim], along: int) -> Source:
    """The same by functions of whole tensors."""
    sources = [c.source(dims) for _ in range(count)]
    if c.chance(2):
        made = stack([s.tensor * (k + 1) for k, s in enumerate(sources)], along)
        return c.kept(made, [*dims[:along], Dim(count, count), *dims[along:]], 2.0 * count)
    made = concatenate([s.tensor for s in sources], along)
    made = made * made if c.chance(2) else made + 1
    return c.kept(made, _with(dims, along, dims[along] * count), 4.0)


def _arm(kind: str, i: Any, begin: Dim, width: Dim) -> Any:
    """The index of an arm from `begin` on."""
    at, n = i - begin.expr, width.expr
    if kind == "backwards":
        return n - 1 - at
    if kind == "rolled":
        return (at + n // 2) % n
    if kind == "mirrored":
        return fn.abs(at - n // 2) % n
    return fn.clip(at, 0, n - 1) if kind == "held" else at


def _inside(spelling: str, i: Any, begin: Dim, end: Dim) -> Any:
    """Whether an axis is within [begin, end), in one of many ways."""
    a, b = begin.expr, end.expr
    if spelling == "not outside":
        return ~((i < a) | (i >= b))
    if spelling == "doubled":
        return (2 * i >= 2 * a) & (i * 2 - 1 < b * 2 - 1)
    if spelling == "turned":
        return (a <= i) & (b > i)
    if spelling == "upper":
        return fn.select(i < b, i - a > -1, i < 0)
    return (i > a - 1) & (i + 1 <= b) if spelling == "lower" else (i >= a) & (i < b)


def rolled(c: Canvas) -> Source:
    """A tensor moved around along some axes, or with wide borders, beside what it was."""
    rank = c.pick((1, 2, 2, 3))
    dims = c.dims(rank, max(2, c.most // 2))
    x = c.source(dims)
    if c.chance(3):
        return _bordered(c, x)
    shifts: list[Any] = [_shift(c, d) for d in dims]
    mixed = c.chance(2)

    def body(*axes: Axis) -> Any:
        moved = x[tuple((a + s) % d.expr for a, s, d in zip(axes, shifts, dims, strict=True))]
        return moved * x[tuple(axes)] if mixed else moved

    return c.stage(dims, body, 4.0)


def _shift(c: Canvas, dim: Dim) -> Any:
    """None of an axis, half of it, or another part."""
    kind = c.pick(("none", "half", "half", "back", "far"))
    if kind == "none":
        return 0
    if kind == "half":
        return dim.expr // 2
    return -(dim.expr // 3) if kind == "back" else c.number(1, max(1, dim.size))


def _bordered(c: Canvas, x: Source) -> Source:
    mode = c.pick(("constant", "wrap", "reflect", "clamp"))
    widths = [(c.number(0, d.size), c.number(0, d.size)) for d in x.dims]
    made = pad(x.tensor, widths, mode=mode)
    return c.kept(made, [d + (a + b) for d, (a, b) in zip(x.dims, widths, strict=True)], 2.0)
