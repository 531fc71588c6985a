"""Bounds of integer expressions over their axes: numbers where the box is small enough to try, else terms of the sizes.

An axis is put at the end at which the expression is largest; conditions first move that end. `//`, `%`, min, max, abs
and select bound by what their operands do. What comes from memory has no bound but its dtype's, which is given as None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tedsl.analysis.facts import Facts
from tedsl.analysis.points import box_size, is_data_free, static_range, values_at
from tedsl.analysis.sizes import vars_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, integer_bounds
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Var
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.intervals import leaves, range_of
from tedsl.lang.polynomials import Affine, atom_form, extreme, interval
from tedsl.lang.traverse import free_axes, topological

__all__ = ["Interval", "bounds_of"]

ENUMERATE = 10**5  # points of a box that are tried one by one


@dataclass(frozen=True, eq=False)
class Interval:
    """Least and greatest value, as expressions of sizes; None where there is no bound."""

    lower: Expr | None
    upper: Expr | None

    @property
    def numbers(self) -> tuple[int | None, int | None]:
        """The ends that are numbers."""
        return number(self.lower), number(self.upper)


def bounds_of(expr: Expr, condition: Expr = TRUE) -> Interval:
    """The bounds of an integer expression over the points of its axes (none empty) at which `condition` holds.

    Exact where expression and condition are free of data and sizes and the box is small; elsewhere no point lies
    outside, but a bound need not be reached. Where no point satisfies the condition, the bounds are those without it.
    """
    exact = _enumerated(expr, condition)
    if exact is not None:
        return exact
    narrowed = _Narrowed(free_axes(expr), condition)
    lower, upper = narrowed.end(expr, -1), narrowed.end(expr, 1)
    return Interval(*(None if e is None or e.is_large else simplify_extent(e.to_expr()) for e in (lower, upper)))


def _enumerated(expr: Expr, condition: Expr) -> Interval | None:
    axes = free_axes((expr, condition))
    size = box_size(axes)
    if size is None or not 0 < size <= ENUMERATE or not is_data_free((expr, condition)):
        return None
    if vars_of(expr) or vars_of(condition):
        return None
    ranges = {a: static_range(a) for a in axes}
    values, holds = values_at((expr, condition), {a: np.arange(*r) for a, r in ranges.items() if r is not None})
    values, holds = np.broadcast_arrays(values, holds)
    kept = values[holds] if holds.any() else values
    return Interval(Const(int(kept.min()), INT32), Const(int(kept.max()), INT32))


class _Narrowed:
    """The ends of axes under a condition, and the ends of expressions over them."""

    def __init__(self, axes: list[Axis], condition: Expr) -> None:
        self.facts = Facts(axes)
        cases = self.facts.cases(condition, True)
        rows = cases[0] if len(cases) == 1 else []
        self.ends: dict[Axis, dict[int, Affine]] = {}
        for axis in axes:
            assert axis.extent is not None
            begin = self.facts.form(axis.begin)
            self.ends[axis] = {-1: begin, 1: begin + self.facts.form(axis.extent) - 1}
            for row in rows:
                self._narrow(axis, row)

    def _narrow(self, axis: Axis, row: Affine) -> None:
        """`c*axis + rest >= 0`, rest free of axes, is an end of the axis."""
        factor, rest = row.coefficient(axis), row.without(axis)
        if factor is None or not factor.is_constant or factor.constant == 0 or _has_axes(rest):
            return
        c = factor.constant
        if c in (1, -1):
            end = rest * -c
        elif rest.is_constant:
            end = Affine({}, -(rest.constant // c) if c > 0 else rest.constant // -c)
        else:
            return
        side = -1 if c > 0 else 1
        if self.facts.proves((self.ends[axis][side] - end) * side):
            self.ends[axis][side] = end

    def end(self, expr: Expr, side: int) -> Affine | None:
        """The greatest (side 1) or least (-1) value of an expression."""
        return self._end_of_form(self.facts.form(expr), side)

    def _end_of_form(self, form: Affine, side: int) -> Affine | None:
        for _ in range(len(form.terms) + 8):
            atom = next((a for a in form.atoms if _is_open(a)), None)
            if atom is None:
                return form
            factor = form.factor(atom)
            low, high = interval(factor, self.facts.known) if factor is not None else (-1, 1)
            if factor is None or low < 0 < high:
                return None
            end = self._end_of_atom(atom, side if low >= 0 else -side)
            if end is None:
                return None
            form = form.without(atom) + factor * end
        return None

    def _end_of_atom(self, atom: Expr, side: int) -> Affine | None:
        if isinstance(atom, Axis):
            return self.ends[atom][side]
        if isinstance(atom, Apply) and atom.fn is Fn.CLIP:
            x, floor, top = atom.args
            return self.end(Expr._apply(Fn.MINIMUM, Expr._apply(Fn.MAXIMUM, x, floor), top), side)
        low, high = range_of(atom, self.facts.known)
        if isinstance(atom, Apply) and atom.fn in _ENDS and not leaves(atom, self.facts.known):  # as abs(-128) does
            found = _ENDS[atom.fn](lambda arg, s: self.end(atom.args[arg], s), atom, side)
            if found is not None:
                return found
        least, most = integer_bounds(atom.dtype)
        value, limit = (high, most) if side > 0 else (low, least)
        return None if value == limit and atom.dtype.bits >= 32 else Affine({}, value)


def _has_axes(form: Affine) -> bool:
    return bool(free_axes(form.atoms))


def _is_open(atom: Expr) -> bool:
    """Whether an atom varies: with an axis, or with data."""
    return any(not isinstance(node, (Apply, Const, Var)) for node in topological(atom))


Ends = Callable[[int, int], Affine | None]  # operand, side -> its end


def _quotient(ends: Ends, node: Apply, side: int) -> Affine | None:
    by = node.args[1]
    if not isinstance(by, Const):
        return None
    end = ends(0, side if by.value > 0 else -side)
    if end is None:
        return None
    if end.is_constant:
        return Affine({}, end.constant // int(by.value))
    return atom_form(end.to_expr() // int(by.value))  # a form of sizes, which needs no further bounding


def _remainder(ends: Ends, node: Apply, side: int) -> Affine | None:
    by = node.args[1]
    if not isinstance(by, Const) or by.value <= 0:
        return None
    return Affine({}, int(by.value) - 1 if side > 0 else 0)


def _either(ends: Ends, first: int, second: int, side: int, wanted: int) -> Affine | None:
    """The end of one of two operands: of both, the one on side `wanted` where that is certain."""
    a, b = ends(first, side), ends(second, side)
    if a is None or b is None:
        return (a or b) if side == wanted else None
    return _larger(a, b) if wanted < 0 else _smaller(a, b)


def _least(ends: Ends, node: Apply, side: int) -> Affine | None:
    return _either(ends, 0, 1, side, 1)


def _greatest(ends: Ends, node: Apply, side: int) -> Affine | None:
    return _either(ends, 0, 1, side, -1)


def _magnitude(ends: Ends, node: Apply, side: int) -> Affine | None:
    """|x| is x or -x: at most the larger of their upper ends, at least the larger of their lower ends (and 0)."""
    low, high = ends(0, -1), ends(0, 1)
    if side < 0:
        return low if low is not None and low.is_constant and low.constant >= 0 else Affine({}, 0)
    return None if low is None or high is None else _larger(high, -low)


def _positive(ends: Ends, node: Apply, side: int) -> Affine | None:
    end = ends(0, side)
    if end is None:
        return Affine({}, 0) if side < 0 else None
    return _larger(end, Affine({}, 0))


def _larger(a: Affine, b: Affine) -> Affine:
    return _of_two(Fn.MAXIMUM, a, b)


def _smaller(a: Affine, b: Affine) -> Affine:
    return _of_two(Fn.MINIMUM, a, b)


def _of_two(fn: Fn, a: Affine, b: Affine) -> Affine:
    """The larger or the smaller one; as an atom where that differs, which needs no further bounding."""
    found = extreme(fn, a, b, {})
    return atom_form(Expr._apply(fn, a.to_expr(), b.to_expr())) if found is None else found


def _selected(ends: Ends, node: Apply, side: int) -> Affine | None:
    a, b = ends(1, side), ends(2, side)
    if a is None or b is None:
        return None
    return _larger(a, b) if side > 0 else _smaller(a, b)


_ENDS: Mapping[Fn, Callable[[Ends, Apply, int], Affine | None]] = {
    Fn.FLOORDIV: _quotient, Fn.MOD: _remainder, Fn.MINIMUM: _least, Fn.MAXIMUM: _greatest, Fn.SELECT: _selected,
    Fn.ABS: _magnitude, Fn.RELU: _positive,
}  # fmt: skip
