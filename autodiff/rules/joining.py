"""Sums of products that share a factor, added up before they are multiplied by it.

A tensor that a sum reads twice, as `sum_k y[k, i] y[k, j]` does, is sent two sums of products. Where both multiply by
the same factor, need the same loops, and use for several elements what is added up, one sum of the work of one does:
what is symmetric in a Gram matrix, a covariance or a rank-k update is found so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from tedsl.analysis.facts import Facts
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.functions import logical_and, logical_not, logical_or, select
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import free_axes, substitute_all

__all__ = ["joined_products"]

FEW_LOOPS = 3  # of a sum, whose orders are tried


@dataclass(frozen=True, eq=False)
class _Sum:
    """A stage that is a sum of products."""

    op: Compute
    reduce: Reduce
    factors: tuple[Expr, ...]
    is_negative: bool


def joined_products(parts: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a sum, some of which are one.

    rewrites   sum_r f[r, k] g[i, r]   and   sum_r f[r, k] h[r, i]   ->   sum_r f[r, k] (g[i, r] + h[r, i])
    """
    made: list[Tensor] = []
    for part in parts:
        for k, known in enumerate(made):
            both = _joined(known, part)
            if both is not None:
                made[k] = both
                break
        else:
            made.append(part)
    return made


def _joined(first: Tensor, second: Tensor) -> Tensor | None:
    a, b = _sum_of(first), _sum_of(second)
    if a is None or b is None or len(a.reduce.axes) != len(b.reduce.axes) or len(a.reduce.axes) > FEW_LOOPS:
        return None
    outer: dict[Expr, Expr] = dict(zip(b.op.axes, a.op.axes, strict=True))
    for order in permutations(a.reduce.axes):
        if all(_alike(x, y) for x, y in zip(b.reduce.axes, order, strict=True)):
            found = _with_axes(a, b, {**outer, **dict(zip(b.reduce.axes, order, strict=True))})
            if found is not None:
                return replace(a.op, bodies=(found,), _outputs={}).output()
    return None


def _sum_of(part: Tensor) -> _Sum | None:
    op = part.op
    reduce = op.reduction if isinstance(op, Compute) and len(op.bodies) == 1 else None
    if reduce is None or reduce.reducer.kind != "sum" or not reduce.dtype.is_float:
        return None
    assert isinstance(op, Compute)
    factors, is_negative = _factors(reduce.values[0])
    return _Sum(op, reduce, factors, is_negative) if len(factors) > 1 else None


def _factors(value: Expr) -> tuple[tuple[Expr, ...], bool]:
    """What is multiplied, and whether the opposite of the product is meant."""
    if isinstance(value, Apply) and value.fn is Fn.NEG:
        factors, is_negative = _factors(value.args[0])
        return factors, not is_negative
    if isinstance(value, Apply) and value.fn is Fn.MUL:
        left, right = (_factors(arg) for arg in value.args)
        return (*left[0], *right[0]), left[1] != right[1]
    return (value,), False


def _alike(a: Axis, b: Axis) -> bool:
    return a.begin is b.begin and a.extent is not None and b.extent is not None and same_extent(a.extent, b.extent)


def _with_axes(a: _Sum, b: _Sum, axes: Mapping[Expr, Expr]) -> Reduce | None:
    """Both sums in the loops of the first one."""
    *moved, where = substitute_all((*b.factors, b.reduce.where), axes)
    rest, others = list(a.factors), []
    common: list[Expr] = []
    for factor in moved:
        at = next((k for k, own in enumerate(rest) if own is factor), None)
        if at is None:
            others.append(factor)
        else:
            common.append(rest.pop(at))
    used = [f for f in common if not isinstance(f, Const)]
    if not used or not rest or not others or _loops(rest) != _loops(others):
        return None
    if not (_loops(used) - _loops(rest)).intersection(a.op.axes):  # what is added up would be used once
        return None
    mine, theirs = _product(rest, is_negative=a.is_negative), _product(others, is_negative=b.is_negative)
    condition = a.reduce.where
    facts = Facts((*a.op.axes, *a.reduce.axes))
    if not _equal(facts, condition, where):
        mine, theirs = select(condition, mine, 0.0), select(where, theirs, 0.0)
        condition = logical_or(condition, where)
        if facts.refutes(logical_not(condition)):
            condition = TRUE
    value = (mine + theirs) * _product(common, is_negative=False)
    return Reduce(a.reduce.reducer, (value,), a.reduce.axes, condition, 0)


def _equal(facts: Facts, a: Expr, b: Expr) -> bool:
    return a is b or (facts.refutes(logical_and(a, logical_not(b))) and facts.refutes(logical_and(b, logical_not(a))))


def _loops(factors: Sequence[Expr]) -> set[Axis]:
    return set(free_axes(_product(factors, is_negative=False)))


def _product(factors: Sequence[Expr], *, is_negative: bool) -> Expr:
    value = factors[0]
    for factor in factors[1:]:
        value = value * factor
    return -value if is_negative else value
