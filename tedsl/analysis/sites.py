"""Every place at which an operation reads or writes a tensor: which element, and under which condition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tedsl.lang.expr import Axis, Expr, Fn, Read
from tedsl.lang.guards import guards_of
from tedsl.lang.tensor import Compute, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes

__all__ = ["Site", "sites_of"]


@dataclass(frozen=True, eq=False)
class Site:
    """One dimension of one access: `index` of `tensor` in dimension `dim`, used where `guard` holds.

    `axes` are the loops around it. `read` is None for the target of a scatter. `step` is the scan's axis where the
    dimension is that along which a scan reads its own state.
    """

    op: Operation
    read: Read | None
    tensor: Tensor
    dim: int
    index: Expr
    guard: Expr
    axes: tuple[Axis, ...]
    step: Axis | None = None
    reverse: bool = False

    @property
    def extent(self) -> Expr:
        return self.tensor.extents[self.dim]


def sites_of(op: Operation) -> Iterator[Site]:
    """The accesses of an operation, in the order of its expressions."""
    for read, guard in _guarded_reads(op).items():
        yield from _of_read(op, read, guard)
    if isinstance(op, Scatter):
        for dim, index in enumerate(op.index):
            yield Site(op, None, op.output(), dim, index, op.guard, op.axes)


def _guarded_reads(op: Operation) -> dict[Read, Expr]:
    if not isinstance(op, Scatter):
        guards = guards_of(op.expressions)
        return {read: guards[read] for read in op.reads}
    inner, outer = guards_of((*op.index, op.value)), guards_of(op.guard)
    found: dict[Read, Expr] = {}
    for read in op.reads:
        always = outer.get(read)
        within = _both(op.guard, inner[read]) if read in inner else None
        known = [condition for condition in (always, within) if condition is not None]
        found[read] = known[0] if len(known) == 1 else Expr._apply(Fn.OR, *known)
    return found


def _both(a: Expr, b: Expr) -> Expr:
    both: Expr = Expr._apply(Fn.AND, a, b)
    return both


def _of_read(op: Operation, read: Read, guard: Expr) -> Iterator[Site]:
    loops = _loops(op)
    extra = [a for a in free_axes((*read.indices, guard)) if a not in set(loops)]
    axes = (*loops, *extra)
    states = {state.op for state in op.states} if isinstance(op, Scan) else set()
    for dim, index in enumerate(read.indices):
        step = op.axes[op.dim] if isinstance(op, Scan) and read.tensor.op in states and dim == op.dim else None
        reverse = isinstance(op, Scan) and op.reverse
        yield Site(op, read, read.tensor, dim, index, guard, axes, step, reverse)


def _loops(op: Operation) -> tuple[Axis, ...]:
    """The loops around every expression of an operation."""
    if isinstance(op, Compute):
        return op.axes + (op.reduction.axes if op.reduction is not None else ())
    return op.axes if isinstance(op, (Scan, Scatter)) else ()
