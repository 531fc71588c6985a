"""Whether an output may be written over an input: every element of it is read before it is overwritten.

The question is asked of a program and of the order in which its stages run. A stage that is complete before the output
begins has read all it needs. What is read while the output is written is followed back to the input, through the
stages computed inside the output's loops: the element y that is read for x must not come before x in those loops. That
holds where y is x; where the loops around the read keep to the coordinates in which x and y agree (rows); or where the
first loop in which they differ is serial and y lies a fixed number of steps ahead.

A stage of several results stores one after another, unless it says that it stores them together: after all that is read
for any of them. A scan that does so, and stores each element once, may read the element that it stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product

import numpy as np

from tedsl.analysis.affine import affine_of
from tedsl.analysis.bounds import bounds_of
from tedsl.analysis.points import is_data_free, values_at
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Var
from tedsl.lang.extents import same_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.tensor import Compute, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import free_axes, operations_between, reads_of, substitute_all, topological

__all__ = ["Hazard", "Order", "StageLoop", "hazard_of"]

MOST_SITES = 2000  # reads followed through stages computed inside the output's loops


@dataclass(frozen=True)
class StageLoop:
    """One loop of a stage: the axes that it runs along, and how."""

    axes: frozenset[Axis | int]
    is_serial: bool


@dataclass
class Order:
    """The order in which stages run: what is inlined, what is computed at a loop of another stage, and the loops."""

    inlined: set[Operation] = field(default_factory=set)
    places: dict[Operation, tuple[Operation, int]] = field(default_factory=dict)  # consumer, loops around the stage
    loops: dict[Operation, tuple[StageLoop, ...]] = field(default_factory=dict)
    together: set[Operation] = field(default_factory=set)  # what stores an element once, after all reads for it
    again: set[Operation] = field(default_factory=set)  # what may compute an element a second time

    def host(self, op: Operation) -> Operation:
        """The stage at the root in whose loops a stage is computed."""
        while op in self.places:
            op = self.places[op][0]
        return op


@dataclass(frozen=True)
class Hazard:
    """A read that may come after the write: who reads, what, and an element of each where one is found."""

    stage: Operation
    read: str
    why: str
    example: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # (element read, element that needs it)
    in_turn: bool = False  # there is none where the results of a stage are stored together

    def text(self, output: Tensor, memory: Tensor) -> str:
        """What goes wrong, in one sentence; `output` and `memory` are the user's."""
        where = self.stage.where or output.op.where
        found = f"stage {self.stage.name!r} at {where} reads {self.read} {self.why}"
        if self.example is None:
            return found
        read, written = (", ".join(map(str, place)) for place in self.example)
        return (
            f"{found}: {memory.name}[{read}], needed for {output.name}[{written}], may be overwritten by "
            f"{output.name}[{read}] first"
        )


@dataclass(frozen=True)
class _Site:
    """A read of the input, its indices in terms of the output's axes; `depth` loops are around it."""

    stage: Operation
    read: Read
    indices: tuple[Expr, ...]
    depth: int | None
    guard: Expr = TRUE  # where the stage of the output uses what is read


def hazard_of(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], output: Tensor, source: Tensor, order: Order, *, own: bool
) -> Hazard | None:
    """Why `output` cannot be written into the memory of `source`, element on element; None where it provably can.

    `own`: the stage of `output` writes it (else a copy of its elements does, once the stage is complete).
    """
    own = own or output.op in order.inlined
    operations = operations_between(inputs, outputs)
    before = {order.host(op) for op in operations_between(inputs, [output])} - ({output.op} if own else set())
    for op in operations:
        if op in order.inlined:
            continue
        late = order.host(op)
        if late in before or (own and late is output.op):
            continue
        for site in _sites(op, source, order, None):
            why = f"for {late.name!r}, which may run after {output.name!r}"
            return Hazard(site.stage, str(site.read), why, in_turn=_are_alike(late, output.op, outputs))
    return _own_hazard(output, source, order) if own and output.op in set(operations) else None


def _are_alike(late: Operation, early: Operation, outputs: Sequence[Tensor]) -> bool:
    """Whether outputs of two stages could be those of one."""
    if not all(isinstance(op, Compute) and op.reduction is None for op in (late, early)):
        return False
    a, b = late.output().extents, early.output().extents
    return any(t.op is late for t in outputs) and len(a) == len(b) and all(map(same_extent, a, b))


