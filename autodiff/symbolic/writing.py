"""Index expressions of the language, and the forms and conditions that inversion works with, as sympy expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy

from autodiff.integers.conditions import Condition, OpaqueIndex, forms
from autodiff.integers.linear import Linear, Symbol
from autodiff.inversion.formulas import as_sympy, holds_when, modulo, replaced
from autodiff.turning.affine_read import Product
from tedsl.lang.expr import Apply, Const, Expr, Fn, Read
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import topological

__all__ = ["Writer"]

FORMULAS: dict[Fn, Callable[..., Any]] = {
    Fn.ADD: lambda a, b: a + b,
    Fn.SUB: lambda a, b: a - b,
    Fn.MUL: lambda a, b: a * b,
    Fn.DIV: lambda a, b: a / b,
    Fn.NEG: lambda a: -a,
    Fn.FLOORDIV: lambda a, b: sympy.floor(a / b),
    Fn.MOD: modulo,
    Fn.MINIMUM: sympy.Min,
    Fn.MAXIMUM: sympy.Max,
    Fn.CLIP: lambda x, low, high: sympy.Min(sympy.Max(x, low), high),
    Fn.RELU: lambda a: sympy.Max(a, 0),
    Fn.ABS: sympy.Abs,
    Fn.SELECT: lambda c, a, b: sympy.Piecewise((a, c), (b, True)),
    Fn.CAST: lambda a: a,
    Fn.EQ: sympy.Eq,
    Fn.NE: sympy.Ne,
    Fn.LT: sympy.Lt,
    Fn.LE: sympy.Le,
    Fn.GT: sympy.Gt,
    Fn.GE: sympy.Ge,
    Fn.AND: sympy.And,
    Fn.OR: sympy.Or,
    Fn.NOT: sympy.Not,
}


class Writer:
    """Writes with the names given; `unread` has the meaning of tensors that stand for a value."""

    def __init__(self, names: Mapping[Expr, Any], unread: Mapping[Tensor, Any]) -> None:
        self.names = dict(names)
        self.unread = unread

    def expression(self, root: Expr) -> Any:
        made: dict[Expr, Any] = {}
        for node in topological(root):
            made[node] = self._node(node, made)
        return made[root]

    def _node(self, node: Expr, made: Mapping[Expr, Any]) -> Any:
        if node in self.names:
            return self.names[node]
        if isinstance(node, Const):
            return sympy.sympify(node.value)
        if isinstance(node, Read):
            return self._read(node, made)
        if isinstance(node, Apply):
            args = [made[a] for a in node.args]
            rule = FORMULAS.get(node.fn)
            return sympy.Function(node.fn.value)(*args) if rule is None else rule(*args)
        return sympy.Symbol(str(node), integer=True)

    def _read(self, node: Read, made: Mapping[Expr, Any]) -> Any:
        if node.tensor in self.unread:
            return self.unread[node.tensor]
        value = sympy.IndexedBase(node.tensor.name)[tuple(made[i] for i in node.indices) or 0]
        return sympy.Ne(value, 0) if node.dtype.is_bool else value

    def form(self, e: Linear, names: Mapping[Symbol, Any]) -> Any:
        return as_sympy(e, {**self._leaves(e.leaves()), **names}, self.expression)

    def condition(self, c: Condition, names: Mapping[Symbol, Any], solution: Mapping[Any, Any]) -> Any:
        """A condition at a solution, by which alone what is not linear is moved there."""
        leaves = self._leaves(s for e in forms(c) for s in e.leaves())
        return holds_when(c, {**leaves, **names}, lambda key: replaced(self.expression(key), solution))

    def _leaves(self, symbols: Iterable[Symbol]) -> dict[Symbol, Any]:
        return {s: self._leaf(s) for s in symbols if isinstance(s, (Expr, Product, OpaqueIndex))}

    def _leaf(self, s: Any) -> Any:
        if isinstance(s, Product):
            return sympy.Mul(*map(self._leaf, s.factors))
        if isinstance(s, OpaqueIndex):
            return self._leaf(s.key) if isinstance(s.key, Expr) else sympy.Symbol(str(s.key), integer=True)
        return self.expression(s)
