"""The stages that a pass makes of a sum, and what an element of the sum is in terms of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Axis, Expr, Reduce
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import substitute_all

__all__ = ["Parts", "over", "sum_of", "summed"]


@dataclass(frozen=True, eq=False)
class Parts:
    """Stages, inputs before users, and what the element of the result is in terms of them.

    `finite`: copies of what must hold no inf or NaN for that, which the stages read.
    """

    stages: tuple[Compute, ...]
    body: Expr
    finite: tuple[Compute, ...] = ()


def sum_of(op: Compute) -> Reduce:
    """The sum that a stage is."""
    reduce = op.reduction
    assert reduce is not None
    return reduce


def summed(like: Reduce, value: Expr, axes: Sequence[Axis], where: Expr = TRUE) -> Reduce:
    """A sum as `like` is one, of something else."""
    return Reduce(like.reducer, (value,), tuple(axes), where, 0)


def over(axes: Sequence[Axis], body: Reduce, op: Compute, name: str) -> Compute:
    """A stage of `op` over loops of its own, alike to `axes` and to those of the sum."""
    loops: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin) for a in axes}
    sums: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in body.axes}
    value, where = substitute_all((body.values[0], body.where), {**loops, **sums})
    bodies = (summed(body, value, tuple(sums.values()), where),)
    return replace(op, name=name, axes=tuple(loops.values()), bodies=bodies, names=None, _outputs={})
