"""Stages of several results that may lie in memory which the stage reads: all is read before any is stored.

Halide stores the components of a function one after another, and computes each when it is stored, unless they name each
other: then it computes all of them first. What names them here is the promise about the range of a number, which Halide
drops once it has split the components, so that it costs nothing. But LLVM is told that buffers never overlap, and may
then read after a store what was read before it. So each value is made of the bits of all that is read, under a mask of
zeros that is an argument of the kernel: no store can come before a read that it is computed from.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

import halide as hl

from tedsl.backend.lowering.expressions import Scalars
from tedsl.backend.lowering.stages import Context
from tedsl.backend.scalars.types import FLOATS, TYPES, Expr as Halide, width
from tedsl.lang import functions as fn
from tedsl.lang.expr import TRUE, Expr
from tedsl.lang.extents import same_layout
from tedsl.lang.guards import guards_of
from tedsl.lang.tensor import Compute, Operation, Scan, Tensor

__all__ = ["exposed_reads", "together"]


def exposed_reads(ctx: Context, op: Operation, components: Sequence[int]) -> list[Expr]:
    """What a stage reads that one of its results may lie on, each where it is needed; nothing if no result may."""
    results = [op.output(k) for k in components]
    if len(components) < 2 or op in ctx.before_checks or not ctx.in_place.issuperset(results):
        return []
    states = set(op.states) if isinstance(op, Scan) else set()
    known: dict[Tensor, bool] = {}
    guards = guards_of(op.expressions)
    reads = [r for r in op.reads if r.tensor not in states and _is_exposed(ctx, r.tensor, results, known)]
    return [r if guards[r] is TRUE else fn.select_node(guards[r], r, fn.convert(0, r.dtype)) for r in reads]


def _is_exposed(ctx: Context, tensor: Tensor, results: Sequence[Tensor], known: dict[Tensor, bool]) -> bool:
    """Whether a tensor is an input that a result may lie on, or may be computed from one wherever it is read."""
    pending = [tensor]
    while pending:
        top = pending[-1]
        inner = top.op.inputs if top not in ctx.images and isinstance(top.op, Compute) else ()
        missing = [t for t in inner if t not in known]
        if missing:
            pending += missing
            continue
        own = top in ctx.images and any(same_layout(top, r) for r in results)
        known[pending.pop()] = own or any(known[t] for t in inner)
    return known[tensor]


def together(
    ctx: Context, scope: Scalars, values: Sequence[Halide], old: Sequence[Halide], dtypes: Sequence[str],
    reads: Sequence[Expr],
) -> Halide:  # fmt: skip
    """The right side of an update with these values, which is stored after all of `reads` was read."""
    named = reduce(operator.add, (hl.cast(hl.Int(32), _bits(o, d)) for o, d in zip(old, dtypes, strict=True)))
    zero = hl.unsafe_promise_clamped(ctx.unknown_zero(), named, named)
    patterns = [_bits(v, d) for v, d in zip(values, dtypes, strict=True)]
    found = [_bits(scope.value(r), r.dtype) for r in reads]
    widest = hl.UInt(max(p.type().bits() for p in (*patterns, *found)))
    union = reduce(operator.or_, (hl.cast(widest, p) for p in found)) & hl.cast(widest, zero)
    return hl.Tuple([_value(p | hl.cast(p.type(), union), d) for p, d in zip(patterns, dtypes, strict=True)])


def _bits(value: Halide, dtype: str) -> Halide:
    """The bits of a value, as an unsigned integer."""
    if dtype in FLOATS:
        return hl.reinterpret(hl.UInt(value.type().bits()), value)
    return hl.cast(hl.UInt(max(8, width(dtype))), value)


def _value(pattern: Halide, dtype: str) -> Halide:
    """The value with these bits."""
    if dtype in FLOATS:
        return hl.reinterpret(TYPES[dtype], pattern)
    return pattern != 0 if dtype == "bool" else hl.cast(TYPES[dtype], pattern)
