"""Which element of an index is out of bounds, looked for in the arrays of a call that failed.

A kernel tells the least and the greatest of them and no more. The rest is found here, by the reference: nothing that a
call that succeeds pays for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tedsl.analysis.checks import ReadCheck
from tedsl.analysis.messages import Overrun
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import axis_length, concrete_shape, evaluate_extent
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Expr, Read, Reduce, Var
from tedsl.lang.tensor import Constant, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between, reads_of, topological
from tedsl.reference.grid import PointGrid, TensorKey, boxes, unknown_array
from tedsl.reference.interpreter import LIMIT, evaluate_stages

__all__ = ["found_overrun"]

MOST_POINTS = 1 << 24  # that are looked at: a second or two
STEP = 1 << 10  # points that take as long as a step of a scan takes at least


def found_overrun(check: ReadCheck, known: Mapping[Tensor, Array], sizes: Mapping[Var, int]) -> Overrun | str | None:
    """The first point at which an access is out of bounds; None where that takes too long, or the arrays do not say."""
    try:
        with np.errstate(all="ignore"):
            return _Search(check, known, sizes).result()
    except IndexError as error:  # of a stage that the index is read from
        return str(error)
    except (ArithmeticError, ValueError):  # what the reference alone refuses, such as an integer divided by zero
        return None


@dataclass(frozen=True, eq=False)
class _Search:
    check: ReadCheck
    known: Mapping[Tensor, Array]
    sizes: Mapping[Var, int]

    def result(self) -> Overrun | str | None:
        op, read = self.check.op, self._read
        index = list({r.tensor: None for r in reads_of((*read.indices, self.check.guard))})
        # What is read from its own steps is known step by step only.
        in_turn = isinstance(op, Scan) and not {read.tensor, *index}.isdisjoint(op.states)
        stages = operations_between(self.known, op.inputs if in_turn else index)
        constants = {s.output(): s.array for s in stages if isinstance(s, Constant)}
        stages = [s for s in stages if not isinstance(s, Constant)] + [op] * in_turn
        if any(isinstance(s, (Placeholder, Extern)) for s in stages):
            return None
        if sum(map(self._points, stages)) + (0 if in_turn else self._count(self._axes)) > MOST_POINTS:
            return None
        needed = {*index, *(t for s in stages for t in s.inputs)}  # what is looked up is not, and may be large
        known = {t: a for t, a in {**constants, **self.known}.items() if t in needed}
        values = evaluate_stages(stages, known, self.sizes)  # in turn, the fault is an error of this
        return None if in_turn else self._first({(t.op, t.index): a for t, a in values.items()})

    @property
    def _read(self) -> Read:
        """The access; where a scatter writes, a read of its result."""
        read, op = self.check.read, self.check.op
        return Read(op.output(), op.index if isinstance(op, Scatter) else ()) if read is None else read

    @property
    def _axes(self) -> list[Axis]:
        """The loops in which the access changes."""
        used = set(free_axes((*self._read.indices, self.check.guard)))
        return [a for a in self.check.site.axes if a in used]

    def _count(self, axes: Sequence[Axis]) -> int:
        return math.prod(axis_length(a, self.sizes) for a in axes)

    def _points(self, op: Operation) -> int:
        """How many points it takes to evaluate a stage, roughly."""
        outer: list[Axis] = [*getattr(op, "axes", ())]
        inner = dict.fromkeys(a for e in topological(op.expressions) if isinstance(e, Reduce) for a in e.axes)
        steps = self._count(op.steps) if isinstance(op, Scan) else 0
        return self._count([*outer, *inner]) + steps * STEP

    def _first(self, values: dict[TensorKey, Array]) -> Overrun | None:
        """The first point, with the range of the index over all of them."""
        check, read = self.check, self._read
        values.setdefault((read.tensor.op, read.tensor.index), unknown_array(concrete_shape(read.tensor, self.sizes)))
        roots: dict[Expr, Expr | None] = {read: check.guard, check.guard: None}
        first: Overrun | None = None
        ranges: list[tuple[int, int]] = []
        for grid in self._grids(values):
            found, fault = grid.tried(roots)
            if isinstance(fault, Exception):
                raise fault
            if fault is not None and not (fault.index is check.index and fault.dim == check.site.dim):
                return fault  # another dimension, or an index of the index
            first = first or fault
            index, used = np.broadcast_arrays(found[check.index], found[check.guard])
            if used.any():
                ranges.append((int(index[used].min()), int(index[used].max())))
        return first and replace(first, low=min(low for low, _ in ranges), high=max(high for _, high in ranges))

    def _grids(self, values: Mapping[TensorKey, Array]) -> Iterator[PointGrid]:
        """All points, in order."""
        axes = self._axes
        begins = [evaluate_extent(a.begin, self.sizes) for a in axes]
        dims = {a: d for d, a in enumerate(axes)}
        for box in boxes([axis_length(a, self.sizes) for a in axes], LIMIT):
            ranges = {a: (b + start, b + end) for a, b, (start, end) in zip(axes, begins, box, strict=True)}
            yield PointGrid(self.check.op, values, self.sizes, dims, ranges)
