"""A GPU's memory for intermediate results: of the library whose arrays a call is given, else of Halide's own store.

PyTorch has a store that all of a process share, that counts, and that serves streams which are being captured into a
CUDA graph. Halide's keeps what one call frees for the next one on the same stream; a graph would go on using what is
given to others by then, so it serves no captured stream. Its runtime has no hook for this, but the functions that it
allocates with are listed in a table, which is written here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tedsl.backend.arguments.cuda import CudaStream, is_capturing, some_context
from tedsl.backend.host.runtime import Runtime, loaded_runtimes
from tedsl.lang.dataclass import dataclass
from tedsl.lang.keywords import own_arguments

__all__ = ["DeviceBlock", "DeviceCall", "call_on_gpu", "free_device_memory", "install_store"]

_IMPLEMENTATION, _MOST_FUNCTIONS = 15, 18  # the word of an interface that points to the table, and words of that
_DEVICE, _INTERFACE, _TYPE, _DIMENSIONS = 0, 1, 4, 5  # words of a halide_buffer_t
_OUT_OF_MEMORY = -11  # as Halide numbers errors
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class DeviceBlock(NamedTuple):
    """Memory on a GPU, and the object that keeps it."""

    address: int
    owner: Any


@dataclass(eq=False)
class DeviceCall:
    """A call on arrays that lie on a GPU: its kernel, its place, and who gives memory of so many bytes (or Halide)."""

    kernel: str
    place: CudaStream
    allocate: Callable[[int], DeviceBlock] | None = None
    error: BaseException | None = None  # why there is no memory


_calls: dict[int, DeviceCall] = {}  # by the context of the call
_blocks: dict[int, DeviceBlock] = {}  # in use, by their addresses
_kept: list[Any] = []  # Halide calls them


@contextmanager
def call_on_gpu(context: int, call: DeviceCall) -> Iterator[None]:
    """Intermediate results of what runs inside, under this context, lie where the call says."""
    _calls[context] = call
    try:
        yield
    finally:
        del _calls[context]


@functools.cache
def install_store(runtime: Runtime) -> None:
    """Let calls on arrays of libraries that have a store of their own use that one."""
    interface = runtime.pointer("halide_cuda_device_interface")
    table = _words(_words(interface, _IMPLEMENTATION + 1)[_IMPLEMENTATION], _MOST_FUNCTIONS)
    theirs = {name: runtime.address(f"halide_cuda_device_{name}") or 0 for name in ("malloc", "free")}
    allocate, free = (_FUNCTION(theirs[name]) for name in ("malloc", "free"))

    def malloc(context: int | None, buffer: int) -> int:
        call = _calls.get(context or 0)
        return allocate(context, buffer) if call is None else _allocated(call, context, buffer, interface, allocate)

    def release(context: int | None, buffer: int) -> int:
        words = _words(buffer, _TYPE)
        if _blocks.pop(words[_DEVICE], None) is None:
            return int(free(context, buffer))
        words[_DEVICE] = words[_INTERFACE] = 0
        return 0

    for name, ours in (("malloc", _FUNCTION(malloc)), ("free", _FUNCTION(release))):
        _kept.append(ours)
        table[list(table).index(theirs[name])] = ctypes.cast(ours, ctypes.c_void_p).value or 0


def _allocated(call: DeviceCall, context: int | None, buffer: int, interface: int, halide: Callable[..., int]) -> int:
    """Memory for a buffer of a call; Halide's code."""
    words = _words(buffer, _DIMENSIONS + 1)
    if words[_DEVICE]:
        return 0
    try:
        if call.allocate is None:
            _check_not_captured(call)
            return halide(context, buffer)
        block = call.allocate(_bytes_of(words))
    except BaseException as error:  # raised once Halide has returned
        call.error = error
        return _OUT_OF_MEMORY
    _blocks[block.address] = block
    words[_DEVICE], words[_INTERFACE] = block.address, interface
    return 0


def _check_not_captured(call: DeviceCall) -> None:
    if is_capturing(call.place):
        raise RuntimeError(
            f"kernel {call.kernel!r}: its stream is being captured into a CUDA graph, and it has intermediate results, "
            "whose memory the graph would share with later calls; give tensors of PyTorch, which has memory for graphs"
        )


def _bytes_of(buffer: Any) -> int:
    """What a halide_buffer_t spans, whose steps are none of them negative."""
    bits, ndim = buffer[_TYPE] >> 8 & 0xFF, buffer[_TYPE] >> 32
    dimensions = (ctypes.c_int32 * (4 * ndim)).from_address(buffer[_DIMENSIONS]) if ndim else []
    steps: int = sum((dimensions[k + 1] - 1) * dimensions[k + 2] for k in range(0, 4 * ndim, 4))
    return (1 + steps) * (int(bits + 7) // 8)


def _words(address: int, count: int) -> Any:
    return (ctypes.c_uint64 * count).from_address(address)


@own_arguments()
def free_device_memory() -> None:
    """Free the memory of GPUs that is kept for further calls: for intermediate results, and for NumPy arrays there.

    What is in use stays. Intermediate results of calls on PyTorch's tensors are in PyTorch's memory, which
    `torch.cuda.empty_cache()` frees.
    """
    for runtime in loaded_runtimes():
        if runtime.address("halide_reuse_device_allocations") is not None:
            with some_context():
                runtime.call("halide_reuse_device_allocations", 0, 0)
                runtime.call("halide_reuse_device_allocations", 0, 1)
