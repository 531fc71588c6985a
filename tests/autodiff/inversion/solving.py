"""Index maps solved by sympy alone: its relations and its normal forms. Nothing in it is ours.

For one element and given sizes: relations are cut until each is linear, a Smith form solves the equations, and a
Hermite form brings the lattice of solutions into the order of the unknowns, of which each is bounded by those before
it: the domain by numbers, the value of a floor by the domain. No linear program is asked for: those of sympy 1.14 call
some systems empty that are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
from sympy import ZZ, Abs, And, Dummy, Eq, Max, Min, Mod, Ne, Not, Or, Piecewise, ceiling, floor
from sympy.polys.matrices import DomainMatrix
from sympy.polys.matrices.normalforms import hermite_normal_form, smith_normal_decomp

from tests.autodiff.inversion.questions import IndexQuestion

Point = tuple[int, ...]
CUT = (Min, Max, Abs, Piecewise, floor, ceiling, Mod)
MOST_CASES = 2_000  # some seconds; an exclusive or of choices has many times as many


class TooManyCases(Exception):
    """The relations fall into more linear cases than are worth solving one by one."""


def points(question: IndexQuestion, element: Sequence[int], sizes: Mapping[Any, int]) -> set[Point]:
    """The points of the domain that reach the element."""
    domain = {z: [sympy.sympify(e).subs(sizes) for e in pair] for z, pair in question.domain.items()}
    pending = [c for z, (begin, extent) in domain.items() for c in (z >= begin, z < begin + extent)]
    pending += [sympy.sympify(c).subs(sizes) for c in question.where]
    pending += [Eq(sympy.sympify(row).subs(sizes), s) for row, s in zip(question.index, element, strict=True)]
    if any(c.has(sympy.nan, sympy.zoo) for c in pending):
        raise ZeroDivisionError("the map divides by a size that is 0")
    found: set[Point] = set()
    for number, (equations, inequalities) in enumerate(linear_cases(pending)):
        if number == MOST_CASES:
            raise TooManyCases
        found |= set(_solutions(equations, inequalities, tuple(domain)))
    return found


def linear_cases(pending: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """(forms that are 0, forms that are at least 0) of each case; a point may be in several."""
    cases = [(pending, [], [])]
    while cases:
        pending, equations, inequalities = cases.pop()
        if not pending:
            yield equations, inequalities
            continue
        first, rest = pending[0], pending[1:]
        if first == sympy.true or first == sympy.false:
            cases += [(rest, equations, inequalities)] if first == sympy.true else []
        elif isinstance(first, And):
            cases.append(([*first.args, *rest], equations, inequalities))
        elif isinstance(first, Or | Ne):
            either = first.args if isinstance(first, Or) else (first.lhs < first.rhs, first.lhs > first.rhs)
            cases += [([c, *rest], equations, inequalities) for c in either]
        elif not first.is_Relational:
            cases.append(([sympy.to_nnf(first, simplify=False), *rest], equations, inequalities))
        elif first.has(*CUT):
            cases += [([*branch, *rest], equations, inequalities) for branch in _branches(first)]
        elif isinstance(first, Eq):
            cases.append((rest, [*equations, _whole(first.lhs - first.rhs)], inequalities))
        else:
            strict = int(first.rel_op in "<>")
            form = _whole(first.gts - first.lts) - strict
            cases.append((rest, equations, [*inequalities, form]))


def _branches(relation: Any) -> Iterator[tuple[Any, ...]]:
    """The relation without one of its innermost minima, floors and so on, beside what makes that so."""
    e = next(
        e for e in sympy.preorder_traversal(relation) if isinstance(e, CUT) and not any(a.has(*CUT) for a in e.args)
    )
    for value, *conditions in _values(e):
        yield relation.xreplace({e: value}), *conditions


def _values(e: Any) -> Iterator[tuple[Any, ...]]:
    """(value, conditions) of one function in each of its cases."""
    if isinstance(e, Min | Max):
        for a in e.args:
            yield a, *((a <= b if isinstance(e, Min) else a >= b) for b in e.args if b != a)
    elif isinstance(e, Abs):
        yield e.args[0], e.args[0] >= 0
        yield -e.args[0], e.args[0] < 0
    elif isinstance(e, Piecewise):
        for k, (value, condition) in enumerate(e.args):
            yield value, *(Not(c) for _, c in e.args[:k]), condition
    else:
        d = Dummy(integer=True)
        if isinstance(e, Mod):
            x, c = e.args
            yield (x - c * d, x - c * d >= 0, x - c * d < c) if c > 0 else (x - c * d, x - c * d <= 0, x - c * d > c)
        else:
            x, c = sympy.fraction(sympy.together(e.args[0]))
            yield (d, c * d <= x, x < c * (d + 1)) if isinstance(e, floor) else (d, c * d >= x, x > c * (d - 1))


def _whole(form: Any) -> Any:
    return sympy.expand(sympy.fraction(sympy.together(form))[0])


def _solutions(equations: list[Any], inequalities: list[Any], domain: tuple[Any, ...]) -> Iterator[Point]:
    """The integer points of a linear system, all of whose unknowns it bounds."""
    others = {s for e in (*equations, *inequalities) for s in e.free_symbols} - set(domain)
    unknowns = [*domain, *sorted(others, key=lambda d: d.dummy_index)]
    matrix, right = sympy.linear_eq_to_matrix(equations, unknowns) if equations else (None, None)
    if matrix is None:
        start, lattice = sympy.zeros(len(unknowns), 1), sympy.eye(len(unknowns))
    else:
        d, u, v = (m.to_Matrix() for m in smith_normal_decomp(DomainMatrix.from_Matrix(matrix).convert_to(ZZ)))
        rank = sum(d[i, i] != 0 for i in range(min(d.shape)))
        told = u * right
        if any(told[rank:, 0]) or any(told[i] % d[i, i] for i in range(rank)):
            return
        y = sympy.Matrix([told[i] / d[i, i] for i in range(rank)])
        start, lattice = v[:, :rank] * y if rank else sympy.zeros(len(unknowns), 1), v[:, rank:]
    lattice = _triangular(lattice)
    zero = dict.fromkeys(unknowns, 0)
    bounds = []
    for e in inequalities:
        row = sympy.Matrix([[e.coeff(z) for z in unknowns]])
        bounds.append(([int(c) for c in row * lattice], int(e.subs(zero) + (row * start)[0])))
    for t in _lattice_points(bounds, lattice.shape[1]):
        z = start + lattice * sympy.Matrix(lattice.shape[1], 1, t)
        yield tuple(int(e) for e in z[: len(domain)])


def _triangular(lattice: Any) -> Any:
    """The columns so that each has its first entry below that of the one before; sympy begins with the last row."""
    if not lattice.shape[1]:
        return lattice
    turned = DomainMatrix.from_Matrix(lattice[::-1, :]).convert_to(ZZ)
    return hermite_normal_form(turned).to_Matrix()[::-1, ::-1]


def _lattice_points(bounds: Iterable[tuple[list[int], int]], free: int) -> Iterator[Point]:
    """Integers t with c t + b >= 0 for every (c, b), the first coordinate outermost."""
    bounds = list(bounds)
    if any(b < 0 for c, b in bounds if not any(c)):
        return
    if not free:
        yield ()
        return
    alone = [(c[0], b) for c, b in bounds if c[0] and not any(c[1:])]
    least = max(-(b // c) for c, b in alone if c > 0)
    greatest = min(b // -c for c, b in alone if c < 0)
    for value in range(least, greatest + 1):
        for rest in _lattice_points([(c[1:], b + c[0] * value) for c, b in bounds], free - 1):
            yield value, *rest
