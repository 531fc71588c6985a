"""Tensors of PyTorch as memory, without importing it: NumPy arrays over them, and what autograd must know.

What is computed from them there, autograd does not record, and what is written into them
it does not see; so the first is refused where a gradient is asked for, and the second is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from tedsl.lang.dtypes import BFLOAT16

__all__ = ["array_of", "check_not_recorded", "is_recorded", "is_torch", "note_writes", "tensor_of"]


def is_torch(x: Any) -> bool:
    """Whether `x` is a tensor of PyTorch."""
    return any(c.__module__.partition(".")[0] == "torch" for c in type(x).__mro__) and hasattr(x, "detach")


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the CPU as a NumPy array, which knows no bfloat16 of its own."""
    tensor = tensor.detach()
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise TypeError(
            f"expected a dense tensor on the CPU, found layout {tensor.layout} on {tensor.device}; give x.to_dense(), "
            "x.cpu()"
        )
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.int16)
        bits: np.ndarray[Any, Any] = tensor.numpy()
        return bits.view(BFLOAT16.numpy)
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def tensor_of(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over the memory of an array."""
    torch = sys.modules["torch"]
    if array.dtype == BFLOAT16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def note_writes(arrays: Iterable[Any]) -> None:
    """Tell PyTorch which tensors were written: what autograd saved of them is not their value any more."""
    for x in arrays:
        if is_torch(x):
            sys.modules["torch"].autograd.graph.increment_version(x)


def is_recorded(x: Any) -> bool:
    """Whether PyTorch records what is done with `x`, to differentiate it."""
    return is_torch(x) and x.requires_grad and bool(sys.modules["torch"].is_grad_enabled())


def is_traced(x: Any) -> bool:
    """Whether `x` stands for an array in a function that JAX transforms."""
    return any(c.__module__.partition(".")[0] == "jax" and c.__name__ == "Tracer" for c in type(x).__mro__)


def check_not_recorded(x: Any, place: str) -> None:
    """RuntimeError, as PyTorch's own, for a tensor whose gradient would be lost without a word."""
    if is_traced(x):
        raise TypeError(
            f"{place} is traced by JAX (jit, grad, vmap), and a kernel takes arrays: call it outside, or make an "
            "operator of the function with @te.op, which JAX can trace and differentiate"
        )
    if is_recorded(x):
        raise RuntimeError(
            f"{place} requires grad, and autograd does not record this call: give x.detach(), call it under "
            "torch.no_grad(), or make an operator of the function with @te.op, which has a gradient"
        )
