"""How many points of a box satisfy a condition, exactly and without visiting more of them than needed.

Conjuncts that share no axis are counted apart and multiplied. In each group the longest axis in which every conjunct is
linear is solved in closed form, so that only the others are enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from tedsl.analysis.consecutive import parts_in
from tedsl.analysis.facts import Facts
from tedsl.analysis.points import is_data_free, values_at
from tedsl.analysis.pointwise import Array
from tedsl.lang.expr import FALSE, Axis, Expr, Var
from tedsl.lang.polynomials import Affine
from tedsl.lang.traverse import conjuncts, free_axes

__all__ = ["count_points"]

LARGEST = 2 * 10**8  # points of a box that are enumerated; in larger ones the conjuncts concerned count as true
CHUNK = 1 << 20

Ranges = Mapping[Axis, tuple[int, int]]


def count_points(condition: Expr, ranges: Ranges, sizes: Mapping[Var, int]) -> int:
    """The points of a box at which `condition` holds; its parts that depend on data count as true.

    Parts of an axis that follow one another are all of it.
    """
    parts = [c for c in conjuncts(condition) if is_data_free((c,))]
    if any(c is FALSE for c in parts):
        return 0
    total = 1
    left = set(ranges)
    for begin in parts_in(condition):
        left -= set(free_axes(begin)) - set(free_axes(parts))
    for axes, group in _independent(parts):
        known = [a for a in ranges if a in axes]
        left -= set(known)
        total *= _count(group, {a: ranges[a] for a in known}, sizes)
    return total * math.prod(end - begin for a, (begin, end) in ranges.items() if a in left)


def _independent(parts: Sequence[Expr]) -> list[tuple[set[Axis], list[Expr]]]:
    """The conjuncts in groups that share no axis."""
    groups: list[tuple[set[Axis], list[Expr]]] = []
    for part in parts:
        axes, members = set(free_axes(part)), [part]
        apart = []
        for other in groups:
            if axes.isdisjoint(other[0]):
                apart.append(other)
            else:
                axes |= other[0]
                members = other[1] + members
        groups = [*apart, (axes, members)]
    return groups


def _count(group: Sequence[Expr], ranges: Ranges, sizes: Mapping[Var, int]) -> int:
    for axis in sorted(ranges, key=lambda a: ranges[a][0] - ranges[a][1]):
        rows = _linear_rows(group, axis)
        others = {a: r for a, r in ranges.items() if a is not axis}
        if rows is not None and _volume(others) <= LARGEST:
            return sum(_count_lines(rows, axis, ranges[axis], piece, sizes) for piece in _pieces(others))
    if _volume(ranges) > LARGEST:
        return _volume(ranges)
    return sum(_count_all(group, piece, sizes) for piece in _pieces(ranges))


def _volume(ranges: Ranges) -> int:
    return math.prod(max(0, end - begin) for begin, end in ranges.values())


def _pieces(ranges: Ranges) -> Iterator[dict[Axis, Array]]:
    """The box in parts of at most CHUNK points."""
    budget = CHUNK
    choices: list[list[tuple[Axis, Array]]] = []
    for axis, (begin, end) in reversed(list(ranges.items())):
        step = max(1, min(end - begin, budget))
        choices.insert(0, [(axis, np.arange(b, min(b + step, end))) for b in range(begin, end, step)])
        budget = max(1, budget // step)
    for choice in product(*choices):
        yield dict(choice)


def _count_all(group: Sequence[Expr], piece: Mapping[Axis, Array], sizes: Mapping[Var, int]) -> int:
    shape = tuple(len(v) for v in piece.values()) or (1,)
    holds = np.ones(shape, bool)
    for value in values_at(group, piece, sizes):
        holds &= value
    return int(np.count_nonzero(holds))


Row = tuple[int, Affine]  # factor of the axis, the rest


def _linear_rows(group: Sequence[Expr], axis: Axis) -> list[Row] | None:
    """The conjuncts as `c*axis + rest >= 0`, c a number, or None where one is not of that form."""
    facts = Facts(())
    rows: list[Row] = []
    for part in group:
        cases = facts.cases(part, True)
        if len(cases) != 1 or not cases[0]:
            return None
        for form in cases[0]:
            factor = form.coefficient(axis)
            if factor is None or not factor.is_constant:
                return None
            rows.append((factor.constant, form.without(axis)))
    return rows


def _count_lines(
    rows: Sequence[Row], axis: Axis, around: tuple[int, int], piece: Mapping[Axis, Array], sizes: Mapping[Var, int]
) -> int:
    """For each point of the other axes, the length of the interval that the rows leave to `axis`."""
    shape = tuple(len(v) for v in piece.values()) or (1,)
    first, last = np.full(shape, around[0]), np.full(shape, around[1] - 1)
    for (c, _), rest in zip(rows, values_at([r.to_expr() for _, r in rows], piece, sizes), strict=True):
        wide = rest.astype(np.int64)
        if c > 0:
            first = np.maximum(first, -(wide // c))
        elif c < 0:
            last = np.minimum(last, wide // -c)
        else:
            last = np.where(wide >= 0, last, first - 1)
    return int(np.maximum(0, last - first + 1).sum())
