"""Accesses that are in bounds by what the other stages of a program compute, where it is known what is fed.

A stage alone may be given anything for what it reads, so that its accesses are to be checked when it runs. What is
proven here has no check: the index is clipped to its bounds, as it would be for safety beside one, and means the same.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tedsl.analysis.checks import ReadCheck, has_given_checks, holds, read_checks
from tedsl.analysis.facts import Facts
from tedsl.analysis.stage_ranges import StageRanges
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Const, Expr, Fn, Read
from tedsl.lang.intervals import range_of
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import reads_of, substitute, substitute_all, topological

__all__ = ["KnownPlaces"]

MOST_NODES = 400  # of an index with the stages that it is made of written out
MOST_STAGES = 8  # one behind the other


class KnownPlaces:
    """Questions about accesses of a program of which these tensors are fed."""

    def __init__(self, given: Collection[Tensor]) -> None:
        self._given = frozenset(given)
        self._ranges = StageRanges(given)

    def settled(self, op: Operation) -> list[ReadCheck]:
        """The accesses of an operation that need no check, though the operation alone does not show it."""
        if not (isinstance(op, Scatter) or op.looks_up) or all(isinstance(t.op, Placeholder) for t in op.inputs):
            return []
        return [c for c in read_checks(op) if c.status == "run" and self._holds(c)]

    def clipped(self, op: Operation) -> Operation:
        """The operation with these accesses clipped to their bounds; the same object where there are none."""
        settled = [] if has_given_checks(op) else self.settled(op)
        return _clipped(op, settled) if settled else op

    def _holds(self, check: ReadCheck) -> bool:
        site = check.site
        exprs = site.index, site.guard
        if site.step is not None or not any(self._is_computed(r.tensor) for r in reads_of(exprs)):
            return False
        index, guard = self._written_out(exprs)
        known = self._ranges.known((index, guard))
        low, high = range_of(index, known)
        if low >= 0 and isinstance(check.upper, Const) and high <= check.upper.value:
            return True
        return any(holds(check, index, asked, Facts(site.axes, known)) for asked in dict.fromkeys((TRUE, guard)))

    def _is_computed(self, tensor: Tensor) -> bool:
        return tensor not in self._given and not isinstance(tensor.op, Placeholder)

    def _written_out(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Expressions with pointwise stages in place of reads of them, as long as they stay short."""
        for _ in range(MOST_STAGES):
            bodies: dict[Expr, Expr] = {r: body for r in reads_of(exprs) if (body := self._body_at(r)) is not None}
            if not bodies:
                break
            made = substitute_all(exprs, bodies)
            if len(topological(made)) > MOST_NODES:
                break
            exprs = made
        return exprs

    def _body_at(self, read: Read) -> Expr | None:
        """What a read of a pointwise stage stands for, wherever it is in bounds."""
        op = read.tensor.op
        if not isinstance(op, Compute) or op.reduction is not None or not self._is_computed(read.tensor):
            return None
        return substitute(op.bodies[read.tensor.index], dict(zip(op.axes, read.indices, strict=True)))


def _clipped(op: Operation, checks: Iterable[ReadCheck]) -> Operation:
    """The operation with the indices of some accesses clipped."""
    dims: dict[Read | None, dict[int, ReadCheck]] = {}
    for check in checks:
        dims.setdefault(check.read, {})[check.site.dim] = check
    new: dict[Expr, Expr] = {}
    for node in topological(op.expressions):
        children = tuple([new[c] for c in node.children])
        made = node if all(map(operator.is_, children, node.children)) else node.with_children(children)
        if isinstance(node, Read) and node in dims:
            assert isinstance(made, Read)
            made = Read(made.tensor, _inside(made.indices, dims[node]))
        new[node] = made
    after = tuple(new[e] for e in op.expressions)
    if isinstance(op, Scatter):
        *index, value, guard = after
        return replace(op, index=_inside(index, dims.get(None, {})), value=value, guard=guard, _outputs={})
    assert isinstance(op, (Compute, Scan))
    return replace(op, bodies=after, _outputs={})


def _inside(indices: Sequence[Expr], checks: dict[int, ReadCheck]) -> tuple[Expr, ...]:
    return tuple(_held(i, checks[d]) if d in checks else i for d, i in enumerate(indices))


def _held(index: Expr, check: ReadCheck) -> Expr:
    index = index if index.dtype is INT32 else Apply(Fn.CAST, (index,), INT32)
    return Apply(Fn.CLIP, (index, check.lower, check.upper), INT32)
