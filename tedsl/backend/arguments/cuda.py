"""Where kernels for CUDA run: in the device's primary context, which all libraries share, and on the caller's stream.

Halide would make a context of its own, in which no other library's memory is known. Its runtime asks hooks instead;
they are a few instructions of machine code, which read both from the two words that a call's context is the address of.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tedsl.backend.host.emit import emit_object
from tedsl.backend.host.linker import Library, link
from tedsl.backend.host.runtime import Runtime
from tedsl.backend.host.targets import driver

__all__ = ["CudaStream", "device_of", "install", "is_capturing", "place_on", "some_context", "wait_for"]

_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
HOOKS = """\
@default = global [2 x i64] zeroinitializer

define ptr @words(ptr %call) {
  %is_none = icmp eq ptr %call, null
  %found = select i1 %is_none, ptr @default, ptr %call
  ret ptr %found
}

define i32 @acquire(ptr %call, ptr %result, i1 zeroext %create) {
  %words = call ptr @words(ptr %call)
  %context = load i64, ptr %words
  store i64 %context, ptr %result
  ret i32 0
}

define i32 @release(ptr %call) {
  ret i32 0
}

define i32 @stream(ptr %call, ptr %context, ptr %result) {
  %words = call ptr @words(ptr %call)
  %at = getelementptr i64, ptr %words, i64 1
  %stream = load i64, ptr %at
  store i64 %stream, ptr %result
  ret i32 0
}
"""


class CudaStream(NamedTuple):
    """A context and a stream, as CUDA's handles."""

    context: int
    stream: int


_hooks: list[Library] = []  # kept: Halide calls them


@functools.cache
def install(runtime: Runtime) -> None:
    """Let Halide's runtime for CUDA ask for the context and the stream of each call."""
    library = link(emit_object(HOOKS), ["acquire", "release", "stream"], {})
    _hooks.append(library)
    runtime.call("halide_set_cuda_acquire_context", library["acquire"])
    runtime.call("halide_set_cuda_release_context", library["release"])
    runtime.call("halide_set_cuda_get_stream", library["stream"])


def place_on(device: int | None = None, stream: int = 0) -> CudaStream:
    """The primary context of a device (HL_GPU_DEVICE, or the first one), and a stream."""
    ordinal = int(os.environ.get("HL_GPU_DEVICE") or 0) if device is None else device
    return CudaStream(_primary_context(ordinal), stream)


@functools.cache
def _primary_context(ordinal: int) -> int:
    """Kept for the life of the process, as other libraries keep it."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _checked("cuInit", 0)
    _checked("cuDeviceGet", ctypes.byref(device), ordinal)
    _checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context.value or 0


def device_of(address: int) -> int:
    """The device on which memory lies."""
    ordinal = ctypes.c_int()
    _primary_context(0)  # a driver without a context knows no memory
    _checked("cuPointerGetAttribute", ctypes.byref(ordinal), _DEVICE_ORDINAL, ctypes.c_uint64(address))
    return ordinal.value


def wait_for(place: CudaStream) -> None:
    """Until all that was queued on a stream is done."""
    with _current(place.context):
        _checked("cuStreamSynchronize", ctypes.c_void_p(place.stream))


def is_capturing(place: CudaStream) -> bool:
    """Whether what is queued on a stream goes into a CUDA graph, to be run later."""
    status = ctypes.c_int()
    with _current(place.context):
        _checked("cuStreamIsCapturing", ctypes.c_void_p(place.stream), ctypes.byref(status))
    return status.value != 0


@contextmanager
def some_context() -> Iterator[None]:
    """Inside, the driver has a context, without which it frees nothing; none where it was never used."""
    if not _primary_context.cache_info().currsize:
        yield
        return
    with _current(place_on().context):
        yield


@contextmanager
def _current(context: int) -> Iterator[None]:
    """Inside, it is the thread's: one that has not used the GPU yet, as those of PyTorch's autograd, has none."""
    _checked("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
    try:
        yield
    finally:
        _checked("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


def _checked(name: str, *arguments: Any) -> None:
    library = driver("libcuda.so.1")
    if library is None:
        raise RuntimeError(f"{name}: the CUDA driver (libcuda.so.1) is not installed")
    code = getattr(library, name)(*arguments)
    if code:
        raise RuntimeError(f"{name} of the CUDA driver failed with error {code}")
