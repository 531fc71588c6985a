"""Every place at which an operation reads or writes a tensor: which element, and under which condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import mul

from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Fn, Read
from tedsl.lang.guards import guards_of
from tedsl.lang.tensor import Compute, Operation, Scan, Scatter, StepPart, Tensor
from tedsl.lang.traverse import free_axes

__all__ = ["Site", "sites_of"]


@dataclass(frozen=True, eq=False)
class Site:
    """One dimension of one access: `index` of `tensor` in dimension `dim`, used where `guard` holds.

    `axes` are the loops around it. `read` is None for the target of a scatter. `step` is what a scan counts its steps
    by where the dimension is that along which it reads its own state: its axis; or the number of the step where there
    are several such axes, whose dimensions count as one then, after each for itself.
    """

    op: Operation
    read: Read | None
    tensor: Tensor
    dim: int
    index: Expr
    guard: Expr
    axes: tuple[Axis, ...]
    step: Expr | None = None
    reverse: bool = False

    @property
    def extent(self) -> Expr:
        own = isinstance(self.op, Scan) and self.read is not None
        extents = self.op.bounds_of(self.read) if own else self.tensor.extents  # type: ignore[attr-defined]
        return extents[self.dim] if self.along is None else _product([extents[d] for d in self.along])

    @property
    def part(self) -> StepPart | None:
        """The part of a packed scan that is read."""
        return self.op.part_of(self.read) if isinstance(self.op, Scan) and self.read is not None else None

    @property
    def along(self) -> tuple[int, ...] | None:
        """The dimensions that count as one."""
        dims = self.op.dims if isinstance(self.op, Scan) and self.step is not None else ()
        return dims if len(dims) > 1 else None


def sites_of(op: Operation) -> Iterator[Site]:
    """The accesses of an operation, in the order of its expressions."""
    for read, guard in _guarded_reads(op).items():
        yield from _of_read(op, read, guard)
    if isinstance(op, Scatter):
        for dim, index in enumerate(op.index):
            yield Site(op, None, op.output(), dim, index, op.guard, op.axes)


def _guarded_reads(op: Operation) -> dict[Read, Expr]:
    if not isinstance(op, Scatter):
        return op.read_guards
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
    if not isinstance(op, Scan) or all(read.tensor is not state for state in op.states):
        yield from (Site(op, read, read.tensor, d, index, guard, axes) for d, index in enumerate(read.indices))
        return
    alone = len(op.dims) == 1
    for dim, index in enumerate(read.indices):
        step = op.axes[dim] if alone and dim in op.dims else None
        yield Site(op, read, read.tensor, dim, index, guard, axes, step, op.reverse)
    if not alone:
        extents = [read.tensor.extents[d] for d in op.dims]
        there, now = (_counted(at, extents) for at in ([read.indices[d] for d in op.dims], op.steps))
        yield Site(op, read, read.tensor, op.dims[0], there, guard, axes, now, op.reverse)


def _counted(place: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The number of a step."""
    first, *rest = place
    return reduce(lambda before, here: before * here[1] + here[0], zip(rest, extents[1:], strict=True), first)


def _product(extents: Sequence[Expr]) -> Expr:
    return reduce(mul, extents)


def _loops(op: Operation) -> tuple[Axis, ...]:
    """The loops around every expression of an operation."""
    if isinstance(op, Compute):
        return op.axes + (op.reduction.axes if op.reduction is not None else ())
    return op.axes if isinstance(op, (Scan, Scatter)) else ()
