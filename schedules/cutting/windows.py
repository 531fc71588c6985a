"""Parts that read different boxes of one tensor, and are equal otherwise, made equal: each is given its box.

A Python loop over the steps of a recurrence reads `x[i, 0]`, `x[i, 1]`, ...: a kernel for each step, as the number
stands in its code. Read from the least place on that a part reads, all of them read `x[i, 0]`, of a box that lies in
the memory of the larger tensor. Only parts that become equal to others by this are changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from schedules.cutting.cuts import PlanPart
from schedules.directives import ComputeInline
from schedules.program import ProgramStages, rewritten_expressions
from tedsl.analysis.places import are_places
from tedsl.analysis.read_boxes import ReadBox, box_of
from tedsl.analysis.sizes import known_shape
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.intervals import Known
from tedsl.lang.tensor import Compute, Operation, Placeholder, Scatter, Tensor
from tedsl.lang.traverse import substitute_all

__all__ = ["Windowed", "placeholder_in", "windowed"]

LARGEST = 2**31 - 1  # bytes of a tensor


@dataclass(frozen=True, eq=False)
class Windowed:
    """A part that is given boxes of some of its inputs, by their places among these, instead of all of them."""

    part: PlanPart
    boxes: Mapping[int, ReadBox]


def windowed(parts: Sequence[PlanPart], whole: Set[Tensor] = frozenset()) -> dict[PlanPart, Windowed]:
    """The parts that are equal to others once they are given boxes of what they read, and not before.

    `whole`: inputs that are given as they are.
    """
    found = {part: made for part in parts if (made := _windowed(part, whole)) is not None}
    alike: dict[str, set[str]] = {}
    for part, made in found.items():
        alike.setdefault(made.part.digest, set()).add(part.digest)
    return {part: made for part, made in found.items() if len(alike[made.part.digest]) > 1}


def _windowed(part: PlanPart, whole: Set[Tensor]) -> Windowed | None:
    """A part with boxes of all that it reads no more of than these; None where there is nothing of the kind."""
    if part.plan.finite:  # for numbers that are not finite, it is computed by the user's program
        return None
    if any(map(are_places, (*part.plan.program.stages.values(), *(t.op for t in part.inputs)))):
        return None
    cropping = _Cropping(part, whole)
    boxes = {k: cropping.boxes[t] for k, t in enumerate(part.inputs) if t in cropping.boxes}
    return Windowed(cropping.part(), boxes) if boxes else None


class _Cropping:
    """A part whose stages and inputs are no larger than what is read of them.

    Of stages, those are cropped that are written out where they are read: no loop is theirs.
    """

    def __init__(self, part: PlanPart, whole: Set[Tensor]) -> None:
        self._part, plan = part, part.plan
        self._known: Known = {}
        self._reads: dict[Tensor, list[Read]] = {}
        self._results = set(part.outputs)
        self._free = {name for name, step in plan.places.items() if isinstance(step.directive, ComputeInline)}
        self._free -= {name for name, _ in plan.loops} | set(plan.storage)
        self._whole = set(whole)  # what is read by more than its elements
        self.boxes: dict[Tensor, ReadBox] = {}
        self._stages: dict[str, Operation] = {}
        for name, op in reversed(list(plan.program.stages.items())):
            made = self._stages[name] = self._cropped(name, op)
            if isinstance(made, Scatter) and made.init is not None:
                self._whole.add(made.init)
            for read in made.reads:
                self._reads.setdefault(read.tensor, []).append(read)
        for tensor in part.inputs:
            self._take(tensor)

    def _cropped(self, name: str, op: Operation) -> Operation:
        """A stage for the elements that are read of it."""
        if not isinstance(op, Compute) or name not in self._free or op.num_outputs > 1 or op.facts is not None:
            return op
        box = None if op.output() in self._results else self._take(op.output())
        if box is None:
            return op
        axes = tuple(Axis(a.name, Const(n, INT32)) for a, n in zip(op.axes, box.shape, strict=True))
        places: dict[Expr, Expr] = {a: now + first for a, now, first in zip(op.axes, axes, box.begins, strict=True)}
        return replace(op, axes=axes, bodies=substitute_all(op.bodies, places), _outputs={})

    def _take(self, tensor: Tensor) -> ReadBox | None:
        """What is read of a tensor, where that is less than all of it."""
        shape, reads = known_shape(tensor), self._reads.get(tensor)
        if not shape or not reads or tensor in self._whole or math.prod(shape) * tensor.dtype.itemsize > LARGEST:
            return None
        box = box_of(tensor, [read.indices for read in reads], self._known)
        if box is None:
            return None
        self.boxes[tensor] = box
        return box

    def part(self) -> PlanPart:
        """The part that reads boxes."""
        part = self._part
        new = {t: placeholder_in(t, self.boxes[t].shape) for t in part.inputs if t in self.boxes}

        def rule(node: Expr) -> Expr:
            if not isinstance(node, Read) or node.tensor not in new:
                return node
            box = self.boxes.get(node.tensor)
            return Read(new[node.tensor], node.indices if box is None else box.inside(node.indices))

        stages: dict[str, Operation] = {}
        for name, op in part.plan.program.stages.items():
            made = rewritten_expressions(self._stages[name], rule)
            if isinstance(made, Scatter) and made.init is not None and made.init in new:
                made = replace(made, init=new[made.init], _outputs={})
            if made is not op:
                new.update(zip(op.outputs, made.outputs, strict=True))
            stages[name] = made
        inputs, outputs = (tuple(new.get(t, t) for t in tensors) for tensors in (part.inputs, part.outputs))
        plan = part.plan.over(ProgramStages(outputs, stages, {}))
        return PlanPart(inputs, outputs, plan, {t: t for t in (*inputs, *outputs)})


def placeholder_in(tensor: Tensor, box: Sequence[int]) -> Tensor:
    """An array of a shape that lies in the memory of another tensor."""
    shape = known_shape(tensor) or ()
    strides = tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
    extents = tuple(Const(n, INT32) for n in box)
    return Placeholder(
        name=tensor.name, where=tensor.op.where, shape=extents, dtype=tensor.dtype, strides=strides
    ).output()
