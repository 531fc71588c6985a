"""sympy's integer expressions as Python text that computes them exactly: floor(x/4 + 1/4) is `(x + 1)//4`."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

__all__ = ["PythonText", "python_names"]

RESERVED = {"abs", "max", "min", "numpy", "out", "range", "values", *(f"reached_{j}" for j in range(64))}


class PythonText(StrPrinter):  # type: ignore[misc]
    """Prints with the given names of symbols."""

    def __init__(self, names: Mapping[Any, str]) -> None:
        super().__init__()
        self.names = names

    def _print_Symbol(self, e: Any) -> str:  # noqa: N802 - sympy finds the methods by these names
        return self.names[e]

    _print_Dummy = _print_Symbol  # noqa: N815 - as above

    def _operand(self, e: Any) -> str:
        """In brackets unless it is one name or number."""
        return str(self.parenthesize(e, PRECEDENCE["Atom"], strict=True))

    def _quotient(self, e: Any) -> str:
        above, below = sympy.fraction(sympy.together(e))
        if below == 1:
            return str(self._print(above))
        return f"({self._operand(above)}//{self._operand(below)})"

    def _print_floor(self, e: Any) -> str:
        return self._quotient(e.args[0])

    def _print_ceiling(self, e: Any) -> str:
        return f"(-{self._quotient(-e.args[0])})"

    def _print_Mod(self, e: Any) -> str:  # noqa: N802
        return f"({' % '.join(map(self._operand, e.args))})"

    def _call(self, function: str, e: Any) -> str:
        return f"{function}({', '.join(map(self._print, e.args))})"

    def _print_Min(self, e: Any) -> str:  # noqa: N802
        return self._call("min", e)

    def _print_Max(self, e: Any) -> str:  # noqa: N802
        return self._call("max", e)

    def _print_Abs(self, e: Any) -> str:  # noqa: N802
        return self._call("abs", e)

    def _print_Function(self, e: Any) -> str:  # noqa: N802
        return self._call(f"numpy.{e.func.__name__}", e)

    def _print_Piecewise(self, e: Any) -> str:  # noqa: N802
        *cases, (last, _) = e.args
        return "(" + "".join(f"{self._print(a)} if {self._print(c)} else " for a, c in cases) + f"{self._print(last)})"

    def _print_Indexed(self, e: Any) -> str:  # noqa: N802
        return f"{self.names[e.base.label]}[{', '.join(map(self._print, e.indices))}]"

    def _print_Relational(self, e: Any) -> str:  # noqa: N802
        """Sides without fractions: multiplied by a positive number where there are any."""
        left, right = e.lhs, e.rhs
        factor = sympy.ilcm(*(sympy.fraction(sympy.together(x))[1] for x in (left, right)), 1)
        left, right = (sympy.together(x * factor) if factor != 1 else x for x in (left, right))
        return f"{self.parenthesize(left, PRECEDENCE['Relational'])} {OPERATORS[e.func]} {self._print(right)}"

    def _joined(self, word: str, e: Any) -> str:
        return "(" + f" {word} ".join(sorted(map(self._print, e.args))) + ")"

    def _print_And(self, e: Any) -> str:  # noqa: N802
        return self._joined("and", e)

    def _print_Or(self, e: Any) -> str:  # noqa: N802
        return self._joined("or", e)

    def _print_BooleanFunction(self, e: Any) -> str:  # noqa: N802
        """Xor, ITE and their like, by And, Or and Not."""
        return str(self._print(e.to_nnf(simplify=False)))

    _print_Xor = _print_BooleanFunction  # noqa: N815 - sympy's own has `^`, which binds closer than `==`

    def _print_Not(self, e: Any) -> str:  # noqa: N802
        return f"(not {self._print(e.args[0])})"


OPERATORS = {sympy.Eq: "==", sympy.Ne: "!=", sympy.Lt: "<", sympy.Le: "<=", sympy.Gt: ">", sympy.Ge: ">="}


def python_names(symbols: Iterable[Any]) -> dict[Any, str]:
    """A Python name of its own for each symbol: its own name where that is one."""
    found: dict[Any, str] = {}
    taken = set(RESERVED)
    for s in symbols:
        if s in found:
            continue
        base = re.sub(r"\W", "_", str(s.name))
        base = base if base.isidentifier() and not keyword.iskeyword(base) else f"v_{base}"
        name, number = base, 1
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        found[s] = name
    return found
