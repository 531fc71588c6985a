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
from typing import TypeVar

from schedules.rewrites import rfactor
from schedules.sizes import typical
from tedsl.analysis.affine import affine_of
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import rebuild_all

__all__ = ["over_rows"]

ROWS = 8  # that are summed for each number, at least
LEAST_BYTES = 4  # of sums, which are rounded once more

T = TypeVar("T")


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
    total, made = rfactor(op, pixel, pixel.name, None, f"{op.name}_rows")
    assert isinstance(total, Compute)
    assert isinstance(made, Compute)
    place = next(k for k, axis in enumerate(op.axes) if axis is channel)
    rows = replace(made, axes=_side_by_side(made.axes, place), _outputs={})

    def rule(node: Expr) -> Expr:
        return Read(rows.output(), _side_by_side(node.indices, place)) if isinstance(node, Read) else node

    return rows, replace(total, bodies=rebuild_all(total.bodies, rule), _outputs={})


def _pixels(op: Compute, sums: tuple[Axis, ...], most: int) -> Iterator[tuple[Axis, Axis]]:
    """Loops over pixels that are summed, with those over channels that are not."""
    for read in op.reads:
        channel = read.indices[-1] if read.tensor.ndim > 1 else None
        if not isinstance(channel, Axis) or channel.is_reduce or not 1 < (number(channel.extent) or 0) <= most:
            continue
        form = affine_of(read.indices[-2])
        if form is not None:
            yield from ((a, channel) for a in reversed(sums) if form.terms.get((a,), 0) == 1)


def _side_by_side(places: tuple[T, ...], channel: int) -> tuple[T, ...]:
    """The last of these, the pixel, and behind it the channel."""
    *others, pixel = places
    return (*others[:channel], *others[channel + 1 :], pixel, others[channel])
