"""The order of steps that needs little memory: what frees as much as it takes goes first.

A gradient of a weight is computed as soon as it can be, so that what it reads is not kept while the gradients of all
other layers are. What may be written over one of the inputs waits until nobody else reads that input.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence, Set

from schedules.cutting.cuts import PlanPart
from schedules.sizes import typical
from tedsl.lang.extents import same_layout
from tedsl.lang.tensor import Tensor

__all__ = ["in_little_memory", "typical_bytes"]


def in_little_memory(parts: Sequence[PlanPart], inputs: Set[Tensor], outputs: Set[Tensor]) -> list[PlanPart]:
    """The parts in an order in which each comes after what it reads; `outputs` are kept to the end."""
    state = _State(parts, inputs, outputs)
    order: list[PlanPart] = []
    while state.ready:
        order.append(state.next())
        state.run(order[-1])
    return order


class _State:
    """The parts that can run, in the order of the program, and for each tensor the parts that have yet to read it."""

    def __init__(self, parts: Sequence[PlanPart], inputs: Set[Tensor], outputs: Set[Tensor]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._lasting = inputs | outputs
        self.places = {part: k for k, part in enumerate(parts)}
        self.readers: dict[Tensor, dict[PlanPart, None]] = {}
        for part in parts:
            for tensor in part.inputs:
                self.readers.setdefault(tensor, {})[part] = None
        made = {t for part in parts for t in part.outputs}
        self.missing = {part: made.intersection(part.inputs) for part in parts}
        self.ready = [part for part in parts if not self.missing[part]]

    def run(self, part: PlanPart) -> None:
        """Let a part have run."""
        self.ready.remove(part)
        for tensor in part.inputs:
            self.readers[tensor].pop(part)
        for tensor in part.outputs:
            for reader in self.readers.get(tensor, ()):
                self.missing[reader].discard(tensor)
                if not self.missing[reader]:
                    insort(self.ready, reader, key=self.places.__getitem__)

    def next(self) -> PlanPart:
        """The part that frees most, if one frees as much as it takes; else the first that can run."""
        ready = self.ready
        free = [part for part in ready if not self._may_overwrite(part)] or ready
        best = max(free, key=self._gain)
        return best if self._gain(best) >= 0 else free[0]

    def _gain(self, part: PlanPart) -> int:
        """Bytes that are free after a part, less those that it takes."""
        freed = sum(typical_bytes(t) for t in part.inputs if t not in self._lasting and self._is_last(t))
        return freed - sum(typical_bytes(t) for t in part.outputs if t not in self.outputs)

    def _is_last(self, tensor: Tensor) -> bool:
        """Whether one part alone has yet to read a tensor."""
        return len(self.readers[tensor]) == 1

    def _may_overwrite(self, part: PlanPart) -> bool:
        """Whether it updates an input that others have yet to read."""
        results = [t for t in part.outputs if t in self.outputs]
        return any(
            not self._is_last(source) and any(same_layout(result, source) for result in results)
            for source in part.inputs
            if source in self.inputs
        )


def typical_bytes(tensor: Tensor) -> int:
    """The size of a tensor, with a guess for what is not known."""
    size = tensor.dtype.itemsize
    for extent in tensor.extents:
        size *= typical(extent)
    return size
