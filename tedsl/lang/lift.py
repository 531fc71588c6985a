"""Normal form: a reduction nested inside an expression becomes a tensor of its own, over the axes that it uses.

rewrites   T[i, j] = exp(sum(k: A[i, k])) + B[j]   ->   S[i] = sum(k: A[i, k]);  T[i, j] = exp(S[i]) + B[j]
A reduction under a `select` or `where=` keeps that condition, so that it reads nothing the whole expression would not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.guards import guards_of
from tedsl.lang.projection import for_any, is_defined
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import asked_inside, conjuncts, free_axes, reads_of, substitute_all, topological

__all__ = ["lift_reductions", "lifted", "without"]


def lift_reductions(
    bodies: tuple[Expr, ...], axes: tuple[Axis, ...], name: str, states: tuple[Tensor, ...] = ()
) -> tuple[Expr, ...]:
    """The bodies with every nested reduction replaced by a read of a new tensor (those over a scan's states stay)."""
    if not any(isinstance(node, Reduce) for node in topological(bodies)):
        return bodies
    if states or not _is_one_reduction(bodies):
        return _Lifting(guards_of(bodies), axes, name, states).of(bodies)
    outer = [b for b in bodies if isinstance(b, Reduce)]
    first = outer[0]
    if not any(isinstance(node, Reduce) for node in topological(first.children)):
        return bodies
    parts = _Lifting(guards_of(first), (*axes, *first.axes), name).of(first.children)
    return tuple(b.with_children(parts) for b in outer)


def lifted(
    roots: tuple[Expr, ...], guards: Mapping[Expr, Expr], axes: tuple[Axis, ...], name: str,
    states: tuple[Tensor, ...] = (),
) -> tuple[Expr, ...]:  # fmt: skip
    """The same of expressions that stand inside of others: `guards` tells the condition of each node in those."""
    return _Lifting(guards, axes, name, states).of(roots)


def _is_one_reduction(bodies: tuple[Expr, ...]) -> bool:
    """Whether the bodies are all components of one reduction, in order."""
    first = bodies[0]
    if not isinstance(first, Reduce) or len(bodies) != (len(first.values) if first.reducer.is_custom else 1):
        return False
    return all(b is Reduce(first.reducer, first.values, first.axes, first.where, k) for k, b in enumerate(bodies))


class _Lifting:
    """One lifting: what each node became, and the tensors made (components of one reduction share theirs)."""

    def __init__(
        self, guards: Mapping[Expr, Expr], axes: tuple[Axis, ...], name: str, states: tuple[Tensor, ...] = ()
    ) -> None:
        self.states = set(map(id, states))
        self.guards = guards
        self.axes = axes
        self.name = name
        self.new: dict[Expr, Expr] = {}
        self.made: dict[tuple[Any, ...], tuple[Compute, tuple[Expr, ...]]] = {}
        self.loops: dict[tuple[Any, ...], Axis] = {}
        self.waiting: dict[Expr, None] = {}  # reductions whose guards are being lifted

    def of(self, roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
        for node in topological(roots):
            if node in self.new:
                continue
            children = tuple(self.new[c] for c in node.children)
            same = all(a is b for a, b in zip(children, node.children, strict=True))
            rebuilt = node if same else node.with_children(children)
            self.new[node] = self._read(node, rebuilt) if self._can_leave(rebuilt) else rebuilt
        return tuple(self.new[r] for r in roots)

    def _can_leave(self, node: Expr) -> bool:
        return isinstance(node, Reduce) and not any(id(r.tensor) in self.states for r in reads_of((node,)))

    def _read(self, original: Expr, reduce: Expr) -> Expr:
        """The element of the lifted tensor that stands for `reduce`."""
        assert isinstance(reduce, Reduce)
        self.waiting[original] = None
        own = [r for r in reads_of((self.guards[original],)) if id(r.tensor) in self.states]  # known to the scan alone
        (guard,) = self.of((without(self.guards[original], {*self.waiting, *own}),))
        del self.waiting[original]
        used = set(free_axes(reduce))
        implied = _implied(guard)
        inherited = _in_bounds(_within(implied, used), implied, used)
        if len(inherited) < len(implied) and not is_defined(reduce, (*inherited, *conjuncts(reduce.where))):
            inherited += self._for_any(reduce, guard, inherited)
        inherited += self._if_any(reduce, (*inherited, *conjuncts(reduce.where)))
        where = _all((*inherited, reduce.where))
        key = (reduce.reducer, *self._by_place((*reduce.values, where), reduce.axes))
        if key not in self.made:
            self.made[key] = self._tensor(reduce, where)
        op, indices = self.made[key]
        return Read(op.output(reduce.index), indices)

    def _by_place(self, roots: tuple[Expr, ...], axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
        """The loops of a reduction by their place and range, whatever their names, and the roots in terms of those."""
        ranges = [(k, a.extent, a.begin) for k, a in enumerate(axes)]
        loops = [
            self.loops.setdefault(r, Axis(a.name, a.extent, begin=a.begin)) for r, a in zip(ranges, axes, strict=True)
        ]
        return (*loops, *substitute_all(roots, dict(zip(axes, loops, strict=True))))

    def _for_any(self, reduce: Reduce, guard: Expr, inherited: Sequence[Expr]) -> list[Expr]:
        """Whether one of the elements that read a reduction does, beside what all of them ask: a stage for data."""
        used = set(free_axes(reduce))
        lost = [c for c in _implied(guard) if c not in set(inherited)]
        gone = [a for a in free_axes(lost) if a not in used]
        found, is_all = for_any(lost, set(gone))
        known = (*inherited, *conjuncts(found), *conjuncts(reduce.where))
        if is_all or is_defined(reduce, known, checked=True):
            return conjuncts(found)
        own: dict[Expr, Axis] = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in gone}
        (some,) = substitute_all((_in_order(guard),), own)
        asking, indices = self._tensor(Reduce(BUILTIN["any"], (some,), tuple(own.values()), TRUE), TRUE)
        return [Read(asking.output(), indices)]

    def _if_any(self, reduce: Reduce, known: Sequence[Expr]) -> list[Expr]:
        """That the axes which a reduction does not use have elements, where else it would read beyond a tensor."""
        used = set(free_axes(reduce))
        extents = dict.fromkeys(a.extent for a in self.axes if a not in used and a.extent is not None)
        filled = [n >= 1 for n in extents if not isinstance(n, Const) or n.value < 1]
        if not filled or is_defined(reduce, known):
            return []
        enough = next((c for c in filled if c is FALSE or is_defined(reduce, (*known, c))), None)
        if enough is not None:
            return [enough]
        return filled if is_defined(reduce, (*known, *filled)) else []

    def _tensor(self, reduce: Reduce, where: Expr) -> tuple[Compute, tuple[Expr, ...]]:
        used = set(free_axes((*reduce.values, where))) - set(reduce.axes)
        known = set(self.axes)
        outer = [a for a in self.axes if a in used] + [
            a for a in free_axes((*reduce.values, where)) if a in used - known
        ]
        fresh = tuple(Axis(a.name, a.extent) for a in outer)
        values = substitute_all((*reduce.values, where), {a: f + a.begin for a, f in zip(outer, fresh, strict=True)})
        count = len(reduce.values) if reduce.reducer.is_custom else 1
        bodies = tuple(Reduce(reduce.reducer, values[:-1], reduce.axes, values[-1], k) for k in range(count))
        ordinal = f"{len(self.made)}" if self.made else ""
        op = Compute(name=f"{self.name}_{reduce.reducer.title}{ordinal}", axes=fresh, bodies=bodies)
        return op, tuple(a - a.begin for a in outer)


def _within(conditions: Implied, used: set[Axis]) -> list[Expr]:
    """Those over some axes, and that need no others."""
    found: dict[Expr, None] = {}
    for condition in sorted(conditions, key=lambda c: len(conditions[c])):
        if used.issuperset(free_axes(condition)) and conditions[condition] <= found.keys():
            found[condition] = None
    return list(found)


def _in_bounds(inherited: Sequence[Expr], implied: Iterable[Expr], used: set[Axis]) -> list[Expr]:
    """Conditions, and before those on data what the others say of the axes used where that keeps them in bounds.

    Of `j >= i` and `p[i + 1] > 0`, j up to n - 2, the second alone would read p[n]; for any j it is `i <= n - 2`.
    """
    lost = [c for c in implied if c not in set(inherited)]
    plain = [c for c in inherited if not reads_of((c,))]
    beyond = [c for c in inherited if reads_of((c,)) and not is_defined(c, plain, checked=True)]
    beyond = [c for c in beyond if is_defined(c, (*plain, *lost), checked=True)] if lost else []
    if not beyond:
        return list(inherited)
    found, _ = for_any(lost, {a for a in free_axes(lost) if a not in used})
    known = (*plain, *conjuncts(found))
    left_out = {c for c in beyond if not is_defined(c, known, checked=True)}
    return [*known, *(c for c in inherited if reads_of((c,)) and c not in left_out)]


def _in_order(condition: Expr) -> Expr:
    """A condition in which data are read where what stands before them in an `and` holds."""
    new: dict[Expr, Expr] = {}
    for node in topological(condition):
        children = tuple(new[c] for c in node.children)
        same = all(a is b for a, b in zip(children, node.children, strict=True))
        is_both = isinstance(node, Apply) and node.fn is Fn.AND
        new[node] = asked_inside(*children) if is_both else node if same else node.with_children(children)
    return new[condition]


def _all(conditions: Iterable[Expr]) -> Expr:
    """All of these; those that read memory are asked inside the others."""
    found: Expr = TRUE
    for condition in sorted(conditions, key=lambda c: bool(reads_of((c,)))):
        found = asked_inside(found, condition)
    return found


def without(condition: Expr, unknown: Container[Expr]) -> Expr:
    """The strongest condition that follows from `condition` and does not ask for the values of `unknown`.

    `select(select(p, r > 0, q), r, 0)` uses r where p, and where select(p, r > 0, q), which is to know r before: what
    is known of both is p | q.
    """
    # node -> (what follows from it, what it follows from), the node itself twice where it asks for nothing unknown
    bounds: dict[Expr, tuple[Expr, Expr]] = {}
    for node in topological(condition):
        free = node not in unknown and all(bounds[c][0] is c for c in node.children)
        bounds[node] = (node, node) if free else _bounds_of_truth(node, bounds)
    return bounds[condition][0]


def _bounds_of_truth(node: Expr, bounds: dict[Expr, tuple[Expr, Expr]]) -> tuple[Expr, Expr]:
    if not isinstance(node, Apply) or node.fn not in (Fn.AND, Fn.OR, Fn.NOT, Fn.SELECT) or not node.dtype.is_bool:
        return TRUE, FALSE
    above, below = zip(*(bounds[a] for a in node.args), strict=True)
    if node.fn is Fn.AND:
        return fn.logical_and(*above), fn.logical_and(*below)
    if node.fn is Fn.OR:
        return fn.logical_or(*above), fn.logical_or(*below)
    if node.fn is Fn.NOT:
        return fn.logical_not(*below), fn.logical_not(*above)
    if above[0] is below[0]:
        return fn.select_node(above[0], *above[1:]), fn.select_node(above[0], *below[1:])
    either = fn.logical_or(fn.logical_and(above[0], above[1]), fn.logical_and(fn.logical_not(below[0]), above[2]))
    both = fn.logical_or(fn.logical_and(below[0], below[1]), fn.logical_and(fn.logical_not(above[0]), below[2]))
    return either, both


Implied = dict[Expr, frozenset[Expr]]  # conditions, and those that must hold where one is asked


def _implied(condition: Expr) -> Implied:
    """What a condition asks in any case: the parts of an `and`; an `or` itself, and what both of its sides ask.

    What is asked inside of something, `select(a, b, False)`, reads memory that may be there only where that holds.
    """
    implied: dict[Expr, Implied] = {}
    stack = [condition]
    while stack:
        node = stack[-1]
        sides = _sides(node)
        waiting = [a for a in sides if a not in implied]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if not sides:
            implied[node] = {} if node is TRUE else {node: frozenset()}
            continue
        assert isinstance(node, Apply)
        one, other = (implied[a] for a in sides)
        if node.fn is Fn.OR:
            implied[node] = {**{p: one[p] | other[p] for p in one if p in other}, node: frozenset()}
        else:
            within = frozenset(one) if node.fn is Fn.SELECT else frozenset()
            inner = {p: needed | within if reads_of((p,)) else needed for p, needed in other.items() if p not in one}
            implied[node] = {**one, **inner}
    return implied[condition]


def _sides(node: Expr) -> tuple[Expr, ...]:
    if not isinstance(node, Apply):
        return ()
    if node.fn is Fn.SELECT and node.args[2] is FALSE:
        return node.args[:2]
    return node.args if node.fn in (Fn.AND, Fn.OR) else ()
