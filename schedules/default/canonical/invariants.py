"""What an element computes at great cost and an outer loop does not change, as a stage of its own.

| before | after |
|---|---|
| `y[c, i] = x[c, i] - log(s[i])` | `y[c, i] = x[c, i] - t[i]`, `t[i] = log(s[i])` |

Where no inner loop changes it either, the compiler moves it out of these itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from schedules.default.copies import stays_inside
from schedules.default.costs import is_costly, points
from schedules.default.rewriting import Rewriting
from tedsl.lang.expr import Apply, Axis, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, replaced_all, substitute

__all__ = ["invariants_apart"]

TIMES = 4  # that it is computed for each time that is needed


def invariants_apart(rw: Rewriting, op: Compute) -> Compute:
    """A pointwise stage that reads what was computed once; as it is where there is nothing of the kind."""
    if op.reduction is not None or len(op.axes) < 2 or any(number(a.extent) is None for a in op.axes):
        return op
    if not any(isinstance(n, Apply) and is_costly(n) for n in op.nodes):
        return op
    found: dict[Expr, Expr] = {}
    for value, axes in _invariants(op):
        fresh = tuple(Axis(a.name, a.extent) for a in axes)
        stage = rw.compute(f"{op.name}_part", fresh, substitute(value, dict(zip(axes, fresh, strict=True))))
        found[value] = Read(stage, axes)
    if not found:
        return op
    return replace(op, bodies=replaced_all(op.bodies, found), _outputs={})


def _invariants(op: Compute) -> Iterator[tuple[Expr, tuple[Axis, ...]]]:
    """The outermost costly values that are worth it, and the loops that change them.

    What is cheap around one stays: a product is rounded together with the sum that it is a term of.
    """
    pending, seen = list(op.bodies), set[Expr]()
    while pending:
        value = pending.pop()
        if value in seen or isinstance(value, Read):
            continue
        seen.add(value)
        used = set(free_axes(value))
        axes = tuple(a for a in op.axes if a in used)
        is_worth_it = op.axes[-1] in used and points(axes) * TIMES <= points(op.axes)
        if is_worth_it and isinstance(value, Apply) and is_costly(value) and stays_inside(value):
            yield value, axes
        else:
            pending += value.children
