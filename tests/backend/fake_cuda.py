"""A driver for CUDA that is none: its memory is that of the process, its kernels are Python functions.

Halide's runtime for CUDA calls it as it would call the driver. So what surrounds a kernel can be tested without a GPU:
which pointers it is given, in which context and on which stream, and what is copied, waited for and freed.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tedsl.backend.arguments import cuda
from tedsl.backend.host import runtime, targets
from tedsl.backend.host.targets import parse_target

__all__ = ["CONTEXT", "DRIVER", "FakeArray", "FakeCuda", "FakeExchanged", "floats"]

CONTEXT = 0xC0
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
MOST_ARGUMENTS = 11  # those of cuLaunchKernel
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * MOST_ARGUMENTS)
_SYMBOL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
WORD = (1 << 32) - 1


def store(address: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    kind.from_address(address).value = value


class FakeCuda:
    """What the driver was asked; `launches` holds the blocks, threads, stream and pointers of each kernel.

    `kernels`: for a part of a kernel's name how many pointers it takes, and what it does with them.
    """

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self._kept: dict[str, Any] = {}
        self._entries: list[str] = []
        self.forget()

    def forget(self) -> None:
        """Begin the lists anew; Halide looks for the driver once, so there is one for a process."""
        self.calls, self.contexts, self.waited = Counter[str](), set[int](), list[int | None]()
        self.launches: list[tuple[list[int], list[int], int, list[int]]] = []
        self.names: list[str] = []
        self.current: list[int] = []  # contexts that we pushed
        self.capturing: set[int | None] = set()  # streams
        self.kernels: dict[str, tuple[int, Callable[[Sequence[int]], None]]] = {}

    def installed(self, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
        """In place of the driver, for Halide's runtime and for us."""
        loaded = runtime.runtime_for(parse_target("cuda").text)
        self._kept["symbol"] = _SYMBOL(self._symbol)
        loaded.call(
            "halide_set_custom_get_library_symbol", ctypes.cast(self._kept["symbol"], ctypes.c_void_p).value or 0
        )
        monkeypatch.setattr(cuda, "driver", lambda name: self)
        monkeypatch.setattr(cuda, "_primary_context", functools.cache(cuda._primary_context.__wrapped__))
        monkeypatch.setitem(targets._DEVICES, "cuda", lambda: None)
        return self

    def _symbol(self, library: int | None, name: bytes | None) -> int:
        text = (name or b"").decode()
        if not text.startswith("cu"):
            return 0
        if text not in self._kept:
            self._kept[text] = _CALLBACK(lambda *words: self._called(text.removesuffix("_v2"), *words))
        return ctypes.cast(self._kept[text], ctypes.c_void_p).value or 0

    def _called(self, name: str, *words: int) -> int:
        self.calls[name] += 1
        getattr(self, f"_{name}", lambda *rest: None)(*words)
        return 0

    # What Halide calls

    def _cuCtxPushCurrent(self, context: int, *rest: int) -> None:  # noqa: N802
        self.contexts.add(context)

    def _cuModuleLoadDataEx(self, result: int, *rest: int) -> None:  # noqa: N802
        store(result, 0xA0)

    def _cuModuleLoadData(self, result: int, *rest: int) -> None:  # noqa: N802
        store(result, 0xA0)

    def _cuModuleGetFunction(self, result: int, module: int, name: int, *rest: int) -> None:  # noqa: N802
        self._entries.append(ctypes.string_at(name).decode())
        store(result, len(self._entries))

    def _cuMemAlloc(self, result: int, size: int, *rest: int) -> None:  # noqa: N802
        block = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(block)] = block
        store(result, ctypes.addressof(block))

    def _cuMemFree(self, address: int, *rest: int) -> None:  # noqa: N802
        del self.memory[address]

    def _cuMemcpyHtoD(self, target: int, source: int, size: int, *rest: int) -> None:  # noqa: N802
        ctypes.memmove(target, source, size)

    def _cuMemcpyDtoH(self, target: int, source: int, size: int, *rest: int) -> None:  # noqa: N802
        ctypes.memmove(target, source, size)

    def _cuLaunchKernel(self, function: int, *words: int) -> None:  # noqa: N802
        sizes, (_shared, stream, arguments) = [w & WORD for w in words[:6]], words[6:9]
        name = self._entries[function - 1]
        count, kernel = next((v for part, v in self.kernels.items() if part in name), (0, lambda pointers: None))
        values = (ctypes.c_uint64 * count).from_address(arguments)
        found = [ctypes.c_uint64.from_address(v).value for v in values]
        self.launches.append((sizes[:3], sizes[3:], stream, found))
        self.names.append(name)
        kernel(found)

    # What we call

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGet(self, result: Any, ordinal: int) -> int:  # noqa: N802
        result._obj.value = ordinal
        return 0

    def cuDevicePrimaryCtxRetain(self, result: Any, device: Any) -> int:  # noqa: N802
        result._obj.value = CONTEXT + device.value
        return 0

    def cuPointerGetAttribute(self, result: Any, attribute: int, address: Any) -> int:  # noqa: N802
        result._obj.value = 0
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.contexts.add(context.value)
        self.current.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802
        return self._in_context(lambda: self.current.pop())

    def cuStreamIsCapturing(self, stream: Any, result: Any) -> int:  # noqa: N802
        return self._in_context(lambda: setattr(result._obj, "value", stream.value in self.capturing))

    def cuStreamSynchronize(self, stream: Any) -> int:  # noqa: N802
        return self._in_context(lambda: self.waited.append(stream.value))

    def _in_context(self, act: Callable[[], object]) -> int:
        """What a thread that has no context cannot do: it may be any that calls a kernel."""
        if not self.current:
            return NO_CONTEXT
        act()
        return 0


DRIVER = FakeCuda()


def floats(address: int, count: int) -> np.ndarray[Any, Any]:
    """The float32 numbers at an address."""
    return np.frombuffer((ctypes.c_float * count).from_address(address), "f4")


class FakeArray:
    """An array with the interface of those on a GPU, in the process's memory."""

    def __init__(self, values: np.ndarray[Any, Any], stream: int | None = None, readonly: bool = False) -> None:
        self.values, self.stream, self.readonly = values, stream, readonly

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (self.values.ctypes.data, self.readonly),
            "strides": None if self.values.flags.c_contiguous else self.values.strides,
            "stream": self.stream,
            "version": 3,
        }


class FakeExchanged:
    """An array on a GPU that only DLPack tells of; `asked` are the streams that its work was to be complete for."""

    def __init__(self, values: np.ndarray[Any, Any], device: int = 2) -> None:
        self.values, self.device, self.asked = values, device, list[Any]()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, stream: Any = None) -> Any:
        self.asked.append(stream)
        return self.values.__dlpack__()


def empty(shape: tuple[int, ...], dtype: str) -> FakeArray:
    """As a library of such arrays makes one."""
    return FakeArray(np.zeros(shape, dtype))
