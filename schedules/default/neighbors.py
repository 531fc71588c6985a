"""Whether elements that are neighbors along a loop are neighbors in memory, too: what a vector is made of."""

from __future__ import annotations

from collections.abc import Iterable

from tedsl.lang.expr import Axis, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Operation
from tedsl.lang.traverse import topological

__all__ = ["along", "is_along"]


def along(op: Operation, axis: Axis) -> bool:
    """Whether neighbors along `axis` are neighbors in memory in every read, or one and the same element."""
    return is_along(op.reads, axis)


def is_along(reads: Iterable[Read], axis: Axis) -> bool:
    """The same of some reads."""
    for read in reads:
        inside = [d for d, index in enumerate(read.indices) if axis in set(topological(index))]
        last = max((d for d, n in enumerate(read.tensor.extents) if number(n) != 1), default=len(read.indices) - 1)
        if any(d != last for d in inside):
            return False
    return True
