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
from tedsl.analysis.affine import affine_of, with_plain_indices
from tedsl.analysis.points import is_data_free
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn
from tedsl.lang.intervals import may_wrap, verdict
from tedsl.lang.operators import MIRRORED
from tedsl.lang.traverse import free_axes, rebuild_all, topological

__all__ = ["cases_of"]

MOST_CASES = 16
_ORDER = (Fn.LT, Fn.LE, Fn.GT, Fn.GE)
_JOINING, _EQUAL = (Fn.AND, Fn.OR, Fn.NOT), (Fn.EQ, Fn.NE)


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
    """A condition decided, and with it what it says of numbers: it may say which one a number is, or is not."""
    known: dict[Expr, Expr] = {asked: TRUE if holds else FALSE}
    if not (isinstance(asked, Apply) and asked.fn in _EQUAL and isinstance(asked.args[1], Const)):
        return known
    number, value, is_this = asked.args[0], asked.args[1].value, holds is (asked.fn is Fn.EQ)
    if not number.dtype.is_integer:
        return known
    if not is_this and _divisor(number) == 2 and value in (0, 1):
        value, is_this = 1 - value, True
    for node in topological(bodies):
        found = _where_equal(node, number, int(value)) if is_this else _where_other(node, number, int(value))
        if found is not None:
            known.setdefault(node, found)
    return known


def _where_equal(node: Expr, number: Expr, value: int) -> Expr | None:
    """What a comparison of a number is that has a value, or the remainder of a place near the one that it is of."""
    if isinstance(node, Apply) and node.fn in MIRRORED and node.args[0] is number and isinstance(node.args[1], Const):
        gap = value - int(node.args[1].value)
        return TRUE if verdict(node.fn, (gap, gap)) else FALSE
    away = _distance(node, number)
    return None if away is None else Const((value + away) % (_divisor(number) or 1), INT32)


def _where_other(node: Expr, number: Expr, value: int) -> Expr | None:
    """What an equality is that would hold only where a remainder had a value that it has not."""
    if not (isinstance(node, Apply) and node.fn in _EQUAL and isinstance(node.args[1], Const)):
        return None
    away = _distance(node.args[0], number)
    if away is None or (value + away) % (_divisor(number) or 1) != node.args[1].value:
        return None
    return FALSE if node.fn is Fn.EQ else TRUE


def _divisor(node: Expr) -> int | None:
    """By what a node divides whose remainder it is, where that is a number and nothing wraps."""
    if not isinstance(node, Apply) or node.fn is not Fn.MOD or node.dtype is not INT32:
        return None
    number, by = node.args
    return int(by.value) if isinstance(by, Const) and by.value > 0 and not may_wrap(number, {}) else None


def _distance(node: Expr, number: Expr) -> int | None:
    """How far apart the places are of which two are remainders by one divisor, where that is a number."""
    if _divisor(node) is None or _divisor(node) != _divisor(number):
        return None
    here, there = affine_of(node.children[0]), affine_of(number.children[0])
    gap = None if here is None or there is None else here - there
    return gap.constant if gap is not None and gap.is_constant else None
