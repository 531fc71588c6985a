"""Integer expressions of one block: affine in the block's own axes, the place of the block in constants alone.

Where an index or a condition depends on the place of a block only near a border, it no longer does once it is decided
over the block's ranges: `min(max(i - 1, 0), n - 1)` is `i - 1` inside, `i >= 1` is true. Blocks at equal distance from
the borders so become equal programs. `x % n` over a block in which x passes a multiple of n is two cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product

from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32, INT64, integer_bounds
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn
from tedsl.lang.intervals import Known, Range, cut, hull, verdict
from tedsl.lang.operators import MIRRORED, NEGATED
from tedsl.lang.polynomials import RING, Affine, atom_form, extreme, interval
from tedsl.lang.traverse import conjuncts

__all__ = ["Case", "Cases", "both", "chosen", "compared", "every", "form_cases", "narrowed"]

MOST_CASES = 4


@dataclass(frozen=True, eq=False)
class Case:
    """What an integer is where `condition` holds."""

    condition: Expr
    form: Affine


Cases = tuple[Case, ...]  # conditions that exclude each other and of which one always holds


def both(a: Expr, b: Expr) -> Expr:
    """a & b; false where one part of it denies another."""
    if a is TRUE or b is TRUE:
        return b if a is TRUE else a
    joined: Expr = Expr._apply(Fn.AND, a, b)
    parts = set(conjuncts(joined))
    return FALSE if any(Expr._apply(Fn.NOT, p) in parts for p in parts) else joined


def every(conditions: Iterable[Expr]) -> Expr:
    """All of them; false where one denies another."""
    joined: Expr = TRUE
    for condition in conditions:
        joined = both(joined, condition)
    return joined


def form_cases(node: Apply, operands: list[Cases], known: Known, splits: Callable[[Affine], bool]) -> Cases | None:
    """An integer operation on operands in cases; None where it has no form. `splits` allows a remainder two cases."""
    rule = _RULES.get(node.fn)
    if rule is None or node.dtype not in (INT32, INT64):
        return None
    found: list[Case] = []
    for parts in product(*operands):
        condition = every(part.condition for part in parts)
        if condition is FALSE:
            continue
        made = rule(node.fn, [p.form for p in parts], known, splits)
        if made is None:
            return None
        found += [Case(both(condition, c.condition), c.form) for c in made]
    found = [c for c in found if c.condition is not FALSE]
    low, high = integer_bounds(INT32)
    fits = all(low <= end <= high for case in found for end in interval(case.form, known))
    return tuple(found) if 0 < len(found) <= MOST_CASES and fits else None


def _always(form: Affine) -> Cases:
    return (Case(TRUE, form),)


def _in_ring(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases | None:
    if fn is Fn.MUL and not any(form.is_constant for form in forms):
        return None
    return _always(RING[fn](*forms))


def _divided(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases | None:
    """(c*q + r) // c is q + r // c, (c*q + r) % c is r % c; a remainder that passes c once is two cases."""
    number, by = forms[0], forms[1].constant
    if not forms[1].is_constant or by <= 0:
        return None
    low, high = (end // by for end in interval(number, known))
    if low == high:
        return _always(Affine({}, low) if fn is Fn.FLOORDIV else number - low * by)
    if high == low + 1 and splits(number):
        edge = compared(Fn.LT, number, Affine({}, high * by), known)
        below, above = (Affine({}, q) if fn is Fn.FLOORDIV else number - q * by for q in (low, high))
        return Case(edge, below), Case(Expr._apply(Fn.NOT, edge), above)
    whole, rest = number.divided(by)
    if rest.is_constant:
        return _always(whole if fn is Fn.FLOORDIV else rest)
    atom = atom_form(Apply(fn, (rest.to_expr(), Const(by, INT32)), INT32))
    return _always(whole + atom if fn is Fn.FLOORDIV else atom)


def _extreme(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases:
    a, b = forms
    found = extreme(fn, a, b, known)
    if found is not None:
        return _always(found)
    base = a.constant
    return _always(atom_form(Apply(fn, ((a - base).to_expr(), (b - base).to_expr()), INT32), base))


def _clipped(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases:
    (raised,) = _extreme(Fn.MAXIMUM, forms[:2], known, splits)
    return _extreme(Fn.MINIMUM, [raised.form, forms[2]], known, splits)


def _positive(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases:
    return _extreme(Fn.MAXIMUM, [forms[0], Affine({}, 0)], known, splits)


def _magnitude(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases:
    low, high = interval(forms[0], known)
    if low >= 0 or high <= 0:
        return _always(forms[0] if low >= 0 else -forms[0])
    return _always(atom_form(Apply(Fn.ABS, (forms[0].to_expr(),), INT32)))


def _converted(fn: Fn, forms: list[Affine], known: Known, splits: Callable[[Affine], bool]) -> Cases:
    return _always(forms[0])


_RULES: dict[Fn, Callable[..., Cases | None]] = {
    **dict.fromkeys(RING, _in_ring), Fn.FLOORDIV: _divided, Fn.MOD: _divided,
    Fn.MINIMUM: _extreme, Fn.MAXIMUM: _extreme, Fn.CLIP: _clipped, Fn.RELU: _positive, Fn.ABS: _magnitude,
    Fn.CAST: _converted,
}  # fmt: skip


def compared(fn: Fn, a: Affine, b: Affine, known: Known) -> Expr:
    """A comparison: decided by the ranges, or `terms < number`."""
    gap = a - b
    holds = verdict(fn, interval(gap, known))
    if holds is not None:
        return TRUE if holds else FALSE
    result: Expr = Expr._apply(fn, Affine(gap.terms).to_expr(), Const(-gap.constant, INT32))
    return result


def chosen(cases: Iterable[tuple[Expr, Expr]]) -> Expr:
    """The value whose condition holds."""
    *first, (_, result) = cases
    for condition, value in reversed(first):
        result = Expr._apply(Fn.SELECT, condition, value, result)
    return result


def narrowed(condition: Expr, known: Mapping[Axis, Range]) -> dict[Expr, Range]:
    """The ranges of axes where a condition holds, as far as parts that speak of one axis tell; empty ones are left."""
    ranges: dict[Expr, Range] = dict(known.items())
    for part in conjuncts(condition):
        ranges = _narrowed(part, True, ranges)
    return ranges


def _narrowed(part: Expr, holds: bool, ranges: dict[Expr, Range]) -> dict[Expr, Range]:
    if not isinstance(part, Apply):
        return ranges
    if part.fn is Fn.NOT:
        return _narrowed(part.args[0], not holds, ranges)
    if part.fn in (Fn.AND, Fn.OR):
        a, b = part.args
        if (part.fn is Fn.AND) == holds:
            return _narrowed(b, holds, _narrowed(a, holds, ranges))
        either = _narrowed(a, holds, ranges), _narrowed(b, holds, ranges)
        return {x: hull(*(r[x] for r in either)) for x in ranges}
    if part.fn in NEGATED and isinstance(part.args[1], Const):
        return _cut(part.fn if holds else NEGATED[part.fn], part.args[0], int(part.args[1].value), ranges)
    return ranges


def _cut(fn: Fn, left: Expr, right: int, ranges: dict[Expr, Range]) -> dict[Expr, Range]:
    """`left fn right`, where left is an axis or its negative."""
    if isinstance(left, Apply) and left.fn is Fn.NEG:
        fn, left, right = MIRRORED[fn], left.args[0], -right
    if not isinstance(left, Axis) or left not in ranges:
        return ranges
    low, high = cut(fn, ranges[left], right)
    return {**ranges, left: (low, high)} if low <= high else ranges
