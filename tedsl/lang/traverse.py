"""Walks over shared expression graphs: each node once, no recursion, the same object back where nothing changed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Expr, Fn, Read, Reduce

if TYPE_CHECKING:
    from tedsl.lang.tensor import Operation, Tensor

__all__ = [
    "asked_inside",
    "conjuncts",
    "free_axes",
    "guards_of",
    "operations_between",
    "reads_of",
    "rebuild",
    "stages_of",
    "substitute",
    "topological",
]


def topological(roots: Expr | Iterable[Expr]) -> list[Expr]:
    """Every node below the roots, operands before users, in the order a reader meets them."""
    stack: list[Any] = [roots] if isinstance(roots, Expr) else list(roots)[::-1]
    order: list[Expr] = []
    seen: set[Expr] = set()
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())
        elif node not in seen:
            seen.add(node)
            children = node.children
            if children:  # then comes the node, which a mark tells from one that is yet to be seen
                stack += (node, None, *children[::-1])
            else:
                order.append(node)
    return order


def rebuild(root: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """`rule` applied to every node from the leaves up."""
    return rebuild_all((root,), rule)[0]


def rebuild_all(roots: Iterable[Expr], rule: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """`rebuild` of several roots that share nodes."""
    roots = tuple(roots)
    new: dict[Expr, Expr] = {}
    for node in topological(roots):
        if node.children:
            children = tuple([new[c] for c in node.children])
            same = all(map(operator.is_, children, node.children))
            new[node] = rule(node if same else node.with_children(children))
        else:
            new[node] = rule(node)
    return tuple([new[r] for r in roots])


def substitute(root: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """`root` with symbols (or whole nodes) replaced; a reduction's axes are renamed with them."""
    return substitute_all((root,), mapping)[0]


