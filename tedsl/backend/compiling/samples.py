"""Arrays to measure a program with: drawn, the same in every run, unless they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.arrays.feeds import check_array
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Constant, Placeholder, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["inputs_of", "samples"]

WHAT = "te.tune"


def inputs_of(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The placeholders that the outputs need."""
    return [op.output() for op in stages_of(outputs) if isinstance(op, Placeholder)]


def samples(
    inputs: Sequence[Tensor],
    sizes: Mapping[Var, int],
    feeds: Mapping[Tensor, Any],
    runs: Callable[[list[Array]], object],
) -> list[Array]:
    """An array for every input that `runs` accepts: integers may be indices, so they are small, or 0 if these fail."""
    last: IndexError | None = None
    for most in (4, 1):
        draw = np.random.default_rng(0)
        arrays = [_given(t, feeds[t]) if t in feeds else _drawn(t, sizes, draw, most) for t in inputs]
        if all(t in feeds or t.dtype.is_float or isinstance(t.op, Constant) for t in inputs):
            return arrays
        try:
            runs(arrays)
        except IndexError as error:
            last = error
        else:
            return arrays
    raise IndexError(f"{WHAT}: an index that is read from drawn numbers is out of bounds; give feeds= ({last})")


def _given(tensor: Tensor, value: Any) -> Array:
    return check_array(tensor, np.asarray(value), WHAT)


def _drawn(tensor: Tensor, sizes: Mapping[Var, int], draw: Any, most: int) -> Array:
    if isinstance(tensor.op, Constant):
        return tensor.op.array
    shape, dtype = concrete_shape(tensor, sizes, WHAT), tensor.dtype
    if dtype.is_bool:
        return np.asarray(draw.integers(0, 2, shape)).astype(dtype.numpy)
    if dtype.is_integer:
        return np.asarray(draw.integers(0, most, shape)).astype(dtype.numpy)
    return np.asarray(draw.standard_normal(shape)).astype(dtype.numpy)
