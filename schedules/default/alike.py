"""Stages that are equal but for their names and for the tensors that they read, planned once.

A network of fifty layers has many contractions of few kinds. What a pattern made of the first of a kind is made again
for the others: the same stages over loops of their own and other tensors, the same directives under other names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from schedules.default.rewriting import Rewriting
from schedules.directives import Directive
from tedsl.lang.expr import Apply, Axis, Expr, Read, Reduce
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import rebuild_all

__all__ = ["planned_alike"]


def planned_alike(rw: Rewriting, original: Operation, op: Compute, plan: Callable[[], bool]) -> bool:
    """`plan`, which makes stages for `op` that depend on nothing else, or what it did for a stage like this one."""
    key, tensors = _likeness(op)
    known: _Planned | None = rw.alike.get(key)
    if known is not None:
        return known.again(rw, original, op, tensors)
    stages, directives, finite = len(rw.stages), len(rw.directives), len(rw.finite)
    done = plan()
    rw.alike[key] = _Planned(op, tensors, rw.stages[stages:], rw.directives[directives:], rw.finite[finite:], done)
    return done


@dataclass(frozen=True, eq=False)
class _Planned:
    """What a pattern made of a stage that reads `tensors`: nothing, or stages of which the last one is its result."""

    op: Compute
    tensors: Sequence[Tensor]
    stages: Sequence[Operation]
    directives: Sequence[Directive]
    finite: Sequence[Tensor]
    done: bool

    def again(self, rw: Rewriting, original: Operation, op: Compute, tensors: Sequence[Tensor]) -> bool:
        """Let it be made of another stage like that one."""
        if not self.done:
            return False
        new = dict(zip(self.tensors, tensors, strict=True))
        names: dict[str, str] = {}
        for stage in self.stages:
            assert isinstance(stage, Compute)
            wanted = op.name + rw.wished[stage.name].removeprefix(self.op.name)
            made = rw.add(_over(stage, rw.name(wanted), new))
            names[stage.name] = made.name
            new[stage.output()] = made.output()
        rw.directives += [_renamed(d, names) for d in self.directives]
        rw.planned.update(now for name, now in names.items() if name in rw.planned)
        rw.finite += [new[t] for t in self.finite]
        rw.new[original.output()] = rw.stages[-1].output()
        return True


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
    named = {f.name: getattr(directive, f.name) for f in fields(directive) if f.name in ("stage", "consumer")}
    return replace(directive, **{field: names[name] for field, name in named.items()})


def _likeness(op: Compute) -> tuple[Hashable, list[Tensor]]:
    """What stages have in common that differ in their names and in what they read alone; the tensors in their order.

    Extents and numbers are nodes that all share. Patterns order loops by their age.
    """
    axes = _loops(op)
    ages = sorted(range(len(axes)), key=lambda k: axes[k].serial)
    numbers: dict[Expr, int] = {a: k for k, a in enumerate(axes)}
    tensors: dict[Tensor, int] = {}
    lines: list[Hashable] = [(a.name, id(a.begin), id(a.extent), a.is_reduce) for a in axes]
    for node in op.nodes:
        if node in numbers:
            continue
        below = [numbers[c] for c in node.children]
        own: Sequence[Hashable] = [id(node)]
        if isinstance(node, Apply):
            own = (node.fn, str(node.dtype))
        elif isinstance(node, Read):
            own = (tensors.setdefault(node.tensor, len(tensors)), str(node.dtype), *map(id, node.tensor.extents))
        elif isinstance(node, Reduce):
            own = (id(node.reducer), *(numbers[a] for a in node.axes), node.index)
        numbers[node] = len(numbers)
        lines.append((*own, "of", *below))
    results = [numbers[body] for body in op.bodies]
    return (len(op.axes), tuple(ages), tuple(results), tuple(lines)), list(tensors)
