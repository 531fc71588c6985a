"""Checks that tables hold no inf or NaN, for rewrites that are equal only then.

A tap that a border leaves out adds nothing; as 0 times its weight it adds nothing too, unless the weight is inf or NaN.
So a kernel that multiplies zeros looks at its weights first, and when it finds one that is not finite it fails before
anything is written; the call is then answered by a kernel that leaves taps out (`SingleKernel.run`).
"""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from tedsl.backend.assembly.numbering import numbered_func
from tedsl.backend.host.runtime import NOT_FINITE
from tedsl.backend.lowering.names import identifier
from tedsl.backend.lowering.stages import Context
from tedsl.backend.scalars.types import Expr as Halide
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Const, Expr, Fn, Read
from tedsl.lang.tensor import Compute, Operation, Tensor

__all__ = ["check_finite", "moved_from", "operations_below"]

# Bits beside the sign, and the least of them that are not finite.
_BITS = {"float32": (hl.UInt(32), 0x7FFFFFFF, 0x7F800000), "float64": (hl.UInt(64), (1 << 63) - 1, 0x7FF << 52)}
MOST_LANES, VECTOR = 64, 8  # of a row that is looked at as one vector, and of one of several


def operations_below(tables: Sequence[Tensor], operations: Sequence[Operation]) -> set[Operation]:
    """The operations that the tables need, their own included."""
    wanted = {t.op for t in tables}
    for op in reversed(operations):
        if op in wanted:
            wanted.update(t.op for t in op.inputs)
    return wanted.intersection(operations)


def moved_from(tables: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[int] | None:
    """The inputs, by position, of which tables hold elements and beside them zeros: finite inputs make finite tables.

    None where something is computed.
    """
    places = {t: k for k, t in enumerate(inputs)}
    found: dict[int, None] = {}
    pending: list[Expr] = [Read(t, tuple(Const(0, INT32) for _ in t.extents)) for t in tables]
    while pending:
        node = pending.pop()
        if isinstance(node, Read) and node.tensor in places:
            found[places[node.tensor]] = None
        elif isinstance(node, Read) and isinstance(node.tensor.op, Compute) and node.tensor.op.reduction is None:
            pending.append(node.tensor.op.bodies[node.tensor.index])
        elif isinstance(node, Apply) and node.fn is Fn.SELECT:
            pending += node.args[1:]
        elif not isinstance(node, Const) or node.value != 0:
            return None
    return list(found)


def _by_vectors(lanes: hl.Func, lane: hl.Var, domain: hl.RDom) -> None:
    """Long rows, or such of unknown length: one vector of them after another, row by row."""
    inner = hl.Var("lane_v")
    lanes.vectorize(lane, VECTOR, hl.TailStrategy.GuardWithIf)
    update = lanes.update(0).split(lane, lane, inner, VECTOR, hl.TailStrategy.GuardWithIf).vectorize(inner)
    update.reorder(inner, lane, *(domain[d] for d in range(domain.dimensions())))


def check_finite(ctx: Context, table: Tensor) -> tuple[Halide, list[hl.Func]]:
    """0, after the requirement that all elements of a table are finite."""
    kind, magnitude, limit = _BITS[str(table.dtype)]
    *extents, last = table.extents
    width, lane = ctx.extent(last), hl.Var("lane")
    lanes, worst = numbered_func(f"lanes_{identifier(table.name)}"), numbered_func(f"largest_{identifier(table.name)}")
    ok = numbered_func(f"finite_{identifier(table.name)}")
    lanes[lane] = hl.cast(kind, 0)
    domain = hl.RDom([(0, ctx.extent(n)) for n in extents[::-1]], "r")
    place = (*(hl.Expr(domain[d]) for d in reversed(range(len(extents)))), hl.Expr(lane))
    bits = hl.reinterpret(kind, ctx.read(table, place)) & hl.cast(
        kind, hl.Expr(magnitude) if magnitude < 1 << 31 else magnitude
    )
    lanes[lane] = hl.max(hl.Expr(lanes[lane]), bits)
    lanes.bound(lane, 0, width)
    if isinstance(last, Const) and int(last.value) <= MOST_LANES:
        lanes.vectorize(lane)
        lanes.update(0).vectorize(lane)
    else:
        _by_vectors(lanes, lane, domain)
    every = hl.RDom([(0, width)], "lane")
    worst[()] = hl.cast(kind, 0)
    worst[()] = hl.max(hl.Expr(worst[()]), hl.Expr(lanes[every[0]]))
    zero = hl.i32(0)
    ok[()] = hl.require(hl.Expr(worst[()]) < hl.cast(kind, limit), zero, hl.i32(NOT_FINITE), zero, zero, zero)
    return hl.Expr(ok[()]), [lanes, worst, ok]
