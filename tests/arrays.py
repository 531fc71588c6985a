"""Arrays to feed programs with."""

from __future__ import annotations

from typing import Any

import numpy as np

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Normally distributed numbers, others at every call."""
    return RNG.standard_normal(shape).astype(np.float32)


def uniform(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers between 0 and 1, the same at every call."""
    return np.random.default_rng(seed).random(shape, np.float32)
