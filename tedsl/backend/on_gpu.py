"""Calls on arrays that lie on a GPU: nothing is copied, nothing waits, results are the arrays' own kind.

Any library's arrays that have `__cuda_array_interface__` are taken (PyTorch, CuPy, Numba, JAX), or DLPack alone. The
kernel runs in the device's primary context on the caller's stream: PyTorch's current one, the one that the interface
names, or the default stream, for which DLPack lets a library's work be complete.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tedsl.analysis.foreign import check_not_recorded, is_torch
from tedsl.analysis.sizes import bind_sizes, concrete_shape
from tedsl.backend.buffers import DeviceBinding, contiguous_strides, copy_reason
from tedsl.backend.capsules import exchanged, is_exchanged_on_gpu
from tedsl.backend.core import Core, Memory
from tedsl.backend.cuda import Place, device_of, place_on, wait_for
from tedsl.backend.given import given_outputs
from tedsl.lang.errors import AliasError
from tedsl.lang.expr import Var
from tedsl.lang.tensor import Tensor

__all__ = ["DeviceArray", "is_on_gpu", "listed", "run_on_gpu"]


@dataclass(frozen=True)
class DeviceArray:
    """What the interface tells of an array; named as NumPy names it."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int
    readonly: bool

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def span(self) -> tuple[int, int]:
        """Addresses from the first byte to past the last one."""
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)
        return self.address + low, self.address + high + self.itemsize


def is_on_gpu(value: Any) -> bool:
    """Whether an array lies in the memory of a GPU for CUDA."""
    if isinstance(value, (np.ndarray, np.generic)) or value is None:
        return False
    if is_torch(value):
        return bool(value.is_cuda)
    return hasattr(value, "__cuda_array_interface__") or is_exchanged_on_gpu(value)


def run_on_gpu(
    core: Core,
    tensors: tuple[Sequence[Tensor], Sequence[Tensor]],
    given: Sequence[Any],
    out: Any,
    sizes: Mapping[Var, int] | None,
    renamed: Mapping[Var, Var] | None,
    what: str,
) -> tuple[list[Any], list[DeviceArray], dict[Var, int]]:
    """The results in the order of the outputs, all arrays, and the sizes as the core has `renamed` them."""
    inputs, outputs = tensors
    if core.target.backend != "cuda":
        name = next(t.name for t, a in zip((*inputs, *outputs), (*given, *listed(out)), strict=False) if is_on_gpu(a))
        raise ValueError(
            f"{what}: the array for {name!r} is in the memory of a GPU, the kernel is for {core.target.name!r}; build "
            "it with target='cuda', or copy the array to the CPU"
        )
    arrays = [_described(a, t, f"{what}: input {t.name!r}") for t, a in zip(inputs, given, strict=True)]
    bound = bind_sizes(inputs, [a.shape for a in arrays], sizes, what)
    shapes = [concrete_shape(t, bound, what) for t in outputs]
    targets = given_outputs(outputs, out, what)
    like = next(a for a in (*given, *targets.values()) if is_on_gpu(a))
    results = [targets[p] if p in targets else _made(like, shapes[p], t, what) for p, t in enumerate(outputs)]
    written = [_described(a, t, f"{what}: out= for {t.name!r}") for t, a in zip(outputs, results, strict=True)]
    _check_written(outputs, written, shapes, arrays, what)
    bound = {(renamed or {}).get(v, v): n for v, n in bound.items()}
    memory = Memory(arrays, dict(enumerate(written)), {})  # type: ignore[arg-type]
    if core.has_empty_stage(memory, bound) or any(a.size == 0 for a in written):
        raise ValueError(f"{what}: some array has no elements, which no GPU can hold; copy the arrays to the CPU")
    variant, binding = core.bind(memory, ("write",) * len(outputs), bound)
    if variant.has_checks:
        raise ValueError(
            f"{what}: the program's indices or numbers are checked on the CPU, and the arrays are on a GPU; clamp the "
            "indices (mode='clamp'), or give NumPy arrays"
        )
    assert isinstance(binding, DeviceBinding)
    everything = [*arrays, *written]
    order: list[Any] = core.arguments(variant, memory)
    binding.run_there([a.address for a in order], _place([*given, *results], everything))
    return results, everything, bound


def listed(out: Any) -> list[Any]:
    """The arrays of `out=`."""
    return (
        list(out.values())
        if isinstance(out, Mapping)
        else list(out)
        if isinstance(out, (tuple, list))
        else []
        if out is None
        else [out]
    )


