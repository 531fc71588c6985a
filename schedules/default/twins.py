"""Stages that are alike but for their names and the tensors that they read: what is asked of one is asked once for all.

Ten steps of a simulation are ten stages of one kind, and so are their gradients. Where loops are cut, what a border
decides, and whether cases pay hang on loops, sizes and what is done with what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set as AbstractSet
from types import MappingProxyType
from typing import Any, TypeVar

from schedules.pieces import written_out
from tedsl.lang.expr import Apply, Axis, Expr, Read, Reduce
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["Twins", "likeness"]

T = TypeVar("T")


class Twins:
    """Each pointwise stage with the first one that is like it, once what chooses in them is written out."""

    def __init__(self, inlined: AbstractSet[Operation]) -> None:
        self._inlined = inlined
        self._firsts: dict[Hashable, Compute] = {}
        self._first_of: dict[Operation, Compute] = {}
        self._answers: dict[Hashable, Any] = {}

    def ask(self, op: Compute, question: Callable[..., T], *given: Any) -> T:
        """`question(op, inlined, *given)`, asked of its twin; loops in what is given and in the answer are its own."""
        first = self._first(op)
        there: dict[Axis, Axis] = dict(zip(op.axes, first.axes, strict=True))
        asked = tuple(_over(g, there) for g in given)
        key = question, first, asked
        if key not in self._answers:
            self._answers[key] = question(first, self._inlined, *asked)
        answer: T = _over(self._answers[key], {b: a for a, b in there.items()})
        return answer

    def _first(self, op: Compute) -> Compute:
        if op not in self._first_of:
            bodies = written_out(op, self._inlined) if op.reduction is None else None
            key = (op,) if bodies is None else (likeness(op.axes, bodies)[0], tuple(b.dtype for b in op.bodies))
            self._first_of[op] = self._firsts.setdefault(key, op)
        return self._first_of[op]


def _over(given: Any, loops: Mapping[Axis, Axis]) -> Any:
    """What is asked with, or answered, over other loops."""
    if isinstance(given, Axis):
        return loops[given]
    if isinstance(given, AbstractSet):
        return frozenset(loops[a] for a in given)
    return {loops[a]: value for a, value in given.items()} if isinstance(given, Mapping) else given


def likeness(
    axes: Sequence[Axis], bodies: Sequence[Expr], new: Mapping[Tensor, Tensor] = MappingProxyType({})
) -> tuple[Hashable, list[Tensor]]:
    """All of a definition but the names of what it reads and which tensors these are; these, in their order.

    `new`: what is read now in the place of others. Extents and numbers are nodes that all share, and stand for
    themselves. Patterns order loops by their age.
    """
    nodes = topological(bodies)
    sums = [a for node in nodes if isinstance(node, Reduce) for a in node.axes]
    loops = list(dict.fromkeys([*axes, *sums]))
    ages = sorted(range(len(loops)), key=lambda k: loops[k].serial)
    numbers: dict[Expr, int] = {a: k for k, a in enumerate(loops)}
    tensors: dict[Tensor, int] = {}
    lines: list[Hashable] = [(a.name, a.begin, a.extent, a.is_reduce) for a in loops]
    for node in nodes:
        if node in numbers:
            continue
        own: Sequence[Hashable] = (node,)
        if isinstance(node, Apply):
            own = (id(node.fn), id(node.dtype))
        elif isinstance(node, Read):
            read = new.get(node.tensor, node.tensor)
            own = (tensors.setdefault(read, len(tensors)), id(node.dtype), *read.extents)
        elif isinstance(node, Reduce):
            own = (node.reducer, *(numbers[a] for a in node.axes), node.index)
        lines.append((*own, "of", *[numbers[c] for c in node.children]))
        numbers[node] = len(numbers)
    results = [numbers[body] for body in bodies]
    return (len(axes), tuple(ages), tuple(results), tuple(lines)), list(tensors)
