"""Which stages a stage needs, however far away: asked of every pair of sums that might be one stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedules.program import inputs_first
from tedsl.lang.tensor import Operation

__all__ = ["Needs"]


class Needs:
    """What each of some stages needs, a bit of a number for each."""

    def __init__(self, stages: Sequence[Operation]) -> None:
        every = set(stages)
        self.own: dict[Operation, int] = {}
        self.needed: dict[Operation, int] = {}
        for op in inputs_first(stages, lambda op: [t.op for t in op.inputs if t.op in every and t.op is not op]):
            self.own[op] = 1 << len(self.own)
            self.needed[op] = 0
            for t in op.inputs:
                self.needed[op] |= self.own.get(t.op, 0) | self.needed.get(t.op, 0)

    def bits(self, stages: Iterable[Operation]) -> int:
        """The stages themselves."""
        found = 0
        for op in stages:
            found |= self.own.get(op, 0)
        return found

    def of(self, stages: Iterable[Operation]) -> int:
        """What the stages need."""
        found = 0
        for op in stages:
            found |= self.needed.get(op, 0)
        return found
