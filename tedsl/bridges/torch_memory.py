"""PyTorch tensors as NumPy arrays over the same memory, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tedsl.analysis.foreign import array_of, tensor_of
from tedsl.lang.dtypes import ALL
from tedsl.ops.routines import Routine

__all__ = ["NAMES", "TYPES", "as_array", "checked", "run", "writable"]

TYPES: dict[str, Any] = {str(d): getattr(torch, d) for d in ALL}
NAMES: dict[Any, str] = {t: n for n, t in TYPES.items()}


def checked(tensors: Sequence[Any], names: Sequence[str], what: str) -> None:
    """Refuse what no kernel can read, by the name of the argument."""
    for tensor, name in zip(tensors, names, strict=True):
        place = f"{what}: argument {name!r}"
        if torch._C._functorch.is_legacy_batchedtensor(tensor):
            raise NotImplementedError(
                f"{place} is batched by PyTorch's older vmap (is_grads_batched=True, vectorize=True), which has no "
                "rules for operators; use torch.func (vmap, jacrev, hessian)"
            )
        if tensor.layout is not torch.strided:
            raise TypeError(f"{place}: expected a dense tensor, found layout {tensor.layout}; give x.to_dense()")
        if tensor.is_nested or tensor.is_quantized:
            raise TypeError(f"{place}: expected a plain tensor, found a nested or quantized one")
        if tensor.dtype not in NAMES:
            fix = "; give its real and imaginary parts (torch.view_as_real(x))" if tensor.is_complex() else ""
            raise TypeError(f"{place}: dtype {tensor.dtype} is not supported, expected one of {', '.join(ALL)}{fix}")
        if tensor.device != tensors[0].device:
            raise ValueError(
                f"{place} is on {tensor.device}, but {names[0]!r} is on {tensors[0].device}; move them to one device"
            )
        if tensor.device.type not in ("cpu", "meta"):
            raise ValueError(f"{place} is on {tensor.device}; ops run on the CPU: give x.cpu()")


def as_array(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the CPU, to be read."""
    return array_of(tensor.resolve_neg())


def writable(tensor: Any, place: str) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the CPU, to be written."""
    if tensor.is_neg():
        raise ValueError(f"{place}: the tensor shows the negative of what is in its memory; give one of its own")
    return array_of(tensor)


def run(routine: Routine, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a routine for tensors on the CPU."""
    try:
        return tuple([torch.from_numpy(a) for a in routine.run([t.detach().numpy() for t in tensors])])
    except (TypeError, RuntimeError):  # bfloat16, or something to be refused
        checked(tensors, routine.input_names, routine.name)
        return tuple(tensor_of(a) for a in routine.run([as_array(t) for t in tensors]))
