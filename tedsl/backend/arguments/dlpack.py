"""What an array on a GPU tells of itself by DLPack alone, without `__cuda_array_interface__`.

Its library is told that the array will be read on the default stream, and lets that one wait for what it has queued.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tedsl.lang.dataclass import dataclass

__all__ = ["Exchanged", "exchanged", "is_exchanged_on_gpu"]

CUDA = 2  # as DLPack numbers devices
DEFAULT_STREAM = 1  # as it numbers streams: 0 would be ambiguous
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}


class _Tensor(ctypes.Structure):
    """DLTensor, with which a DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass(frozen=True)
class Exchanged:
    """An array's memory; `strides` in elements, None where it is contiguous."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str


def is_exchanged_on_gpu(value: Any) -> bool:
    """Whether an array says by DLPack that it lies in the memory of a GPU for CUDA."""
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and hasattr(value, "__dlpack__") and int(device()[0]) == CUDA


def exchanged(value: Any) -> Exchanged:
    """What the capsule holds; it is given back here, as the caller keeps the array for the time of the call."""
    capsule = value.__dlpack__(stream=DEFAULT_STREAM)
    told = _Tensor.from_address(_pointer_in(capsule, b"dltensor"))
    strides = tuple(told.strides[: told.ndim]) if told.strides else None
    kind = _KINDS.get(told.code, f"DLPack's type {told.code} of ") if told.lanes == 1 else f"{told.lanes} lanes of "
    dtype = "bool" if kind == "bool" else f"{kind}{told.bits}"
    return Exchanged(told.data + told.byte_offset, tuple(told.shape[: told.ndim]), strides, dtype)
