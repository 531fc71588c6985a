"""Axes that all parts of a step share, and along which none reads another: recurrences side by side.

Packed as they are written, a vector and a matrix of each of B examples would lie in a box of B x B elements. Such axes
are the last ones instead, of every part, and whoever reads a part finds its axes in that order:

    m[t, b, i], p[t, b, i, j]   ->   m[t, i, b], p[t, i, j, b]
"""

from __future__ import annotations

from collections.abc import Sequence

from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import reads_of

__all__ = ["in_order", "rows_of"]

Place = tuple[int, int]  # a part, and one of its axes
Part = tuple[Sequence[Tensor], Sequence[int], Sequence[Axis], Sequence[Expr]]


def rows_of(parts: Sequence[Part]) -> list[tuple[int, ...]]:
    """For each part the places of the axes that all parts share, in one order. A part is its tensors, the dimensions of
    the steps in these, its other axes and its bodies.
    """
    known = {t: k for k, (tensors, *_) in enumerate(parts) for t in tensors}
    same: dict[Place, Place] = {(k, d): (k, d) for k, (_, _, axes, _) in enumerate(parts) for d in range(len(axes))}
    apart: set[Place] = set()

    def first(place: Place) -> Place:
        while same[place] != place:
            place = same[place]
        return place

    for k, (_, _, axes, bodies) in enumerate(parts):
        own = {axis: d for d, axis in enumerate(axes)}
        for read in reads_of(bodies):
            if read.tensor not in known:
                continue
            other = known[read.tensor]
            for d, index in enumerate(_without(read.indices, parts[other][1])):
                if isinstance(index, Axis) and index in own:
                    same[first((other, d))] = first((k, own[index]))
                else:
                    apart.add((other, d))
    refused = {first(place) for place in apart}
    found: dict[Place, list[Place]] = {}
    for place in same:  # part after part
        found.setdefault(first(place), []).append(place)
    every = [*range(len(parts))]
    shared = [c for root, c in found.items() if root not in refused and [k for k, _ in c] == every]
    rows = [c for c in shared if _are_alike([parts[k][2][d] for k, d in c])]
    return [tuple(c[k][1] for c in rows) for k in every]


def _are_alike(axes: Sequence[Axis]) -> bool:
    extents = [a.extent for a in axes]
    return all(e is not None and extents[0] is not None and same_extent(e, extents[0]) for e in extents)


def _without(indices: Sequence[Expr], dims: Sequence[int]) -> list[Expr]:
    return [index for d, index in enumerate(indices) if d not in dims]


def in_order(read: Read, dims: Sequence[int], order: Sequence[int]) -> Read:
    """A read with the indices of the steps first, and the others in an order."""
    others = _without(read.indices, dims)
    return Read(read.tensor, (*(read.indices[d] for d in dims), *(others[d] for d in order)))
