"""A function in both branches of a choice is computed once, of what is chosen.

| before | after |
|---|---|
| `select(c, exp(a), exp(b))` | `exp(select(c, a, b))` |
| `select(c, log(a) - v, -log(b))` | `select(c, t - v, -t)`, `t = log(select(c, a, b))` |

A vector computes both branches. What is chosen is the same number, so that no bit changes, and what a condition guards
it guards still.
"""

from __future__ import annotations

from collections.abc import Iterable

from schedules.default.costs import is_costly
from tedsl.lang.expr import Apply, Const, Expr, Fn
from tedsl.lang.folding import select_node
from tedsl.lang.traverse import replaced_all

__all__ = ["chosen_first"]


def chosen_first(node: Expr) -> Expr:
    """A choice of floats with the outermost costly functions of its branches joined in pairs; else as it is."""
    if not isinstance(node, Apply) or node.fn is not Fn.SELECT or not node.dtype.is_float:
        return node
    condition, *branches = node.args
    left, right = (_outermost(branch) for branch in branches)
    pairs = [(a, b) for a in left for b in right if a.fn is b.fn and a.dtype is b.dtype and a is not b]
    # Two of one kind in a branch may be paired in two ways, one of which may be none.
    pairs = [(a, b) for a, b in pairs if _alone(a, left) and _alone(b, right)]
    if not pairs:
        return node
    joined = [Apply(a.fn, (_chosen(condition, a.args[0], b.args[0]),), a.dtype) for a, b in pairs]
    one, other = (
        replaced_all([branch], {pair[side]: made for pair, made in zip(pairs, joined, strict=True)})[0]
        for side, branch in enumerate(branches)
    )
    return select_node(condition, one, other)


def _chosen(condition: Expr, a: Expr, b: Expr) -> Expr:
    return chosen_first(select_node(condition, a, b))


def _outermost(root: Expr) -> list[Apply]:
    """The costly functions of one operand that are in no other one, and in no choice of their own."""
    found: dict[Apply, None] = {}
    pending, seen = [root], {root}
    for node in pending:
        if not isinstance(node, Apply) or node.fn is Fn.SELECT:
            continue
        if len(node.args) == 1 and is_costly(node):
            found[node] = None
            continue
        fresh = [c for c in node.args if c not in seen and not isinstance(c, Const)]
        seen.update(fresh)
        pending += fresh
    return list(found)


def _alone(node: Apply, among: Iterable[Apply]) -> bool:
    return sum(other.fn is node.fn for other in among) == 1
