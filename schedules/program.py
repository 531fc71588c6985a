"""A program under names: its stages in order, each under a name of its own, and what became of the user's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tedsl.lang.errors import ScheduleError
from tedsl.lang.expr import Expr, Read
from tedsl.lang.tensor import Compute, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import rebuild_all, stages_of

__all__ = ["Program", "program_of", "reading"]


@dataclass(frozen=True, eq=False)
class Program:
    """Stages by name, inputs before users; `handles` finds the stage of an operation that the user wrote."""

    outputs: tuple[Tensor, ...]
    stages: Mapping[str, Operation]
    handles: Mapping[Operation, str]

    @cached_property
    def names(self) -> dict[Operation, str]:
        return {op: name for name, op in self.stages.items()}

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """The stages that read each stage."""
        found: dict[str, list[str]] = {name: [] for name in self.stages}
        for name, op in self.stages.items():
            for read in dict.fromkeys(t.op for t in op.inputs):
                if read in self.names:
                    found[self.names[read]].append(name)
        return found

    @cached_property
    def final(self) -> frozenset[str]:
        """The stages that hold outputs."""
        return frozenset(self.names[t.op] for t in self.outputs if t.op in self.names)

    def current(self, tensor: Tensor) -> Tensor:
        """What a tensor of the user's program has become."""
        name = self.handles.get(tensor.op)
        return tensor if name is None else self.stages[name].output(tensor.index)

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of the stage that computes a tensor, the user's or a present one."""
        return self.handles.get(tensor.op) or self.names.get(tensor.op)

    def below(self, stage: str) -> set[str]:
        """Every stage that needs this one."""
        found: set[str] = set()
        pending = [stage]
        while pending:
            fresh = [r for r in self.readers[pending.pop()] if r not in found]
            found.update(fresh)
            pending += fresh
        return found

    def fresh(self, name: str) -> str:
        """`name`, or the first of name_1, name_2, ... that no stage or input has."""
        taken = {*self.stages, *(t.name for op in self.stages.values() for t in op.inputs)}
        return _free(name, taken)

    def rewritten(self, swap: Mapping[str, Operation], added: Mapping[str, tuple[str, Operation]]) -> Program:
        """Other operations under some names, and new stages, each just before the stage that it is given with."""
        stages: dict[str, Operation] = {}
        new: dict[Tensor, Tensor] = {}
        for name, op in self.stages.items():
            stages.update((fresh, extra) for fresh, (before, extra) in added.items() if before == name)
            made = swap[name] if name in swap else reading(op, new)
            if made is not op:
                new.update(zip(op.outputs, made.outputs, strict=True))
            stages[name] = made
        return Program(tuple(new.get(t, t) for t in self.outputs), stages, self.handles)


def program_of(outputs: Iterable[Tensor]) -> Program:
    """The program that computes the outputs, its stages named after their tensors."""
    listed = tuple(outputs)
    taken: set[str] = set()
    stages: dict[str, Operation] = {}
    for op in stages_of(listed):
        name = _free(op.name, taken)
        taken.add(name)
        if not isinstance(op, Placeholder):
            stages[name] = op
    if not stages:
        raise ScheduleError("there is nothing to schedule: the outputs are inputs themselves")
    return Program(listed, stages, {op: name for name, op in stages.items()})


def _free(name: str, taken: Iterable[str]) -> str:
    known = set(taken)
    free, number = name, 0
    while free in known:
        number += 1
        free = f"{name}_{number}"
    return free


def reading(op: Operation, new: Mapping[Tensor, Tensor]) -> Operation:
    """The operation with its reads redirected; the same object if it reads none of them."""
    if not any(t in new for t in op.inputs):
        return op
    made: Operation = _REBUILD[type(op)](op, new)
    return made


def _redirected(roots: tuple[Expr, ...], new: Mapping[Tensor, Tensor]) -> tuple[Expr, ...]:
    def rule(node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor in new:
            return Read(new[node.tensor], node.indices)
        return node

    return rebuild_all(roots, rule)


def _bodies(op: Compute | Scan, new: Mapping[Tensor, Tensor]) -> Operation:
    return replace(op, bodies=_redirected(op.bodies, new), _outputs={})


def _scatter(op: Scatter, new: Mapping[Tensor, Tensor]) -> Operation:
    *index, value, guard = _redirected(op.expressions, new)
    init = None if op.init is None else new.get(op.init, op.init)
    return replace(op, index=tuple(index), value=value, guard=guard, init=init, _outputs={})


def _extern(op: Extern, new: Mapping[Tensor, Tensor]) -> Operation:
    return replace(op, args=tuple(new.get(t, t) for t in op.args), _outputs={})


_REBUILD: dict[type, Any] = {Compute: _bodies, Scan: _bodies, Scatter: _scatter, Extern: _extern}
