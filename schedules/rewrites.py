"""Rewrites of the program: pure expressions in, pure expressions out, so that they cannot change a result.

Each returns the operation that takes over the stage's name and the one that is added before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schedules.loops import check_positive
from schedules.program import reading
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Tensor
from tedsl.lang.traverse import asked_inside, rebuild_all, substitute_all

__all__ = ["Half", "cache_read", "cache_write", "clone", "pack", "rfactor"]


def cache_write(op: Operation, name: str, local: str) -> tuple[Operation, Operation]:
    """C[i] = e(i)   ->   local[i] = e(i); C[i] = local[i]"""
    if isinstance(op, Extern):
        raise ScheduleError("a Python function writes its result itself")
    inner = replace(op, name=local, _outputs={})
    if isinstance(inner, (Compute, Scan)):
        inner = replace(inner, names=None, _outputs={})
    names = [getattr(a, "name", "") for a in getattr(op, "axes", ())] if not hasattr(op, "index") else []
    axes = _fresh_axes(op.shape_of(0), names)
    bodies = tuple(Read(t, axes) for t in inner.outputs)
    return Compute(name=op.name, where=op.where, axes=axes, bodies=bodies, names=getattr(op, "names", None)), inner


def cache_read(op: Operation, source: Tensor, copy: str) -> tuple[Operation, Operation]:
    """C[i] = e(A[f(i)])   ->   copy[i] = A[i]; C[i] = e(copy[f(i)])"""
    axes = _fresh_axes(source.extents, [])
    made = Compute(name=copy, where=op.where, axes=axes, bodies=(Read(source, axes),))
    return reading(op, {source: made.output()}), made


def clone(op: Operation, reader: Operation, name: str) -> tuple[Operation, Operation]:
    """T = e; C = f(T); D = g(T)   ->   T = e; clone = e; C = f(clone); D = g(T)"""
    made = replace(op, name=name, _outputs={})
    if isinstance(made, (Compute, Scan)):
        made = replace(made, names=None, _outputs={})
    return reading(reader, dict(zip(op.outputs, made.outputs, strict=True))), made


def _fresh_axes(extents: Sequence[Expr], names: Sequence[str]) -> tuple[Axis, ...]:
    listed = list(names) if len(names) == len(extents) else [f"d{d}" for d in range(len(extents))]
    return tuple(Axis(name, extent) for name, extent in zip(listed, extents, strict=True))


@dataclass(frozen=True)
class Half:
    """One loop of a reduce axis that was split: the outer or the inner one; `name` is that of the other."""

    is_outer: bool
    factor: int
    name: str


def rfactor(op: Operation, axis: Axis, loop: str, half: Half | None, partial: str) -> tuple[Operation, Operation]:
    """C[i] = sum(ko, ki) e   ->   partial[i, ko] = sum(ki) e; C[i] = sum(ko) partial[i, ko]"""
    assert isinstance(op, Compute)
    reduce = op.reduction
    assert reduce is not None
    _check_regrouping(reduce, axis, half)
    kept, place, rest, inside = _halves(axis, loop, half)
    fresh = tuple(Axis(a.name, a.extent) for a in op.axes)
    mapping: dict[Expr, Expr] = {axis: place, **dict(zip(op.axes, fresh, strict=True))}
    *values, where = substitute_all((*reduce.values, reduce.where), mapping)
    where = asked_inside(inside, where)
    axes = tuple(new for a in reduce.axes for new in (rest if a is axis else (a,)))
    made = Compute(
        name=partial, where=op.where, axes=(*fresh, kept), bodies=_partial_bodies(reduce, tuple(values), axes, where)
    )
    over = Axis(loop, kept.extent, is_reduce=True)
    read = tuple(Read(t, (*op.axes, over)) for t in made.outputs)
    bodies = tuple(Reduce(reduce.reducer, read, (over,), TRUE, k) for k in range(len(op.bodies)))
    return replace(op, bodies=bodies, _outputs={}), made


def _check_regrouping(reduce: Reduce, axis: Axis, half: Half | None) -> None:
    """Sums and the like may be taken in any order; a reducer of the user's only in parts that follow one another."""
    kind, dtype = reduce.reducer.kind, reduce.values[0].dtype
    if kind in ("argmax", "argmin"):
        raise ScheduleError(f"{kind} has no partial results to combine: reduce (value, position) with a te.reducer")
    if kind in ("sum", "prod") and dtype in ("float16", "bfloat16"):
        raise ScheduleError(f"partial results of a {kind} of {dtype} would be rounded; te.cast the values to float32")
    outermost = axis is reduce.axes[0] and (half is None or half.is_outer)
    if reduce.reducer.is_custom and not outermost:
        raise ScheduleError(
            "the order of a te.reducer is kept, so only its outermost loop can be taken out: "
            f"{reduce.axes[0].name!r}, or the outer half of it"
        )


