"""What a step computes ahead of its elements, in kernels of its own: columns, and sums that few elements read.

A column of a matrix, as every element of a row asks for it, is gathered once; beside it what is made of it alone. A sum
that a whole row shares is computed for all rows at once, and not row by row where it is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tedsl.lang.expr import Axis, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.intervals import range_of
from tedsl.lang.tensor import Compute, Placeholder, Tensor
from tedsl.lang.traverse import replaced_all, stages_of, substitute, topological

__all__ = ["Columns", "sums_ahead"]

FEW = 4  # elements for each one of a column


class Columns:
    """The columns of a step so far."""

    def __init__(self) -> None:
        self.made: dict[Expr, Tensor] = {}  # what they are of, over an axis for each extent
        self._axes: dict[Expr, Axis] = {}

    def of(self, bodies: Sequence[Expr], axes: Sequence[Axis], name: str) -> tuple[Expr, ...]:
        """The bodies with reads of columns in place of what these are of."""
        around = [*axes, *(a for node in topological(bodies) if isinstance(node, Reduce) for a in node.axes)]
        points = math.prod(number(a.extent) or 1 for a in dict.fromkeys(around))
        found = {e: a for e, a in _across(bodies).items() if FEW * (number(a.extent) or points) <= points}
        return replaced_all(bodies, {e: self._read(e, a, name) for e, a in found.items()})

    def _read(self, expr: Expr, axis: Axis, name: str) -> Expr:
        assert axis.extent is not None
        own = self._axes.setdefault(axis.extent, Axis(axis.name, axis.extent))
        body = substitute(expr, {axis: own})
        if body not in self.made:
            fresh = Axis(axis.name, axis.extent)
            op = Compute(name=f"{name}_column", axes=(fresh,), bodies=(substitute(body, {own: fresh}),))
            self.made[body] = op.output()
        return Read(self.made[body], (axis,))


def _across(bodies: Sequence[Expr]) -> dict[Expr, Axis]:
    """The largest parts that are made of elements across memory along one axis, and of nothing along another one."""
    alone: dict[Expr, frozenset[Axis] | None] = {}  # of each node its axes; None: more than one, or what is not known
    across: set[Expr] = set()
    inside: set[Expr] = set()
    for node in topological(bodies):
        axes: set[Axis] | None = {node} if isinstance(node, Axis) else set()
        for child in node.children:
            own = alone[child]
            axes = None if axes is None or own is None else axes | own
        if axes is not None and (len(axes) > 1 or isinstance(node, Reduce) or not _is_simple(node)):
            axes = None
        alone[node] = None if axes is None else frozenset(axes)
        if axes and (any(c in across for c in node.children) or _is_column(node)) and node.dtype.is_float:
            across.add(node)
    for node in topological(bodies):
        if alone[node] is not None:
            inside.update(c for c in node.children if node in across)
    return {e: a for e in across - inside for a in alone[e] or () if number(a.begin) == 0}


def _is_simple(node: Expr) -> bool:
    """Whether a node may be computed at every place: of what is given, within its bounds."""
    if isinstance(node, Read):
        limits = [number(n) for n in node.tensor.extents]
        ranges = [range_of(i) for i in node.indices]
        inside = all(n is not None and low >= 0 and high < n for (low, high), n in zip(ranges, limits, strict=True))
        return isinstance(node.tensor.op, Placeholder) and inside
    return True


def _is_column(node: Expr) -> bool:
    """Whether neighbours along the axis of a read lie apart in memory."""
    if not isinstance(node, Read) or len(node.indices) < 2:
        return False
    return any(isinstance(i, Axis) for i in node.indices[:-1]) and not any(
        isinstance(e, Axis) for e in topological(node.indices[-1])
    )


def sums_ahead(outputs: Sequence[Tensor], known: Sequence[Tensor]) -> list[Tensor]:
    """The sums of what is given or known that stages of more elements read."""
    given, found = set(known), dict[Tensor, None]()
    for op in stages_of(outputs):
        for tensor in op.inputs:
            made = tensor.op
            if not isinstance(made, Compute) or made.reduction is None or tensor in given or tensor in set(outputs):
                continue
            early = all(isinstance(t.op, Placeholder) or t in given for t in made.inputs)
            if early and isinstance(op, Compute) and len(op.axes) > len(made.axes):
                found[tensor] = None
    return list(found)