def substitute_all(roots: Iterable[Expr], mapping: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
    """`substitute` in several roots that share nodes."""

    def rule(node: Expr) -> Expr:
        if isinstance(node, Reduce) and any(a in mapping for a in node.axes):
            node = node.with_axes(tuple(_as_axis(mapping.get(a, a)) for a in node.axes))
        return mapping.get(node, node)

    return rebuild_all(roots, rule)


def _as_axis(expr: Expr) -> Axis:
    assert isinstance(expr, Axis), f"a reduction axis can only become an axis, not `{expr}`"
    return expr


def reads_of(roots: Iterable[Expr]) -> list[Read]:
    """The reads below the roots, each once, in order."""
    return [node for node in topological(roots) if isinstance(node, Read)]


def free_axes(roots: Expr | Iterable[Expr]) -> list[Axis]:
    """The axes used below the roots and not bound by a reduction there, in order of use."""
    order = topological(roots)
    free: dict[Expr, dict[Axis, None]] = {}
    for node in order:
        mine: dict[Axis, None] = {node: None} if isinstance(node, Axis) else {}
        for child in node.children:
            mine.update(free[child])
        if isinstance(node, Reduce):
            bound = set(node.axes)
            mine = {a: None for a in mine if a not in bound}
        free[node] = mine
    found: dict[Axis, None] = {}
    for root in [roots] if isinstance(roots, Expr) else roots:
        found.update(free[root])
    return list(found)


def guards_of(roots: Expr | Iterable[Expr]) -> dict[Expr, Expr]:
    """The condition under which each node's value is used: `select` guards its branches, `where` its values."""
    roots = (roots,) if isinstance(roots, Expr) else tuple(roots)
    reach: dict[Expr, Expr] = dict.fromkeys(roots, TRUE)

    def use(node: Expr, condition: Expr) -> None:
        known = reach.get(node)
        reach[node] = condition if known is None else _either(known, condition)

    for node in reversed(topological(roots)):
        here = reach[node]
        if isinstance(node, Apply) and node.fn is Fn.SELECT:
            cond, taken, other = node.args
            use(cond, here)
            use(taken, _both(here, cond))
            use(other, _both(here, Expr._apply(Fn.NOT, cond)))
        elif isinstance(node, Reduce):
            use(node.where, here)
            for value in node.values:
                use(value, _both(here, node.where))
        else:
            for child in node.children:
                use(child, here)
    return reach


def _both(a: Expr, b: Expr) -> Expr:
    both: Expr = Expr._apply(Fn.AND, a, b)
    return both


def asked_inside(outer: Expr, inner: Expr) -> Expr:
    """Both conditions; one that reads memory, perhaps out of bounds elsewhere, is asked only where `outer` holds.

    Of an `and` both sides are computed at every point.
    """
    if outer is TRUE or inner is TRUE:
        return inner if outer is TRUE else outer
    if not reads_of((inner,)):
        return _both(outer, inner)
    asked: Expr = Expr._apply(Fn.SELECT, outer, inner, FALSE)
    return asked


def _either(a: Expr, b: Expr) -> Expr:
    """a | b; of two cases of which one implies the other the weaker stays, `c & x | c & ~x` is `c`."""
    cases = [*_cases(a), *_cases(b)]
    if len(cases) > MOST_CASES:
        return _or(a, b)
    kept: list[dict[Expr, None]] = []
    for case in cases:
        while (other := next((k for k in kept if _merged(k, case) is not None), None)) is not None:
            merged = _merged(other, case)
            assert merged is not None
            kept = [k for k in kept if k is not other]
            case = merged
        kept.append(case)
    either = _all(kept[0])
    for case in kept[1:]:
        either = _or(either, _all(case))
    return either


# Beyond so many cases an `or` is left as it is: comparing them all would be quadratic.
MOST_CASES = 12


def _merged(a: dict[Expr, None], b: dict[Expr, None]) -> dict[Expr, None] | None:
    """The one case that two are, if they are."""
    only_a, only_b = [p for p in a if p not in b], [p for p in b if p not in a]
    if not only_a:
        return a
    if not only_b:
        return b
    if len(only_a) == len(only_b) == 1 and _opposite(only_a[0], only_b[0]):
        return {p: None for p in a if p in b}
    return None


def _all(parts: dict[Expr, None]) -> Expr:
    result: Expr = TRUE
    for part in parts:
        result = _both(result, part)
    return result


def _or(a: Expr, b: Expr) -> Expr:
    either: Expr = Expr._apply(Fn.OR, a, b)
    return either


def _cases(condition: Expr) -> list[dict[Expr, None]]:
    """The alternatives of an `or`, each as an ordered set of what must hold."""
    cases = []
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.fn is Fn.OR:
            stack += [node.args[1], node.args[0]]
        else:
            cases.append(dict.fromkeys(conjuncts(node)))
    return cases


def _opposite(a: Expr, b: Expr) -> bool:
    return any(isinstance(x, Apply) and x.fn is Fn.NOT and x.args[0] is y for x, y in ((a, b), (b, a)))


def conjuncts(condition: Expr) -> list[Expr]:
    """The parts of an `and`, each once."""
    parts: dict[Expr, None] = {}
    stack = [condition]
    while stack:
        node = stack.pop()
        if isinstance(node, Apply) and node.fn is Fn.AND:
            stack += [node.args[1], node.args[0]]
        elif node is not TRUE:
            parts[node] = None
    return list(parts)


def stages_of(outputs: Iterable[Tensor]) -> list[Operation]:
    """Every operation that the outputs need, inputs before users, in a fixed order."""
    return operations_between((), outputs)


def operations_between(inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> list[Operation]:
    """The operations that compute the outputs from the inputs, those before their users."""
    given = inputs if isinstance(inputs, Set) else set(inputs)
    stack = [t.op for t in list(outputs)[::-1] if t not in given]
    order: list[Operation] = []
    state: dict[Operation, bool] = {}
    while stack:
        op = stack[-1]
        done = state.get(op)
        if done is None:
            state[op] = False
            stack.extend(t.op for t in reversed(op.inputs) if t not in given and t.op not in state)
            continue
        stack.pop()
        if not done:
            state[op] = True
            order.append(op)
    return order
