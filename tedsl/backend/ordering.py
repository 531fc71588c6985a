"""The order of steps that needs little memory: what frees as much as it takes goes first.

A gradient of a weight is computed as soon as it can be, so that what it reads is not kept while the gradients of all
other layers are. What may be written over one of the inputs waits until nobody else reads that input.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from schedules.cutting import Part
from schedules.default.sizes import typical
from tedsl.lang.extents import same_extent
from tedsl.lang.tensor import Tensor

__all__ = ["in_little_memory", "typical_bytes"]


def in_little_memory(parts: Sequence[Part], inputs: Set[Tensor], outputs: Set[Tensor]) -> list[Part]:
    """The parts in an order in which each comes after what it reads; `outputs` are kept to the end."""
    state = _State(list(parts), {t: set() for part in parts for t in part.inputs}, inputs, outputs)
    for part in parts:
        for tensor in part.inputs:
            state.readers[tensor].add(part)
    order: list[Part] = []
    while state.waiting:
        order.append(state.next())
        state.waiting.remove(order[-1])
        for tensor in order[-1].inputs:
            state.readers[tensor].discard(order[-1])
        state.missing.difference_update(order[-1].outputs)
    return order


@dataclass(eq=False)
class _State:
    """The parts that have not run, and for each tensor those of them that read it."""

    waiting: list[Part]
    readers: dict[Tensor, set[Part]]
    inputs: Set[Tensor]
    outputs: Set[Tensor]

    def __post_init__(self) -> None:
        self.missing = {t for part in self.waiting for t in part.outputs}

    def next(self) -> Part:
        """The part that frees most, if one frees as much as it takes; else the first that can run."""
        ready = [part for part in self.waiting if self.missing.isdisjoint(part.inputs)]
        free = [part for part in ready if not self._may_overwrite(part)] or ready
        best = max(free, key=self._gain)
        return best if self._gain(best) >= 0 else free[0]

    def _gain(self, part: Part) -> int:
        """Bytes that are free after a part, less those that it takes."""
        mine = {part}
        freed = sum(typical_bytes(t) for t in part.inputs if t not in self._lasting and self.readers[t] == mine)
        return freed - sum(typical_bytes(t) for t in part.outputs if t not in self.outputs)

    @property
    def _lasting(self) -> Set[Tensor]:
        return self.inputs | self.outputs

    def _may_overwrite(self, part: Part) -> bool:
        """Whether it updates an input that others have yet to read."""
        results = [t for t in part.outputs if t in self.outputs]
        return any(
            self.readers[source] != {part} and any(_fits(result, source) for result in results)
            for source in part.inputs
            if source in self.inputs
        )


def _fits(a: Tensor, b: Tensor) -> bool:
    return a.dtype is b.dtype and a.ndim == b.ndim and all(map(same_extent, a.extents, b.extents))


def typical_bytes(tensor: Tensor) -> int:
    """The size of a tensor, with a guess for what is not known."""
    size = tensor.dtype.itemsize
    for extent in tensor.extents:
        size *= typical(extent)
    return size
