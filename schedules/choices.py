"""Cases of a stage: what it computes where each of the conditions holds that are the same all along a loop.

    C[y, x] = select(mode[0] == 0, a[y, x], select(mode[0] == 1, b[y, x], c[y, x]))     along x, or y, in three cases

As one loop it computes all values for each element and takes one; by cases each loop computes its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from schedules.conditions import tidy
from schedules.pieces import Piece, decided
from tedsl.analysis.affine import with_plain_indices
from tedsl.analysis.points import is_data_free
from tedsl.lang import functions as fn
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn
from tedsl.lang.intervals import verdict
from tedsl.lang.operators import MIRRORED
from tedsl.lang.traverse import free_axes, rebuild_all, topological

__all__ = ["cases_of"]

MOST_CASES = 16
_ORDER = (Fn.LT, Fn.LE, Fn.GT, Fn.GE)
_JOINING = (Fn.AND, Fn.OR, Fn.NOT)


def cases_of(piece: Piece, along: Axis) -> list[Piece]:
    """What a piece computes in each case; itself where it chooses by nothing that is the same all along a loop."""
    found: list[Piece] = []
    pending: list[tuple[tuple[Expr, ...], tuple[Expr, ...]]] = [((), piece.bodies)]
    while pending:
        held, bodies = pending.pop()
        asked = None if len(found) + len(pending) + 2 > MOST_CASES else _asked_outside(bodies, along)
        if asked is None:
            found.append(
                replace(piece, bodies=bodies, condition=functools.reduce(fn.logical_and, held) if held else TRUE)
            )
            continue
        for holds in (False, True):
            there = decided(bodies, _known(bodies, asked, holds=holds), piece.loops)
            part = asked if holds else tidy(fn.logical_not(asked))
            pending.append(((*held, part), rebuild_all(there, with_plain_indices)))
    return found


def _asked_outside(bodies: Sequence[Expr], along: Axis) -> Expr | None:
    """The outermost condition of a choice that is the same all along a loop."""
    pending, seen = list(reversed(bodies)), set[Expr]()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Apply) and node.fn is Fn.SELECT:
            for part in _parts(node.args[0]):
                if not isinstance(part, Const) and along not in set(free_axes(part)) and not _is_border(part):
                    return part
        pending += reversed(node.children)
    return None


def _is_border(condition: Expr) -> bool:
    """Whether it is one thing up to some iteration of the loops around and another one from there on."""
    return isinstance(condition, Apply) and condition.fn in _ORDER and is_data_free((condition,))


def _parts(condition: Expr) -> list[Expr]:
    """What a condition joins."""
    pending, found = [condition], list[Expr]()
    while pending:
        node = pending.pop()
        if isinstance(node, Apply) and node.fn in _JOINING:
            pending += reversed(node.args)
        else:
            found.append(node)
    return found


def _known(bodies: Sequence[Expr], asked: Expr, *, holds: bool) -> dict[Expr, Expr]:
    """A condition decided, and comparisons of the number that it says equals another one."""
    known: dict[Expr, Expr] = {asked: TRUE if holds else FALSE}
    equals = Fn.EQ if holds else Fn.NE
    if not (isinstance(asked, Apply) and asked.fn is equals and isinstance(asked.args[1], Const)):
        return known
    number, value = asked.args
    assert isinstance(value, Const)
    if not number.dtype.is_integer:
        return known
    for node in topological(bodies):
        if isinstance(node, Apply) and node.fn in MIRRORED and node.args[0] is number:
            other = node.args[1]
            if node is not asked and isinstance(other, Const):
                gap = int(value.value) - int(other.value)
                known[node] = TRUE if verdict(node.fn, (gap, gap)) else FALSE
    return known
