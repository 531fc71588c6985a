"""The loops of a reduction in one form: what a spelling cut or joined is put together or taken apart again.

| pass | before | after |
|---|---|---|
| `without_units` | `sum over u < 1, k of x[i + u, k]` | `sum over k of x[i, k]` |
| `merged` | `sum over k1 < 8, k0 < 4 of a[i, 4 k1 + k0]` | `sum over k < 32 of a[i, k]` |
| `stepped` | `sum over k < 32 of a[k], where k % 4 == 1` | `sum over k < 8 of a[4 k + 1]` |
| `in_memory_order` | `sum over l, k of a[k, l]` | `sum over k, l of a[k, l]` |
| `looked_up` | `sum over c of a[i, c], where c == t[i]` | `a[i, t[i]]` where 0 <= t[i] < n, of one iteration |
| `taken_apart` | `sum over m < 12 of x[i + m // 3, j + m % 3]` | `sum over p < 4, q < 3 of x[i + p, j + q]` |

Where two loops are put together that are not next to each other, terms are combined in another order; else in the same.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce as folded
from itertools import permutations

from schedules.conditions import tidied
from schedules.default.canonical.indices import QUOTIENTS, exact
from tedsl.analysis.affine import affine_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.folding import select_node
from tedsl.lang.functions import cast, logical_and, maximum, minimum
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import conjuncts, free_axes, reads_of, rebuild_all, substitute_all, topological

__all__ = ["in_memory_order", "looked_up", "merged", "one_term", "stepped", "taken_apart", "without_units"]

Roots = tuple[Expr, ...]
MOST_CASES = 16  # of a loop that conditions are tried for


def in_memory_order(op: Compute, reduce: Reduce) -> Reduce | None:
    """The loops in the order of the dimensions of what is read, the last one innermost."""
    places: dict[Axis, int] = {}
    read = max(reads_of(reduce.values), key=lambda r: len(r.indices), default=None)
    for place, index in enumerate(read.indices if read is not None else ()):
        for axis in free_axes(index):
            places.setdefault(axis, place)
    order = tuple(sorted(reduce.axes, key=lambda a: places.get(a, -1)))
    return None if all(map(operator.is_, order, reduce.axes)) else reduce.with_axes(order)


def without_units(op: Compute, reduce: Reduce) -> Reduce | None:
    """The reduction without its loops of one iteration; one is left where there are no others."""
    units = {a for a in reduce.axes if (number(a.extent), number(a.begin)) == (1, 0)}
    left = tuple(a for a in reduce.axes if a not in units) or reduce.axes[:1]
    gone = len(left) < len(reduce.axes) or left[0] in set(free_axes((*reduce.values, reduce.where)))
    if not units or not gone:
        return None
    zero = Const(0, INT32)
    return _over(reduce, left, _rewritten(reduce, dict.fromkeys(units, zero)))


def merged(op: Compute, reduce: Reduce) -> Reduce | None:
    """Two loops that every index and condition has together, as `k1 * n + k0` with n the extent of k0, as one."""
    inner = _begin_at_zero(reduce.axes)
    forms = list(_forms(reduce))
    for first, second in permutations(inner, 2):
        extents = number(first.extent), number(second.extent)
        if extents[0] is None or extents[1] is None or not all(_are_one(f, first, second, extents[1]) for f in forms):
            continue
        if not any(f is not None and second in set(f.axes) for f in forms):
            continue
        both = _loop(f"{first.name}{second.name}", extents[0] * extents[1])
        roots = _rewritten(reduce, {first: both // extents[1], second: both % extents[1]})
        if any(isinstance(n, Apply) and n.fn in QUOTIENTS and n.args[0] is both and number(n.args[1]) == extents[1]
               for n in topological(roots)):  # fmt: skip
            continue
        axes = tuple(both if a is first else a for a in reduce.axes if a is not second)
        return _over(reduce, axes, roots)
    return None


def stepped(op: Compute, reduce: Reduce) -> Reduce | None:
    """A loop of which a condition leaves every so manieth iteration, or one, without the others."""
    for axis in _begin_at_zero(reduce.axes):
        extent = number(axis.extent) or 0
        alone = [c for c in conjuncts(reduce.where) if _has_alone(c, axis) and not reads_of((c,))]
        steps = {by for by in _divisors(alone, axis) if 1 < by <= extent}
        for step in sorted(steps | ({extent} if alone else set())):
            if step > MOST_CASES:
                continue
            whole = _loop(axis.name, -(-extent // step))
            left = [r for r in range(step) if _holds(alone, axis, _at(whole, step, r)) is not FALSE]
            if len(left) != 1 or step == 1:
                continue
            last = -(-(extent - left[0]) // step)
            if last < 1:
                continue
            loop = _loop(axis.name, last)
            axes = tuple(loop if a is axis else a for a in reduce.axes)
            return _over(reduce, axes, _rewritten(reduce, {axis: _at(loop, step, left[0])}))
    return None


def looked_up(op: Compute, reduce: Reduce) -> Reduce | None:
    """A sum whose condition asks a loop to be a number that is data, without that loop: its one term is looked up."""
    if reduce.reducer.kind != "sum":
        return None
    asked = conjuncts(reduce.where)
    for condition in asked:
        for axis in _begin_at_zero(reduce.axes):
            place = _equal_to(condition, axis)
            if place is None:
                continue
            last = int(number(axis.extent) or 0) - 1
            at = cast(minimum(maximum(place, 0), last), INT32)
            others = [substitute_all((c,), {axis: at})[0] for c in asked if c is not condition]
            where = folded(logical_and, [place >= 0, place <= last, *others])
            left = tuple(a for a in reduce.axes if a is not axis) or (_loop(axis.name, 1),)
            return _over(reduce, left, (*substitute_all(reduce.values, {axis: at}), where))
    return None


def _equal_to(condition: Expr, axis: Axis) -> Expr | None:
    """What a condition asks an axis to be equal to, where that is data and none of its own."""
    if not isinstance(condition, Apply) or condition.fn is not Fn.EQ:
        return None
    for one, other in permutations(condition.args):
        plain = one.args[0] if isinstance(one, Apply) and one.fn is Fn.CAST and one.dtype.is_integer else one
        if plain is axis and one.dtype.itemsize >= INT32.itemsize and reads_of((other,)):
            return None if axis in set(free_axes(other)) else other
    return None


def one_term(reduce: Reduce) -> Expr | None:
    """The sum of one term that is there or not as data says, as a choice (0 is added: -0.0 in a sum is 0.0)."""
    (value, *others), (axis, *loops) = reduce.values, reduce.axes
    is_one = not others and not loops and (number(axis.extent), number(axis.begin)) == (1, 0)
    if reduce.reducer.kind != "sum" or not is_one or not reads_of((reduce.where,)):
        return None
    (value, where) = substitute_all((value, reduce.where), {axis: Const(0, INT32)})
    zero = Const(0.0 if value.dtype.is_float else 0, value.dtype)
    return select_node(where, value, zero) + zero


def _at(loop: Axis, step: int, rest: int) -> Expr:
    found: Expr = loop * step + rest
    return found


def _holds(conditions: Sequence[Expr], axis: Axis, at: Expr) -> Expr:
    """Whether all conditions hold with something else in the place of an axis, as far as one can tell."""
    found = tidied(rebuild_all(substitute_all(conditions, {axis: at}), exact))
    return FALSE if any(c is FALSE for c in found) else folded(logical_and, [TRUE, *found])


def taken_apart(op: Compute, reduce: Reduce) -> Reduce | None:
    """A loop that indices and conditions know by quotient and remainder alone, as a loop over each."""
    for axis in _begin_at_zero(reduce.axes):
        extent = number(axis.extent) or 0
        for by in sorted(_divisors((*reduce.values, reduce.where), axis)):
            if not 1 < by < extent or extent % by:
                continue
            outer, inner = _loop(f"{axis.name}_q", extent // by), _loop(f"{axis.name}_r", by)
            roots = _rewritten(reduce, {axis: outer * by + inner})
            if any({outer, inner}.issubset(free_axes(n)) for n in topological(roots) if n.dtype is INT32):
                continue
            axes = tuple(b for a in reduce.axes for b in ((outer, inner) if a is axis else (a,)))
            return _over(reduce, axes, roots)
    return None


def _begin_at_zero(axes: Sequence[Axis]) -> list[Axis]:
    return [a for a in axes if number(a.begin) == 0 and (number(a.extent) or 0) > 1]


def _loop(name: str, extent: int) -> Axis:
    return Axis(name, Const(extent, INT32), is_reduce=True)


def _forms(reduce: Reduce) -> Iterator[Affine | None]:
    """What loops stand in: the outermost integer expressions; None for one that has no form."""
    stack: list[Expr] = [*reduce.values, reduce.where]
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        form = affine_of(node) if node.dtype is INT32 and not isinstance(node, Read) else None
        if form is not None:
            yield form
        elif isinstance(node, Axis):
            yield None
        else:
            stack.extend(node.children)


def _are_one(form: Affine | None, first: Axis, second: Axis, extent: int) -> bool:
    """Whether a form may have `first * extent + second`, or has none of the two."""
    if form is None:
        return False
    outer, inner = form.factor(first), form.factor(second)
    if outer is None or inner is None or not outer.is_constant or not inner.is_constant:
        return False
    return inner.constant == 0 or outer.constant == inner.constant * extent


def _has_alone(expr: Expr, axis: Axis) -> bool:
    """Whether it is the only axis of an expression."""
    axes = free_axes(expr)
    return len(axes) == 1 and axes[0] is axis


def _divisors(roots: Iterable[Expr], axis: Axis) -> set[int]:
    """The numbers by which something is divided that has no other axis."""
    quotients = (n for n in topological(roots) if isinstance(n, Apply) and n.fn in QUOTIENTS and n.dtype is INT32)
    return {number(n.args[1]) or 0 for n in quotients if _has_alone(n.args[0], axis)}


def _rewritten(reduce: Reduce, mapping: dict[Expr, Expr]) -> Roots:
    """Values and condition with other loops, their indices in plain form."""
    roots = substitute_all((*reduce.values, reduce.where), mapping)
    return tidied(rebuild_all(roots, exact))


def _over(reduce: Reduce, axes: tuple[Axis, ...], roots: Roots) -> Reduce:
    return Reduce(reduce.reducer, roots[:-1], axes, roots[-1], reduce.index)
