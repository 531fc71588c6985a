"""What stages need, however far away, and what lies behind their reads: asked of all sums that might be one stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from schedules.program import inputs_first
from tedsl.lang.expr import Expr, Read
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import reads_of, substitute_all

__all__ = ["Needs", "ReadsBehind"]


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


class ReadsBehind:
    """What a stage that is read reads itself, found once for each read; `looks_through` tells of which stages."""

    def __init__(self, looks_through: Callable[[Operation], bool]) -> None:
        self.looks_through = looks_through
        self.found: dict[Read, tuple[Read, ...]] = {}
        self.own: dict[Tensor, list[Read]] = {}  # by what is looked through, those in indices among them

    def of(self, read: Read) -> tuple[Read, ...]:
        """The reads at the place of a read; none where it is not looked through."""
        if read not in self.found:
            op, behind = read.tensor.op, tuple[Read, ...]()
            if isinstance(op, Compute) and self.looks_through(op):
                here: dict[Expr, Expr] = dict(zip(op.axes, read.indices, strict=True))
                if read.tensor not in self.own:
                    self.own[read.tensor] = reads_of((op.bodies[read.tensor.index],))
                made = [r for r in substitute_all(self.own[read.tensor], here) if isinstance(r, Read)]
                behind = tuple(reads_of(made) if reads_of(read.indices) else dict.fromkeys(made))
            self.found[read] = behind
        return self.found[read]
