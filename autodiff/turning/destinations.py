"""Reads at places that are data and the same in all steps of a scan: what is sent is put in order of where it goes.

    for t: dx[t, s] = sum over i, k where nb[i, k] == s of g(t, i, k)
    ->  order = argsort(nb), begins[s] = how many go before s        once, outside of the scan
        for t: dx[t, s] = sum over q in [begins[s], begins[s + 1]) of g(t, order[q] // K, order[q] % K)

A step then does as much as there are points that send, not as much for each element. Terms are added in the order of
the points. Rows of the index that share axes with those of data, as `b` in `x[t - 1, b, nb[b, i]]`, say together with
them where a point sends.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Collection, Iterable, Sequence

from autodiff.turning.sent import Sent, extent_of
from tedsl.analysis.checks import read_checks
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import SIZE_MAX, Axis, Expr, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.lift import lifted
from tedsl.lang.sorting import argsort, searchsorted
from tedsl.lang.tensor import Scan, ScanState, Tensor
from tedsl.lang.traverse import (
    asked_in_turn,
    asked_inside,
    free_axes,
    reads_of,
    rebuild_all,
    substitute_all,
    topological,
)

__all__ = ["Destinations", "destinations_of", "in_bounds"]


@dataclass(frozen=True, eq=False)
class Destinations:
    """Points in order of the elements that they send to: `loop` goes over those of one, where `condition` holds.

    `rest` is what each of them sends, at the rows of the dimensions that are left, `kept`.
    """

    rest: Sent
    kept: tuple[int, ...]
    loop: Axis
    condition: Expr


def destinations_of(
    read: Sent, elements: Sequence[Axis], open_rows: Collection[int], scan: Scan, name: str
) -> Destinations | None:
    """How a read of a scan's state with rows of data is turned around; None where these depend on the step."""
    dims, axes = _together(read, open_rows)
    count = [extent_of(elements[d]) for d in dims]
    if not axes or not set(scan.steps).isdisjoint(axes) or not all(map(_is_counted, (count, map(extent_of, axes)))):
        return None
    fixed = [c for c in read.conditions if set(free_axes(c)) <= set(axes)]
    target = _target(read, dims, count, axes, fixed, name)
    if len(fixed) < len(read.conditions) and not _is_readable(target):
        return None
    places = argsort(target.reshape(-1))
    (ordered, _), total = places.op.outputs, _product(count)
    begins = searchsorted(ordered, _numbers(total + 1, f"{name}_elements"))
    loop = Axis(axes[0].name, places.extents[0], is_reduce=True)
    points: dict[Expr, Expr] = {
        a: _clamped(Read(t, (loop,)), extent_of(a)) + a.begin for a, t in _points(places, axes, name).items()
    }
    kept = tuple(d for d in range(len(read.index)) if d not in dims)
    conditions = [c for c in read.conditions if c not in set(fixed)]
    sent = _at_element(_with_sums_done(read, name), read, dims, elements, scan)
    value, *others = substitute_all((sent, *conditions, *(read.index[d] for d in kept)), points)
    here = _row_major(tuple(elements[d] for d in dims), count)
    first, last = (fn.clip(Read(begins, (e,)), 0, places.extents[0]) for e in (here, here + 1))
    rest = Sent(
        tuple(a for a in read.axes if a not in set(axes)), tuple(others[len(conditions) :]), value,
        tuple(others[: len(conditions)]),
    )  # fmt: skip
    return Destinations(rest, kept, loop, fn.logical_and(loop >= first, loop < last))


def _with_sums_done(read: Sent, name: str) -> Expr:
    """The value that is sent, in which sums are stages: what several points send may hang on one of them."""
    sums = [n for n in topological((read.value,)) if isinstance(n, Reduce)]
    if not set(free_axes(sums)) <= set(read.axes):
        return read.value
    states = tuple(r.tensor for r in reads_of(sums) if isinstance(r.tensor.op, ScanState))
    guards = guards_of((read.value,), (asked_in_turn(read.conditions),))
    return lifted((read.value,), guards, read.axes, name, states)[0]


