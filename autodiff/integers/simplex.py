"""The exact minimum of a linear form over linear inequalities.

Guards are dropped, and loop widths chosen, only on proof. Farkas' lemma makes the proof a small linear program over the
multipliers of the known facts; it is solved by the simplex method with integer rows (each scaled freely, so no fraction
is ever formed) and Bland's rule, which cannot cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import gcd

__all__ = ["INFEASIBLE", "minimum"]

Row = list[int]
INFEASIBLE = "infeasible"


def minimum(goal: Row, facts: Sequence[Row], spend: Callable[[int], None]) -> Fraction | str | None:
    """The least value of goal over {x : every fact >= 0}; None when unbounded below (or not provable).

    Rows hold the coefficients of x and, last, the constant. `INFEASIBLE` when the facts contradict each other. `spend`
    is told the numbers worked on, and may raise to put an end to it.

    >>> minimum([1, 1, 0], [[1, 0, -2], [0, 2, -1]], lambda numbers: None)    # x >= 2, 2 y >= 1
    Fraction(5, 2)
    """
    width = len(goal) - 1
    spend(len(goal) * (len(facts) + 1))
    tableau = [[f[s] for f in facts] + [goal[s]] for s in range(width)]
    tableau = [row if row[-1] >= 0 else [-e for e in row] for row in tableau]
    basis = [-1] * width
    merit = [sum(column) for column in zip(*tableau, strict=True)] if tableau else [0] * (len(facts) + 1)
    improved = _improve(tableau, basis, merit, spend)
    if not improved or any(b < 0 and row[-1] for b, row in zip(basis, tableau, strict=True)):
        return None
    _drop_artificial(tableau, basis)
    costs = [-f[-1] for f in facts]
    merit = [*costs, 0]
    for row, b in zip(tableau, basis, strict=True):
        merit = _eliminated(merit, row, b)
    if not _improve(tableau, basis, merit, spend):
        return INFEASIBLE
    return goal[-1] + sum(
        (Fraction(costs[b] * row[-1], row[b]) for row, b in zip(tableau, basis, strict=True)), Fraction(0)
    )


def _improve(tableau: list[Row], basis: list[int], merit: Row, spend: Callable[[int], None]) -> bool:
    """Pivot until no column improves; False when the objective is unbounded. Artificial basics are numbered -1."""
    while True:
        column = next((j for j, m in enumerate(merit[:-1]) if m > 0), None)
        if column is None:
            return True
        spend(len(tableau) * len(merit))
        best: tuple[int, int, int] | None = None
        for i, row in enumerate(tableau):
            if row[column] > 0 and (
                best is None
                or row[-1] * best[1] < best[0] * row[column]
                or (row[-1] * best[1] == best[0] * row[column] and basis[i] < basis[best[2]])
            ):
                best = (row[-1], row[column], i)
        if best is None:
            return False
        _pivot(tableau, basis, best[2], column)
        merit[:] = _eliminated(merit, tableau[best[2]], column)


def _pivot(tableau: list[Row], basis: list[int], r: int, column: int) -> None:
    if tableau[r][column] < 0:
        tableau[r] = [-e for e in tableau[r]]
    for i, row in enumerate(tableau):
        if i != r:
            tableau[i] = _eliminated(row, tableau[r], column)
    basis[r] = column


def _eliminated(row: Row, pivot_row: Row, column: int) -> Row:
    """`row` times a positive number, minus the multiple of the pivot row that clears `column`."""
    a, p = row[column], pivot_row[column]
    if a == 0:
        return row
    new = [e * p - a * f for e, f in zip(row, pivot_row, strict=True)]
    g = gcd(*new)
    return [e // g for e in new] if g > 1 else new


def _drop_artificial(tableau: list[Row], basis: list[int]) -> None:
    """Artificial variables left in the basis stand at zero: exchange them, or drop their empty rows."""
    for i in reversed(range(len(tableau))):
        if basis[i] >= 0:
            continue
        column = next((j for j, e in enumerate(tableau[i][:-1]) if e), None)
        if column is None:
            del tableau[i], basis[i]
        else:
            _pivot(tableau, basis, i, column)
