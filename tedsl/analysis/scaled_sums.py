"""Reducers of one's own that add up what is scaled by a maximum, as the reductions that they are made of.

| combine(a, b), m = maximum(a[0], b[0]) | over k |
|---|---|
| `m, a[1] exp(a[0] - m) + b[1] exp(b[0] - m)` | `M = max(t[k])`, `sum(v[k] exp(t[k] - M))` |

Of the scale f(t, m) of a term with itself t in a result with maximum m, associativity says f(t, m) f(m, n) = f(t, n):
the factors by which a term is multiplied as the maximum grows are one, by the maximum of all. So each component is a
reduction over the loops that it hangs on, and a sum of products; a scale is computed once, whatever it multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, reduce as folded
from operator import mul

import numpy as np

from tedsl.analysis.pointwise import Array, apply_numpy, held_type, rounded
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import DType
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Formal, Read, Reduce
from tedsl.lang.reducers import BUILTIN, COMBINE, Reducer
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, substitute, substitute_all, topological

__all__ = ["ScaledSums", "scaled_sums"]

EXTREMES = {Fn.MAXIMUM: "max", Fn.MINIMUM: "min"}
MOST_FACTORS = 8
# Scales are tried on all ordered triples of these: they are at most one, and those of two steps are that of both.
TRIED = (float("-inf"), -1e4, -30.0, -2.5, -0.3, 0.0, 0.7, 3.0, 25.0, 1e4)


@dataclass(frozen=True, eq=False)
class ScaledSums:
    """Reductions, and stages of scales between them, inputs before users, and the components in terms of those."""

    stages: tuple[Compute, ...]
    bodies: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class _Sum:
    """A component that is added up; `scale` is a function of a term itself and of extreme number `of` over all."""

    scale: Expr | None
    of: int = -1


_Component = str | _Sum  # the kind of an extreme, or a sum


@cache
def _formals(dtype: DType) -> tuple[Formal, Formal]:
    """What a scale is a function of: the term itself, and the extreme of all."""
    return Formal("own", dtype), Formal("top", dtype)


def scaled_sums(op: Compute) -> ScaledSums | None:
    """The reduction taken apart; None where its reducer is no such one."""
    reduce = op.reduction
    if reduce is None or not reduce.reducer.is_custom or not all(v.dtype.is_float for v in reduce.values):
        return None
    parts = _components(reduce.reducer)
    return None if parts is None else _Apart(op, reduce, parts).made()


@cache
def _components(reducer: Reducer) -> tuple[_Component, ...] | None:
    """What each component of a reducer is; None where one is something else, or no sum is scaled."""
    tops = dict(_extremes(reducer))
    found: list[_Component] = []
    for k in range(len(reducer.results)):
        part = tops.get(k) or _sum_in(reducer, k, tops)
        if part is None:
            return None
        found.append(part)
    scaled = [p for p in found if isinstance(p, _Sum) and p.scale is not None]
    return tuple(found) if scaled and all(_is_scale(p, str(tops[p.of])) for p in scaled) else None


def _extremes(reducer: Reducer) -> Iterator[tuple[int, str]]:
    """The components that are maxima or minima, and which."""
    for k, result in enumerate(reducer.results):
        kind = EXTREMES.get(result.fn) if isinstance(result, Apply) else None
        if kind is not None and set(result.children) == {reducer.left[k], reducer.right[k]}:
            yield k, kind


def _sum_in(reducer: Reducer, k: int, tops: dict[int, str]) -> _Sum | None:
    """Component k as a sum whose two terms are scaled alike."""
    result = reducer.results[k]
    if not isinstance(result, Apply) or result.fn is not Fn.ADD or reducer.identity[k].value != 0:
        return None
    scales = _scale_of(result.args[0], reducer.left[k]), _scale_of(result.args[1], reducer.right[k])
    if None in scales:
        scales = _scale_of(result.args[1], reducer.left[k]), _scale_of(result.args[0], reducer.right[k])
    left, right = scales
    if left is None or right is None:
        return None
    if len(left) == len(right) == 0:
        return _Sum(None)
    for j in tops:
        own, top = _formals(result.dtype)
        if reducer.left[j].dtype is not result.dtype or 0 in (len(left), len(right)):
            continue
        sides = [
            substitute(substitute(folded(mul, scale), {reducer.results[j]: top}), {side[j]: own})
            for scale, side in ((left, reducer.left), (right, reducer.right))
        ]
        if sides[0] is sides[1] and {n for n in topological(sides[0]) if isinstance(n, Formal)} <= {own, top}:
            return _Sum(sides[0], j)
    return None


def _scale_of(term: Expr, value: Formal) -> tuple[Expr, ...] | None:
    """What a term multiplies the value with."""
    factors, found = [term], list[Expr]()
    while factors and len(found) <= MOST_FACTORS:
        factor = factors.pop(0)
        if isinstance(factor, Apply) and factor.fn is Fn.MUL:
            factors[:0] = factor.args
        else:
            found.append(factor)
    if len(found) > MOST_FACTORS or sum(f is value for f in found) != 1:
        return None
    return tuple(f for f in found if f is not value)


def _is_scale(part: _Sum, kind: str) -> bool:
    """Whether a scale is one by which maxima may be exchanged, tried on numbers."""
    assert part.scale is not None
    tried = np.array([-t for t in TRIED[::-1]] if kind == "min" else TRIED, held_type(part.scale.dtype))
    t, m, n = (tried[index] for index in np.ogrid[: len(tried), : len(tried), : len(tried)])
    is_in_order = (t <= m) & (m <= n) & np.isfinite(m) if kind == "max" else (t >= m) & (m >= n) & np.isfinite(m)
    one, other, both = (_value(part, *sides) for sides in ((t, m), (m, n), (t, n)))
    with np.errstate(all="ignore"):
        away = np.abs(one * other - both) > 1e-5 * both + 1e-30
        return not np.any((away | ~(both >= 0) | ~(both <= 1)) & is_in_order)


def _value(part: _Sum, own: Array, top: Array) -> Array:
    """A scale of these."""
    assert part.scale is not None
    value: dict[Expr, Array] = dict(zip(_formals(part.scale.dtype), (own, top), strict=True))
    for node in topological(part.scale):
        if isinstance(node, Const):
            value[node] = rounded(np.asarray(node.value), node.dtype)
        elif isinstance(node, Apply):
            value[node] = apply_numpy(node.fn, [value[a] for a in node.args], node.dtype)
    return value[part.scale]


class _Apart:
    """The stages of a reduction, each over the loops that it hangs on."""

    def __init__(self, op: Compute, reduce: Reduce, parts: Sequence[_Component]) -> None:
        self.op, self.reduce, self.parts = op, reduce, parts
        self.stages: list[Compute] = []
        self.scales: dict[tuple[Expr, int], Expr] = {}

    def made(self) -> ScaledSums:
        bodies: dict[int, Expr] = {}
        for k, part in enumerate(self.parts):
            if isinstance(part, str):
                body = self.reduced(k, part, self.reduce.values[k])
                identity = self.reduce.reducer.identity[k]
                if identity.value != BUILTIN[part].identity_of(body.dtype).value:
                    body = COMBINE[part](identity, body)
                bodies[k] = body
        for k, part in enumerate(self.parts):
            if isinstance(part, _Sum):
                bodies[k] = self.reduced(k, "sum", self.term(k, part, bodies))
        return ScaledSums(tuple(self.stages), tuple(bodies[k] for k in range(len(self.parts))))

    def term(self, k: int, part: _Sum, bodies: dict[int, Expr]) -> Expr:
        """What component k sums."""
        value = self.reduce.values[k]
        if part.scale is None:
            return value
        scale = self.scales.get((part.scale, part.of))
        if scale is None:
            own, top = _formals(value.dtype)
            scale = substitute(part.scale, {own: self.reduce.values[part.of], top: bodies[part.of]})
            if self.reduce.where is TRUE:  # else it may be asked for where there is nothing
                scale = self.stage(f"{self.op.name}_scale", scale, self.reduce.axes)
            self.scales[part.scale, part.of] = scale
        is_one = isinstance(value, Const) and value.value == 1
        return scale if is_one else scale * value

    def reduced(self, k: int, kind: str, value: Expr) -> Expr:
        """A component as a built-in reduction."""
        used = set(free_axes((value, self.reduce.where)))
        axes = tuple(a for a in self.op.axes if a in used)
        sums: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in self.reduce.axes}
        value, where = substitute_all((value, self.reduce.where), sums)
        body = Reduce(BUILTIN[kind], (value,), tuple(sums.values()), where)
        name = self.op.names[k] if self.op.names else f"{self.op.name}_{k}"
        return self.read(name, body, axes)

    def stage(self, name: str, value: Expr, inner: Sequence[Axis]) -> Expr:
        used = set(free_axes(value))
        return self.read(name, value, [a for a in (*self.op.axes, *inner) if a in used])

    def read(self, name: str, body: Expr, axes: Sequence[Axis]) -> Expr:
        """A read of a stage over these loops."""
        loops = tuple(Axis(a.name, a.extent) for a in axes)
        places: dict[Expr, Expr] = {
            a: x if _is_zero(a.begin) else x + a.begin for a, x in zip(axes, loops, strict=True)
        }
        made = Compute(name=name, where=self.op.where, axes=loops, bodies=(substitute(body, places),))
        self.stages.append(made)
        return Read(made.output(), tuple(a if _is_zero(a.begin) else a - a.begin for a in axes))


def _is_zero(begin: Expr) -> bool:
    return isinstance(begin, Const) and begin.value == 0