def in_bounds(value: Expr, scan: Scan) -> Expr:
    """The value, in which places of the finished scan that are data are in bounds: the scan read its state there."""
    finished = frozenset(scan.outputs)

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor not in finished or not reads_of(node.indices):
            return node
        pairs = zip(node.indices, node.tensor.extents, strict=True)
        return Read(node.tensor, tuple(_clamped(i, n) if reads_of((i,)) else i for i, n in pairs))

    return rebuild_all((value,), rule)[0]


def _at_element(value: Expr, read: Sent, dims: Sequence[int], elements: Sequence[Axis], scan: Scan) -> Expr:
    """The value, in which the finished scan is read at the element where that is where its state was read."""
    finished = frozenset(scan.outputs)
    places = {
        d: _clamped(read.index[d], extent_of(elements[d])) if reads_of((read.index[d],)) else read.index[d]
        for d in dims
    }

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor not in finished:
            return node
        found = tuple(elements[d] if i is places.get(d) else i for d, i in enumerate(node.indices))
        return Read(node.tensor, found)

    return rebuild_all((value,), rule)[0]


def _together(read: Sent, open_rows: Collection[int]) -> tuple[list[int], list[Axis]]:
    """The open rows, those that share axes with them, and these axes."""
    dims, axes = set(open_rows), set[Axis]()
    while True:
        axes |= set(free_axes([read.index[d] for d in dims]))
        more = {d for d, row in enumerate(read.index) if not axes.isdisjoint(free_axes(row))} - dims
        if not more:
            return sorted(dims), [a for a in read.axes if a in axes]
        dims |= more


def _is_counted(extents: Iterable[Expr]) -> bool:
    return math.prod(number(e) or 1 for e in extents) < SIZE_MAX


def _target(
    read: Sent, dims: Sequence[int], count: Sequence[Expr], axes: Sequence[Axis], conditions: Sequence[Expr], name: str
) -> Tensor:
    """For each point the number of the element that it sends to; that behind the last one where there is none."""
    own = tuple(Axis(a.name, a.extent) for a in axes)
    moved: dict[Expr, Expr] = {a: o + a.begin for a, o in zip(axes, own, strict=True)}
    rows = [read.index[d] for d in dims]
    sends = asked_in_turn(conditions)
    for row, extent in zip(rows, count, strict=True):
        if not isinstance(row, Axis):
            sends = asked_inside(asked_inside(sends, row >= 0), row < extent)
    place = _row_major([fn.convert(row, INT32) for row in rows], count)
    (body,) = substitute_all((fn.select_node(sends, place, _product(count)),), moved)
    return compute_tensors(own, (body,), f"{name}_target")[0]


def _is_readable(target: Tensor) -> bool:
    """Whether what says where a point sends may be read for all of them, also those that never send anything."""
    try:
        return all(c.status != "run" for c in read_checks(target.op))
    except IndexError:
        return False


def _points(places: Tensor, axes: Sequence[Axis], name: str) -> dict[Axis, Tensor]:
    """Of each axis, from 0, where the points in order are."""
    if len(axes) == 1:
        return {axes[0]: places}
    found, inner = dict[Axis, Tensor](), fn.as_expr(1)
    for axis in reversed(axes):
        q = Axis("q", places.extents[0])
        body = Read(places, (q,)) // inner % extent_of(axis)
        (found[axis],) = compute_tensors((q,), (body,), f"{name}_{axis.name}")
        inner = inner * extent_of(axis)
    return found


def _clamped(place: Expr, extent: Expr) -> Expr:
    """A place that is in range, as also kernels know that are given it."""
    return fn.minimum(fn.maximum(place, 0), fn.maximum(extent - 1, 0))


def _numbers(count: Expr, name: str) -> Tensor:
    axis = Axis("i", simplify_extent(count))
    return compute_tensors((axis,), (fn.convert(axis, INT32),), name)[0]


def _product(extents: Sequence[Expr]) -> Expr:
    return functools.reduce(operator.mul, extents)


def _row_major(place: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The number of a place in a box."""
    total, *rest = place
    for at, extent in zip(rest, extents[1:], strict=True):
        total = total * extent + at
    return total
