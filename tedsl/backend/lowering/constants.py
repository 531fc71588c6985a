"""Values that may be constants in a part of the loops, where Halide knows what a choice by its loops comes to.

Of a vector that is one, Halide 21 folds a test for NaN to a bool instead of a vector of them, and stops at what it has
made where the test has a name of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import operations_between, topological

__all__ = ["Constants"]


class Constants:
    """Answers for the values of one program; tensors that are `given` as arrays hold what is not known."""

    def __init__(self, given: Collection[Tensor]) -> None:
        self._known: dict[Tensor, bool] = dict.fromkeys(given, False)

    def may_include(self, root: Expr) -> bool:
        """Whether a value other than a literal may be a constant somewhere."""
        return isinstance(root, (Apply, Read)) and self._is_constant(root)

    def _is_constant(self, root: Expr) -> bool:
        found: dict[Expr, bool] = {}
        for node in topological(root):
            if isinstance(node, Apply):
                parts = [found[a] for a in node.args]
                found[node] = any(parts[1:]) if node.fn is Fn.SELECT else all(parts)
            elif isinstance(node, Read):
                found[node] = self._is_constant_tensor(node.tensor)
            else:
                found[node] = isinstance(node, (Const, Axis, Var))
        return found[root]

    def _is_constant_tensor(self, tensor: Tensor) -> bool:
        """Of a stage, which may be computed where it is read."""
        if tensor not in self._known:
            for op in operations_between(self._known.keys(), [tensor]):
                for made in op.outputs:
                    self._known[made] = isinstance(op, Compute) and self._is_constant(op.bodies[made.index])
        return self._known[tensor]
