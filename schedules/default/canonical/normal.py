"""A stage in normal form, before anything is asked about it: its indices, its conditions, the loops of its reduction.

What is changed here is integers, choices and the loops over terms: no value of a float is computed otherwise.

| pass | before | after |
|---|---|---|
| `indices.shortened` | `x[i, (j // 4) * 4 + j % 4]` | `x[i, j]` |
| `choices.chosen_first` | `select(c, exp(a), exp(b))` | `exp(select(c, a, b))` |
| `condition_of_sum` | `sum(select(c, a b, 0))` | `sum(a b, where=c)` |
| `looked_up`, `without_units`, `stepped`, `merged`, `taken_apart`, `in_memory_order` | see `loops.py` | |
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import replace

from schedules.conditions import tidied
from schedules.default.canonical.choices import chosen_first
from schedules.default.canonical.indices import shortened
from schedules.default.canonical.loops import (
    in_memory_order,
    looked_up,
    merged,
    one_term,
    stepped,
    taken_apart,
    without_units,
)
from schedules.default.copies import stays_inside
from tedsl.lang.expr import TRUE, Apply, Const, Expr, Fn, Reduce
from tedsl.lang.functions import logical_and, logical_not
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import conjuncts, reads_of, rebuild_all

__all__ = ["normal"]

KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})  # reductions that may walk through their terms otherwise


def condition_of_sum(op: Compute, reduce: Reduce) -> Reduce | None:
    """A product that is chosen under a condition, else 0, as the term of a sum where the condition holds.

    What a condition reads, those around it may guard: among theirs it is read in any case, so that it has to be inside.
    """
    (value, *others) = reduce.values
    conditions: list[Expr] = []
    while isinstance(value, Apply) and value.fn is Fn.SELECT and any(map(_is_zero, value.args[1:])):
        condition, chosen, rest = value.args
        if (conditions or reduce.where is not TRUE) and reads_of((condition,)) and not stays_inside(condition):
            return None
        swapped = _is_zero(chosen)
        conditions.append(logical_not(condition) if swapped else condition)
        value = rest if swapped else chosen
    if others or not conditions or reduce.reducer.kind != "sum" or not _is_product(value):
        return None
    where = functools.reduce(logical_and, [TRUE, *(c for w in (reduce.where, *conditions) for c in conjuncts(w))])
    return Reduce(reduce.reducer, (value,), reduce.axes, tidied((where,))[0], 0)


def _is_zero(value: Expr) -> bool:
    return isinstance(value, Const) and value.value == 0


def _is_product(value: Expr) -> bool:
    return isinstance(value, Apply) and value.fn is Fn.MUL and value.dtype.is_float


PASSES: tuple[Callable[[Compute, Reduce], Reduce | None], ...] = (
    condition_of_sum, looked_up, without_units, stepped, merged, taken_apart, in_memory_order,
)  # fmt: skip


def normal(op: Compute) -> Compute:
    """The stage in normal form; the same object where it is in it."""
    bodies = rebuild_all(tidied(rebuild_all(op.bodies, shortened)), chosen_first)
    if any(map(operator.is_not, bodies, op.bodies)):
        op = replace(op, bodies=bodies, _outputs={})
    reduce = op.reduction
    if reduce is None or len(op.bodies) > 1 or reduce.reducer.kind not in KINDS:
        return op
    made = reduce
    while (found := next((r for known in PASSES if (r := known(op, made)) is not None), None)) is not None:
        made = found
    if made is reduce:
        return op
    alone = one_term(made)
    return replace(op, bodies=(made if alone is None else alone,), _outputs={})
