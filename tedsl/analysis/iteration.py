"""Which iterations of scatters and scans are independent: schedules and lowering must give one answer."""

from __future__ import annotations

from tedsl.lang.expr import Axis, Const, Reduce
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Scan, Scatter

__all__ = ["free_dimensions", "is_independent", "is_stepped", "reads_elsewhere"]


def free_dimensions(op: Scatter) -> dict[int, Axis]:
    """The dimensions of a scatter indexed by one whole axis: points that differ in it never meet."""
    free: dict[int, Axis] = {}
    own = set(op.axes)
    for dim, (row, extent) in enumerate(zip(op.index, op.shape, strict=True)):
        if not isinstance(row, Axis) or row not in own or row in set(free.values()) or row.extent is None:
            continue
        if isinstance(row.begin, Const) and row.begin.value == 0 and same_extent(row.extent, extent):
            free[dim] = row
    return free


def reads_elsewhere(op: Scan) -> bool:
    """Whether a body reads a state at another place of the axes beside its steps."""
    own = set(map(id, op.states))
    return any(
        index is not op.axes[d]
        for read in op.reads
        if id(read.tensor) in own
        for d, index in enumerate(read.indices)
        if d not in op.dims
    )


def is_independent(op: Scan, dim: int) -> bool:
    """Whether the recurrences along an axis do not read one another: each state is read at its own place there."""
    if dim in op.dims:
        return False
    own = set(map(id, op.states))
    return all(read.indices[dim] is op.axes[dim] for read in op.reads if id(read.tensor) in own)


def is_stepped(op: Scan) -> bool:
    """Whether all other axes run inside each time step: a body reads elsewhere, reduces over a state, or has phases."""
    return bool(op.parts) or reads_elsewhere(op) or any(isinstance(node, Reduce) for node in op.nodes)
