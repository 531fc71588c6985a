"""Results along which indices go round, or stand still, as results with an axis for the turns.

    y[i, j] = x[i % 400, j % 250]   ->   y[q, r, p, s] = x[r, s]      i = 400 q + r, j = 250 p + s

Vectors along j would meet the end of a row of `x` anywhere, and are put together number by number; along s they are
rows. Where each element looks up a place of its own they are put together anyway, and long rows are looked up better, a
row of the table at a time. Nobody else may read the result, whose array is contiguous and seen in another shape, nor
may it take the place of an input, of which that is not proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from dataclasses import replace

from schedules.merging import Merging, moved
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import free_axes, operations_between, reads_of, rebuild_all

__all__ = ["by_turns"]

LEAST = 8  # elements of a turn along memory; of shorter ones a few vectors know what each lane is


def by_turns(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Merging | None:
    """The program with results that have axes for turns; None where none goes round along memory."""
    read = {t for op in operations_between(inputs, outputs) for t in op.inputs}
    kinds = {(t.extents, t.dtype) for t in inputs}
    fit = [t.op for t in outputs if (t.extents, t.dtype) not in kinds]
    steps = {op: _steps(op, read) for op in fit if isinstance(op, Compute)}
    apart = {op: _apart(op, found) for op, found in steps.items() if found}
    made = {op: turned for op, turned in apart.items() if not _looks_up(turned)}
    if not made:
        return None
    results = tuple(made[t.op].output(t.index) if t.op in made else t for t in outputs)
    runs = {t: (1,) * t.ndim for t in (*inputs, *outputs)}
    for t in outputs:
        if t.op in made:
            runs[t] = tuple(-steps[t.op][a] if a in steps[t.op] else 1 for a in t.op.axes)
    return Merging(tuple(inputs), results, runs)


def _steps(op: Compute, read: AbstractSet[Tensor]) -> Mapping[Axis, int]:
    """The elements of a turn of each axis that is used by quotients and remainders; none where that gains nothing."""
    if op.reduction is not None or not op.axes or not read.isdisjoint(op.outputs):
        return {}
    found: dict[Axis, set[int]] = {}
    for node in op.nodes:
        if isinstance(node, Apply) and node.fn in (Fn.FLOORDIV, Fn.MOD) and node.dtype is INT32:
            place, by = node.args
            own, _ = moved(place) or (None, 0)
            for axis in free_axes(node):
                found.setdefault(axis, set()).add(int(by.value) if own is axis and isinstance(by, Const) else 0)
    steps = {axis: max(given) for axis, given in found.items() if len(given) == 1 and _divides(axis, max(given))}
    last = op.axes[-1]
    return steps if last in steps and steps[last] >= LEAST else {}


def _divides(axis: Axis, step: int) -> bool:
    """Whether an axis is several whole turns."""
    extent = number(axis.extent)
    return extent is not None and number(axis.begin) == 0 and step > 1 and extent % step == 0 and extent > step


def _looks_up(op: Compute) -> bool:
    """Whether elements along memory are read at places that are data, one for each."""
    places = reads_of([index for read in reads_of(op.bodies) for index in read.indices])
    return op.axes[-1] in set(free_axes(places))


def _apart(op: Compute, steps: Mapping[Axis, int]) -> Compute:
    """The stage with two axes for each of these."""
    turn, rest = {}, {}
    axes: list[Axis] = []
    for axis in op.axes:
        if axis in steps:
            turn[axis] = Axis(f"{axis.name}_turn", Const((number(axis.extent) or 0) // steps[axis], INT32))
            rest[axis] = Axis(axis.name, Const(steps[axis], INT32))
            axes += [turn[axis], rest[axis]]
        else:
            axes.append(axis)

    def rule(node: Expr) -> Expr:
        if isinstance(node, Axis) and node in steps:
            return turn[node] * steps[node] + rest[node]
        return node

    def whole(node: Expr) -> Expr:
        """Quotients and remainders first, which are axes of their own."""
        if not isinstance(node, Apply) or node.fn not in (Fn.FLOORDIV, Fn.MOD):
            return node
        axis, away = moved(node.args[0]) or (None, 0)
        if axis is None or axis not in steps:
            return node
        place = rest[axis] + away if away else rest[axis]
        if node.fn is Fn.MOD:
            return place % steps[axis] if away else place
        return turn[axis] + place // steps[axis] if away else turn[axis]

    bodies = rebuild_all(rebuild_all(op.bodies, whole), rule)
    return replace(op, axes=tuple(axes), bodies=bodies, names=None, _outputs={})
