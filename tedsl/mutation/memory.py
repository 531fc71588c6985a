"""`te.copy` and `te.may_alias`: memory of one's own, and whether two arrays share any."""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.analysis.arrays.donated import check_not_donated
from tedsl.analysis.arrays.feeds import check_not_masked
from tedsl.lang.elements import tensor_of
from tedsl.lang.expr import Read
from tedsl.lang.foreign import array_of, is_torch
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor
from tedsl.mutation import functions as functions, torch_methods as torch_methods  # their tables are the traced arrays'
from tedsl.mutation.array import Array, lowered, new_array
from tedsl.mutation.methods import copied
from tedsl.mutation.outlines import Outline
from tedsl.mutation.tracing import active_trace

__all__ = ["as_numpy", "copy", "may_alias"]


@own_arguments()
def copy(x: Any) -> Any:
    """A copy of `x`, in memory of its own.

    An array of any framework gives an array of that framework; gradients go through a copy of a tensor of PyTorch. A
    tensor gives a stage that copies. Inside a function that te.functionalize traces, a copy may be written into.
    """
    trace = active_trace()
    if isinstance(x, Array):
        return copied(x)
    if trace is not None and isinstance(x, (Tensor, np.ndarray)):
        return new_array(trace, lowered(x, trace), is_value=False)
    if isinstance(x, Tensor):
        return tensor_of(x.extents, lambda *axes: Read(x, axes), f"{x.name}_copy")
    if is_torch(x):
        return x.clone()
    array = np.array(as_numpy(x, "te.copy"), order="C")
    return array if isinstance(x, (np.ndarray, np.generic)) or not hasattr(x, "copy") else x.copy()


@own_arguments()
def may_alias(x: Any, y: Any) -> bool:
    """Whether some element of `x` and some element of `y` lie on a common byte: exact for strided arrays.

    Byte ranges that do not meet decide most pairs; the others are decided by solving for indices, so that `a[0::2]` and
    `a[1::2]` do not alias; where symbolic extents decide, they may. Tensors are values: they never do.
    """
    if isinstance(x, Array) and isinstance(y, Array):
        if x.storage is not y.storage or isinstance(x.ghost, Outline):
            return x.storage is y.storage and not x.ghost.is_apart(y.ghost)
        return bool(np.shares_memory(x.ghost, y.ghost))
    if any(isinstance(v, (Array, Tensor)) for v in (x, y)):
        return False
    return bool(np.shares_memory(as_numpy(x, "te.may_alias"), as_numpy(y, "te.may_alias")))


def as_numpy(x: Any, what: str) -> np.ndarray[Any, Any]:
    """A NumPy array over the memory of an array of any framework; TypeError where that would take a copy."""
    check_not_masked(x, what)
    if isinstance(x, np.ndarray):
        check_not_donated([("x", x)], what)
        return x
    if is_torch(x):
        if x.device.type != "cpu":
            raise TypeError(f"{what}: expected a tensor on the CPU, found one on {x.device}; move it with x.cpu()")
        return array_of(x)
    if hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        return np.asarray(x)
    if hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    raise TypeError(f"{what}: expected an array, found {type(x).__name__} ({x!r:.40})")
