"""Checks that tables hold no inf or NaN, for rewrites that are equal only then.

A tap that a border leaves out adds nothing; as 0 times its weight it adds nothing too, unless the weight is inf or NaN.
So a kernel that multiplies zeros looks at its weights first, and when it finds one that is not finite it fails before
anything is written; the call is then answered by a kernel that leaves taps out (`Core.run`).
"""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from tedsl.backend.lower_stage import Context
from tedsl.backend.names import identifier
from tedsl.backend.scalars import Expr as Halide
from tedsl.lang.expr import Const
from tedsl.lang.tensor import Operation, Tensor

__all__ = ["NOT_FINITE", "check_finite", "operations_below"]

NOT_FINITE = -1  # the number of the requirement
# Bits beside the sign, and the least of them that are not finite.
_BITS = {"float32": (hl.UInt(32), 0x7FFFFFFF, 0x7F800000), "float64": (hl.UInt(64), (1 << 63) - 1, 0x7FF << 52)}


def operations_below(tables: Sequence[Tensor], operations: Sequence[Operation]) -> set[Operation]:
    """The operations that the tables need, their own included."""
    wanted = {t.op for t in tables}
    for op in reversed(operations):
        if op in wanted:
            wanted.update(t.op for t in op.inputs)
    return wanted.intersection(operations)


def check_finite(ctx: Context, table: Tensor) -> tuple[Halide, list[hl.Func]]:
    """0, after the requirement that all elements of a table are finite, whose last extent is a number."""
    kind, magnitude, limit = _BITS[str(table.dtype)]
    *extents, last = table.extents
    assert isinstance(last, Const)
    width = int(last.value)
    lane = hl.Var("lane")
    lanes, worst = hl.Func(f"lanes_{identifier(table.name)}"), hl.Func(f"largest_{identifier(table.name)}")
    ok = hl.Func(f"finite_{identifier(table.name)}")
    lanes[lane] = hl.cast(kind, 0)
    domain = hl.RDom([(0, ctx.extent(n)) for n in extents[::-1]], "r")
    place = (*(hl.Expr(domain[d]) for d in reversed(range(len(extents)))), hl.Expr(lane))
    bits = hl.reinterpret(kind, ctx.read(table, place)) & hl.cast(
        kind, hl.Expr(magnitude) if magnitude < 1 << 31 else magnitude
    )
    lanes[lane] = hl.max(hl.Expr(lanes[lane]), bits)
    lanes.bound(lane, 0, width).vectorize(lane)
    lanes.update(0).vectorize(lane)
    every = hl.RDom([(0, width)], "lane")
    worst[()] = hl.cast(kind, 0)
    worst[()] = hl.max(hl.Expr(worst[()]), hl.Expr(lanes[every[0]]))
    zero = hl.i32(0)
    ok[()] = hl.require(hl.Expr(worst[()]) < hl.cast(kind, limit), zero, hl.i32(NOT_FINITE), zero, zero, zero)
    return hl.Expr(ok[()]), [lanes, worst, ok]
