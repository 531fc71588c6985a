"""Scatters that add to one another's results, one after another over the same loops, as a single scatter.

out[f(i)] += g(i) for all i; out[h(i)] += k(i) for all i     ->   out[f(i)] += g(i); out[h(i)] += k(i) for each i
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set as AbstractSet
from dataclasses import replace

from schedules.default.costs import MOST_TAPS
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr
from tedsl.lang.extents import number
from tedsl.lang.tensor import Operation, Scatter, Tensor
from tedsl.lang.traverse import substitute_all

__all__ = ["chains_of", "is_known", "joined"]


def chains_of(
    operations: Sequence[Operation], outputs: Iterable[Tensor], kept: AbstractSet[Operation]
) -> dict[Scatter, list[Scatter]]:
    """Scatters that only add to the result of other ones over the same loops: the last one, and those before it."""
    readers: dict[Tensor, int] = {}
    for op in operations:
        for tensor in op.inputs:
            readers[tensor] = readers.get(tensor, 0) + 1
    wanted = set(outputs)
    chains: dict[Scatter, list[Scatter]] = {}
    for op in operations:
        if not isinstance(op, Scatter) or op in kept:
            continue
        before = None if op.init is None else op.init.op
        chains[op] = []
        if not isinstance(before, Scatter) or before not in chains or before.output() in wanted:
            continue
        if readers[before.output()] == 1 and _same_loops(before, op) and len(chains[before]) < MOST_TAPS - 1:
            chains[op] = [*chains.pop(before), before]
    return chains


def _same_loops(a: Scatter, b: Scatter) -> bool:
    ranges = [[(number(x.begin), number(x.extent)) for x in op.axes] for op in (a, b)]
    return a.kind == b.kind and ranges[0] == ranges[1] and is_known(a)


def is_known(op: Scatter) -> bool:
    """Whether all sizes are numbers, and something is there."""
    sizes = [*(number(e) for e in op.shape), *(number(a.extent) for a in op.axes)]
    return all(sizes) and all(number(a.begin) is not None for a in op.axes)


def joined(ops: Sequence[Scatter]) -> Scatter:
    """One scatter that does at each point what all of them do, by an innermost loop over them."""
    last = ops[-1]
    tap = Axis("tap", Const(len(ops), INT32), is_reduce=True)
    parts = [substitute_all((*op.index, op.value, op.guard), dict(zip(op.axes, last.axes, strict=True))) for op in ops]
    *index, value, guard = (_by_tap(tap, choices) for choices in zip(*parts, strict=True))
    return replace(
        last,
        axes=(*last.axes, tap),
        index=tuple(index),
        value=value,
        guard=guard,
        init=ops[0].init,
        unique=False,
        _outputs={},
    )


def _by_tap(tap: Axis, choices: Sequence[Expr]) -> Expr:
    """The choice for a tap; what all of them have in common is written once."""
    first = choices[0]
    if all(c is first for c in choices):
        return first
    if isinstance(first, Apply) and all(
        isinstance(c, Apply) and c.fn is first.fn and [a.dtype for a in c.args] == [a.dtype for a in first.args]
        for c in choices
    ):
        return first.with_children(
            tuple(_by_tap(tap, operands) for operands in zip(*(c.children for c in choices), strict=True))
        )
    chosen = choices[-1]
    for k in range(len(choices) - 2, -1, -1):
        chosen = fn.select_node(tap == k, choices[k], chosen)
    return chosen
