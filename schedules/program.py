"""A program under names: its stages in order, each under a name of its own, and what became of the user's tensors."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

from tedsl.analysis.sizes import vars_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr, Read, Reduce, Var
from tedsl.lang.locks import cached_property
from tedsl.lang.tensor import Compute, Extern, Operation, Placeholder, Scan, Scatter, Tensor
from tedsl.lang.traverse import rebuild_all, stages_of

__all__ = ["ProgramStages", "inputs_first", "program_of", "reading", "rewritten_expressions"]


@dataclass(frozen=True, eq=False)
class ProgramStages:
    """Stages by name, inputs before users.

    `handles` finds what the user's operations have become: (operation, output) -> (stage, output).
    """

    outputs: tuple[Tensor, ...]
    stages: Mapping[str, Operation]
    handles: Mapping[tuple[Operation, int], tuple[str, int]]

    @cached_property
    def names(self) -> dict[Operation, str]:
        return {op: name for name, op in self.stages.items()}

    @cached_property
    def places(self) -> dict[Operation, int]:
        """The place of each stage in their order."""
        return {op: k for k, op in enumerate(self.names)}

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

    @cached_property
    def sizes(self) -> dict[str, Var]:
        """The symbolic sizes, by names that only one has."""
        extents = dict.fromkeys(e for op in self.stages.values() for t in (*op.inputs, *op.outputs) for e in t.extents)
        bound = (a.extent for op in self.stages.values() for n in op.nodes if isinstance(n, Reduce) for a in n.axes)
        found = dict.fromkeys(v for e in (*extents, *(e for e in bound if e is not None)) for v in vars_of(e))
        counted = Counter(v.name for v in found)
        return {v.name: v for v in found if counted[v.name] == 1}

    def current(self, tensor: Tensor) -> Tensor:
        """What a tensor of the user's program has become."""
        name, index = self.handles.get((tensor.op, tensor.index), ("", 0))
        return self.stages[name].output(index) if name else tensor

    @cached_property
    def taken(self) -> set[str]:
        """The names of stages and inputs."""
        return {*self.stages, *(t.name for op in self.stages.values() for t in op.inputs)}

    def name_of(self, tensor: Tensor) -> str | None:
        """The name of the stage that computes a tensor, the user's or a present one."""
        return self.handles.get((tensor.op, tensor.index), ("", 0))[0] or self.names.get(tensor.op)

    def needs(self, consumer: str, stage: str) -> bool:
        """Whether one stage needs another one, from which the search begins: the two are mostly close."""
        found: set[str] = set()
        pending = [stage]
        for name in pending:
            fresh = [r for r in self.readers[name] if r not in found]
            if consumer in fresh:
                return True
            found.update(fresh)
            pending += fresh
        return False

    def fresh(self, name: str) -> str:
        """`name`, or the first of name_1, name_2, ... that no stage or input has."""
        return _free(name, self.taken)

    def rewritten(
        self,
        swap: Mapping[str, Operation],
        added: Mapping[str, tuple[str, Operation]],
        tidy: Callable[[Expr], Expr] | None = None,
    ) -> ProgramStages:
        """Other operations under some names, and new stages, each just before the stage that it is given with; every
        node of the others as `tidy` has it.
        """
        stages: dict[str, Operation] = {}
        new: dict[Tensor, Tensor] = {}
        for name, op in self.stages.items():
            stages.update((fresh, extra) for fresh, (before, extra) in added.items() if before == name)
            made = swap[name] if name in swap else reading(op, new, tidy)
            if made is not op:
                new.update(zip(op.outputs, made.outputs, strict=True))
            stages[name] = made
        return ProgramStages(tuple(new.get(t, t) for t in self.outputs), stages, self.handles)


def program_of(outputs: Iterable[Tensor]) -> ProgramStages:
    """The program that computes the outputs, its stages named after their tensors."""
    listed = tuple(outputs)
    taken: set[str] = set()
    stages: dict[str, Operation] = {}
    for op in stages_of(listed):
        name = _free(op.name, taken)
        taken.add(name)
        if not isinstance(op, Placeholder):
            stages[name] = op
    return ProgramStages(
        listed, stages, {(op, k): (name, k) for name, op in stages.items() for k in range(op.num_outputs)}
    )


def inputs_first(begin: Iterable[Operation], inputs: Callable[[Operation], Iterable[Operation]]) -> list[Operation]:
    """Operations and those among their inputs, each once and after its own."""
    done, order = set[Operation](), list[Operation]()
    for first in begin:
        pending = [first]
        while pending:
            op = pending[-1]
            missing = [] if op in done else [o for o in inputs(op) if o not in done]
            if missing:
                pending += missing
                continue
            pending.pop()
            if op not in done:
                done.add(op)
                order.append(op)
    return order


def _free(name: str, taken: Set[str]) -> str:
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def reading(
    op: Operation,
    new: Mapping[Tensor, Tensor],
    tidy: Callable[[Expr], Expr] | None = None,
) -> Operation:
    """The operation with its reads redirected and every node as `tidy` has it; the same object if nothing changes."""
    redirected = any(t in new for t in op.inputs)
    if isinstance(op, Extern):
        args = tuple(new.get(t, t) for t in op.args)
        return replace(op, args=args, _outputs={}) if redirected else op
    if not redirected and tidy is None:
        return op

    def rule(node: Expr) -> Expr:
        if isinstance(node, Read) and node.tensor in new:
            node = Read(new[node.tensor], node.indices)
        return node if tidy is None else tidy(node)

    made = rewritten_expressions(op, rule)
    if isinstance(made, Scatter) and made.init is not None and made.init in new:
        return replace(made, init=new[made.init], _outputs={})
    return made


def rewritten_expressions(op: Operation, rule: Callable[[Expr], Expr]) -> Operation:
    """The operation with every node as a rule has it; the same object if nothing changes."""
    before = op.expressions
    after = rebuild_all(before, rule)
    if all(map(operator.is_, before, after)):
        return op
    if isinstance(op, Scatter):
        *index, value, guard = after
        return replace(op, index=tuple(index), value=value, guard=guard, _outputs={})
    assert isinstance(op, (Compute, Scan))
    return replace(op, bodies=after, _outputs={})
