"""Which points of the domain reach an element: index inversion, from the read's index map to gathers.

Rows that share no variable are independent, so each connected component is solved by itself (a convolution's x and y
never meet) and the gathers are the products of the components' parts. Answers depend on the structure of the question
only, not on names, and are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from autodiff.integers.budget import STEPS, Budget, TooHard
from autodiff.integers.conditions import Condition, conjuncts, forms, normal, substituted
from autodiff.integers.linear import Linear, Symbol, linear, symbol
from autodiff.integers.memory import Memory
from autodiff.integers.polyhedra import KnownInequalities
from autodiff.inversion.digits import burden, digits_of, is_least
from autodiff.inversion.domains import ON_DATA, Gather, GatheredAxis, GatherLoop, Inversion, TargetIndex, Variable
from autodiff.inversion.lattice_loops import Setting, nominal
from autodiff.inversion.parts import cost, free_part, parts_of, renamed
from autodiff.inversion.questions import (
    Component,
    Numbering,
    Parameter,
    Question,
    Unknown,
    components,
    localized,
    unknowns_of,
)
from autodiff.inversion.refine import WORTH, Part

__all__ = ["invert"]

MAX_GATHERS = 64
SPARSE = 4
"""Gathers without loops are evaluated on the whole target, unless that has this many times more elements."""


def invert(
    variables: Sequence[Variable],
    rows: Sequence[Linear | int | None],
    shape: Sequence[Linear | int],
    conditions: Sequence[Condition] = (),
    *,
    known: Sequence[Linear] = (),
    compact: bool = True,
    steps: int = STEPS,
) -> Inversion:
    """The points z of the box `variables` where `conditions` hold and rows(z) = s, for every s in `shape`.

    `known` are forms in the parameters that are never negative; every parameter is at least 0, every extent of the
    shape at least 1 where there is anything to compute. `compact` allows gathers into smaller tensors; without it every
    gather is direct.

    A row that is None, or holds an `OpaqueIndex`, or takes more than `steps` (`integers.budget`), is listed as opaque
    and left out of the equations.

    >>> x, r = symbol("x"), symbol("r")
    >>> print(invert([Variable("x", 8), Variable("r", 3)], [x + r], [10]))
    sum t0 in [0, 3)
    z = (q0 - t0, t0)
    if q0 - t0 >= 0
    if -q0 + t0 + 7 >= 0
    """
    names = Numbering([v.symbol for v in variables])
    question = Question(
        tuple((names.form(linear(v.begin)), names.form(linear(v.extent))) for v in variables),
        tuple(None if row is None else names.row(linear(row)) for row in rows),
        tuple(names.form(linear(n)) for n in shape),
        tuple(names.condition(normal(c)) for outer in conditions for c in conjuncts(outer)),
        tuple(map(names.form, known)),
        compact,
    )
    answer = _best(question, steps)
    back: dict[Symbol, Linear] = {p: symbol(s) for s, p in names.parameters.items()}
    if not back and not names.opaque:
        return answer
    gathers = (g.substituted(back) for g in answer.gathers)
    return replace(answer, gathers=tuple(_with_guards(g, names.restored) for g in gathers))


def _with_guards(g: Gather, rule: Callable[[Condition], Condition]) -> Gather:
    return replace(g, guards=tuple(map(rule, g.guards)))


def _best(question: Question, steps: int) -> Inversion:
    """The answer, by the digits of variables where that is less to do."""
    digits = digits_of(question)
    if digits is None:
        return _remembered(question, steps)
    found = digits.joined(_remembered(digits.question, steps))
    return found if is_least(found) else min(_remembered(question, steps), found, key=burden)


_answers: Memory[tuple[Question, int], Inversion] = Memory()


def _remembered(question: Question, steps: int) -> Inversion:
    answer = _answers.get((question, steps))
    if answer is None:
        budget = Budget(steps)
        answer = _Inverter(question, budget).answer()
        if not budget.overdue:
            _answers.put((question, steps), answer)
    return answer


class _Inverter:
    def __init__(self, question: Question, budget: Budget) -> None:
        self.question = question
        everything = [e for box in question.boxes for e in box] + list(question.shape)
        everything += [e for e in question.rows if e is not None]
        everything += [e for c in question.conditions for e in forms(c)] + list(question.known)
        parameters = frozenset(s for e in everything for s in e.leaves() if isinstance(s, Parameter))
        sizes = [n - 1 for n in question.shape if not n.is_constant]
        self.setting = Setting(KnownInequalities({}, [*question.known, *sizes], budget), parameters)
        self.opaque: list[int] = [j for j, row in enumerate(question.rows) if row is None]
        self.reasons: list[str] = [ON_DATA] if self.opaque else []

    def answer(self) -> Inversion:
        found = [self._plain(c) for c in components(self.question)]
        loops = prod(max((p.solution.width for p in parts), default=0) for _, parts in found)
        if self.question.compact and loops > 1:
            found = self._compacted(found)
        if prod(len(parts) for _, parts in found) > MAX_GATHERS:
            found = [(c, parts) if len(parts) == 1 else self._surrendered(c) for c, parts in found]
        checks = tuple(c for c in self.question.conditions if not unknowns_of(c))
        named = [[renamed(p, c) for p in parts] for c, parts in found]
        gathers = [self._gather(parts, checks) for parts in product(*named)]
        reason = "; ".join(dict.fromkeys(self.reasons)) or None
        return Inversion(tuple(gathers), tuple(sorted(self.opaque)), reason)

    def _plain(self, c: Component) -> tuple[Component, list[Part]]:
        """The parts of a component; rows that are too hard become opaque."""
        try:
            return c, parts_of(localized(self.question, c), self.setting, False)
        except TooHard as reason:
            return self._surrendered(c, str(reason))

    def _surrendered(
        self, c: Component, reason: str = f"more than {MAX_GATHERS} gathers"
    ) -> tuple[Component, list[Part]]:
        """The component with its rows left as they are."""
        self.opaque += c.rows
        self.reasons += [reason] if c.rows else []
        free = replace(c, rows=())
        return free, free_part(localized(self.question, free), self.setting.within(Budget.unlimited()))

    def _compacted(self, found: list[tuple[Component, list[Part]]]) -> list[tuple[Component, list[Part]]]:
        """Components refined, those that gain most first, while the gathers stay few."""
        candidates = []
        for i, (c, parts) in enumerate(found):
            if not any(p.solution.guards for p in parts):
                continue
            try:
                compact = parts_of(localized(self.question, c), self.setting, True)
            except TooHard:
                continue
            if cost(compact) <= WORTH * cost(parts):
                candidates.append((cost(compact) / max(1, cost(parts)), i, compact))
        result = list(found)
        for _, i, compact in sorted(candidates, key=lambda k: k[:2]):
            others = prod(len(parts) for j, (_, parts) in enumerate(result) if j != i)
            if others * len(compact) <= max(MAX_GATHERS // 2, others):
                result[i] = (result[i][0], compact)
        return result

    def _gather(self, parts: Sequence[Part], checks: tuple[Condition, ...]) -> Gather:
        """The product of one part per component."""
        values: dict[Symbol, Linear] = {}
        loops: list[tuple[GatherLoop, Linear]] = []
        guards: list[Condition] = list(checks)
        for p in parts:
            renumbered: dict[Symbol, Linear] = {}
            for t, n in p.solution.loops:
                loop = GatherLoop(len(loops))
                renumbered[t] = symbol(loop)
                loops.append((loop, n))
            values |= {v: e.substituted(renumbered) for v, e in p.solution.values}
            guards += [substituted(c, renumbered) for c in p.solution.guards]
        axes = sorted(((a, n) for p in parts for a, n in p.grid.axes), key=lambda item: item[0].position)
        index = {a: e for p in parts for a, e in p.grid.index}
        gather = Gather(
            tuple(axes),
            tuple(index[a] for a, _ in axes),
            tuple(sorted(((s, e) for p in parts for s, e in p.grid.place), key=lambda item: item[0].position)),
            tuple(c for p in parts for c in p.grid.member),
            tuple(loops),
            tuple(values[Unknown(i)] for i in range(len(self.question.boxes))),
            tuple(dict.fromkeys(guards)),
        )
        if gather.direct or loops:
            return gather
        whole = prod(nominal(n) for n in self.question.shape)
        return self._spread(gather) if whole <= SPARSE * prod(nominal(n) for _, n in axes) else gather

    def _spread(self, g: Gather) -> Gather:
        """A gather without loops, on the whole target: its membership becomes a guard."""
        position = {TargetIndex(j): symbol(GatheredAxis(j)) for j in range(len(self.question.shape))}
        read = {a: e.substituted(position) for (a, _), e in zip(g.axes, g.index, strict=True)}
        inverted = [j for j in range(len(self.question.shape)) if j not in self.opaque]
        member = (substituted(c, position) for c in g.member)
        return Gather(
            tuple((GatheredAxis(j), self.question.shape[j]) for j in inverted),
            tuple(symbol(TargetIndex(j)) for j in inverted),
            tuple((TargetIndex(j), symbol(GatheredAxis(j))) for j in inverted),
            (),
            (),
            tuple(e.substituted(read) for e in g.solution),
            (*member, *(substituted(c, read) for c in g.guards)),
        )
