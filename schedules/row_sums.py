"""Sums over the pixels of rows, one for each channel, in two steps: number by number over rows, then over pixels.

    s[c, q] = sum over i, j of g[i, j, c] * x[i, j + q, c]   ->   t[q, j, c] = sum over i of g[i, j, c] * x[i, j + q, c]
                                                                  s[c, q] = sum over j of t[q, j, c]

Lanes along `j` would be so many numbers apart in memory; `t` lies along rows, whose pixels and channels are one axis
(`interleaving`), and is small beside what is read. Terms are combined in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from schedules.rewrites import rfactor
from schedules.sizes import typical
from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import TRUE, Axis, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes

__all__ = ["over_rows"]

ROWS = 8  # that are summed for each number, at least
LEAST_BYTES = 4  # of sums, which are rounded once more


def over_rows(op: Compute, most: int) -> tuple[Compute, Compute] | None:
    """The sum over rows, and that of its pixels; None where it is no sum by channel, of at most so many."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) > 1 or reduce.reducer.kind not in COMBINE:
        return None
    found = next(_pixels(op, reduce.axes, most), None)
    if found is None or op.bodies[0].dtype.itemsize < LEAST_BYTES:
        return None
    pixel, channel = found
    if math.prod(typical(a.extent) for a in reduce.axes if a is not pixel and a.extent is not None) < ROWS:
        return None
    loops = [a for a in found if a.is_reduce]
    rows: Operation = op
    for loop in loops:
        _, rows = rfactor(rows, loop, loop.name, None, f"{op.name}_rows")
    assert isinstance(rows, Compute)
    added = {a: Axis(a.name, a.extent, is_reduce=True) for a in loops}
    places = [k for k, axis in enumerate(op.axes) if axis is not channel]
    last = [k for k in range(len(rows.axes)) if k not in places]
    order = [*places, *reversed(last)] if channel not in added else range(len(rows.axes))
    rows = replace(rows, axes=tuple(rows.axes[k] for k in order), _outputs={})
    place = (*op.axes, *added.values())
    value = Read(rows.output(), tuple(place[k] for k in order))
    total = Reduce(reduce.reducer, (value,), tuple(added.values()), TRUE)
    return rows, replace(op, bodies=(total,), _outputs={})


def _pixels(op: Compute, sums: tuple[Axis, ...], most: int) -> Iterator[tuple[Axis, Axis]]:
    """Loops over pixels that are summed, with those over channels, which are too where a window is moved."""
    places = [r.indices[-2:] for r in op.reads if r.tensor.ndim > 1]
    moved = {channel for pixel, channel in places if not set(op.axes).isdisjoint(free_axes(pixel))}
    for pixel, channel in places:
        if not isinstance(channel, Axis) or not 1 < (number(channel.extent) or 0) <= most:
            continue
        form = affine_of(pixel)
        if form is not None and (channel in moved or not channel.is_reduce):
            yield from ((a, channel) for a in reversed(sums) if form.terms.get((a,), 0) == 1)