def _described(value: Any, tensor: Tensor, place: str) -> DeviceArray:
    """The array as its interface tells, checked against the tensor."""
    if not is_on_gpu(value):
        raise TypeError(
            f"{place}: {type(value).__name__} is not in the memory of a GPU, other arrays of the call are; all must be"
        )
    check_not_recorded(value, place)
    found = _by_interface(value, tensor, place) if _has_interface(value) else _by_dlpack(value, tensor, place)
    if found.ndim != tensor.ndim:
        raise ValueError(f"{place}: {tensor.ndim} axes were expected, found {found.ndim} (shape {found.shape})")
    reason = copy_reason(found.shape, found.strides, found.itemsize, on_device=True)
    if reason is not None:
        raise ValueError(f"{place}: {reason}; copy the array first")
    return found


def _has_interface(value: Any) -> bool:
    return is_torch(value) or hasattr(value, "__cuda_array_interface__")


def _by_interface(value: Any, tensor: Tensor, place: str) -> DeviceArray:
    told = (value.detach() if is_torch(value) else value).__cuda_array_interface__
    dtype, shape = np.dtype(told["typestr"]), tuple(told["shape"])
    if dtype != tensor.dtype.numpy:
        raise _other_dtype(tensor, str(dtype), place)
    strides = tuple(told.get("strides") or contiguous_strides(shape, dtype.itemsize))
    address, readonly = told["data"]
    return DeviceArray(int(address), shape, strides, dtype, int(told.get("stream") or 0), bool(readonly))


def _by_dlpack(value: Any, tensor: Tensor, place: str) -> DeviceArray:
    told = exchanged(value)
    if told.dtype != tensor.dtype:
        raise _other_dtype(tensor, told.dtype, place)
    dtype = tensor.dtype.numpy
    known = None if told.strides is None else tuple(s * dtype.itemsize for s in told.strides)
    strides = contiguous_strides(told.shape, dtype.itemsize) if known is None else known
    return DeviceArray(told.address, told.shape, strides, dtype, 0, False)


def _other_dtype(tensor: Tensor, found: str, place: str) -> TypeError:
    return TypeError(f"{place}: {tensor.dtype} was expected, found {found}; convert the array first")


def _check_written(
    outputs: Sequence[Tensor],
    written: Sequence[DeviceArray],
    shapes: Sequence[tuple[int, ...]],
    arrays: Sequence[DeviceArray],
    what: str,
) -> None:
    for p, (tensor, array) in enumerate(zip(outputs, written, strict=True)):
        place = f"{what}: out= for {tensor.name!r}"
        if array.shape != shapes[p]:
            raise ValueError(f"{place}: expected shape {shapes[p]}, found {array.shape}")
        if array.readonly:
            raise ValueError(f"{place}: the array is read-only; give one that can be written")
        begin, end = array.span
        for other in (*arrays, *written[:p]):
            if other.size and other.span[0] < end and begin < other.span[1]:
                raise AliasError(f"{place}: the array may overlap another one of the call; give it memory of its own")


def _made(like: Any, shape: tuple[int, ...], tensor: Tensor, what: str) -> Any:
    """A new array of the given one's kind."""
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, str(tensor.dtype)), device=like.device)
    space = sys.modules.get(type(like).__module__.partition(".")[0])
    empty = None if space is None or space.__name__ == "jax" else getattr(space, "empty", None)
    if empty is None:
        raise TypeError(f"{what}: arrays of {type(like).__name__} cannot be made here to be written into; give out=")
    return empty(shape, dtype=str(tensor.dtype))


def _place(values: Sequence[Any], arrays: Sequence[DeviceArray]) -> Place:
    """The device of the arrays, and a stream after all that made them."""
    devices = {device_of(a.address) for a in arrays}
    if len(devices) > 1:
        raise ValueError(f"arrays of one call lie on several GPUs: {', '.join(map(str, sorted(devices)))}")
    streams = list(dict.fromkeys(_stream(v, a) for v, a in zip(values, arrays, strict=True)))
    for other in streams[1:]:
        wait_for(other)
    return place_on(devices.pop(), streams[0])


def _stream(value: Any, array: DeviceArray) -> int:
    if is_torch(value):
        return int(sys.modules["torch"].cuda.current_stream(value.device).cuda_stream)
    return array.stream
