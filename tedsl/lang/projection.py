"""What conditions on several axes say of some of them: that there are others for which they hold.

A sum that is computed once for all `j` is asked for wherever one of them asks: `j < t` of any `j` from 0 on is `0 < t`.
Inequalities are taken together (Fourier-Motzkin). Of integers that may say less than the truth, and never more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import product

from tedsl.lang import functions as fn
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.intervals import may_wrap, range_of
from tedsl.lang.operators import NEGATED
from tedsl.lang.polynomials import Affine, atom_form, form_over, interval
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["for_any", "is_defined"]

MOST_CASES, MOST_ROWS = 8, 60

Rows = list[Affine]  # forms that are at least zero


def for_any(conditions: Iterable[Expr], gone: Set[Axis]) -> tuple[Expr, bool]:
    """A condition that holds where all of these do for some values of the axes `gone`; whether all was understood."""
    cases: list[Rows] = [[]]
    understood = True
    for condition in conditions:
        found = _cases(condition, True)
        if found is None or len(cases) * len(found) > MOST_CASES:
            understood = False
        else:
            cases = [a + b for a, b in product(cases, found)]
    any_case: Expr = FALSE
    for rows in cases:
        left, is_all = _eliminated(rows, gone)
        understood &= is_all
        any_case = fn.logical_or(any_case, _written(left))
    return any_case, understood


def is_defined(expr: Expr, conditions: Iterable[Expr], *, checked: bool = False) -> bool:
    """Whether, where conditions hold, all that an expression reads is plainly there and nothing is divided by zero.

    `checked`: what data or sizes decide is looked at when a kernel runs, and taken to be there.
    """
    known = [found[0] for c in conditions if (found := _cases(c, True)) is not None and len(found) == 1]
    rows = [row for part in known for row in part]
    for node in topological(expr):
        if isinstance(node, Apply) and node.fn in (Fn.FLOORDIV, Fn.MOD) and node.dtype.is_integer:
            least, most = range_of(node.args[1])
            if least <= 0 <= most and not (checked and reads_of((node.args[1],))):
                return False
        if isinstance(node, Read):
            for index, extent in zip(node.indices, node.tensor.extents, strict=True):
                if not _fits(rows, index, extent) and not (checked and _is_open(index, extent)):
                    return False
    return True


def _is_open(index: Expr, extent: Expr) -> bool:
    """Whether data, or sizes, decide whether an index is in bounds."""
    return bool(reads_of((index,))) or (range_of(index)[0] >= 0 and not isinstance(extent, Const))


def _fits(rows: Rows, index: Expr, extent: Expr) -> bool:
    place, end = _form(index), _form(extent)
    if place is None or end is None or may_wrap(index, {}):
        return False
    known = [Affine({}), *rows, *(row for axis in place.axes for row in _range(axis))]
    return all(any(interval(goal - row, {})[0] >= 0 for row in known) for goal in (place, end - 1 - place))


def _range(axis: Axis) -> Rows:
    this, begin, extent = atom_form(axis), _form(axis.begin), _form(TRUE if axis.extent is None else axis.extent)
    first = [] if begin is None else [this - begin]
    return first if begin is None or extent is None else [*first, begin + extent - 1 - this]


def _cases(condition: Expr, holds: bool) -> list[Rows] | None:
    """A condition as alternatives; None where it is not understood, or where they are many."""
    found: dict[Expr, dict[bool, list[Rows] | None]] = {}
    for node in topological(condition):
        if node.dtype.is_bool:
            found[node] = {truth: _cases_of(node, truth, found) for truth in (False, True)}
    return found[condition][holds]


def _cases_of(node: Expr, holds: bool, known: Mapping[Expr, Mapping[bool, list[Rows] | None]]) -> list[Rows] | None:
    if isinstance(node, Const):
        return [[]] if bool(node.value) is holds else []
    if not isinstance(node, Apply):
        return None
    if node.fn is Fn.NOT:
        return known[node.args[0]][not holds]
    if node.fn in (Fn.AND, Fn.OR):
        one, other = (known[a][holds] for a in node.args)
        if one is None or other is None:
            return None
        both = one + other if (node.fn is Fn.OR) is holds else [a + b for a, b in product(one, other)]
        return both if len(both) <= MOST_CASES else None
    if node.fn in NEGATED and node.args[0].dtype.is_integer and not reads_of((node,)):
        left, right = (None if may_wrap(a, {}) else _form(a) for a in node.args)
        if left is not None and right is not None:
            return _naturals(node.fn if holds else NEGATED[node.fn], left - right)
    return None


def _form(expr: Expr) -> Affine | None:
    return form_over(expr, lambda node, forms: atom_form(node) if node.dtype.is_integer else None)


def _naturals(compared: Fn, gap: Affine) -> list[Rows]:
    return {
        Fn.LT: [[-gap - 1]], Fn.LE: [[-gap]], Fn.GT: [[gap - 1]], Fn.GE: [[gap]], Fn.EQ: [[gap, -gap]],
        Fn.NE: [[-gap - 1], [gap - 1]],
    }[compared]  # fmt: skip


def _eliminated(rows: Rows, gone: Set[Axis]) -> tuple[Rows, bool]:
    """What follows without some axes, and whether nothing was left out on the way."""
    understood = True
    for axis in [a for a in free_axes([atom for row in rows for atom in row.atoms]) if a in gone]:
        linear = [row for row in rows if all(a is axis or axis not in set(free_axes(a)) for a in row.atoms)]
        understood &= len(linear) == len(rows)
        rows = _without([*linear, *_range(axis)], axis)
        if len(rows) > MOST_ROWS:
            return [], False
    return rows, understood


def _without(rows: Rows, axis: Axis) -> Rows:
    """Rows that follow and do not have an axis: each of its lower ends is below each upper one."""
    rest = Rows()
    lower: list[tuple[int, Affine]] = []
    upper: list[tuple[int, Affine]] = []
    for row in rows:
        factor = row.factor(axis)
        if factor is None or not factor.is_constant:
            continue  # it meets itself, or a size: that says nothing of the others
        if factor.constant == 0:
            rest.append(row)
        else:
            (lower if factor.constant > 0 else upper).append((abs(factor.constant), row))
    return rest + [low * b + high * a for a, low in lower for b, high in upper]


def _written(rows: Rows) -> Expr:
    """Rows as a condition; what holds in any case, or says something of sizes alone, is left out."""
    found: Expr = TRUE
    for row in rows:
        least, most = interval(row, {})
        if most < 0:
            return FALSE
        if least >= 0 or row.is_large or not free_axes(row.atoms):
            continue
        left = Affine({m: c for m, c in row.terms.items() if c > 0}, max(row.constant, 0))
        condition = left.to_expr() >= (left - row).to_expr()
        found = found if may_wrap(condition, {}) else fn.logical_and(found, condition)
    return found
