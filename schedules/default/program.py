"""A program under rewriting: its stages one by one, each under a name of its own, users rebuilt on what changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from schedules.default.conditions import tidied
from schedules.directives import Directive
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import operations_between, rebuild_all

__all__ = ["Plan", "Rewriting", "computed_between", "identifier", "loop_names"]


@dataclass(frozen=True)
class Plan:
    """What the default scheduler gives: an equal program, and directives over its stages."""

    outputs: tuple[Tensor, ...]
    directives: tuple[Directive, ...]
    checked_finite: tuple[Tensor, ...] = ()  # the program is equal to the original where these hold no inf or NaN


@dataclass
class Rewriting:
    """The stages made so far, and what the tensors of the original program became."""

    given: frozenset[Tensor]
    new: dict[Tensor, Tensor] = field(default_factory=dict)
    stages: list[Operation] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    directives: list[Directive] = field(default_factory=list)
    planned: set[str] = field(default_factory=set)  # stages whose directives are complete
    finite: list[Tensor] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)  # what a rewrite made a stage for
    inside: dict[str, str] = field(default_factory=dict)  # stages to be computed for one element of another one

    def name(self, wanted: str) -> str:
        """A free name."""
        base = identifier(wanted)
        free, count = base, 0
        while free in self.taken:
            count += 1
            free = f"{base}_{count}"
        self.taken.add(free)
        return free

    def expressions(self, roots: Sequence[Expr]) -> tuple[Expr, ...]:
        """Expressions that read what the tensors became, conditions simplified."""

        def rule(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in self.new:
                return Read(self.new[node.tensor], node.indices)
            return node

        return tidied(rebuild_all(roots, rule))

    def carried(self, op: Operation) -> Operation:
        """The operation over the new tensors."""
        name = self.name(op.name)
        if isinstance(op, (Compute, Scan)):
            return replace(op, name=name, names=None, bodies=self.expressions(op.bodies), _outputs={})
        if isinstance(op, Scatter):
            *index, value, guard = self.expressions((*op.index, op.value, op.guard))
            init = None if op.init is None else self.new.get(op.init, op.init)
            return replace(op, name=name, index=tuple(index), value=value, guard=guard, init=init, _outputs={})
        return op

    def add(self, op: Operation, original: Operation | None = None) -> Operation:
        """Let `op` be a stage; it stands for `original`."""
        self.stages.append(op)
        if original is not None:
            for old, now in zip(original.outputs, op.outputs, strict=True):
                self.new[old] = now
        return op

    def compute(self, name: str, axes: Sequence[Axis], body: Expr) -> Tensor:
        """A stage of one's own."""
        op = Compute(name=self.name(name), axes=tuple(axes), bodies=(body,), where="")
        return self.add(op).outputs[0]


def computed_between(inputs: Iterable[Tensor], outputs: Iterable[Tensor]) -> list[Operation]:
    """The operations that compute the outputs from the inputs, placeholders left out."""
    return [op for op in operations_between(inputs, outputs) if not isinstance(op, Placeholder)]


def identifier(name: str) -> str:
    """A name for a stage or loop."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII) or "T"
    return f"t{text}" if text[0].isdigit() or text[0] == "_" else text


def loop_names(op: Operation) -> dict[Axis, str]:
    """The names of the loops of a pointwise stage or reduction, as the backend gives them."""
    names: dict[Axis, str] = {}
    used: dict[str, int] = {}
    for axis in getattr(op, "axes", ()):
        base = identifier(axis.name)
        count = used[base] = used.get(base, -1) + 1
        names[axis] = f"{base}{count}" if count else base
    reduction = getattr(op, "reduction", None)
    if reduction is not None:
        taken = set(names.values())
        for axis in reduction.axes:
            base = identifier(axis.name)
            free = next(n for n in (base, *(f"{base}{k}" for k in range(1, len(taken) + 2))) if n not in taken)
            taken.add(free)
            names[axis] = free
    return names
