"""Stages that are cheaper to compute again in each reader than to keep in memory.

A large array that two loop nests read is written once and read twice, and the processor fetches the lines that it is
about to write. All of that takes longer than the arithmetic of most stages, where the inputs come along a line at a
time as well.
"""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

from schedules.default.costs import (
    INLINE,
    Costs,
    costs_of,
    element_cost,
    is_costly,
    is_once,
    is_pointwise,
    is_same_point,
    points,
)
from schedules.default.groups import groups_of
from schedules.machine import Machine
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Expr, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import topological

__all__ = ["LINE", "costs_without_trips", "instructions", "widely_read"]

LINE = 16  # vector instructions in the time in which one core gets a vector from memory
DIVISION, FUNCTION = 20, 30  # vector instructions in the time of one
MOST_READERS = 3
MUCH_SMALLER = 16  # how often elements of a tensor must be used to stay in the cache
MOST_STREAMS = 8  # tensors that a small stage is made of within the kernel that reads it
SMALL = 1024  # elements of such a stage


@dataclass(frozen=True)
class _Inputs:
    """What a stage needs: elements from memory, and instructions."""

    streams: frozenset[Tensor]
    instructions: int


def costs_without_trips(
    stages: Sequence[Operation],
    outputs: AbstractSet[Operation],
    kept: AbstractSet[Operation],
    planned: AbstractSet[str],
    machine: Machine,
) -> Costs:
    """The costs of the stages, large ones inlined where that is faster; those in `kept` never are."""
    again: set[Operation] = set()
    while True:
        costs = costs_of(stages, kept, planned, machine, again)
        groups = groups_of(stages, outputs, planned, costs, machine)
        roots = {g.root for g in groups if all(_is_small(m, points(g.root.axes)) for m in g.members)}
        roots -= kept | again  # what `costs_of` had a reason not to inline stays
        more = next((op for op in stages if op in roots and _is_faster(op, costs, planned, machine)), None)
        if more is None:
            return costs
        again.add(more)


def widely_read(
    stages: Sequence[Operation], kept: AbstractSet[Operation], planned: AbstractSet[str], machine: Machine
) -> set[Operation]:
    """The stages made of several tensors that many kernels would compute again, each from all of these.

    Kept in memory they are read by each as one. What is more, kernels that differ in nothing but how such a stage comes
    about are then the same: those of repeated layers. So are small stages made of very many tensors: to compile
    code that unpacks as many arrays takes longer than all that it computes.
    """
    costs = costs_of(stages, kept, planned, machine)
    nests = _nests_reading(stages, costs)
    found: set[Operation] = set()
    element: dict[Operation, int] = {}  # of those that are computed in their readers
    streams: dict[Operation, frozenset[Tensor]] = {}
    for op in stages:
        if not is_pointwise(op) or op in kept or op.name in planned:
            continue
        reads = op.reads
        cost = element_cost(op) + sum(element.get(r.tensor.op, 0) for r in reads)
        if op not in costs.inlined and cost > machine.choose("inline", INLINE, op.name):
            continue
        size = _size(op.outputs[0])
        large = [r.tensor for r in reads if _size(r.tensor) * MUCH_SMALLER > size]
        read = frozenset().union(*(streams.get(t.op, {t}) for t in large))
        directly = {reader for reader, _ in costs.readers.get(op, [])}
        is_wide = len(directly) > 1 and len(nests[op]) >= machine.least.wide_readers and len(read) > 1
        if is_wide or (len(read) > MOST_STREAMS and size <= SMALL):
            found.add(op)
        else:
            element[op], streams[op] = cost, read
    return found


def _nests_reading(stages: Sequence[Operation], costs: Costs) -> dict[Operation, set[Operation]]:
    """The stages in whose loops elements of each stage are read, by themselves or through what is inlined."""
    found: dict[Operation, set[Operation]] = {}
    for op in reversed(stages):
        found[op] = set()
        for reader, _ in costs.readers.get(op, []):
            found[op] |= found[reader] if reader in costs.inlined else {reader}
    return found


def _is_faster(op: Operation, costs: Costs, planned: AbstractSet[str], machine: Machine) -> bool:
    """Whether each reader should compute the elements of a stage itself."""
    assert isinstance(op, Compute)
    if not is_pointwise(op) or len(op.bodies) != 1 or any(number(a.extent) is None for a in op.axes):
        return False
    if points(op.axes) * op.bodies[0].dtype.itemsize <= machine.l2:
        return False
    readers = _readers(op, costs, planned)
    needs = _needs(op, costs, points(op.axes))
    if readers is None or needs is None or not 1 <= len(readers) <= MOST_READERS:
        return False
    streams, count = len(needs.streams), len(readers)
    stored = LINE * (streams + 2 + count)  # written after the lines were fetched, read by each
    return count * max(LINE * streams, needs.instructions) < stored


def _is_small(member: Operation, size: int) -> bool:
    """Whether a stage is so small beside its root that it stays in the cache, wherever it is computed."""
    return max(_size(t) for t in member.outputs) * MUCH_SMALLER <= size


def _readers(op: Operation, costs: Costs, planned: AbstractSet[str]) -> set[Operation] | None:
    """The loop nests in which elements of a stage are used, once each; None where one uses them more often."""
    found: set[Operation] = set()
    for reader, read in costs.readers.get(op, []):
        if reader in costs.inlined:
            further = _readers(reader, costs, planned) if is_same_point(reader, read) else None
            if further is None:
                return None
            found |= further
        elif reader.name in planned or not is_once(reader, read):
            return None
        else:
            found.add(reader)
    return found


def _needs(op: Compute, costs: Costs, size: int) -> _Inputs | None:
    """What an element takes, with all that is inlined; None where it reads large tensors but element by element."""
    streams: set[Tensor] = set()
    count = 0
    long = {a for a in op.axes if number(a.extent) != 1}
    for node in op.nodes:
        count += instructions(node)
        if not isinstance(node, Read):
            continue
        small = _size(node.tensor) * MUCH_SMALLER <= size
        moved = {a for i in node.indices if not isinstance(i, Axis) for a in topological(i) if isinstance(a, Axis)}
        if moved.intersection(op.axes[-1:] if small else long):
            return None  # along rows a small tensor may be read at quotients: that is one number
        inner = node.tensor.op
        if inner in costs.inlined and isinstance(inner, Compute):
            further = _needs(inner, costs, size)
            if further is None:
                return None
            streams |= further.streams
            count += further.instructions
        elif not small:
            if not long.issubset(node.indices):
                return None
            streams.add(node.tensor)
    return _Inputs(frozenset(streams), count)


def _size(tensor: Tensor) -> int:
    size = 1
    for extent in tensor.extents:
        size *= number(extent) or 1024
    return size


def instructions(node: Expr) -> int:
    """The vector instructions of one operation."""
    if not isinstance(node, Apply):
        return 0
    if not is_costly(node):
        return 1
    return DIVISION if node.fn is Fn.DIV else FUNCTION
