"""Conditions on data: where they may be asked.

`a & c` computes both sides, and a `c` that reads memory may do so out of bounds where `a` is false. A condition that is
to become part of a program therefore asks `c` inside `a`, as `select(a, c, False)`; one that inversion reads is taken
apart again.
"""

from __future__ import annotations

from tedsl.lang.expr import Apply, Expr
from tedsl.lang.operators import Fn
from tedsl.lang.traverse import asked_inside, asked_parts, reads_of, rebuild

__all__ = ["askable", "conditions_of"]


def askable(condition: Expr) -> Expr:
    """The condition with every part that reads memory asked only where the parts before it hold."""
    return rebuild(condition, _nested) if reads_of((condition,)) else condition


def _nested(node: Expr) -> Expr:
    return asked_inside(*node.args) if isinstance(node, Apply) and node.fn is Fn.AND else node


def conditions_of(condition: Expr) -> tuple[Expr, ...]:
    """The parts that must all hold, in the order in which they may be asked."""
    return tuple(askable(part) for part in asked_parts(condition))
