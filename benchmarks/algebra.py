"""What index inversion asks of algebra, and what sympy takes for it: the table in the README of `autodiff`.

    python -m benchmarks.algebra

The questions are those of the gradients of the residual network of 50 layers, of an image resized, shuffled, and cut
into patches: recorded, then put to sympy with nothing remembered, and to our own code. Times are the process's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from unittest import mock

import sympy
from sympy.polys.matrices import DomainMatrix, normalforms
from sympy.solvers.simplex import InfeasibleLPError, UnboundedLPError, linprog, lpmin

import tedsl as te
from autodiff.integers import algebra, linear, simplex
from benchmarks.differentiation import warm
from benchmarks.programs import network
from tedsl import ops

__all__ = ["Record", "by_linprog", "by_lpmin", "recorded"]

Answer = Fraction | str | None
Rows = tuple[tuple[int, ...], ...]


@dataclass
class Record:
    """The arguments with which each step was called, in order, and how many linear forms were made."""

    calls: dict[str, list[tuple[Hashable, ...]]] = field(default_factory=dict)
    forms: int = 0

    def taking(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        found = self.calls.setdefault(name, [])

        def told(*arguments: Any) -> Any:
            found.append(tuple(map(_frozen, arguments)))
            return work(*arguments)

        return told

    def counting(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.forms += 1
            return work(*arguments)

        return counted


def recorded(work: Callable[[], object]) -> Record:
    """What `work` asks."""
    record = Record()
    with ExitStack() as stack:
        for module, name in ((algebra, "_diagonalized"), (algebra, "_triangular"), (simplex, "minimum")):
            stack.enter_context(mock.patch.object(module, name, record.taking(name, getattr(module, name))))
        stack.enter_context(mock.patch.object(linear, "_owning", record.counting(linear._owning)))
        work()
    return record


def by_lpmin(goal: Sequence[int], facts: Sequence[Sequence[int]]) -> Answer:
    """The least value of goal where every fact is >= 0, asked in sympy's expressions."""
    symbols = sympy.symbols(f"x:{len(goal) - 1}")

    def form(row: Sequence[int]) -> Any:
        return sympy.Add(*(c * x for c, x in zip(row, symbols)), row[-1])

    return _answer(lambda: lpmin(form(goal), [form(f) >= 0 for f in facts])[0])


def by_linprog(goal: Sequence[int], facts: Sequence[Sequence[int]]) -> Answer:
    """The same asked in matrices, of one variable and more.

    Each variable is a difference of two: `linprog` of 1.14 keeps them from being negative whatever `bounds` say.
    """
    if len(goal) == 1 or not facts:
        return by_lpmin(goal, facts)
    costs = [*goal[:-1], *(-c for c in goal[:-1])]
    rows = [[*(-c for c in f[:-1]), *f[:-1]] for f in facts]
    return _answer(lambda: linprog(costs, rows, [f[-1] for f in facts])[0] + goal[-1])


def smith_form(a: Rows, columns: int) -> object:
    """The form and what leads to it, by sympy."""
    return normalforms.smith_normal_decomp(DomainMatrix([list(row) for row in a], (len(a), columns), sympy.ZZ))


def hermite_form(basis: Rows, order: tuple[int, ...]) -> object:
    """The triangular basis turned round, by sympy."""
    others = [i for i in range(len(basis)) if i not in order]
    rows = [list(basis[i]) for i in (*others, *reversed(order))]
    return normalforms.hermite_normal_form(DomainMatrix(rows, (len(rows), len(order)), sympy.ZZ))


BY_SYMPY: dict[str, Callable[..., object]] = {"_diagonalized": smith_form, "_triangular": hermite_form}


def _answer(work: Callable[[], Any]) -> Answer:
    try:
        found = work()
    except InfeasibleLPError:
        return simplex.INFEASIBLE
    except UnboundedLPError:
        return None
    return Fraction(int(found.p), int(found.q))


def _frozen(argument: Any) -> Hashable:
    if callable(argument):
        return None
    return tuple(map(_frozen, argument)) if isinstance(argument, list | tuple) else argument


def _minimum(goal: Sequence[int], facts: Rows, _: object = None) -> Answer:
    return simplex.minimum(list(goal), [list(f) for f in facts], lambda numbers: None)


def microseconds(work: Callable[..., object], questions: Sequence[tuple[Any, ...]], least: float = 0.2) -> float:
    """Of one question, on average, each asked as often as the others."""
    rounds, start = 0, time.process_time()
    while (spent := time.process_time() - start) < least or not rounds:
        for question in questions:
            work(*question)
        rounds += 1
    return 1e6 * spent / rounds / len(questions)


def main() -> None:
    warm()
    _, loss, parameters = network(50)
    x = te.placeholder((2, 4, 16, 16), name="x")
    moved = [ops.interpolate(x, scale_factor=2, mode="bilinear"), ops.pixel_shuffle(x, 2), ops.unfold(x, 3)]
    record = recorded(lambda: [te.differentiate(y.sum(), x) for y in moved] + [te.differentiate(loss, parameters)])
    print("| step | calls | different | sympy, us each | our own, us each |\n|---|---|---|---|---|")
    for name in ("_diagonalized", "_triangular"):
        asked = list(dict.fromkeys(record.calls[name]))
        each, own = microseconds(BY_SYMPY[name], asked), microseconds(getattr(algebra, name).__wrapped__, asked)
        print(f"| {name[1:]} | {len(record.calls[name])} | {len(asked)} | {each:.0f} | {own:.0f} |")
    asked = list(dict.fromkeys(record.calls["minimum"]))
    own = microseconds(_minimum, asked)
    for theirs in (by_linprog, by_lpmin):
        each = microseconds(theirs, [question[:2] for question in asked])
        calls = len(record.calls["minimum"])
        print(f"| minimum, {theirs.__name__} | {calls} | {len(asked)} | {each:.0f} | {own:.0f} |")
    own, each = microseconds(_substituted_form, NUMBERS), microseconds(_substituted_expression, NUMBERS)
    print(f"| sums of forms, substituted | {record.forms} made | | {each:.0f} | {own:.0f} |")


NUMBERS = [(a, b, c) for a in range(1, 8) for b in range(-9, 9) for c in range(9)]


def _substituted_form(a: int, b: int, c: int) -> object:
    """a x + b y + c, less x, with 4 t + y for x."""
    x, y, t = (linear.symbol(s) for s in "xyt")
    return (x * a + y * b + c - x).substituted({"x": t * 4 + y})


def _substituted_expression(a: int, b: int, c: int) -> object:
    x, y, t = sympy.symbols("x y t", integer=True)
    return sympy.expand((x * a + y * b + c - x).xreplace({x: t * 4 + y}))


if __name__ == "__main__":
    main()
