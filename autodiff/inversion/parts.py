"""The parts of one component, solved once for all components of the same structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autodiff.integers.budget import Budget, TooHard
from autodiff.integers.conditions import AnyOf, Condition, substituted
from autodiff.integers.linear import Linear, Symbol, symbol
from autodiff.integers.memory import Memory
from autodiff.inversion.cases import System, cases, pinned
from autodiff.inversion.domains import GatheredAxis, Grid, TargetIndex
from autodiff.inversion.equalities import with_equalities
from autodiff.inversion.lattice_loops import Setting
from autodiff.inversion.questions import Component, Question, Unknown
from autodiff.inversion.refine import WORTH, Part, refined, solved
from autodiff.inversion.solve import Solution

__all__ = ["cost", "free_part", "parts_of", "renamed"]

_known: Memory[tuple[Question, bool, float], list[Part] | TooHard] = Memory()


def parts_of(question: Question, setting: Setting, compact: bool) -> list[Part]:
    """The parts of a component that is a question of its own, refined if `compact`; kept, failures too.

    Each has the steps of the setting for itself: what is remembered must not depend on what was asked before.
    """
    key = question, compact, setting.budget.steps
    found = _known.get(key)
    if found is None:
        own = setting.within(Budget(setting.budget.steps, setting.budget.deadline))
        try:
            found = _refined(question, own) if compact else _plain(question, own)
        except TooHard as reason:
            found = reason
        if own.budget.overdue:
            setting.budget.overdue = True
        else:
            _known.put(key, found)
    if isinstance(found, TooHard):
        raise TooHard(str(found))
    return found


def _plain(question: Question, setting: Setting) -> list[Part]:
    grid = Grid.whole(dict(enumerate(question.shape)))
    found = (solved(s, grid, setting) for s in _cases(_system(question), grid, setting))
    return [p for p in found if p is not None]


def _cases(system: System, grid: Grid, setting: Setting, split_alternatives: bool = False) -> list[System]:
    """The linear systems of a question, with all the equations that they imply."""
    found = cases(system, setting.budget, split_alternatives)
    return [with_equalities(s, grid, setting.facts) for s in found]


def _refined(question: Question, setting: Setting) -> list[Part]:
    """The cheapest way to cut the component into parts."""
    grid = Grid.whole(dict(enumerate(question.shape)))
    system = _system(question)
    best = [p for s in _cases(system, grid, setting) for p in refined(s, grid, setting)]
    for variant in _variants(system, grid, setting):
        try:
            parts = [p for s in variant() for p in refined(s, grid, setting)]
        except TooHard:
            continue
        if cost(parts) <= WORTH * cost(best):
            best = parts
    return best


def free_part(question: Question, setting: Setting) -> list[Part]:
    """The component without its rows: plain loops, conditions as guards."""
    system = _system(replace(question, rows=(), shape=(), conditions=()))
    part = solved(replace(system, residual=question.conditions), Grid.whole({}), setting)
    return [] if part is None else [part]


def cost(parts: Sequence[Part]) -> int:
    return sum(p.cost for p in parts)


def _system(question: Question) -> System:
    names = tuple(map(Unknown, range(len(question.boxes))))
    ranges = tuple((v, (b, b + n - 1)) for v, (b, n) in zip(names, question.boxes, strict=True))
    inside = tuple(e for v, (low, high) in ranges for e in (symbol(v) - low, high - symbol(v)))
    equations = tuple(row - symbol(TargetIndex(j)) for j, row in enumerate(question.rows) if row is not None)
    return System(names, len(names), equations, inside, (), ranges).with_conditions(question.conditions)


def _variants(system: System, grid: Grid, setting: Setting) -> list[Callable[[], list[System]]]:
    """Other ways to cut a system: alternatives of a residual `or`, values of a quotient that has few."""

    def by_quotient() -> list[System]:
        return [p for s in _cases(system, grid, setting) for p in (pinned(s, setting.budget) or [s])]

    variants: list[Callable[[], list[System]]] = []
    if any(isinstance(c, AnyOf) for c in system.residual):
        variants.append(lambda: _cases(system, grid, setting, split_alternatives=True))
    if any(True for e in system.forms() for _ in e.atoms()):
        variants.append(by_quotient)
    return variants


def renamed(part: Part, c: Component) -> Part:
    """The part of a component with its variables and rows numbered as in the whole question."""
    unknowns = {Unknown(k): Unknown(i) for k, i in enumerate(c.variables)}
    axes = {GatheredAxis(k): GatheredAxis(j) for k, j in enumerate(c.rows)}
    targets = {TargetIndex(k): TargetIndex(j) for k, j in enumerate(c.rows)}
    everything: dict[Symbol, Linear] = {old: symbol(new) for m in (unknowns, axes, targets) for old, new in m.items()}

    def rule(e: Linear) -> Linear:
        return e.substituted(everything)

    grid, solution = part.grid, part.solution
    return Part(
        Grid(
            tuple((axes[a], n) for a, n in grid.axes),
            tuple((targets[s], rule(e)) for s, e in grid.place),
            tuple((axes[a], rule(e)) for a, e in grid.index),
            _all(grid.member, everything),
        ),
        Solution(
            solution.loops,
            tuple((_global(v, unknowns), rule(e)) for v, e in solution.values),
            _all(solution.guards, everything),
        ),
    )


def _global(v: Symbol, unknowns: Mapping[Unknown, Unknown]) -> Symbol:
    assert isinstance(v, Unknown), f"the variables of a component are numbered, found {v}"
    return unknowns[v]


def _all(conditions: Sequence[Condition], values: Mapping[Symbol, Linear]) -> tuple[Condition, ...]:
    return tuple(substituted(c, values) for c in conditions)
