"""PyTorch tensors as what kernels take: NumPy arrays over the same memory, or on a GPU for CUDA the tensors themselves.

The device of the tensors chooses the target. On a GPU the results are new tensors there, made and queued on PyTorch's
current stream; nothing is copied and nobody waits, but where a tensor has no elements, which no GPU can hold.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tedsl.backend.calling.on_gpu import EmptyArrayError
from tedsl.backend.host.targets import cuda_target
from tedsl.lang.dtypes import ALL
from tedsl.lang.foreign import array_of, tensor_of
from tedsl.ops.routines import Routine
from tedsl.ops.shapes import Spec

__all__ = ["HOST", "NAMES", "TYPES", "as_array", "as_given", "checked", "run", "specs_of", "target_of", "writable"]

HOST = "host"  # the target for tensors on the CPU; a rehearsal without a GPU puts OpenCL here
DEVICES = ("cpu", "cuda", "meta")

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
        if tensor.device.type not in DEVICES:
            raise ValueError(
                f"{place} is on {tensor.device}; ops run on the CPU and on GPUs for CUDA ('cuda'): give x.cpu()"
            )


def specs_of(tensors: Sequence[Any]) -> tuple[Spec, ...]:
    """Shapes and dtypes."""
    return tuple([(tuple(t.shape), NAMES.get(t.dtype, str(t.dtype))) for t in tensors])


def target_of(tensor: Any) -> str:
    """What to compile for, to compute where a tensor is."""
    return _cuda_target(tensor.device.index) if tensor.is_cuda else HOST


@functools.cache
def _cuda_target(index: int) -> str:
    return cuda_target(*torch.cuda.get_device_capability(index))


def as_given(tensor: Any) -> Any:
    """A tensor on a GPU as a kernel reads it."""
    return _in_memory(tensor.detach())


def as_array(tensor: Any) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the CPU, to be read."""
    return array_of(_in_memory(tensor))


def _in_memory(tensor: Any) -> Any:
    """The tensor with its elements where it points: derivatives may be the negative of that, or zeros nowhere."""
    return torch.zeros_like(tensor) if tensor._is_zerotensor() else tensor.resolve_neg()


def writable(tensor: Any, place: str) -> np.ndarray[Any, Any]:
    """The memory of a tensor on the CPU, to be written."""
    if tensor.is_neg():
        raise ValueError(f"{place}: the tensor shows the negative of what is in its memory; give one of its own")
    return array_of(tensor)


def run(routine: Routine, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a routine, on the device of the tensors."""
    if tensors[0].is_cuda:
        return _run_there(routine, tensors)
    try:
        return tuple([torch.from_numpy(a) for a in routine.run([t.detach().numpy() for t in tensors], HOST)])
    except (TypeError, RuntimeError):  # bfloat16, or something to be refused
        checked(tensors, routine.input_names, routine.name)
        return tuple(tensor_of(a) for a in routine.run([as_array(t) for t in tensors], HOST))


def _run_there(routine: Routine, tensors: Sequence[Any]) -> tuple[Any, ...]:
    given = [as_given(t) for t in tensors]
    traced = routine.traces.get(specs_of(tensors))
    kernel = None if traced is None else traced.kernels.get(target_of(tensors[0]))
    results: tuple[Any, ...] | None = None if kernel is None else kernel.again(given)
    if results is None:
        results = _first_run_there(routine, tensors, given)
    return results


def _first_run_there(routine: Routine, tensors: Sequence[Any], given: Sequence[Any]) -> tuple[Any, ...]:
    checked(tensors, routine.input_names, routine.name)
    kernel = routine.traced(specs_of(tensors)).kernel_for(target_of(tensors[0]))
    try:
        results: tuple[Any, ...] = kernel(*given)
    except EmptyArrayError:
        here = run(routine, [t.cpu() for t in tensors])
        results = tuple(tensors[0].new_empty(t.shape, dtype=t.dtype).copy_(t) for t in here)
    return results
