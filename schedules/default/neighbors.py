"""Whether elements that are neighbors along a loop are neighbors in memory, too: what a vector is made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tedsl.lang.expr import Apply, Axis, Const, Fn, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Placeholder
from tedsl.lang.traverse import free_axes, topological

__all__ = ["along", "is_along", "last_of", "period"]

T = TypeVar("T")

MOST_PERIOD = 8  # vectors
NEVER = 1 << 20


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


def last_of(items: Sequence[T], dim: int) -> tuple[T, ...]:
    """With one of them last."""
    return (*items[:dim], *items[dim + 1 :], items[dim])


def period(op: Compute, vector: Axis, width: int) -> int:
    """So many vectors after which quotients and remainders along them begin anew: each of these is then known by lane.

    `x[j // 3]` is a few elements and a shuffle in each of three vectors, where in one it is a lookup.
    """
    every, extent = 1, number(vector.extent)
    for index in {i for r in op.reads for i in r.indices if vector in set(free_axes(i))}:
        for node in topological(index):
            if isinstance(node, Apply) and node.fn in (Fn.FLOORDIV, Fn.MOD) and vector in set(free_axes(node)):
                by = node.args[1]
                every = math.lcm(every, int(by.value) if isinstance(by, Const) and by.value > 0 else NEVER)
    times = math.lcm(every, width) // width
    if times > MOST_PERIOD or extent is None or extent < times * width or _is_lost(op, extent, times, width):
        return 1
    return times


def _is_lost(op: Compute, extent: int, times: int, width: int) -> bool:
    """Whether Halide 21 would compute whole vectors of the last turn though they lie past the end.

    It takes a branch in which something that it allocated would be read out of bounds for one that is never reached,
    and leaves out the condition around the vector.
    """
    left = extent % (times * width)
    is_past = bool(left) and times * width - left >= width
    return is_past and any(not isinstance(r.tensor.op, Placeholder) for r in op.reads)
