"""How arrays lie in memory, as kernels without checks of their own suppose it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tedsl.analysis.sizes import known_shape
from tedsl.lang.tensor import Placeholder, Tensor

__all__ = ["LARGEST", "Shape", "contiguous_strides", "misfit", "row_length", "strides_of"]

LARGEST = 2**31 - 1

Shape = tuple[int, ...]


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of an array whose elements lie side by side."""
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def strides_of(tensor: Tensor) -> Shape:
    """The strides, in elements, of the array for a tensor of known shape in calls on compact arrays."""
    if isinstance(tensor.op, Placeholder) and tensor.op.strides:
        return tensor.op.strides
    return contiguous_strides(known_shape(tensor) or (), 1)


def row_length(tensor: Tensor) -> int:
    """The elements from its first to its last one in memory."""
    shape = known_shape(tensor) or ()
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides_of(tensor), strict=True)) if 0 not in shape else 0


def misfit(shape: Shape, steps: Sequence[int], expected: Shape, *, compact: bool = False) -> str | None:
    """What of an array is not as the proof supposes; `steps` are its strides in elements."""
    if shape != expected:
        return f"shape {expected} was expected, found {shape}"
    if shape and steps[-1] != 1:
        return f"elements of the last axis are expected to lie side by side, found a step of {steps[-1]}"
    if compact and any(step != math.prod(shape[k + 1 :]) for k, step in enumerate(steps)):
        return f"elements are expected to lie side by side, found steps {tuple(steps)}"
    if any(n * abs(step) > LARGEST for n, step in zip(shape, steps, strict=True)):
        return f"it spans more than {LARGEST} elements (shape {shape}, steps {tuple(steps)})"
    return None
