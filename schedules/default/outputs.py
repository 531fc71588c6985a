"""Outputs of one shape, computed in one loop nest.

A forward result and its gradient share most of what they are made of. As two loop nests they would pass it through
memory; as the two components of one stage they share it row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedules.default.conditions import number
from schedules.default.rewriting import Rewriting
from tedsl.lang.expr import Axis, Read
from tedsl.lang.tensor import Compute, Tensor

__all__ = ["merge_outputs"]


def merge_outputs(rw: Rewriting, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs, those that are pointwise and of one shape as the components of one stage."""
    shapes: dict[tuple[int | None, ...], list[Tensor]] = {}
    for tensor in dict.fromkeys(outputs):
        op = tensor.op
        if isinstance(op, Compute) and op.reduction is None and op.name not in rw.planned and len(op.bodies) == 1:
            shapes.setdefault(tuple(number(a.extent) for a in op.axes), []).append(tensor)
    made: dict[Tensor, Tensor] = {}
    for shape, tensors in shapes.items():
        if len(tensors) < 2 or len(shape) < 2 or None in shape:
            continue
        first = tensors[0].op
        assert isinstance(first, Compute)
        axes = tuple(Axis(a.name, a.extent) for a in first.axes)
        merged = Compute(
            name=rw.name("_and_".join(t.name for t in tensors[:3])),
            axes=axes,
            bodies=tuple(Read(t, axes) for t in tensors),
            names=tuple(t.name for t in tensors),
            where=first.where,
        )
        rw.add(merged)
        made.update(zip(tensors, merged.outputs, strict=True))
    return tuple(made.get(t, t) for t in outputs)
