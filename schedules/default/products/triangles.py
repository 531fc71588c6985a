"""Which terms of a tile a condition leaves: in a triangle or a band, a tile begins late, ends early, or has none.

The elements that a condition leaves out are 0 in the tables (`contraction`), so that tiles may be rectangles. What all
elements of a tile leave out is no iteration.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedules.default.products.contraction import Contraction
from schedules.default.rewriting import loop_names
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import naturals
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn
from tedsl.lang.extents import number
from tedsl.lang.functions import logical_and
from tedsl.lang.polynomials import Affine

__all__ = ["tiled_whole", "within_tiles"]

COMPARED = frozenset({Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.EQ})


def within_tiles(found: Contraction, heights: Mapping[Axis, int]) -> Expr:
    """Where any element of a tile of so many rows and columns has a term, as a condition on blocks and terms."""
    where: Expr = TRUE
    for condition in (*found.conditions, *found.outer):
        for form in _forms(condition):
            bound = _of_tile(found, form, heights)
            if bound is not None:
                where = logical_and(where, bound)
    return where


def tiled_whole(found: Contraction) -> list[tuple[str, int]]:
    """The loops of a result and their extents, where tiles may begin with them, whatever of it readers need.

    Conditions on blocks are those of tiles then; none where an extent is not known.
    """
    names = loop_names(found.op)
    known = [(names[a], n) for a in found.op.axes if (n := number(a.extent)) is not None]
    return known if len(known) == len(found.op.axes) else []


def _forms(condition: Expr) -> list[Affine]:
    """A comparison as forms that are at least zero where it holds; none for what is not understood."""
    if not isinstance(condition, Apply) or condition.fn not in COMPARED:
        return []
    left, right = condition.args
    if not left.dtype.is_integer:
        return []
    low, high = affine_of(left), affine_of(right)
    return [] if low is None or high is None else naturals(condition.fn, low - high)[0]


def _of_tile(found: Contraction, form: Affine, heights: Mapping[Axis, int]) -> Expr | None:
    """The form, greatest within a tile, is at least zero; None where it says nothing of blocks."""
    of_result = set(found.op.axes)
    above: Expr = Const(max(form.constant, 0), INT32)
    below: Expr = Const(max(-form.constant, 0), INT32)
    open_axes = False
    for monomial, factor in form.terms.items():
        if len(monomial) != 1 or not isinstance(monomial[0], Axis):
            return None
        axis = monomial[0]
        place: Expr = axis
        if axis in of_result:
            height = heights.get(axis, 1)
            if height == 1:
                return None
            open_axes = True
            place = axis // height * height + (height - 1 if factor > 0 else 0)
        if factor > 0:
            above = above + place * factor
        else:
            below = below + place * -factor
    return above >= below if open_axes else None
