"""Which stages are computed row by row inside another one, so that what passes between them stays in the cache.

Softmax reads a row for its maximum, once more for the sum, and a third time for the result. When all three follow one
another for each row, the row comes from memory once. A row fills a vector at least: pixels of two or three numbers are
computed as rows of an image, stages of short rows one after the other, in vectors of many rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set as AbstractSet
from dataclasses import field

from schedules.default.costs import Costs
from schedules.default.neighbors import along
from schedules.machine import Machine
from schedules.sizes import typical
from tedsl.analysis.checks import read_to_check
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Const, Read
from tedsl.lang.extents import number, same_extent
from tedsl.lang.tensor import Compute, Operation, Scan

__all__ = ["Group", "groups_of", "read_by_checks"]

MOST_BYTES = 1 << 17  # of a stage, for each row
MOST_CACHES = 2  # second ones, as which the results of short rows are no more


@dataclass(eq=False)
class Group:
    """A stage with those that are computed at its `depth` outermost loops, inputs before users."""

    root: Compute
    depth: int
    members: list[Compute]
    deeper: dict[Compute, int] = field(default_factory=dict)  # those that only the root reads, at more of its loops


@dataclass(frozen=True, eq=False)
class _Place:
    root: Compute
    depth: int


def groups_of(
    stages: Sequence[Operation],
    outputs: AbstractSet[Operation],
    planned: AbstractSet[str],
    costs: Costs,
    machine: Machine,
) -> list[Group]:
    """The groups of the stages that are neither inlined nor planned, each stage in one of them."""
    places: dict[Operation, _Place | None] = {}
    checked = read_by_checks(stages)
    for op in reversed(stages):
        alone = op in outputs or op.name in planned or not isinstance(op, Compute) or op in checked
        places[op] = None if alone else _place(op, places, planned, costs, machine)
    found: dict[Operation, Group] = {}
    for op in stages:
        if isinstance(op, Compute) and op not in costs.inlined and op.name not in planned:
            place = places[op]
            if place is None:
                found[op] = Group(op, 0, [])
    for op in stages:
        place = places[op]
        if place is not None and op not in costs.inlined and isinstance(op, Compute):
            group = found[place.root]
            group.depth = min(group.depth, place.depth) if group.members else place.depth
            group.members.append(op)
    for group in found.values():
        for op in group.members:
            place = places[op]
            if place is not None and place.depth > group.depth and _is_for_root(op, group.root, costs):
                group.deeper[op] = place.depth
    return list(found.values())


def _is_for_root(op: Operation, root: Compute, costs: Costs) -> bool:
    """Whether all that reads a stage is part of the root."""
    return all(
        reader is root or (reader in costs.inlined and _is_for_root(reader, root, costs))
        for reader, _ in costs.readers.get(op, [])
    )


def read_by_checks(stages: Sequence[Operation]) -> set[Operation]:
    """What checks of indices that come from memory read, as a whole and before anything else is computed."""
    read = {op: read_to_check(op) for op in stages}
    found = {op for op, decide in read.items() if decide and isinstance(op, Scan)}.union(*read.values())
    for op in reversed(stages):
        if op in found:
            found.update(t.op for t in op.inputs)
    return found


def _place(
    op: Operation,
    places: dict[Operation, _Place | None],
    planned: AbstractSet[str],
    costs: Costs,
    machine: Machine,
) -> _Place | None:
    """Where all readers of a stage come together, if they do."""
    assert isinstance(op, Compute)
    sites = costs.readers.get(op, [])
    root: Compute | None = None
    depth = len(op.axes)
    for reader, read in sites:
        if not isinstance(reader, Compute) or reader.name in planned:
            return None
        place = places[reader]
        inlined = reader in costs.inlined
        if place is None and inlined:
            return None
        here = reader if place is None else place.root
        if root is not None and here is not root:
            return None
        root = here
        depth = min(depth, _shared(reader, read), depth if place is None else place.depth)
    if root is None or depth == 0:
        return None
    if depth == len(op.axes) == len(root.axes):
        depth -= 1
    while depth > 1 and _elements(root, depth) * root.bodies[0].dtype.itemsize < machine.vector_bytes:
        depth -= 1
    same = all(
        a.extent is not None and b.extent is not None and same_extent(a.extent, b.extent)
        for a, b in zip(op.axes[:depth], root.axes[:depth], strict=True)
    )
    if not same or depth == 0:
        return None
    if op in costs.inlined:
        return _Place(root, depth)
    if depth == len(op.axes) and op.reduction is not None and along(op, op.axes[-1]):
        return None  # elements side by side are a vector, a single one is none
    if _is_stream(op, root, depth, machine):
        return None
    size = _elements(op, depth) * op.bodies[0].dtype.itemsize
    return _Place(root, depth) if size <= machine.choose("row_bytes", MOST_BYTES, op.name) else None


def _is_stream(op: Compute, root: Compute, depth: int, machine: Machine) -> bool:
    """Whether rows are so short that vectors are better elements of many of them, of which each stage is a stream then.

    One element of the root for each row is no vector at all; several are a part of one, which goes to memory less often
    than streams do where these do not stay in the cache.
    """
    size = root.bodies[0].dtype.itemsize
    if max(_terms(op, depth), _elements(root, depth)) * size >= machine.vector_bytes:
        return False
    return _elements(root, depth) == 1 or _elements(root, 0) * size <= MOST_CACHES * machine.l2


def _elements(op: Compute, depth: int) -> int:
    """How many elements a stage has in a row."""
    return math.prod(typical(a.extent) for a in op.axes[depth:])


def _terms(op: Compute, depth: int) -> int:
    """How many elements a stage computes or reads in a row."""
    reduce = op.reduction
    return _elements(op, depth) * math.prod(typical(a.extent) for a in (() if reduce is None else reduce.axes))


def _shared(reader: Compute, read: Read) -> int:
    """How many of the reader's outermost loops are the first indices of the read."""
    count = 0
    for axis, index in zip(reader.axes, read.indices, strict=False):
        if axis is not index and not (number(axis.extent) == 1 and isinstance(index, Const)):
            break
        count += 1
    return count
