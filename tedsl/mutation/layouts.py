"""Memory that is never touched: a NumPy array of one byte per element stands for the layout of a traced array.

Indexing, transposing or reshaping the stand-in gives the offset and strides that NumPy itself would give, and tells
whether the result is a view, so that no rule of NumPy's is written down a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tedsl.lang.dataclass import dataclass

__all__ = ["Ghost", "Layout", "ghost_of_result", "ghost_with", "memory_order", "new_ghost"]

Ghost = np.ndarray[Any, np.dtype[np.int8]]


@dataclass(frozen=True)
class Layout:
    """Element v lies at offset + sum(strides * v), counted in elements from the beginning of a memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @classmethod
    def of(cls, ghost: Ghost, memory: Ghost) -> Layout:
        start = ghost.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
        return cls(ghost.shape, ghost.strides, start if ghost.size else 0)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape


def new_ghost(shape: Sequence[int]) -> Ghost:
    """A stand-in in row-major order."""
    return np.empty(tuple(shape), np.int8)


def ghost_with(shape: Sequence[int], strides: Sequence[int]) -> tuple[Ghost, Ghost]:
    """A memory, and a stand-in in it with these strides, counted in elements."""
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    if 0 in shape:
        return (ghost := new_ghost(shape)), ghost
    before = -sum(r for r in reach if r < 0)
    memory = np.empty(before + sum(r for r in reach if r > 0) + 1, np.int8)
    return memory, np.ndarray(tuple(shape), np.int8, memory.data, before, tuple(strides))


def memory_order(layout: Layout) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost, where the elements fill a memory from its beginning."""
    order = tuple(sorted(range(len(layout.shape)), key=lambda d: (-layout.strides[d], layout.shape[d] == 1, d)))
    step = 1
    for d in reversed(order):
        if layout.shape[d] != 1 and layout.strides[d] != step:
            return None
        step *= layout.shape[d]
    return order if layout.offset == 0 else None


def ghost_of_result(operands: Sequence[Ghost], shape: tuple[int, ...]) -> Ghost:
    """A stand-in for what NumPy allocates for an element-wise operation: in the order of the operands' axes."""
    if not operands or not shape or 0 in shape or len(operands) > 30:
        return new_ghost(shape)
    flags: Any = [["readonly"]] * len(operands) + [["writeonly", "allocate"]]
    walk = np.nditer([*operands, None], ["refs_ok"], flags, order="K", itershape=shape)
    result: Ghost = walk.operands[-1]
    return result