def _halves(axis: Axis, loop: str, half: Half | None) -> tuple[Axis, Expr, tuple[Axis, ...], Expr]:
    """The axis that is kept, the old axis in terms of the new ones, those left to reduce over, the guard."""
    assert axis.extent is not None
    if half is None:
        kept = Axis(loop, axis.extent)
        return kept, kept + axis.begin, (), TRUE
    blocks = simplify_extent(fn.as_expr((axis.extent + (half.factor - 1)) // half.factor))
    small = fn.as_expr(half.factor)
    kept = Axis(loop, blocks if half.is_outer else small)
    other = Axis(half.name, small if half.is_outer else blocks, is_reduce=True)
    offset = kept * half.factor + other if half.is_outer else other * half.factor + kept
    exact = isinstance(axis.extent, Const) and axis.extent.value % half.factor == 0
    return kept, offset + axis.begin, (other,), TRUE if exact else offset < axis.extent


def _partial_bodies(reduce: Reduce, values: tuple[Expr, ...], axes: tuple[Axis, ...], where: Expr) -> tuple[Expr, ...]:
    if axes:
        count = len(values) if reduce.reducer.is_custom else 1
        return tuple(Reduce(reduce.reducer, values, axes, where, k) for k in range(count))
    if where is TRUE:
        return values
    identities = [reduce.reducer.identity_of(v.dtype, k) for k, v in enumerate(values)]
    return tuple(Expr._apply(Fn.SELECT, where, v, i) for v, i in zip(values, identities, strict=True))


def pack(
    op: Operation, source: Tensor, copy: str, order: Sequence[str], factors: Sequence[int]
) -> tuple[Operation, Operation]:
    """C = e(B[k, j])   ->   copy[jo, k, ji] = B[k, jo*f + ji] (0 beyond the end); C = e(copy[j // f, k, j % f])"""
    sizes = dict(enumerate(factors))
    wanted = [f"{d}{part}" for d in range(source.ndim) for part in (("o", "i") if sizes.get(d, 0) else ("",))]
    if sorted(order) != sorted(wanted) or len(factors) != source.ndim or any(f < 0 for f in factors):
        raise ScheduleError(
            f"the layout of {source.name} must order {', '.join(wanted)} and give a factor (or 0) for each of its "
            f"{source.ndim} dimensions, found {', '.join(order)} and {tuple(factors)}"
        )
    for factor in filter(None, factors):
        check_positive(factor, "factor")
    extents = {part: _packed_extent(source, part, sizes) for part in order}
    axes = {part: Axis(f"d{part}", extents[part]) for part in order}
    place = tuple(
        axes[f"{d}o"] * sizes[d] + axes[f"{d}i"] if sizes.get(d, 0) else axes[f"{d}"] for d in range(source.ndim)
    )
    inside: Expr = TRUE
    for index, extent, factor in zip(place, source.extents, factors, strict=True):
        if factor and not (isinstance(extent, Const) and extent.value % factor == 0):
            inside = fn.logical_and(inside, index < extent)
    value: Any = Read(source, place)
    body = value if inside is TRUE else Expr._apply(Fn.SELECT, inside, value, Const(_zero_of(source), source.dtype))
    made = Compute(name=copy, where=op.where, axes=tuple(axes[part] for part in order), bodies=(body,))
    return _packed_reads(op, source, made.output(), order, sizes), made


def _zero_of(source: Tensor) -> bool | int | float:
    return False if source.dtype.is_bool else 0.0 if source.dtype.is_float else 0


def _packed_extent(source: Tensor, part: str, sizes: dict[int, int]) -> Expr:
    dim = int(part.rstrip("oi"))
    if part.endswith("i"):
        return fn.as_expr(sizes[dim])
    extent = source.extents[dim]
    return simplify_extent(fn.as_expr((extent + (sizes[dim] - 1)) // sizes[dim])) if part.endswith("o") else extent


def _packed_reads(
    op: Operation, source: Tensor, copy: Tensor, order: Sequence[str], sizes: dict[int, int]
) -> Operation:
    """The operation with its reads of `source` at the places of the copy."""

    def element(read: Read) -> Expr:
        parts = {}
        for d, index in enumerate(read.indices):
            if sizes.get(d, 0):
                parts[f"{d}o"], parts[f"{d}i"] = index // sizes[d], index % sizes[d]
            else:
                parts[f"{d}"] = index
        return Read(copy, tuple(parts[part] for part in order))

    def rule(node: Expr) -> Expr:
        return element(node) if isinstance(node, Read) and node.tensor is source else node

    if not isinstance(op, Compute):
        raise ScheduleError("only reads of a compute can be packed")
    return replace(op, bodies=rebuild_all(op.bodies, rule), _outputs={})
