"""How arrays lie in memory, as kernels without checks of their own suppose it."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["LARGEST", "Shape", "misfit"]

LARGEST = 2**31 - 1

Shape = tuple[int, ...]


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
