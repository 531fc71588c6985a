"""The steps of a scan, evaluated one after the other; what all steps of a phase have in common, once.

Steps that differ along the slowest axis alone agree in all that hangs neither on it nor on a state: which phase it is,
indices of other axes, what is read at these.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import evaluate_extent
from tedsl.lang.expr import Expr, Read, Var
from tedsl.lang.tensor import Scan
from tedsl.reference.grid import PointGrid, ScanProgress

__all__ = ["StepWalk"]

LIMIT = 1 << 20
"""Numbers that are kept from step to step."""
ARRAY = 32
"""Numbers that take as much memory as an array beside those that it holds."""


class StepWalk:
    """A scan under way."""

    def __init__(self, op: Scan, sizes: Mapping[Var, int]) -> None:
        self.op = op
        self.states = frozenset(state.op for state in op.states)
        own = [read for read in op.reads if read.tensor.op in self.states] if op.parts else []
        self.bounds = {read: tuple(evaluate_extent(e, sizes) for e in op.bounds_of(read)) for read in own}
        self.common = self._common()
        self.known: dict[tuple[int, ...], dict[Expr, Array]] = {}
        self.room = LIMIT

    def _common(self) -> frozenset[Expr]:
        slowest, found = self.op.steps[0], set[Expr]()
        for node in self.op.nodes:
            is_state = isinstance(node, Read) and node.tensor.op in self.states
            if node is not slowest and not is_state and found.issuperset(node.children):
                found.add(node)
        return frozenset(found)

    def progress(self, step: tuple[int, ...]) -> ScanProgress:
        return ScanProgress(self.states, self.op.dims, step, self.op.reverse, self.bounds)

    def values(self, grid: PointGrid, step: tuple[int, ...]) -> dict[Expr, Array]:
        """The bodies on the points of a step, and what they are made of."""
        known = self.known.setdefault(step[1:], {})
        value, wrong = grid.walked(self.op.bodies, known)
        if wrong:
            grid.check(dict.fromkeys(self.op.bodies), self.op.nodes, value, wrong)
            return value
        for node, array in list(islice(value.items(), len(known), None)):
            size = array.size + ARRAY
            if node in self.common and size <= self.room:
                known[node] = _one_condition(array) if node.dtype.is_bool else array
                self.room -= size
        return value


def _one_condition(found: Array) -> Array:
    """A condition that is the same everywhere as one value: what branch it takes is asked at every step."""
    return found[(slice(1),) * found.ndim] if found.all() or not found.any() else found
