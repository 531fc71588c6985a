"""Reductions that read memory across the lanes of their result: what is small is turned first.

| before | after |
|---|---|
| `y[i, c] = sum over u of x[i + u, c] w[c, u]` | `t[u, c] = w[c, u]`, the sum of `x[i + u, c] t[u, c]` |
| `y[i, c] = sum over f of g[i, c // 8 * 8 + f] w[c // 8 * 8 + f, c % 8]` | `t[f, c]`, the sum of `g[..] t[f, c]` |
| `y[i, j] = sum over k of abs(x[i, k] - w[j, k])` | `t[k, j] = w[j, k]`, the sum of `abs(x[i, k] - t[k, j])` |
| `y[i] = fold over k of x[i, k]`, by a reducer of one's own | `t[k, i] = x[i, k]`, the fold of `t[k, i]` |
| `d[c, u] = sum over i of g[i, c] x[i + u, c]` | `s[u, c] = sum over i of g[i, c] x[i + u, c]`, `d[c, u] = s[u, c]` |
| `d[u, c, l] = sum over i of ..`, one l | `s[u, c] = sum over i of ..`, `d[u, c, l] = s[u, c]` |
| `d[a, b] = sum over k of x[k, a] y[k, b]`, few a and b | `t[a, k] = x[k, a]`, `u[b, k] = y[k, b]`, `t[a, k] u[b, k]` |
| `f[i, c] = sum over j of g[j, i] (x[i, c] - x[j, c])`, three c | `s[c, i] = sum over j of ..`, `f[i, c] = s[c, i]` |

Filters of single channels, channels last, are such sums. Terms keep their order here; those that lie side by side once
they are turned go to lanes (`lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from schedules.default.copies import stays_inside
from schedules.default.neighbors import along, is_along, last_of
from schedules.default.patterns.window_tiles import shares_lanes
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from schedules.sizes import typical
from tedsl.analysis.affine import affine_of
from tedsl.analysis.read_boxes import ReadBox, box_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, substitute_all

__all__ = [
    "goes_along",
    "is_narrow",
    "plan_across",
    "plan_without_units",
    "tables_turned",
    "terms_turned",
    "turned_table",
]

LEAST_LANES = 4
FEW = 64  # terms of an element, beside which a copy of it is nothing
ROW = 2  # vectors of terms that lie side by side once they are turned
LEAST_BYTES = 4  # of numbers whose sums have lanes
TERMS = 2  # that each element of what is turned for them is in
MOST_STEP = 4  # between terms that are near enough to be neighbors
REUSE = 8  # times that an element of what is turned is read, or terms that each one sums


def tables_turned(rw: Rewriting, op: Compute, machine: Machine) -> Compute:
    """The reduction with the tables that it reads across its last axis turned, where others lie along that.

    So is what rows are folded from in a way of their own, which keeps the order of its terms: lanes are rows then. And
    so are rows that are compared with others, pair by pair: tiles of results then share what they read.
    """
    points = _points(op)
    if not points or len(op.axes) == 0 or typical(op.axes[-1].extent) < LEAST_LANES:
        return op
    last = op.axes[-1]
    across = {r for r in op.reads if any(last in set(free_axes(i)) for i in r.indices[:-1])}
    sides = [r for r in op.reads if r not in across and r.indices and last in set(free_axes(r.indices[-1]))]
    found = {read: _dimension(read, last) for read in op.reads if read in across}
    is_fold = not sides and op.reduction is not None and op.reduction.reducer.is_custom
    is_paired = not sides and all(d is not None for d in found.values()) and shares_lanes(op, machine)
    if not across or not (sides or is_fold or is_paired) or reads_of(i for r in op.reads for i in r.indices):
        return op
    looked_up = [r for r, d in found.items() if d is None]
    if any(_looked_up_size(op, r) * REUSE > points or not stays_inside(r) for r in looked_up):
        return op
    if any(_size(r.tensor) * (1 if is_fold else REUSE) > points for r, d in found.items() if d is not None):
        return op
    reads = _turned_reads(rw, op.name, {r: d for r, d in found.items() if d is not None})
    reads.update((r, _tabulated(rw, op, r)) for r in looked_up)
    return replace(op, bodies=rebuild_all(op.bodies, lambda node: reads.get(node, node)), _outputs={})


def _turned_reads(rw: Rewriting, name: str, found: Mapping[Read, int]) -> dict[Expr, Expr]:
    """What reads are of copies of what they read, with the dimension that stands beside each last."""
    boxes = _boxes(found)
    made = {(tensor, d): turned_table(rw, name, tensor, d, box) for (tensor, d), box in boxes.items()}

    def turned(read: Read, d: int) -> Read:
        box = boxes[read.tensor, d]
        return Read(made[read.tensor, d], last_of(read.indices if box is None else box.inside(read.indices), d))

    return {read: turned(read, d) for read, d in found.items()}


def _boxes(found: Mapping[Read, int]) -> dict[tuple[Tensor, int], ReadBox | None]:
    """What is read of each tensor, by the dimension that goes last."""
    places: dict[tuple[Tensor, int], list[Sequence[Expr]]] = {}
    for read, d in found.items():
        places.setdefault((read.tensor, d), []).append(read.indices)
    return {(tensor, d): box_of(tensor, indices) for (tensor, d), indices in places.items()}


def _looked_up_size(op: Compute, read: Read) -> float:
    """The elements of a table of what is read at places made of the last axis and the loops of the sum."""
    assert op.reduction is not None
    loops = set(free_axes(read.indices))
    if not loops.issubset({*op.reduction.axes, op.axes[-1]}) or any(number(a.begin) != 0 for a in loops):
        return math.inf
    return math.prod(number(a.extent) or math.inf for a in loops)


def _tabulated(rw: Rewriting, op: Compute, read: Read) -> Read:
    """An element of a table over the loops of the sum and, side by side, the last axis."""
    assert op.reduction is not None
    loops = [a for a in (*op.reduction.axes, op.axes[-1]) if a in set(free_axes(read.indices))]
    fresh: dict[Expr, Axis] = {a: Axis(a.name, a.extent) for a in loops}
    (body,) = substitute_all((read,), fresh)
    table = rw.compute(f"{op.name}_{read.tensor.name}", list(fresh.values()), body)
    rw.kinds[table.op.name] = "turned"
    return Read(table, tuple(loops))


def terms_turned(rw: Rewriting, op: Compute, machine: Machine) -> Compute:
    """A reduction to short rows with what it reads turned, so that terms lie side by side where nothing else does.

    Gradients of a few filters of a few channels, which both lie last: neither fills a vector, but the pixels do.
    """
    reduce, points = op.reduction, _points(op)
    if reduce is None or not points or not op.axes or not _is_unfilled(op, machine):
        return op
    if reduce.reducer.kind not in COMBINE or len(op.bodies) > 1 or op.bodies[0].dtype.itemsize < LEAST_BYTES:
        return op
    sides = {a for r in op.reads if r.indices for a in free_axes(r.indices[-1])}
    wide = {a for a in sides if (number(a.extent) or 0) >= LEAST_LANES}
    long = [a for a in reduce.axes if (number(a.extent) or 0) >= ROW * _lanes(op, machine) and wide.issubset({a})]
    if reads_of(i for r in op.reads for i in r.indices):
        return op
    places = ({r: _steps_along(r, a) for r in op.reads if a in set(free_axes(r.indices))} for a in reversed(long))
    used = next((found for found in places if found and None not in found.values()), {})
    found = {r: d for r, d in used.items() if d is not None and d != len(r.indices) - 1}
    sizes = (_size(tensor) if box is None else math.prod(box.shape) for (tensor, _), box in _boxes(found).items())
    if not found or any(size * TERMS > points for size in sizes):
        return op
    reads = _turned_reads(rw, op.name, found)
    return replace(op, bodies=rebuild_all(op.bodies, lambda node: reads.get(node, node)), _outputs={})


def plan_across(
    rw: Rewriting, original: Operation, op: Compute, machine: Machine, plan: Callable[[Operation, Compute], None]
) -> bool:  # fmt: skip
    """A reduction of which the reads lie along another axis than the last, with that axis last, and a copy."""
    place = _other_lane(op, machine)
    if place is None:
        return False
    copy = _copied(rw, original, replace(op, axes=last_of(op.axes, place), _outputs={}), op.axes, plan)
    if is_narrow(op, machine):
        rw.kinds[copy.name] = "turned"  # its readers find it as it was written
    return True


def plan_without_units(
    rw: Rewriting, original: Operation, op: Compute, plan: Callable[[Operation, Compute], None]
) -> bool:  # fmt: skip
    """A reduction to few elements whose last axes, along which patterns look, have one iteration: without them."""
    units: dict[Expr, Expr] = {a: Const(0, INT32) for a in op.axes if number(a.extent) == 1 and number(a.begin) == 0}
    if units.keys().isdisjoint(op.axes[-2:]) or len(units) == len(op.axes) or len(op.bodies) > 1:
        return False
    if op.reduction is None or _points(op) < FEW * math.prod(typical(a.extent) for a in op.axes):
        return False
    axes = tuple(a for a in op.axes if a not in units)
    made = replace(op, axes=axes, bodies=substitute_all(op.bodies, units), _outputs={})
    _copied(rw, original, made, op.axes, plan)
    return True


def _copied(
    rw: Rewriting, original: Operation, made: Compute, axes: Sequence[Axis], plan: Callable[[Operation, Compute], None]
) -> Operation:  # fmt: skip
    """A stage of these axes, a copy of one over some of them, in another order, which is planned."""
    name, own, rw.current = made.name, rw.current, ""
    made = replace(made, name=rw.name(f"{name}_across"), names=None, _outputs={})
    plan(made, made)
    rw.current = own
    fresh = {a: Axis(a.name, a.extent) for a in axes}
    body = Read(rw.new.get(made.output(), made.output()), tuple(fresh[a] for a in made.axes))
    copy = replace(made, name=rw.name(name), axes=tuple(fresh.values()), bodies=(body,), _outputs={})
    rw.kinds[copy.name] = "copied"
    return rw.add(copy, original)


def _other_lane(op: Compute, machine: Machine) -> int | None:
    """The place of the axis along which everything is read, where that is not the last one.

    Beside a narrow last axis, a little of it may be read in another way, which is turned.
    """
    if op.reduction is None or len(op.bodies) > 1 or len(op.axes) < 2:
        return None
    narrow, lies = is_narrow(op, machine), along(op, op.axes[-1])
    if not op.reads or (lies and not narrow):
        return None
    least = _lanes(op, machine) if lies else LEAST_LANES  # an axis that fills a vector, or it would be left again
    points, elements = _points(op), math.prod(typical(a.extent) for a in op.axes)
    if points < REUSE * elements or reads_of(i for r in op.reads for i in r.indices):
        return None
    for place, axis in enumerate(op.axes[:-1]):
        used = {r for r in op.reads if axis in set(free_axes(r.indices))}
        extent = typical(axis.extent)
        if extent >= least and along(op, axis) and len(used) == len(set(op.reads)):
            return place
        lying = {r for r in used if is_along([r], axis)}
        turned = all(_size(r.tensor) * REUSE <= points for r in used - lying)
        if narrow and extent >= _lanes(op, machine) and lying and turned:
            return place
    return None


def is_narrow(op: Compute, machine: Machine) -> bool:
    """Whether the last axis fills at most half a vector."""
    width = number(op.axes[-1].extent) if len(op.axes) else None
    return machine.gpu is None and width is not None and 2 * width <= _lanes(op, machine)


def _is_unfilled(op: Compute, machine: Machine) -> bool:
    """Whether no vector is filled by what lies along the last axis."""
    return (number(op.axes[-1].extent) or 0) < _lanes(op, machine) or not along(op, op.axes[-1])


def _lanes(op: Compute, machine: Machine) -> int:
    return machine.vector_bytes // op.bodies[0].dtype.itemsize


def _points(op: Compute) -> int:
    """Terms of a reduction, for typical sizes where they are not known."""
    reduce = op.reduction
    return 0 if reduce is None else math.prod(typical(a.extent) for a in (*op.axes, *reduce.axes))


def _size(tensor: Tensor) -> int:
    return math.prod(typical(n) for n in tensor.extents)


def _dimension(read: Read, axis: Axis) -> int | None:
    """The one dimension along which an axis goes."""
    found = _place(read, axis)
    return found if found is not None and goes_along(read.indices[found], axis) else None


def _steps_along(read: Read, axis: Axis) -> int | None:
    """The one dimension along which an axis goes by a few elements at most."""
    found = _place(read, axis)
    form = None if found is None else affine_of(read.indices[found])
    return found if form is not None and form.is_linear and 0 < form.terms.get((axis,), 0) <= MOST_STEP else None


def _place(read: Read, axis: Axis) -> int | None:
    """The one dimension whose index has an axis."""
    found = [d for d, index in enumerate(read.indices) if axis in set(free_axes(index))]
    return found[0] if len(found) == 1 else None


def goes_along(index: Expr, axis: Axis) -> bool:
    """Whether an index is an axis, or that and what does not depend on it."""
    return index is axis or (index.dtype is INT32 and axis not in set(free_axes(simplify_extent(index - axis))))


def turned_table(rw: Rewriting, name: str, tensor: Tensor, dim: int, box: ReadBox | None = None) -> Tensor:
    """A copy of a tensor, or of a box of it, with one of its dimensions last."""
    extents = tensor.extents if box is None else [Const(n, INT32) for n in box.shape]
    axes = [Axis(f"d{k}", extent) for k, extent in enumerate(extents)]
    places = axes if box is None else [a + first for a, first in zip(axes, box.begins, strict=True)]
    made = rw.compute(f"{name}_{tensor.name}", last_of(axes, dim), Read(tensor, tuple(places)))
    rw.kinds[made.op.name] = "turned"
    return made
