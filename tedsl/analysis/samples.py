"""Some points of a scope: what does not hold at one of them need not be tried to be proven.

A proof that is not found takes longer than one that is: all cases are followed. Most of what is asked and does not hold
is wrong at the first or the last iterations of its loops, for sizes as they are usual or for small ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tedsl.analysis.pointwise import Array, apply_numpy, held_type
from tedsl.lang.expr import Apply, Axis, Const, Expr, Var
from tedsl.lang.polynomials import Affine
from tedsl.lang.traverse import topological

__all__ = ["Samples"]

SIZES = np.array([1000, 1000, 1000, 5, 5], np.int32)
STEPS = np.array([37, 37, 37, 1, 1], np.int32)  # between two sizes
PARTS = np.array([0, 1, 2, 0, 2], np.int32)  # halves of an axis


class Samples:
    """Points of a scope of axes, none of which is empty there."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self._axes = axes
        self._values: dict[Expr, Array | None] = {}
        self._sizes = 0
        self._are_inside = np.ones(SIZES.shape, bool)

    def refute(self, goal: Affine) -> bool:
        """Whether a form is below zero at one of the points."""
        total = np.full(SIZES.shape, goal.constant, np.int64)
        for monomial, factor in goal.terms.items():
            product = np.full(SIZES.shape, factor, np.int64)
            for value in map(self._value, monomial):
                if value is None:
                    return False
                product = product * value
            total = total + product
        below = total < 0
        return bool(below.any()) and all(self._value(a) is not None for a in self._axes) and self._is_inside(below)

    def _is_inside(self, points: Array) -> bool:
        return bool((points & self._are_inside).any())

    def _value(self, root: Expr) -> Array | None:
        """What an expression of axes and sizes is at each point; None where it has anything else."""
        for node in () if root in self._values else topological(root):
            if node not in self._values:
                self._values[node] = self._made(node)
        return self._values[root]

    def _made(self, node: Expr) -> Array | None:
        if isinstance(node, Const):
            return np.full(SIZES.shape, node.value, held_type(node.dtype))
        if isinstance(node, Var):
            self._sizes += 1
            sizes: Array = SIZES + STEPS * np.int32(self._sizes)
            return sizes
        if isinstance(node, Axis):
            return self._axis(node)
        if not isinstance(node, Apply):
            return None
        args = [value for value in map(self._values.get, node.args) if value is not None]
        return apply_numpy(node.fn, args, node.dtype) if len(args) == len(node.args) else None

    def _axis(self, axis: Axis) -> Array | None:
        """The first, the middle and the last value of an axis, which has some."""
        begin, extent = self._value(axis.begin), None if axis.extent is None else self._value(axis.extent)
        if begin is None or extent is None:
            return None
        self._are_inside &= extent > 0
        return np.asarray(begin + (extent - 1) * PARTS // 2)
