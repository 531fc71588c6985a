"""Sums of several products, and products of several factors, as sums of two factors each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import reduce as folded
from operator import mul

from schedules.default.canonical.factors import factors_of
from schedules.default.canonical.stages import Parts, over, sum_of, summed
from schedules.default.copies import stays_inside
from schedules.default.products.contraction import contraction_of
from schedules.sizes import typical_sizes
from schedules.thresholds import Thresholds
from tedsl.lang.expr import TRUE, Apply, Axis, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.functions import const, logical_and, select_node
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import conjuncts, free_axes

__all__ = ["apart", "guarded_outside", "in_order", "outside", "products_of"]

MOST_TERMS = 8  # of a sum or a product that is taken apart
WORTH = 2  # times fewer multiplications
SIGNS = {Fn.ADD: (1, 1), Fn.SUB: (1, -1), Fn.NEG: (-1,)}


def apart(op: Compute, least: Thresholds) -> Parts | None:
    """A sum of sums and differences of products: each product by itself."""
    reduce = sum_of(op)
    signed = _terms(reduce.values[0])
    if not 1 < len(signed) <= MOST_TERMS:
        return None
    parts = [_like(op, term, f"{op.name}_term{k}") for k, (_, term) in enumerate(signed)]
    if not all(_is_product(part, least) for part in parts):
        return None
    total: Expr | None = None
    for (sign, _), part in zip(signed, parts, strict=True):
        read = Read(part.output(), op.axes)
        if total is None:
            total = read if sign > 0 else -read
        else:
            total = total + read if sign > 0 else total - read
    assert total is not None
    return Parts(tuple(parts), total)


def outside(op: Compute, least: Thresholds) -> Parts | None:
    """A factor without a loop of the sum is multiplied with it."""
    reduce = sum_of(op)
    factors = factors_of(reduce.values[0])
    inner = [f for f in factors if not set(reduce.axes).isdisjoint(free_axes(f))]
    if not 1 < len(inner) < len(factors) <= MOST_TERMS or reduce.where is not TRUE:
        return None
    if not all(number(a.extent) for a in reduce.axes):
        return None  # the sum of nothing is 0, whatever the factor
    part = _like(op, _product(inner), f"{op.name}_inner")
    if not _is_product(part, least):
        return None
    common = _product([f for f in factors if not any(f is g for g in inner)])
    return Parts((part,), Read(part.output(), op.axes) * common)


def guarded_outside(op: Compute, least: Thresholds) -> Parts | None:
    """A condition without a loop of the sum is asked once, about the sum."""
    reduce = sum_of(op)
    loops = set(reduce.axes)
    outer = [c for c in conjuncts(reduce.where) if loops.isdisjoint(free_axes(c))]
    inner = [c for c in conjuncts(reduce.where) if not loops.isdisjoint(free_axes(c))]
    if not outer or reduce.where is TRUE or not stays_inside(reduce.values[0]) or contraction_of(op, least) is not None:
        return None
    where = folded(logical_and, [TRUE, *inner])
    part = over(op.axes, summed(reduce, reduce.values[0], reduce.axes, where), op, f"{op.name}_whole")
    if not products_of(part, least):
        return None
    read = Read(part.output(), op.axes)
    return Parts((part,), select_node(folded(logical_and, outer), read, const(0, read.dtype)))


def in_order(op: Compute, least: Thresholds) -> Parts | None:
    """A product of several factors: the loops of a sum that not all of them have are summed before the rest."""
    reduce = sum_of(op)
    ((sign, value), *others) = _terms(reduce.values[0])
    factors = factors_of(value)
    if others or not 1 < len(factors) <= MOST_TERMS or reduce.where is not TRUE:
        return None
    sizes = typical_sizes(op)
    axes = (*op.axes, *reduce.axes)
    if any(number(a.begin) != 0 for a in axes) or math.prod(sizes.values()) < least.product:
        return None
    best: tuple[int, Axis, list[Expr]] | None = None
    for axis in reduce.axes:
        inside = [f for f in factors if axis in set(free_axes(f))]
        if len(inside) in (0, len(factors)):
            continue
        loops = set(free_axes(inside))
        work = math.prod(sizes[a] for a in axes if a in loops)
        rest = [f for f in factors if not any(f is g for g in inside)]
        left = {*free_axes(rest), *loops, *op.axes} - {axis}
        work += math.prod(sizes[a] for a in axes if a in left)
        if best is None or work < best[0]:
            best = work, axis, inside
    if best is None:
        return None
    parts, whole = _summed_before(op, best[1], best[2], factors), math.prod(sizes.values())
    is_product = contraction_of(parts.stages[0], least) is not None and contraction_of(op, least) is None
    if best[0] * WORTH > whole and not (is_product and best[0] < whole * WORTH):
        return None
    return parts if sign > 0 else Parts(parts.stages, -parts.body)


def products_of(op: Compute, least: Thresholds) -> int:
    """How many products a sum is, as it is or taken apart once; 0 where it is none."""
    if contraction_of(op, least) is not None:
        return 1
    found = next((made for known in (apart, outside, in_order) if (made := known(op, least)) is not None), None)
    return 0 if found is None else len(found.stages)


def _summed_before(op: Compute, axis: Axis, inside: Sequence[Expr], factors: Sequence[Expr]) -> Parts:
    """The factors `inside`, summed over one loop, are a factor of the sum over the others."""
    reduce = sum_of(op)
    loops = set(free_axes(inside)) - {axis}
    around = [a for a in (*op.axes, *reduce.axes) if a in loops]
    first = over(around, summed(reduce, _product(inside), [axis]), op, f"{op.name}_inner")
    rest = [f for f in factors if not any(f is g for g in inside)]
    left = [a for a in reduce.axes if a is not axis]
    value = _product([*rest, Read(first.output(), tuple(around))])
    if not left:
        return Parts((first,), value)
    second = over(op.axes, summed(reduce, value, left), op, f"{op.name}_outer")
    return Parts((first, second), Read(second.output(), op.axes))


def _like(op: Compute, value: Expr, name: str) -> Compute:
    """The sum of another value, in a stage over loops of its own."""
    reduce = sum_of(op)
    return over(op.axes, summed(reduce, value, reduce.axes, reduce.where), op, name)


def _terms(value: Expr, sign: int = 1) -> list[tuple[int, Expr]]:
    """What is added and subtracted, outermost operations first."""
    if isinstance(value, Apply) and value.fn in SIGNS:
        signs = zip(SIGNS[value.fn], value.args, strict=True)
        return [found for s, arg in signs for found in _terms(arg, s * sign)]
    return [(sign, value)]


def _product(factors: Iterable[Expr]) -> Expr:
    return folded(mul, factors)


def _is_product(op: Compute, least: Thresholds) -> bool:
    """Whether it is a sum of products that is worth a pattern, now or when it is taken apart in turn."""
    if contraction_of(op, least) is not None:
        return True
    return len(factors_of(sum_of(op).values[0])) > 2 and in_order(op, least) is not None
