"""The record of a compilation: all that decides which code is made, in one immutable value.

`te.build` makes it once from what its caller says; everything below passes it on as one. Where a program is cut, or a
schedule is tried with another option, a further record is made from it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

from tedsl.analysis.sizes import sizes_of
from tedsl.backend.compiling.facts import ProgramFacts
from tedsl.backend.host.targets import Target
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import operations_between

__all__ = ["Compilation"]


@dataclass(frozen=True, eq=False)
class Compilation:
    """What is to be compiled, for which machine, and how it is to be scheduled."""

    inputs: tuple[Tensor, ...]  # any tensors: what lies above them is not part of it
    outputs: tuple[Tensor, ...]
    name: str
    target: Target
    planner: Planner

    @cached_property
    def facts(self) -> ProgramFacts:
        """What the program itself answers before anything is compiled."""
        return ProgramFacts(self.inputs, self.outputs, self.name, self.target, self.planner)

    @cached_property
    def sizes(self) -> list[Var]:
        """Every symbolic extent, in a fixed order."""
        return sizes_of(self.inputs, self.outputs)

    @property
    def operations(self) -> list[Operation]:
        """What is computed between the inputs and the outputs, each after what it reads."""
        return operations_between(self.inputs, self.outputs)

    def planned(self, **options: Any) -> Compilation:
        """The same with other options of its planner."""
        return replace(self, planner=replace(self.planner, **options))

    def for_users(self) -> Compilation:
        """The same in terms of the user's program, which holds also where numbers are not finite."""
        part = self.planner.part
        if part is None or not part.plan.finite:
            return self
        inputs, outputs = tuple(part.given(self.inputs)), tuple(part.given(self.outputs))
        return replace(self, inputs=inputs, outputs=outputs, planner=Planner())

    def defined(self) -> tuple[tuple[Tensor, ...], list[Operation]]:
        """The user's tensors for the inputs, and what the user defined between them and the outputs."""
        part = self.planner.part
        inputs = self.inputs if part is None else tuple(part.given(self.inputs))
        return inputs, operations_between(inputs, self.outputs if part is None else part.given(self.outputs))

    def without(self, touched: Container[Operation]) -> Compilation:
        """The program for what all other operations make: outputs, and what the touched ones read."""
        read = {t for op in self.operations if op in touched for t in op.inputs}
        wanted = [t for t in self.facts.between if t.op not in touched and t in read | set(self.outputs)]
        used = {t for op in operations_between(self.inputs, wanted) for t in op.inputs}
        inputs = tuple(t for t in self.inputs if t in used)
        return replace(self, inputs=inputs, outputs=tuple(wanted), planner=Planner())
