"""Outputs of one shape, computed in one loop nest.

A forward result and its gradient share most of what they are made of. As two loop nests they would pass it through
memory; as the two components of one stage they share it row by row. Outputs that share nothing stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedules.default.rewriting import Rewriting
from tedsl.lang.expr import Axis, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.tensor import Compute, Tensor

__all__ = ["merge_outputs"]


def merge_outputs(rw: Rewriting, outputs: Sequence[Tensor], *, always: bool = False) -> tuple[Tensor, ...]:
    """The outputs, those that are pointwise and of one shape as the components of one stage.

    Unless `always`, single numbers and those of symbolic extents are not worth it.
    """
    shapes: dict[tuple[object, ...], list[Tensor]] = {}
    for tensor in dict.fromkeys(outputs):
        op = tensor.op
        if isinstance(op, Compute) and op.reduction is None and op.name not in rw.planned and len(op.bodies) == 1:
            shape: tuple[object, ...] = tuple(simplify_extent(e) if always else number(e) for e in tensor.extents)
            shapes.setdefault(shape, []).append(tensor)
    made: dict[Tensor, Tensor] = {}
    sources: dict[Tensor, frozenset[Tensor]] = {}
    for shape, alike in shapes.items():
        for tensors in _sharing(alike, sources) if always or (shape and None not in shape) else ():
            if len(tensors) >= 2:
                made.update(zip(tensors, _merged(rw, tensors), strict=True))
    return tuple(made.get(t, t) for t in outputs)


def _merged(rw: Rewriting, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """One stage whose components are copies of the tensors."""
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
    return merged.outputs


def _sharing(tensors: Sequence[Tensor], sources: dict[Tensor, frozenset[Tensor]]) -> list[list[Tensor]]:
    """The tensors in groups that are made of something in common."""
    groups: list[tuple[set[Tensor], list[Tensor]]] = []
    for tensor in tensors:
        own, alike = set(_sources(tensor, sources)), [tensor]
        apart = [g for g in groups if own.isdisjoint(g[0])]
        for group in (g for g in groups if not own.isdisjoint(g[0])):
            own, alike = own | group[0], [*group[1], *alike]
        groups = [*apart, (own, alike)]
    return [alike for _, alike in groups]


def _sources(tensor: Tensor, known: dict[Tensor, frozenset[Tensor]]) -> frozenset[Tensor]:
    """What a pointwise stage reads, and what the pointwise stages among that read, single numbers left out."""
    pending = [tensor]
    while pending:
        top = pending[-1]
        inner = [t for t in top.op.inputs if isinstance(t.op, Compute) and t.op.reduction is None]
        missing = [t for t in inner if t not in known]
        if missing:
            pending += missing
            continue
        own = frozenset(t for t in top.op.inputs if t.ndim)
        known[pending.pop()] = own.union(*(known[t] for t in inner))
    return known[tensor]
