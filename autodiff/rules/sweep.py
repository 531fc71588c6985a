"""One reverse sweep over a scalar expression graph: what each read receives, each node visited once.

A `select` guards its branches: what flows into a branch counts only where it is taken. Instead of multiplying by a
masked adjoint (0 * inf is NaN), the sweep keeps the condition under which a node is used and masks only where two
nodes of different conditions meet; what is left at a read is handed over as the condition of that read.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from functools import reduce
from types import MappingProxyType

from autodiff.rules.derivatives import DERIVATIVE, PIECEWISE_CONSTANT, is_zero, times
from autodiff.rules.slopes import Slopes, through_reduction, with_fresh_axes
from autodiff.turning.asking import askable
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import GradientError
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.guards import guards_of
from tedsl.lang.operators import Fn
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.traverse import conjuncts, free_axes, topological

__all__ = ["ReadSite", "sweep"]


FAR = 8  # terms of a sum among which the other branch of a choice is looked for
Scopes = dict[tuple[Axis, ...], Expr]


@dataclass(frozen=True)
class ReadSite:
    """A read, the adjoint it receives at each point of its axes, and the condition under which it does."""

    read: Read
    adjoint: Expr
    condition: Expr
    axes: tuple[Axis, ...]  # bound by reductions around the read, in addition to the axes of the body


def sweep(
    seeds: Mapping[Expr, Expr],
    condition: Expr,
    values: Mapping[Expr, Expr],
    wanted: frozenset[int] | None = None,
    slopes: Slopes = MappingProxyType({}),
    canceled: Set[Expr] = frozenset(),
) -> list[ReadSite]:
    """The read sites below the roots `seeds` (root -> its adjoint), used where `condition` holds.

    `values` names nodes whose value is stored (a forward output) and need not be computed again; `wanted` holds the
    ids of the tensors whose reads matter (all when None); `slopes` are those of reductions (`rules.slopes`),
    `canceled` the nodes by which the derivative is 0.
    """
    roots = tuple(seeds)
    order = topological(roots)
    active = _active(order, wanted, canceled)
    reach = _Reach(order, guards_of(roots))
    stored = _values(order, values)
    # Per node, its adjoint in each scope: the reduction axes around the use.
    adjoints: dict[Expr, Scopes] = {root: {(): seed} for root, seed in seeds.items()}
    sites = []
    for node in reversed(order):
        if node not in active:
            continue
        for scope, adjoint in _summed(node, adjoints.get(node, {}), reach.anywhere[node]).items():
            if is_zero(adjoint):
                continue
            if isinstance(node, Read):
                sites.append(ReadSite(node, adjoint, fn.logical_and(condition, reach.within(node, scope)), scope))
                continue
            for child, part, inner in _contributions(node, adjoint, stored, scope, slopes):
                masked = _masked(part, node, child, reach.within(node, scope), reach.within(child, inner))
                known = adjoints.setdefault(child, {}).get(inner)
                adjoints[child][inner] = masked if known is None else _sum(known, masked)
    return sites[::-1]


class _Reach:
    """Where a node is used: anywhere, and in one scope. A node of several sums is used in each where that sum asks for
    it: of the cases of its condition, those that hang on axes of other sums are theirs.
    """

    def __init__(self, order: Sequence[Expr], anywhere: Mapping[Expr, Expr]) -> None:
        self.anywhere = anywhere
        self._bound = {a for node in order if isinstance(node, Reduce) for a in node.axes}
        self._known: dict[tuple[Expr, tuple[Axis, ...]], Expr] = {}

    def within(self, node: Expr, scope: tuple[Axis, ...]) -> Expr:
        condition = self.anywhere[node]
        if not self._bound or condition is TRUE:
            return condition
        key = condition, scope
        if key not in self._known:
            self._known[key] = _without_cases(condition, self._bound - set(scope))
        return self._known[key]


def _without_cases(condition: Expr, axes: Set[Axis]) -> Expr:
    """An `or` of cases without those that hang on some axes."""
    if axes.isdisjoint(free_axes(condition)):
        return condition
    kept: dict[Expr, Expr | None] = {}
    for node in topological((condition,)):
        if axes.isdisjoint(free_axes(node)):
            kept[node] = node
            continue
        kept[node] = None
        if isinstance(node, Apply) and node.fn in (Fn.OR, Fn.AND):
            parts = [p for c in node.children if (p := kept[c]) is not None]
            if len(parts) == 2:
                kept[node] = fn.apply(node.fn, *parts)
            elif parts and node.fn is Fn.OR:
                (kept[node],) = parts
    remaining = kept[condition]
    return TRUE if remaining is None else remaining


def _summed(node: Expr, found: Scopes, condition: Expr) -> Scopes:
    """The adjoints of a reduction that is met inside another one, summed over the axes that it does not depend on.

    The maximum inside the sum of a logsumexp is one for all terms: below it, each would walk all elements again.
    """
    if not isinstance(node, Reduce) or not any(found):
        return found
    used, asked = set(free_axes(node)), set(free_axes(condition))
    made: Scopes = {}
    for scope, adjoint in found.items():
        gone = tuple(a for a in scope if a not in used and a not in asked)
        rest = tuple(a for a in scope if a not in set(gone))
        total = _over(adjoint, gone) if gone else adjoint
        made[rest] = _sum(made[rest], total) if rest in made else total
    return made


def _over(value: Expr, axes: tuple[Axis, ...]) -> Expr:
    """The sum of a value over some axes; factors that are the same for all terms stand outside of it."""
    inside: Expr = Const(1.0, value.dtype)
    outside: list[tuple[Fn, Expr]] = []
    stack = [(Fn.MUL, value)]
    while stack:
        how, part = stack.pop()
        if how is Fn.MUL and isinstance(part, Apply) and part.fn in (Fn.MUL, Fn.DIV):
            stack += [(part.fn, part.args[1]), (Fn.MUL, part.args[0])]
        elif how is Fn.MUL and isinstance(part, Apply) and part.fn is Fn.NEG:
            stack += [(Fn.MUL, Const(-1.0, part.dtype)), (Fn.MUL, part.args[0])]
        elif set(axes).isdisjoint(free_axes(part)):
            outside.append((how, part))
        else:
            inside = times(inside, part) if how is Fn.MUL else inside / part
    total: Expr = with_fresh_axes(Reduce(BUILTIN["sum"], (inside,), axes, TRUE))
    for how, part in outside:
        total = fn.apply(how, total, part)
    return total


def _sum(a: Expr, b: Expr) -> Expr:
    """a + b; a - c where b is -c; one choice where a term of `a` is zero where `b` is not."""
    total: Expr
    if _is_guarded(b):
        rest, passed = a, list[Expr]()
        while len(passed) < FAR:
            is_sum = isinstance(rest, Apply) and rest.fn is Fn.ADD
            chosen = _one_or_other(rest.children[1] if is_sum else rest, b)
            if chosen is not None:
                total = rest.children[0] + chosen if is_sum else chosen
                return reduce(operator.add, reversed(passed), total)
            if not is_sum:
                break
            passed.append(rest.children[1])
            rest = rest.children[0]
    total = a - b.args[0] if isinstance(b, Apply) and b.fn is Fn.NEG else a + b
    return total


def _one_or_other(a: Expr, b: Expr) -> Expr | None:
    """The sum of what both branches of a choice send back: `select(c, a, 0) + select(~c, b, 0)`, also where both are
    asked inside of further conditions.
    """
    if not (_is_guarded(a) and _is_guarded(b)):
        return None
    first, second = conjuncts(a.children[0]), conjuncts(b.children[0])
    only = [c for c in first if c not in set(second)], [c for c in second if c not in set(first)]
    if [len(own) for own in only] != [1, 1]:
        return None
    ((this,), (that,)) = only
    if fn.apply(Fn.NOT, this) is not that and fn.apply(Fn.NOT, that) is not this:
        return None
    value = a.children[1] if a.children[1] is b.children[1] else fn.select_node(this, a.children[1], b.children[1])
    around: Expr = TRUE
    for condition in first:
        around = around if condition is this else fn.logical_and(around, condition)
    return value if around is TRUE else fn.select_node(around, value, Const(0.0, value.dtype))


def _is_guarded(e: Expr) -> bool:
    """Whether it is a value under a condition, else 0."""
    return isinstance(e, Apply) and e.fn is Fn.SELECT and is_zero(e.args[2])


def _values(order: list[Expr], known: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    """What to write for nodes whose value is stored, for those that hold one, and for those that hold a reduction.

    Reductions get axes of their own: a value met again in the adjoint of a read below the same reduction would else
    mistake its bound axis for the read's.
    """
    new: dict[Expr, Expr] = dict(known)
    for node in order:
        if node in new:
            continue
        children = tuple(new.get(c, c) for c in node.children)
        if isinstance(node, Reduce):
            new[node] = with_fresh_axes(Reduce(node.reducer, children[:-1], node.axes, children[-1], node.index))
        elif any(c in new for c in node.children):
            new[node] = node.with_children(children)
    return new


def _active(order: list[Expr], wanted: frozenset[int] | None, canceled: Set[Expr]) -> set[Expr]:
    """The float nodes below which a wanted tensor is read."""
    active: set[Expr] = set()
    for node in order:
        if node in canceled or not node.dtype.is_float or (isinstance(node, Apply) and node.fn in PIECEWISE_CONSTANT):
            continue
        if isinstance(node, Read):
            if wanted is None or id(node.tensor) in wanted:
                active.add(node)
        elif any(c in active for c in node.children):
            active.add(node)
    return active


def _contributions(
    node: Expr, adjoint: Expr, stored: Mapping[Expr, Expr], bound: tuple[Axis, ...], slopes: Slopes
) -> list[tuple[Expr, Expr, tuple[Axis, ...]]]:
    """(operand, what it receives, reduction axes around it)."""
    if isinstance(node, Reduce):
        within = (*bound, *node.axes)
        received = [(v, through_reduction(node, k, adjoint, slopes, stored)) for k, v in enumerate(node.values)]
        return [(v, part, within) for v, part in received if part is not None and v.dtype.is_float]
    if not isinstance(node, Apply) or node.fn in PIECEWISE_CONSTANT:
        return []
    if node.fn is Fn.SELECT and node.args[1] is node.args[2]:  # one value, whichever branch is taken
        return [(node.args[1], adjoint, bound)]
    rule = DERIVATIVE.get(node.fn)
    if rule is None:
        raise GradientError(f"the derivative of {node.fn.value} is not known: `{node}`; use override= to give one")
    parts = rule(adjoint, *(stored.get(n, n) for n in (node, *node.args)))
    return [(a, p, bound) for a, p in zip(node.args, parts, strict=True) if p is not None and a.dtype.is_float]


def _masked(part: Expr, parent: Expr, child: Expr, condition: Expr, reach: Expr) -> Expr:
    """`part` where the parent (of a select, the branch) is used; 0 elsewhere, unless the child is used only there.

    The parent is used where `condition` holds, the child where `reach` does.
    """
    if isinstance(parent, Apply) and parent.fn is Fn.SELECT:
        taken = parent.args[0] if child is parent.args[1] else fn.apply(Fn.NOT, parent.args[0])
        if parent.args[1] is not parent.args[2]:
            condition = fn.logical_and(condition, taken)
    elif isinstance(parent, Reduce):
        condition = fn.logical_and(condition, parent.where)
    if condition is reach:
        return part
    return fn.select_node(askable(condition), part, Const(0.0, part.dtype))
