"""What arrays on a GPU tell of themselves, and new ones of their kind.

Tensors of PyTorch are asked directly, which also tells of the dtypes that `__cuda_array_interface__` has no name for;
other arrays by that interface, or else by DLPack.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tedsl.backend.arguments.blocks import copy_reason
from tedsl.backend.arguments.cuda import CudaStream, device_of, place_on, wait_for
from tedsl.backend.arguments.device_memory import DeviceBlock
from tedsl.backend.arguments.dlpack import exchanged, is_exchanged_on_gpu
from tedsl.backend.arguments.layouts import contiguous_strides
from tedsl.lang.dataclass import dataclass
from tedsl.lang.foreign import check_not_recorded, is_torch
from tedsl.lang.tensor import Tensor

__all__ = ["DeviceArray", "described", "is_on_gpu", "made", "place_of", "spec_of", "store_of", "stream_of"]


@dataclass(frozen=True)
class DeviceArray:
    """What an array on a GPU tells of itself; named as NumPy names it."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    stream: int
    readonly: bool
    device: int | None = None  # None: the driver knows

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


def spec_of(value: Any) -> tuple[tuple[int, ...], str]:
    """The shape and dtype of an array that is no tensor of PyTorch."""
    if hasattr(value, "__cuda_array_interface__"):
        told = value.__cuda_array_interface__
        return tuple(told["shape"]), np.dtype(told["typestr"]).name
    known = exchanged(value)
    return known.shape, known.dtype


def described(value: Any, tensor: Tensor, place: str) -> DeviceArray:
    """The array as it tells of itself, checked against the tensor."""
    if not is_on_gpu(value):
        raise TypeError(
            f"{place}: {type(value).__name__} is not in the memory of a GPU, other arrays of the call are; all must be"
        )
    check_not_recorded(value, place)
    if is_torch(value):
        found = _by_torch(value, tensor, place)
    elif hasattr(value, "__cuda_array_interface__"):
        found = _by_interface(value, tensor, place)
    else:
        found = _by_dlpack(value, tensor, place)
    if found.ndim != tensor.ndim:
        raise ValueError(f"{place}: {tensor.ndim} axes were expected, found {found.ndim} (shape {found.shape})")
    reason = copy_reason(found.shape, found.strides, found.itemsize, on_device=True)
    if reason is not None:
        raise ValueError(f"{place}: {reason}; copy the array first")
    return found


def _by_torch(value: Any, tensor: Tensor, place: str) -> DeviceArray:
    if value.layout is not sys.modules["torch"].strided:
        raise TypeError(f"{place}: expected a dense tensor, found layout {value.layout}; give x.to_dense()")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != tensor.dtype:
        raise _other_dtype(tensor, dtype, place)
    if value.is_neg():
        raise ValueError(f"{place}: the tensor shows the negative of what is in its memory; give x.resolve_neg()")
    strides = tuple(step * tensor.dtype.itemsize for step in value.stride())
    return DeviceArray(
        value.data_ptr(), tuple(value.shape), strides, tensor.dtype.numpy, stream_of(value), False, value.device.index
    )


def _by_interface(value: Any, tensor: Tensor, place: str) -> DeviceArray:
    told = value.__cuda_array_interface__
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


def made(like: Any, shape: tuple[int, ...], tensor: Tensor, what: str) -> Any:
    """A new array of the given one's kind."""
    if is_torch(like):
        return like.new_empty(shape, dtype=getattr(sys.modules["torch"], str(tensor.dtype)))
    space = sys.modules.get(type(like).__module__.partition(".")[0])
    empty = None if space is None or space.__name__ == "jax" else getattr(space, "empty", None)
    if empty is None:
        raise TypeError(f"{what}: arrays of {type(like).__name__} cannot be made here to be written into; give out=")
    return empty(shape, dtype=str(tensor.dtype))


def place_of(arrays: Sequence[DeviceArray]) -> CudaStream:
    """The device of the arrays, and a stream after all that made them."""
    devices = {device_of(a.address) if a.device is None else a.device for a in arrays}
    if len(devices) > 1:
        raise ValueError(f"arrays of one call lie on several GPUs: {', '.join(map(str, sorted(devices)))}")
    (device,) = devices
    place, *others = (place_on(device, stream) for stream in dict.fromkeys(a.stream for a in arrays))
    for other in others:
        wait_for(other)
    return place


def store_of(tensor: Any) -> Callable[[int], DeviceBlock]:
    """PyTorch's memory for intermediate results of a call that is queued on its stream."""

    def allocate(size: int) -> DeviceBlock:
        block = tensor.new_empty((size,), dtype=sys.modules["torch"].uint8)
        return DeviceBlock(block.data_ptr(), block)

    return allocate


def stream_of(tensor: Any) -> int:
    """PyTorch's current stream of the device, as CUDA's handle."""
    return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)