def _own_hazard(output: Tensor, source: Tensor, order: Order) -> Hazard | None:
    """A read in the loops of the output's own stage that may come too late."""
    op = output.op
    if not isinstance(op, Compute) or op.reduction is not None:
        return _update_hazard(op, source, order)
    count = 0
    for position, body in enumerate(op.bodies):
        for site in _sites(op, source, order, None, (body,)):
            count += 1
            if op in order.again:
                return Hazard(site.stage, str(site.read), "again, where the last iterations are shifted inward")
            if count > MOST_SITES:
                return Hazard(op, source.name, "in more places than are looked at")
            if site.depth is None and position != output.index and op not in order.together:
                why = f"for {op.name_of(position)!r}, which is stored after {output.name!r}"
                return Hazard(site.stage, str(site.read), why, in_turn=_is_read_first(op, site, order))
            hazard = _judged(op, site, order)
            if hazard is not None:
                return hazard
    return None


def _update_hazard(op: Operation, source: Tensor, order: Order) -> Hazard | None:
    """A stage that writes its elements again and again: it may start from the input's, and read it no more."""
    kind = "scan" if isinstance(op, Scan) else "scatter" if isinstance(op, Scatter) else "reduction"
    for site in _sites(op, source, order, None, op.expressions):
        in_turn = isinstance(op, Scan) and _is_read_first(op, site, order)
        if in_turn and op in order.together:
            continue
        example = _example(op, site, _distances(op.axes, site)) if isinstance(op, Compute) else None
        return Hazard(
            site.stage, str(site.read), f"while the {kind} {op.name!r} updates its elements", example, in_turn
        )
    if not isinstance(op, Scatter) or op.init is None:
        return None
    start = _start(op.init)
    axes = [a for a in start.indices if isinstance(a, Axis)]
    for site in _through(start, TRUE, op, source, order, None, {}):
        if any(d != 0 for d in _distances(axes, site)) or site.depth is not None or op in order.again:
            return Hazard(site.stage, str(site.read), f"where {op.name!r} starts from other elements")
    return None


def _judged(op: Compute, site: _Site, order: Order) -> Hazard | None:
    if _is_read_first(op, site, order):
        return None
    example = _example(op, site, _distances(op.axes, site)) if len(op.axes) == len(site.indices) else None
    return Hazard(site.stage, str(site.read), "at an index that may already be overwritten", example)


def _is_read_first(op: Compute | Scan, site: _Site, order: Order) -> bool:
    """Whether what is read for an element is overwritten with it, or later."""
    if len(op.axes) != len(site.indices):  # rows of numbers are written, and pixels read
        return False
    distances = _distances(op.axes, site)
    if all(d == 0 for d in distances):
        return True
    if isinstance(op, Scan) and op.reverse:  # its loops run from the last step to the first
        distances = [-n if d in op.dims and n is not None else n for d, n in enumerate(distances)]
    loops = order.loops.get(op)
    return loops is not None and _comes_first(op.axes, distances, loops, site.depth)


def _comes_first(
    axes: Sequence[Axis], distances: Sequence[int | None], loops: Sequence[StageLoop], depth: int | None
) -> bool:
    """Whether what is read at these distances, inside `depth` loops, is overwritten in a later iteration or below."""
    ahead = dict(zip(axes, distances, strict=True))
    around = loops if depth is None else loops[:depth]
    for k, loop in enumerate(around):
        steps = [ahead.get(a) for a in loop.axes if isinstance(a, Axis)]
        if len(steps) == len(loop.axes) and all(s == 0 for s in steps):
            continue
        if len(loop.axes) != 1 or not loop.is_serial or not steps or steps[0] is None or steps[0] < 0:
            return False
        if not any(loop.axes & later.axes for later in loops[k + 1 :]):
            return True  # the whole axis is counted: strictly later
    return depth is not None and depth < len(loops)


def _distances(axes: Sequence[Axis], site: _Site) -> list[int | None]:
    """How far ahead of the written element the read one lies on each axis; None where that is no constant."""
    return [_distance(axis, index, site.guard) for axis, index in zip(axes, site.indices, strict=True)]


