"""How much of every stage is computed at once, and how often: the boxes that its readers need.

A stage at the root is computed once, whole. One that is computed at a loop of a reader is computed in every iteration
of the loops around it, over the hull of what is read inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from schedules.loops import Level
from schedules.placing.places import Placement
from schedules.plan import Plan
from schedules.sizes import typical
from tedsl.analysis.affine import affine_of
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes

__all__ = ["Box", "boxes_of", "extents_of", "width_of"]

Spans = Mapping[Axis, int]  # how many places each axis takes


@dataclass(frozen=True)
class Box:
    """What is computed of a stage at once, as an extent for each axis, and how many times."""

    spans: Spans
    times: float


def boxes_of(plan: Plan, places: Mapping[str, Placement]) -> dict[str, Box]:
    """The box of every stage that is not inline."""
    boxes: dict[str, Box] = {}
    for name in reversed(list(plan.program.stages)):
        op, place = plan.program.stages[name], places[name]
        if place.kind == "root" or not isinstance(op, Compute):
            boxes[name] = Box(_whole(op), 1)
        elif place.kind == "at":
            boxes[name] = _inside(plan, name, op, place, boxes, places)
    return boxes


def _whole(op: Operation) -> dict[Axis, int]:
    axes: Iterable[Axis] = getattr(op, "axes", ())
    if isinstance(op, Compute) and op.reduction is not None:
        axes = (*op.axes, *op.reduction.axes)
    return {a: max(1, typical(a.extent)) for a in axes}


def _inside(
    plan: Plan, name: str, op: Compute, place: Placement, boxes: Mapping[str, Box], places: Mapping[str, Placement]
) -> Box:
    """The box of a stage that is computed in a loop of a reader."""
    outer = boxes[place.consumer]
    definition = plan.definition(place.consumer, place.loop)
    levels = plan.nest(place.consumer, definition).levels
    depth = next(k for k, v in enumerate(levels) if v.name == place.loop) + 1
    extents = extents_of(levels, outer.spans)
    times = outer.times * _iterations(levels, extents, depth, outer.spans)
    around = dict(outer.spans)
    for level in levels[:depth]:  # what is left inside
        for axis in level.origin:
            if isinstance(axis, Axis):
                around[axis] = 1
    for level, extent in zip(levels[depth:], extents[depth:], strict=True):
        for axis in level.origin:
            if isinstance(axis, Axis) and len(level.origin) == 1 and any(axis in v.origin for v in levels[:depth]):
                around[axis] = around.get(axis, 1) * extent
    spans = _whole(op)
    found: dict[Axis, int] = {}
    for reader, inner in _reading(plan, name, place.consumer, around, boxes, places):
        for read in reader.reads:
            if read.tensor.op is op:
                for axis, index in zip(op.axes, read.indices, strict=True):
                    found[axis] = max(found.get(axis, 1), width_of(index, inner))
    return Box({a: min(spans[a], found.get(a, spans[a])) if a in found else spans[a] for a in spans}, times)


def _iterations(levels: Sequence[Level], extents: Sequence[int], depth: int, spans: Spans) -> float:
    """Iterations of the loops down to a depth; of an axis that is cut several times as many as there are blocks."""
    count, of_axes = 1.0, dict[Axis | int, int]()
    for level, extent in zip(levels[:depth], extents[:depth], strict=True):
        (origin, *others) = level.origin
        if others:
            count *= extent
        else:
            of_axes[origin] = of_axes.get(origin, 1) * extent
    for origin, blocks in of_axes.items():
        inner = math.prod(e for v, e in zip(levels[depth:], extents[depth:], strict=True) if v.origin == {origin})
        most = -(-spans[origin] // inner) if isinstance(origin, Axis) and origin in spans else blocks
        count *= min(blocks, most)
    return count


def _reading(
    plan: Plan, name: str, consumer: str, around: Spans, boxes: Mapping[str, Box], places: Mapping[str, Placement]
) -> list[tuple[Operation, Spans]]:
    """The stages that read a stage inside the loop, with the spans of their axes there."""
    found: list[tuple[Operation, Spans]] = []
    for reader in plan.program.readers[name]:
        op = plan.program.stages[reader]
        if places[reader].kind == "inline":
            for outer, spans in _reading(plan, reader, consumer, around, boxes, places):
                found += [
                    (op, {a: width_of(i, spans) for a, i in zip(op.axes, read.indices, strict=True)})
                    for read in outer.reads
                    if read.tensor.op is op and isinstance(op, Compute)
                ]
        elif reader == consumer:
            found.append((op, around))
        else:
            found.append((op, boxes[reader].spans))
    return found


def width_of(index: Expr, spans: Spans) -> int:
    """At most so many places that an index takes where axes take so many."""
    if isinstance(index, Axis):
        return spans.get(index, typical(index.extent))
    form = affine_of(index) if index.dtype is INT32 else None
    if form is None:
        return math.prod(spans.get(a, typical(a.extent)) for a in free_axes(index))
    width = 1
    for monomial, factor in form.terms.items():
        atoms = [_atom_width(a, spans) for a in monomial]
        width += abs(factor) * (math.prod(atoms) - 1) if atoms else 0
    return max(1, width)


def _atom_width(atom: Expr, spans: Spans) -> int:
    if isinstance(atom, Apply) and atom.fn in (Fn.FLOORDIV, Fn.MOD) and isinstance(atom.args[1], Const):
        inner, by = width_of(atom.args[0], spans), max(1, int(atom.args[1].value))
        return min(inner, by) if atom.fn is Fn.MOD else -(-inner // by)
    return width_of(atom, spans) if free_axes(atom) else 1


def extents_of(levels: Iterable[Level], spans: Spans, dims: Sequence[int] = ()) -> list[int]:
    """Iterations of each loop where axes, or dimensions, span so much: inner loops whole, outer ones the rest."""
    levels = list(levels)
    inner: dict[frozenset[Axis | int], int] = {}  # iterations of the loops of numbers, by what they go through
    for level in levels:
        if _is_whole(level):
            inner[frozenset(level.origin)] = inner.get(frozenset(level.origin), 1) * (level.constant or 1)
    found = []
    for level in levels:
        if _is_whole(level):
            found.append(level.constant or 1)
            continue
        extent = 1
        for origin in level.origin:
            span = spans.get(origin, 1) if isinstance(origin, Axis) else dims[origin] if dims else 0
            blocks = inner.get(frozenset({origin}), 1)
            extent *= max(1, -(-span // blocks)) if span else max(1, level.known or typical(level.extent))
        joined = inner.get(frozenset(level.origin), 1) if len(level.origin) > 1 else 1
        found.append(max(1, -(-extent // joined)))
    return found


def _is_whole(level: Level) -> bool:
    """Whether a loop always takes a number of iterations, as the inner one of a split does."""
    return level.constant is not None and level.known == level.constant
