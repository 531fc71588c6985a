"""The condition under which each node of an expression graph is used.

`select` guards its branches, `where=` the values of a reduction. A node of several users is used where one of them is:
its condition is an `or` of cases, each an `and` of what was asked on the way to it. Cases are compared as sets, and a
condition is written once for all nodes below it, so that chains of hundreds of choices stay quick. Where a
chain asks whether a number is this or that one, as the steps of scans do, a case says which it is, not what it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tedsl.lang.expr import FALSE, TRUE, Apply, Const, Expr, Fn, Reduce
from tedsl.lang.traverse import conjuncts, reads_of, topological

__all__ = ["guards_of"]

# Beyond so many cases an `or` is one condition among others: comparing them all would be quadratic.
MOST_CASES = 12


def guards_of(roots: Expr | Iterable[Expr], conditions: Iterable[Expr] | None = None) -> dict[Expr, Expr]:
    """The condition under which the value of each node below the roots is used: `select` guards its branches, `where`
    its values. A root is used where its own condition holds, always without one.
    """
    roots = (roots,) if isinstance(roots, Expr) else tuple(roots)
    cases = _Cases()
    reach: dict[Expr, Alternatives] = {}

    def use(node: Expr, here: Alternatives) -> None:
        known = reach.get(node)
        reach[node] = here if known is None or known is here else cases.either(known, here)

    for root, condition in zip(roots, conditions or (TRUE,) * len(roots), strict=True):
        use(root, (cases.within(cases.always, condition),))
    for node in reversed(topological(roots)):
        here = reach[node]
        if isinstance(node, Apply) and node.fn is Fn.SELECT:
            cond, taken, other = node.args
            use(cond, here)
            use(taken, cases.inside(here, cond))
            use(other, cases.inside(here, Expr._apply(Fn.NOT, cond)))
        elif isinstance(node, Reduce):
            use(node.where, here)
            within = cases.inside(here, node.where)
            for value in node.values:
                use(value, within)
        else:
            for child in node.children:
                use(child, here)
    return {node: cases.written(here) for node, here in reach.items()}


class _Case:
    """A conjunction: what it is as an expression, the set of its parts, and the case and the question it came of."""

    __slots__ = ("asked", "expr", "outer", "parts", "those")

    def __init__(self, expr: Expr, parts: frozenset[Expr], outer: _Case | None = None, asked: Expr = TRUE) -> None:
        self.expr = expr
        self.parts = parts
        self.outer = outer
        self.asked = asked
        self.those: frozenset[_Case] = frozenset()  # of which it is the `or`


Alternatives = tuple[_Case, ...]


class _Cases:
    """The cases met in one graph, each made once."""

    def __init__(self) -> None:
        self.always = _Case(TRUE, frozenset())
        self._within: dict[tuple[_Case, Expr], _Case] = {}
        self._inside: dict[tuple[Alternatives, Expr], Alternatives] = {}
        self._joined: dict[Alternatives, _Case] = {}
        self._either: dict[tuple[Alternatives, Alternatives], Alternatives] = {}

    def within(self, case: _Case, condition: Expr) -> _Case:
        """The case in which a condition holds besides."""
        key = case, condition
        made = self._within.get(key)
        if made is None:
            left = self._without_idle(case, condition)
            expr: Expr = Expr._apply(Fn.AND, left.expr, condition)
            made = case if expr is case.expr else _Case(expr, left.parts.union(conjuncts(condition)), case, condition)
            self._within[key] = made
        return made

    def _without_idle(self, case: _Case, condition: Expr) -> _Case:
        """A case without the parts that hold where a condition does: of a number that is one, that it is no other."""
        numbers = _numbers(condition)
        if not numbers or not any(_is_idle(p, numbers) for p in case.parts) or reads_of(case.parts):
            return case  # what is read may be there only where all parts before it hold
        return self._all(p for p in conjuncts(case.expr) if not _is_idle(p, numbers))

    def inside(self, here: Alternatives, condition: Expr) -> Alternatives:
        """The same for alternatives, which are one condition then."""
        key = here, condition
        if key not in self._inside:
            self._inside[key] = (self.within(self._one(here), condition),)
        return self._inside[key]

    def written(self, here: Alternatives) -> Expr:
        """The condition as an expression."""
        return self._one(here).expr

    def _one(self, here: Alternatives) -> _Case:
        if len(here) == 1:
            return here[0]
        if here not in self._joined:
            expr: Expr = FALSE
            for case in here:
                expr = Expr._apply(Fn.OR, expr, case.expr)
            made = self._joined[here] = _Case(expr, frozenset((expr,)))
            made.those = frozenset(here)
        return self._joined[here]

    def either(self, a: Alternatives, b: Alternatives) -> Alternatives:
        """a | b; of two cases of which one implies the other the weaker stays, `c & x | c & ~x` is `c`."""
        key = a, b
        if key not in self._either:
            self._either[key] = self._united(a, b)
        return self._either[key]

    def _united(self, a: Alternatives, b: Alternatives) -> Alternatives:
        kept = list(a)
        for added in b:
            case = added
            while True:
                found = next(((k, m) for k in kept if (m := self._merged(k, case)) is not None), None)
                if found is None:
                    break
                other, case = found
                kept = [k for k in kept if k is not other]
            kept.append(case)
        return tuple(kept) if len(kept) <= MOST_CASES else (self._one(tuple(kept)),)

    def _merged(self, a: _Case, b: _Case) -> _Case | None:
        """The one case that two are, if they are."""
        if a is b or a.expr is TRUE or b.expr is FALSE or b in a.those:
            return a
        if a.outer is not None and a.outer is b.outer and _opposite(a.asked, b.asked):
            return a.outer
        if a.parts <= b.parts:
            return a
        if b.parts <= a.parts:
            return b
        if len(a.parts) == len(b.parts):
            only_a, only_b = a.parts - b.parts, b.parts - a.parts
            if len(only_a) == 1 and _opposite(*only_a, *only_b):
                return self._all(p for p in conjuncts(a.expr) if p not in only_a)
        return None

    def _all(self, parts: Iterable[Expr]) -> _Case:
        case = self.always
        for part in parts:
            case = self.within(case, part)
        return case


def _numbers(condition: Expr) -> dict[Expr, Expr]:
    """What a condition says to be which number."""
    return dict(found for part in conjuncts(condition) if (found := _equation(part)) is not None)


def _equation(part: Expr) -> tuple[Expr, Expr] | None:
    if isinstance(part, Apply) and part.fn is Fn.EQ and part.args[0].dtype.is_integer:
        return part.args if isinstance(part.args[1], Const) else None  # type: ignore[return-value]
    return None


def _is_idle(part: Expr, numbers: Mapping[Expr, Expr]) -> bool:
    """Whether a part is that not all of some conditions hold, one of which is that a number is another one."""
    if not isinstance(part, Apply) or part.fn is not Fn.NOT:
        return False
    asked = _numbers(part.args[0])
    return any(numbers.get(e, n) is not n for e, n in asked.items())


def _opposite(a: Expr, b: Expr) -> bool:
    return any(isinstance(x, Apply) and x.fn is Fn.NOT and x.args[0] is y for x, y in ((a, b), (b, a)))
