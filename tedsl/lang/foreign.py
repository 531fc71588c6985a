"""Arrays of PyTorch and JAX, without importing them: NumPy arrays over them, and what autograd must know.

What is computed from them there, autograd does not record, and what is written into them
it does not see; so the first is refused where a gradient is asked for, and the second is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from tedsl.lang.dtypes import BFLOAT16
from tedsl.lang.operators import Operators

__all__ = [
    "array_of",
    "check_not_recorded",
    "has_elements",
    "is_recorded",
    "is_torch",
    "note_writes",
    "tensor_of",
    "values_of",
]


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


def has_elements(value: Any) -> bool:
    """Whether NumPy takes a value that is not ours for an array, or for an element of one."""
    is_ours = isinstance(value, Operators)
    return not is_ours and (hasattr(value, "__array__") or hasattr(value, "__array_interface__"))


def values_of(value: Any, place: str) -> np.ndarray[Any, Any]:
    """What is to be a constant of a program, as a NumPy array, where nobody waits for its gradient."""
    if is_torch(value) and value.requires_grad:
        raise TypeError(
            f"{place}: a torch.{type(value).__name__} that requires grad would be a constant here, of which autograd "
            "knows nothing; make it an argument, or give x.detach()"
        )
    if is_traced(value):
        raise TypeError(
            f"{place}: an array that JAX traces (jit, grad, vmap) would be a constant here; make it an argument of "
            "the operator"
        )
    try:
        return array_of(value) if is_torch(value) else np.asarray(value)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{place}: expected an array, found {type(value).__name__} ({_line(value):.60}): {error}") from None


def _line(value: Any) -> str:
    return " ".join(repr(value).split())


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
