"""Sizes for which int32 would not hold what a program computes of its extents: refused at the call, by name.

Extents are checked when arrays come; what is made of them on the way (`n * m // 8`), in kernels as in the reference, is
an int32, and so are the positions that an argmax counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tedsl.analysis.messages import describe
from tedsl.analysis.sizes import axis_length, evaluate_extent, vars_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, integer_bounds
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Reduce, Var
from tedsl.lang.intervals import Known, exact_range, range_of
from tedsl.lang.tensor import Operation
from tedsl.lang.traverse import topological

__all__ = ["Limit", "check_limits", "limits_of"]

LOWEST, HIGHEST = integer_bounds(INT32)


@dataclass(frozen=True, eq=False)
class Limit:
    """What some sizes may bring beyond int32: an expression of extents, or the points of a reduction to a position."""

    op: Operation
    what: Expr

    def check(self, sizes: Mapping[Var, int], what: str) -> None:
        """ValueError where these sizes do."""
        if isinstance(self.what, Reduce):
            value, found = self._positions(self.what, sizes), f"te.{self.what.reducer.kind} over"
            problem = f"{found} {value} positions, which do not fit in the int32 result; reduce over one axis at a time"
        else:
            value = evaluate_extent(self.what, sizes, what)
            given = ", ".join(f"{v.name} = {sizes[v]}" for v in vars_of(self.what))
            problem = (
                f"`{self.what}` is {value} with {given}; extents are computed in int32, from {LOWEST} to {HIGHEST}: "
                "write it so that no part of it is larger, or give extents as numbers"
            )
        if not LOWEST <= value <= HIGHEST:
            raise ValueError(f"{what}: {describe(self.op)}: {problem}")

    def _positions(self, reduce: Reduce, sizes: Mapping[Var, int]) -> int:
        return math.prod(axis_length(a, sizes) for a in reduce.axes)


def limits_of(operations: Iterable[Operation]) -> list[Limit]:
    """What may leave int32 for some sizes, operation by operation."""
    return [Limit(op, node) for op in operations for node in _growing(op)]


def check_limits(limits: Sequence[Limit], sizes: Mapping[Var, int], what: str) -> None:
    """ValueError for the first that does."""
    for limit in limits:
        limit.check(sizes, what)


def _growing(op: Operation) -> list[Expr]:
    known: Known = {}
    found: list[Expr] = []
    sized: set[Expr] = set()
    always = _always_used(op)
    for node in topological(always):
        if isinstance(node, Reduce):
            if node.reducer.kind in ("argmax", "argmin") and _has_symbols(node.axes):
                found.append(node)
        elif isinstance(node, (Const, Var)):
            sized.add(node)
        elif isinstance(node, Apply) and node.dtype is INT32 and sized.issuperset(node.args):
            sized.add(node)
            if node in always and _may_leave(node, known):
                found.append(node)
    return found


def _always_used(op: Operation) -> dict[Expr, None]:
    """The nodes whose values matter at every point: not those behind a condition."""
    stack = [*_extents(op), *op.expressions]
    used: dict[Expr, None] = {}
    while stack:
        node = stack.pop()
        if node in used:
            continue
        used[node] = None
        if isinstance(node, Apply) and node.fn is Fn.SELECT:
            stack.append(node.args[0])
        elif isinstance(node, Reduce) and node.where is not TRUE:
            stack.append(node.where)
        else:
            stack.extend(node.children)
    return used


def _extents(op: Operation) -> list[Expr]:
    """The extents and begins of an operation's loops, and the extents of its results."""
    reductions = [node for node in op.nodes if isinstance(node, Reduce)]
    axes: list[Axis] = [*getattr(op, "axes", ()), *(a for r in reductions for a in r.axes)]
    ends = [e for a in axes for e in (a.begin, a.extent) if e is not None]
    return [*ends, *(e for t in op.outputs for e in t.extents)]


def _has_symbols(axes: Iterable[Axis]) -> bool:
    return any(not isinstance(a.extent, Const) for a in axes)


def _may_leave(node: Apply, known: Known) -> bool:
    range_of(node, known)
    found = exact_range(node, known)
    return found is None or not LOWEST <= found[0] <= found[1] <= HIGHEST
