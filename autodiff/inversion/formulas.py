"""Index inversions as sympy expressions and in LaTeX: to read them, and to hold them against another algebra.

    grads = te.differentiate(y, [x, w], head)
    Math(latex_of(grads.explain().gathers[0].inversion))         # in a notebook, with IPython.display.Math

Nothing is solved here: the working forms (`integers.linear`) are vectors of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from autodiff.integers.conditions import AllOf, AnyOf, Choice, Condition, NonNegative, Not, Opaque, Zero
from autodiff.integers.linear import Greatest, Least, Linear, Quotient, Symbol, symbol
from autodiff.inversion.domains import Axis, Gather, Inversion, Loop, Target

__all__ = ["as_sympy", "holds_when", "latex_of"]

Names = Mapping[Symbol, Any]


def as_sympy(e: Linear, names: Names | None = None) -> Any:
    """The form as a sympy expression of integer symbols, or of what `names` has for a symbol.

    >>> from autodiff.integers.linear import floordiv, mod
    >>> as_sympy(floordiv(symbol("x") + 1, 4) + 2 * symbol("n"))
    2*n + floor(x/4 + 1/4)
    """
    names = names or {}
    remainders, rest = e.remainders()
    parts = [c * sympy.Mod(as_sympy(q.numerator, names), q.divisor) for q, c in remainders]
    parts += [c * _symbol(s, names) for s, c in rest.coefficients.items()]
    return sympy.Add(*parts, rest.constant)


def _symbol(s: Symbol, names: Names) -> Any:
    if isinstance(s, Quotient):
        return sympy.floor(as_sympy(s.numerator, names) / s.divisor)
    if isinstance(s, Least | Greatest):
        function = sympy.Min if isinstance(s, Least) else sympy.Max
        return function(as_sympy(s.a, names), as_sympy(s.b, names))
    if isinstance(s, Choice):
        return sympy.Piecewise((as_sympy(s.a, names), holds_when(s.condition, names)), (as_sympy(s.b, names), True))
    if s in names:
        return names[s]
    numbered = isinstance(s, Axis | Loop | Target)
    return sympy.Symbol(f"{str(s)[0]}_{str(s)[1:]}" if numbered else str(s), integer=True)


def holds_when(c: Condition, names: Names | None = None) -> Any:
    """The condition as a sympy Boolean; what only the caller knows is a symbol."""
    match c:
        case NonNegative(form):
            return sympy.Ge(as_sympy(form, names), 0)
        case Zero(form):
            return sympy.Eq(as_sympy(form, names), 0)
        case AllOf(inner):
            return sympy.And(*(holds_when(i, names) for i in inner))
        case AnyOf(inner):
            return sympy.Or(*(holds_when(i, names) for i in inner))
        case Not(inner_condition):
            return sympy.Not(holds_when(inner_condition, names))
        case Opaque(key):
            return sympy.Symbol(str(key))


def latex_of(answer: Inversion) -> str:
    """The adjoint of one read as an equation, conditions in Iverson brackets; parts of their own get a line each."""
    rank = 1 + max((s.position for g in answer.gathers for s, _ in g.place), default=-1)
    terms, parts = [], []
    for number, g in enumerate(answer.gathers):
        if g.direct:
            names: Names = {a: _symbol(Target(a.position), {}) for a, _ in g.axes}
            terms.append(_sum(g, names))
            continue
        part = f"P_{{{number}}}"
        terms.append(f"{_brackets(g.member, {})}{part}[{_list(g.index, {})}]")
        parts.append(f"{part}[{_list([symbol(a) for a, _ in g.axes], {})}] &= {_sum(g, {})}")
    element = ", ".join(sympy.latex(_symbol(Target(j), {})) for j in range(rank))
    lines = [rf"\mathrm{{d}}S[{element}] &= {' + '.join(terms) or '0'}", *parts]
    if answer.opaque:
        lines.append(rf"&\text{{rows {', '.join(map(str, answer.opaque))} stay a scatter: {answer.reason}}}")
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _sum(g: Gather, names: Names) -> str:
    sums = ""
    for t, n in g.loops:
        sums += rf"\sum_{{{sympy.latex(_symbol(t, {}))}=0}}^{{{sympy.latex(as_sympy(n - 1, names))}}} "
    return f"{sums}{_brackets(g.guards, names)}g({_list(g.solution, names)})"


def _brackets(conditions: tuple[Condition, ...], names: Names) -> str:
    return "".join(rf"[{_latex(c, names)}]\," for c in conditions)


def _latex(c: Condition, names: Names) -> str:
    found: str = sympy.latex(holds_when(c, names))
    return found


def _list(forms: Any, names: Names) -> str:
    return ", ".join(sympy.latex(as_sympy(e, names)) for e in forms)
