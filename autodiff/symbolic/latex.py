"""An index inversion as an equation in LaTeX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import sympy

from autodiff.symbolic.bounds import Bounds

if TYPE_CHECKING:
    from autodiff.symbolic.answer import IndexGather, IndexInversion

__all__ = ["latex_of"]


def latex_of(answer: IndexInversion) -> str:
    """One line per gather; elements of opaque rows are those that the point reaches."""
    opaque = {row.dimension: row.index for row in answer.opaque}
    element = _list(opaque.get(j, s) for j, s in enumerate(answer.elements))
    sign = r"\mathrel{+}=" if opaque else "="
    terms = list(map(_sum, answer.gathers)) or ["0"]
    lines = [rf"\mathrm{{d}}S[{element}] &{sign} {terms[0]}", *(rf"&\quad {{}} + {t}" for t in terms[1:])]
    lines += [rf"&\text{{dimension {row.dimension} stays a scatter: {_escaped(row.reason)}}}" for row in answer.opaque]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _sum(g: IndexGather) -> str:
    place = "" if g.place.is_everywhere else _brackets([g.place.condition])
    sums = "".join(
        rf"\sum_{{{sympy.latex(t)}={sympy.latex(begin)}}}^{{{sympy.latex(begin + extent - 1)}}} "
        for t, (begin, extent) in g.loops.items()
    )
    return f"{place}{sums}{_brackets(g.bounds)}g({_list(g.solution.values())})"


def _brackets(conditions: Iterable[Any]) -> str:
    return "".join(rf"\left[{_condition(c)}\right]\," for c in conditions)


def _condition(c: Any) -> str:
    if not isinstance(c, Bounds):
        return str(sympy.latex(c))
    low = "" if c.low is None else rf"{sympy.latex(c.low)} \leq "
    return f"{low}{sympy.latex(c.quantity)}{'' if c.end is None else f' < {sympy.latex(c.end)}'}"


def _list(expressions: Iterable[Any]) -> str:
    return ", ".join(map(sympy.latex, expressions))


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("%", r"\%")