def _distance(axis: Axis, index: Expr, guard: Expr) -> int | None:
    form = None if any(isinstance(n, Read) for n in topological(index)) else affine_of(index)
    own = affine_of(axis)
    assert own is not None
    if form is None:
        return None
    rest = form - own
    if rest.is_constant:
        return rest.constant
    if guard is TRUE and not any(isinstance(a.extent, Const) and a.extent.value == 1 for a in rest.axes):
        return None
    low, high = bounds_of(rest.to_expr(), guard).numbers  # as of x[0] where the axis is 0, or has no other place
    return low if low == high else None


def _sites(
    op: Operation, source: Tensor, order: Order, depth: int | None, roots: Sequence[Expr] | None = None
) -> Iterator[_Site]:
    """The reads of `source` by a stage and by all that is computed inside its loops."""
    seen: dict[object, None] = {}
    roots_read = tuple(op.expressions if roots is None else roots)
    guards = guards_of(roots_read)
    for read in reads_of(roots_read):
        yield from _through(read, guards[read], op, source, order, depth, seen)
    if roots is None and isinstance(op, Scatter) and op.init is not None:
        yield from _through(_start(op.init), TRUE, op, source, order, depth, seen)


def _start(init: Tensor) -> Read:
    """The read by which a scatter takes over an element of its start values."""
    return Read(init, tuple(Axis(f"d{d}", e) for d, e in enumerate(init.extents)))


def _through(
    read: Read, guard: Expr, reader: Operation, source: Tensor, order: Order, depth: int | None,
    seen: dict[object, None],
) -> Iterator[_Site]:  # fmt: skip
    """A read of the input, or those that a stage inside the loops makes of it, with indices put in for its axes."""
    stack: list[tuple[Read, tuple[Expr, ...], Operation, int | None]] = [(read, read.indices, reader, depth)]
    while stack:
        node, indices, stage, level = stack.pop()
        if node.tensor is source:
            yield _Site(stage, node, indices, level, guard)
            continue
        made = node.tensor.op
        if made in order.places:
            level = _depth(made, order)
        elif made not in order.inlined:
            continue
        if (made, indices, level, guard) in seen:
            continue
        seen[made, indices, level, guard] = None
        inner = made.reads
        if isinstance(made, Compute):
            mapping: Mapping[Expr, Expr] = dict(zip(made.axes, indices, strict=True))
            flat = iter(substitute_all([i for r in inner for i in r.indices], mapping))
            stack += [(r, tuple(next(flat) for _ in r.indices), made, level) for r in inner]
        else:
            stack += [(r, r.indices, made, level) for r in inner]


def _depth(op: Operation, order: Order) -> int:
    """The number of loops of the host around a stage."""
    place, depth = order.places[op]
    while place in order.places:
        place, depth = order.places[place]
    return depth


def _example(
    op: Compute, site: _Site, distances: Sequence[int | None]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """An element that is read for another one that comes later in row-major order, or else just for another one."""
    extents = [int(a.extent.value) if isinstance(a.extent, Const) else 4 for a in op.axes]
    choices = [range(min(n, 4)) for n in extents]
    fallback = None
    for written in product(*choices):
        read = _element(op, site, distances, written, extents)
        if read is None or read == written:
            continue
        if read < written:
            return read, written
        fallback = fallback or (read, written)
    return fallback


def _element(
    op: Compute, site: _Site, distances: Sequence[int | None], written: tuple[int, ...], extents: Sequence[int]
) -> tuple[int, ...] | None:
    """The element read for one that is written; a coordinate that is no constant distance away is evaluated."""
    place: list[int] = []
    for x, d, index, n in zip(written, distances, site.indices, extents, strict=True):
        y = x + d if d is not None else _evaluated(index, dict(zip(op.axes, written, strict=True)))
        if y is None or not 0 <= y < n:
            return None
        place.append(y)
    return tuple(place)


def _evaluated(index: Expr, point: Mapping[Axis, int]) -> int | None:
    """An index at a point, other axes at their beginning; None where it reads data."""
    if not is_data_free([index]) or any(isinstance(n, Var) for n in topological(index)):
        return None
    begins = {a: 0 for a in free_axes(index) if a not in point}
    return int(values_at([index], {a: np.array([v]) for a, v in {**begins, **point}.items()})[0].item())
