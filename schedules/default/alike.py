"""Stages that are equal but for their names and for the tensors that they read, planned once.

A network of fifty layers has many contractions of few kinds. What a pattern made of the first of a kind is made again
for the others: the same stages over loops of their own and other tensors, the same directives under other names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from schedules.default.rewriting import Rewriting
from schedules.default.twins import likeness
from schedules.directives import NAMING, Directive
from schedules.machine import Machine
from tedsl.analysis.checks import checked_in_part
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read, Reduce
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import rebuild_all

__all__ = ["Kind", "kind_of"]


class Kind:
    """What a stage has in common with those that differ in their names and in the tensors that they read alone."""

    def __init__(self, rw: Rewriting, op: Compute) -> None:
        self._rw, self._op = rw, op
        self._key, self._tensors = likeness(op.axes, op.bodies, rw.new)
        self._begin = len(rw.stages), len(rw.directives), len(rw.finite)

    def note(self) -> None:
        """Remember what was made of the stage since: by nothing but what its kind is; the last stage is its result."""
        rw, (stages, directives, finite) = self._rw, self._begin
        name = rw.program.names[self._op]
        self._rw.alike[self._key] = _Planned(
            self._op, name, self._tensors, rw.stages[stages:], rw.directives[directives:], rw.finite[finite:]
        )

    def is_planned(self) -> bool:
        """Let the same be made of the stage as of one of its kind; False where none was noted."""
        known: _Planned | None = self._rw.alike.get(self._key)
        if known is not None:
            known.again(self._rw, self._op, self._tensors)
        return known is not None


def kind_of(rw: Rewriting, op: Operation, machine: Machine) -> Kind | None:
    """The kind of a sum of products; None for other stages, and where names count, or the stages that it reads."""
    if machine.gpu is not None or machine.tells_stages_apart or not isinstance(op, Compute) or op.looks_up:
        return None
    value = op.reduction.values[0] if op.reduction is not None and op.reduction.reducer.kind == "sum" else None
    return Kind(rw, op) if isinstance(value, Apply) and value.fn is Fn.MUL else None


@dataclass(frozen=True, eq=False)
class _Planned:
    """What a pattern made of a stage."""

    op: Compute  # kept, as its nodes are known by their ids
    name: str
    tensors: Sequence[Tensor]
    stages: Sequence[Operation]
    directives: Sequence[Directive]
    finite: Sequence[Tensor]

    def again(self, rw: Rewriting, op: Compute, tensors: Sequence[Tensor]) -> None:
        """Let it be made of another stage of the kind."""
        new = dict(zip(self.tensors, tensors, strict=True))
        asked = rw.carried(op)
        own = rw.current
        names: dict[str, str] = {}
        for stage in self.stages:
            assert isinstance(stage, Compute)
            made = rw.add(_over(stage, rw.name(own + rw.wished[stage.name].removeprefix(self.name)), new))
            checked_in_part(made, asked)
            names[stage.name] = made.name
            new[stage.output()] = made.output()
        rw.directives += [_renamed(d, names) for d in self.directives]
        rw.planned.update(now for name, now in names.items() if name in rw.planned)
        rw.finite += [new[t] for t in self.finite]
        rw.new[op.output()] = rw.stages[-1].output()


def _over(stage: Compute, name: str, new: Mapping[Tensor, Tensor]) -> Compute:
    """The stage over loops of its own and other tensors."""
    loops = sorted(_loops(stage), key=lambda a: a.serial)
    fresh = {a: Axis(a.name, a.extent, begin=a.begin, is_reduce=a.is_reduce) for a in loops}

    def rule(node: Expr) -> Expr:
        if isinstance(node, Read):
            return Read(new[node.tensor], node.indices)
        if isinstance(node, Reduce):
            return node.with_axes(tuple(fresh[a] for a in node.axes))
        return fresh[node] if isinstance(node, Axis) else node

    return replace(
        stage, name=name, axes=tuple(fresh[a] for a in stage.axes), bodies=rebuild_all(stage.bodies, rule), _outputs={}
    )


def _loops(op: Compute) -> list[Axis]:
    """The loops over the result, then those of reductions."""
    return list(dict.fromkeys([*op.axes, *(a for node in op.nodes if isinstance(node, Reduce) for a in node.axes)]))


def _renamed(directive: Directive, names: Mapping[str, str]) -> Directive:
    """The directive with other names of stages."""
    return replace(directive, **{f: names[v] for f, v in vars(directive).items() if f in NAMING})
