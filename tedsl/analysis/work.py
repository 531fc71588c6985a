"""`te.work`: what a program costs, counted from its definition: iterations, arithmetic, memory touched.

The numbers are those of the program as written, each stage by itself; a schedule that inlines, splits or vectorizes
changes none of them. They are exact where guards do not depend on data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tedsl.analysis.arrays.feeds import as_outputs
from tedsl.analysis.counting import count_points
from tedsl.analysis.sizes import NamedSizes, axis_length, check_sizes, concrete_shape, evaluate_extent
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Apply, Axis, Expr, Fn, Formal, Read, Reduce, Var
from tedsl.lang.intervals import Known, range_of
from tedsl.lang.keywords import own_arguments
from tedsl.lang.phases import unpacked
from tedsl.lang.rich import Rich
from tedsl.lang.tensor import Compute, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, stages_of, topological

__all__ = ["Work", "flops_of", "work", "work_by_stage"]

WHAT = "te.work"
# Choosing and converting is not arithmetic.
FREE = frozenset({Fn.SELECT, Fn.CAST, Fn.TERM, Fn.ROUNDED, Fn.STOP, Fn.AND, Fn.OR, Fn.NOT})

Sizes = Mapping[Var, int]
Count = Callable[[Expr], int]  # of an operation


@dataclass(frozen=True)
class Work(Rich):
    """Points visited, those of them whose guard is false, arithmetic operations, and bytes written or read once."""

    iterations: int
    masked: int
    flops: int
    bytes: int

    def __add__(self, other: Work) -> Work:
        return Work(
            self.iterations + other.iterations,
            self.masked + other.masked,
            self.flops + other.flops,
            self.bytes + other.bytes,
        )


NOTHING = Work(0, 0, 0, 0)


def _one(_: Expr) -> int:
    return 1


@own_arguments()
def work(outputs: Any, sizes: NamedSizes | None = None) -> Work:
    """The work of every stage that the outputs need, summed: `work(C, sizes={n: 10})`.

    iterations  points of data and reduction axes; a scatter also passes over its result once, to initialize it; a scan
                counts its box, and for each reduction inside the box times the reduction; one whose states have
                shapes of their own counts that of each, and of the stages of a step
    masked      iterations at which the `where=` of a reduction or scatter is false. A `select` whose branch is not
                taken still is an iteration. A guard that depends on data counts as true, except pieces of an axis
                that follow one another (`begins[i] <= q < begins[i + 1]`): together they are all of it
    flops       arithmetic on values (index arithmetic is not counted) at iterations that are not masked; any function,
                comparison or combination in a reduction is one, select and cast are none
    bytes       elements written, and elements of each input touched, each once
    """
    return sum(work_by_stage(outputs, sizes).values(), NOTHING)


def work_by_stage(outputs: Any, sizes: NamedSizes | None = None) -> dict[Operation, Work]:
    """The work of each stage, inputs before users; placeholders have none."""
    tensors, _ = as_outputs(outputs, WHAT)
    known = check_sizes(sizes, WHAT, (), tensors)
    return {op: _of_stage(op, known) for op in stages_of(tensors) if not isinstance(op, Placeholder)}


def flops_of(op: Operation, sizes: Sizes, count: Count = _one) -> int:
    """The arithmetic of one stage, `count` for each operation; placeholders have none."""
    return 0 if isinstance(op, Placeholder) else _in_registers(op, sizes, count).flops


def _of_stage(op: Operation, sizes: Sizes) -> Work:
    return _in_registers(op, sizes, _one) + Work(0, 0, 0, _bytes(op, sizes))


def _in_registers(op: Operation, sizes: Sizes, count: Count) -> Work:
    """All of it but the bytes, which take longer to count than the rest."""
    if isinstance(op, Scatter):
        points = _loops(op.axes, op.guard, _flops((op.value,), count) + 1, sizes)
        return points + Work(math.prod(concrete_shape(op.output(), sizes, WHAT)), 0, 0, 0)
    if isinstance(op, Compute) and op.reduction is not None:
        return _of_reduction(op.reduction, op.axes, sizes, count)
    if isinstance(op, Scan) and op.parts:
        return sum((_of_bodies(made.axes, (made.body,), sizes, count) for made in unpacked(op)), NOTHING)
    if isinstance(op, (Compute, Scan)):
        return _of_bodies(op.axes, op.bodies, sizes, count)
    return NOTHING


def _of_bodies(axes: tuple[Axis, ...], bodies: tuple[Expr, ...], sizes: Sizes, count: Count) -> Work:
    total = _loops(axes, TRUE, _flops(bodies, count), sizes)
    for node in topological(bodies):
        if isinstance(node, Reduce):
            around = (a for a in free_axes(node) if a not in set(axes))  # those of reductions that it stands in
            total += _of_reduction(node, (*axes, *around), sizes, count)
    return total


def _of_reduction(reduce: Reduce, outer: tuple[Axis, ...], sizes: Sizes, count: Count) -> Work:
    reducer = reduce.reducer
    combine = _flops(reducer.results, count) if reducer.is_custom else 1
    return _loops((*outer, *reduce.axes), reduce.where, _flops(reduce.values, count) + combine, sizes)


def _loops(axes: tuple[Axis, ...], guard: Expr, flops: int, sizes: Sizes) -> Work:
    ranges = _ranges(axes, sizes)
    points = math.prod(end - begin for begin, end in ranges.values())
    used = count_points(guard, ranges, sizes) if points and guard is not TRUE else points
    return Work(points, points - used, used * flops, 0)


def _ranges(axes: Iterable[Axis], sizes: Sizes) -> dict[Axis, tuple[int, int]]:
    found = {}
    for axis in axes:
        begin = evaluate_extent(axis.begin, sizes, WHAT)
        found[axis] = begin, begin + axis_length(axis, sizes, WHAT)
    return found


def _flops(roots: Iterable[Expr], count: Count) -> int:
    """Operations on values below the roots, shared ones once; a reduction inside is counted on its own."""
    order: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in order:
            order[node] = None
            if isinstance(node, Apply):
                stack.extend(node.args)
    return sum(count(node) for node in order if _is_arithmetic(node))


def _is_arithmetic(node: Expr) -> bool:
    """Whether a node computes with values: floats, or integers that are no mere function of the axes."""
    if not isinstance(node, Apply) or node.fn in FREE:
        return False
    if any(a.dtype.is_float for a in node.args):
        return True
    return any(isinstance(n, (Read, Reduce, Formal)) for n in topological(node))


def _bytes(op: Operation, sizes: Sizes) -> int:
    written = sum(t.dtype.itemsize * math.prod(concrete_shape(t, sizes, WHAT)) for t in op.outputs)
    return written + sum(t.dtype.itemsize * _touched(op, t, sizes) for t in op.inputs)


def _touched(op: Operation, tensor: Tensor, sizes: Sizes) -> int:
    """Distinct elements of an input that the reads touch, at most all of them."""
    shape = concrete_shape(tensor, sizes, WHAT)
    size = math.prod(shape)
    if isinstance(op, Extern) or (isinstance(op, Scatter) and op.init is tensor):
        return size
    reads = [r for r in op.reads if r.tensor is tensor]
    if not size or not reads or any(e == b for b, e in _ranges(_all_axes(op), sizes).values()):
        return 0
    known: Known = {var: (value, value) for var, value in sizes.items()}
    hulls = [_hull([range_of(r.indices[d], known) for r in reads], extent) for d, extent in enumerate(shape)]
    apart = sum(_elements(read, shape, known, sizes) for read in reads)
    return min(size, math.prod(hulls), apart)


def _all_axes(op: Operation) -> tuple[Axis, ...]:
    """The loops without which nothing is read."""
    if isinstance(op, Compute) and op.reduction is not None:
        return op.axes + op.reduction.axes
    return op.axes if isinstance(op, (Compute, Scan, Scatter)) else ()


def _hull(ranges: list[tuple[int, int]], extent: int) -> int:
    low, high = max(0, min(r[0] for r in ranges)), min(extent - 1, max(r[1] for r in ranges))
    return max(0, high - low + 1)


def _elements(read: Read, shape: tuple[int, ...], known: Known, sizes: Sizes) -> int:
    """At most so many elements by one read: as its indices range, and as often as its axes step."""
    count = 1
    for index, extent in zip(read.indices, shape, strict=True):
        count *= min(_hull([range_of(index, known)], extent), _steps(index, sizes))
    return min(count, _steps(read, sizes))


def _steps(expr: Expr, sizes: Sizes) -> int:
    return math.prod(end - begin for begin, end in _ranges(free_axes(expr), sizes).values())
