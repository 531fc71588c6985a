"""Calling a compiled function on NumPy arrays: argument blocks laid out once, of which a call fills in addresses alone.

Halide takes a pointer to each argument, for an array a pointer to a `halide_buffer_t`, which points to its dimensions.
All of that is one block of 64-bit words:

    pointers to: the context, argument 1, argument 2, ...   |   context   |   scalars   |   buffers   |   dimensions

A `Binding` holds the words for given shapes and strides. Its blocks wait in a free list, so several threads may call it
at once. NumPy's last axis is Halide's dimension 0; strides count elements there, so a stride that is no multiple of the
item size needs a copy first (`copy_reason`).
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.cuda import CudaStream, install, is_capturing, place_on
from tedsl.backend.arguments.device_memory import DeviceBlock, DeviceCall, call_on_gpu, install_store
from tedsl.backend.arguments.host_memory import register
from tedsl.backend.arguments.layouts import misfit
from tedsl.backend.host.linker import LoadedCode
from tedsl.backend.host.runtime import KernelError, Runtime, failure, not_finite, runtime_for
from tedsl.backend.host.targets import has_device, problem_here, refusal
from tedsl.lang.dataclass import dataclass

__all__ = [
    "BUFFER_WORDS",
    "DIMENSIONS",
    "HOST",
    "TYPE",
    "ArgSpec",
    "ArgumentBlock",
    "Binding",
    "BoundFunction",
    "CompiledFunction",
    "DeviceBinding",
    "Function",
    "OneCall",
    "buffer_words",
    "check_layouts",
    "copy_reason",
    "lay_out",
]

Array = npt.NDArray[Any]
Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape, strides in bytes

_LARGEST = 2**31 - 1
BUFFER_WORDS, _DIMENSION_WORDS = 7, 2
HOST, _FLAGS, TYPE, DIMENSIONS = 2, 3, 4, 5  # words of a halide_buffer_t
_HOST_DIRTY, _DEVICE_DIRTY = 1, 2
_TYPE_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4}
_SCALAR_FORMATS = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
    "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip


@dataclass(frozen=True)
class ArgSpec:
    """One argument of a compiled function; `ndim` None is a scalar passed by value.

    `runs` tells how many axes of a contiguous array each axis of the function is, where they differ; -n stands for one
    axis of the array that is two of the function, the second one of n elements. `is_row`: the function takes all that
    lies from the first to the last element of the array as one axis.
    """

    name: str
    dtype: str
    ndim: int | None
    output: bool = False
    runs: tuple[int, ...] = ()
    is_row: bool = False

    @property
    def itemsize(self) -> int:
        return max(1, self.halide_type[1] // 8)

    @property
    def halide_type(self) -> tuple[int, int]:
        """Halide's code and number of bits of the element type."""
        if self.dtype == "bool":
            return 1, 1
        kind = self.dtype.rstrip("0123456789")
        return _TYPE_CODES[kind], int(self.dtype[len(kind) :])


class BoundFunction(Protocol):
    """A function prepared for arrays of given shapes and strides."""

    def run(self, arrays: Sequence[Array]) -> None:
        """Call the function on NumPy arrays (nothing else) of the shapes, strides and types bound here."""


class Function(Protocol):
    """A compiled program that can be called, however its code came here (`loaders`)."""

    @property
    def code(self) -> Code:
        """Its name, target, and address where it has one."""

    @property
    def arguments(self) -> tuple[ArgSpec, ...]:
        """What it takes: the arguments given to the compiler, then the outputs."""

    @property
    def buffers(self) -> tuple[ArgSpec, ...]:
        """Those that are arrays."""

    @property
    def scalars(self) -> tuple[ArgSpec, ...]:
        """Those that are numbers."""

    @property
    def shapes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Shapes that the arguments must have, where the code does not look itself."""

    @property
    def compact(self) -> bool:
        """Whether these must be contiguous."""

    def bind(self, layouts: Sequence[Layout], scalars: Sequence[int | float] = ()) -> BoundFunction:
        """Prepare calls on arrays of these shapes and strides (one pair per array) and on these scalars."""


class Code(Protocol):
    """What was compiled."""

    @property
    def name(self) -> str:
        """Of the kernel."""

    @property
    def target(self) -> str:
        """In Halide's words."""

    @property
    def address(self) -> int | None:
        """Where it begins; None where nobody but its own loader can call it, or nobody here."""


class CompiledFunction:
    """Code in memory and what it takes: the arguments given to the compiler, then the outputs.

    `translate` turns the error of a failed call into the one to raise.
    """

    def __init__(
        self,
        code: LoadedCode,
        arguments: Sequence[ArgSpec],
        translate: Callable[[KernelError], Exception] | None = None,
        shapes: Sequence[tuple[int, ...] | None] = (),
        compact: bool = False,
        finite: Sequence[int] = (),
    ) -> None:
        self.code = code  # keeps the machine code in memory
        self.shapes = tuple(shapes)  # those that the arguments must have, where the code does not look
        self.compact = compact  # and whether they must be contiguous
        self.finite = tuple(finite)  # those that must hold finite numbers, likewise
        self.arguments = tuple(arguments)
        self.buffers = tuple(argument for argument in arguments if argument.ndim is not None)
        self.scalars = tuple(argument for argument in arguments if argument.ndim is None)
        self.translate = translate
        self.loaded: set[int] = set()  # contexts of GPUs in which it was called
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)  # releases the GIL
        self.entry = None if code.address is None else prototype(code.address)

    def bind(self, layouts: Sequence[Layout], scalars: Sequence[int | float] = ()) -> Binding:
        """Prepare calls on arrays of these shapes and strides (one pair per array) and on these scalars."""
        check_layouts(self, layouts)
        if has_device(self.code.target):
            return DeviceBinding(self, layouts, scalars)
        return (FiniteBinding if self.finite else Binding)(self, layouts, scalars)

    def __call__(self, *values: Any) -> None:
        """A call from scratch, values in the order of `arguments`; to call often, keep the binding."""
        arrays = [value for value, spec in zip(values, self.arguments, strict=True) if spec.ndim is not None]
        scalars = [value for value, spec in zip(values, self.arguments, strict=True) if spec.ndim is None]
        for spec, array in zip(self.buffers, arrays, strict=True):
            if not isinstance(array, np.ndarray) or array.itemsize != spec.itemsize:
                raise TypeError(f"argument {spec.name!r}: {spec.dtype} was expected, found {array!r:.60}")
            if spec.output and not array.flags.writeable:
                raise ValueError(f"argument {spec.name!r}: an output was expected, found a read-only array")
        self.bind([(array.shape, array.strides) for array in arrays], scalars).run(arrays)


@dataclass(frozen=True, eq=False)
class OneCall:
    """A function of a block of words, into which only the addresses of arrays are to be filled."""

    address: int
    words: Sequence[int]
    pointers: Mapping[int, int]  # word -> the word that it points to
    hosts: tuple[int, ...]  # the word of the address of each array
    error: Callable[[int, int], Exception]  # of a call that returned a code, with the block at an address
    held: object  # what must stay in memory


class Binding:
    """A compiled function prepared for arrays of given shapes and strides."""

    __slots__ = ("__weakref__", "_buffers", "_entry", "_free", "_function", "_hosts", "_pointers", "_words")

    def __init__(
        self, function: CompiledFunction, layouts: Sequence[Layout], scalars: Sequence[int | float] = ()
    ) -> None:
        self._function = function
        assert function.entry is not None  # see check_layouts
        self._entry = function.entry
        self._free: list[ArgumentBlock] = []
        self._words, self._pointers, self._buffers = lay_out(function, layouts, scalars)
        self._hosts = tuple(at + HOST for at in self._buffers)
        register(self)

    def release(self) -> int:
        """Forget the blocks that no call uses now; their bytes."""
        freed = 8 * len(self._words) * len(self._free)
        self._free.clear()
        return freed

    @property
    def address(self) -> int:
        """Where the function begins."""
        assert self._function.code.address is not None
        return self._function.code.address

    @property
    def hosts(self) -> tuple[int, ...]:
        """The words of a block that are the addresses of the arrays."""
        return self._hosts

    def in_one(self) -> OneCall:
        """The call for other compilers."""
        pointers = {**self._pointers, self._pointers[0]: 0}  # the context, under which messages arrive
        return OneCall(self.address, self._words, pointers, self._hosts, self.error, self)

    def block(self) -> ArgumentBlock:
        """A block of words for calls by somebody else."""
        return ArgumentBlock(self._words, self._pointers)

    def run(self, arrays: Sequence[Array]) -> None:
        """Call the function on NumPy arrays (nothing else) of the shapes, strides and types bound here."""
        try:
            block = self._free.pop()
        except IndexError:
            block = ArgumentBlock(self._words, self._pointers)
        words = block.words
        for host, array in zip(self._hosts, arrays):
            words[host] = address_of(array)
        code = self._entry(block.address)
        if code:
            self._fail(code, block.address)
        self._free.append(block)

    def error(self, code: int, context: int) -> Exception:
        """What a call that returned a code other than 0 raises."""
        error = failure(self._function.code.name, code, context)
        return error if self._function.translate is None else self._function.translate(error)

    def _fail(self, code: int, context: int) -> None:
        raise self.error(code, context)


class FiniteBinding(Binding):
    """A binding that looks for infinities before it runs its function, which multiplies some of the numbers by 0."""

    __slots__ = ()

    def run(self, arrays: Sequence[Array]) -> None:
        for place in self._function.finite:
            if not np.isfinite(arrays[place]).all():
                raise not_finite(self._function.code.name)
        super().run(arrays)


class DeviceBinding(Binding):
    """A binding whose function runs on a GPU: on arrays that lie there already, or on NumPy arrays.

    These are copied there by the call, outputs back after it.
    """

    __slots__ = ()

    def run(self, arrays: Sequence[Array]) -> None:
        runtime = self._runtime()
        block, context = self._begun(place_on() if self._is_cuda else CudaStream(0, 0))
        for at, spec, array in zip(self._buffers, self._function.buffers, arrays):
            block.words[at + HOST] = address_of(array)
            block.words[at + _FLAGS] = 0 if spec.output else _HOST_DIRTY
        buffers = [block.address + 8 * at for at in self._buffers]
        try:
            code = self._entry(block.address)
            for at, spec in zip(buffers, self._function.buffers):
                if spec.output and not code:
                    code = runtime.call("halide_copy_to_host", context, at)
        finally:
            for at in buffers:
                runtime.call("halide_device_free", context, at)
        if code:
            self._fail(code, context)

    def run_there(
        self, addresses: Sequence[int], place: CudaStream, allocate: Callable[[int], DeviceBlock] | None = None
    ) -> None:
        """Queue the call on a stream: the arrays lie on the GPU and stay there, and nobody waits for the results.

        Intermediate results lie in memory from `allocate`, or from Halide.
        """
        runtime = self._runtime()
        install_store(runtime)
        self._check_loaded(place)
        interface = runtime.pointer("halide_cuda_device_interface")
        block, context = self._begun(place)
        for at, address in zip(self._buffers, addresses, strict=True):
            block.words[at], block.words[at + 1] = address, interface
            block.words[at + _FLAGS] = _DEVICE_DIRTY
        call = DeviceCall(self._function.code.name, place, allocate)
        with call_on_gpu(context, call):
            code = self._entry(block.address)
        if call.error is not None:
            failure(call.kernel, code, context)  # whose messages nobody will ask for
            raise call.error
        if code:
            self._fail(code, context)
        self._function.loaded.add(place.context)

    def _check_loaded(self, place: CudaStream) -> None:
        if place.context not in self._function.loaded and is_capturing(place):
            raise RuntimeError(
                f"kernel {self._function.code.name!r}: its stream is being captured into a CUDA graph, and this would "
                "be its first call on the GPU, which loads its code; call it once before the capture"
            )

    @property
    def _is_cuda(self) -> bool:
        return "cuda" in self._function.code.target.split("-")

    def _runtime(self) -> Runtime:
        runtime = runtime_for(self._function.code.target)
        if self._is_cuda:
            install(runtime)
        return runtime

    def _begun(self, place: CudaStream) -> tuple[ArgumentBlock, int]:
        """A block of its own, and the call's context: the address of the words that the hooks read."""
        block = ArgumentBlock([*self._words, *place], self._pointers)
        context = block.address + 8 * len(self._words)
        block.words[self._pointers[0]] = context
        return block, context


class ArgumentBlock:
    """The words of a binding at an address of their own."""

    __slots__ = ("address", "words")

    def __init__(self, words: Sequence[int], pointers: dict[int, int]) -> None:
        self.words = (ctypes.c_uint64 * len(words))(*words)
        self.address = ctypes.addressof(self.words)
        self.words[pointers[0]] = self.address  # the context, under which messages arrive
        for place, target in pointers.items():
            self.words[place] = self.address + 8 * target


def lay_out(
    function: Function, layouts: Sequence[Layout], scalars: Sequence[int | float]
) -> tuple[list[int], dict[int, int], list[int]]:
    """The words of a block; which word is to point to which; where the buffers begin."""
    count = len(function.arguments)
    if (len(layouts), len(scalars)) != (len(function.buffers), len(function.scalars)):
        raise TypeError(
            f"kernel {function.code.name!r}: {len(function.buffers)} arrays and {len(function.scalars)} scalars were"
            f" expected, found {len(layouts)} and {len(scalars)}"
        )
    words = [0] * (count + 2)
    pointers = {0: count + 1}
    buffers = []
    shapes, numbers = iter(layouts), iter(scalars)
    for place, spec in enumerate(function.arguments, start=1):
        at = pointers[place] = len(words)
        if spec.ndim is None:
            words.append(_scalar_word(spec, next(numbers)))
        else:
            words += buffer_words(spec, *next(shapes))
            if function.shapes:
                _check_fit(function, place - 1, words[at + BUFFER_WORDS :])
            pointers[at + DIMENSIONS] = at + BUFFER_WORDS
            buffers.append(at)
    return words, pointers, buffers


def _check_fit(function: Function, place: int, dimensions: Sequence[int]) -> None:
    """Refuse an array that is not as code expects that does not look itself."""
    expected, spec = function.shapes[place], function.arguments[place]
    steps = [word - (1 << 32) if word >= 1 << 31 else word for word in dimensions[1::2]][::-1]
    shape = tuple(word >> 32 for word in reversed(dimensions[::2]))
    problem = None if expected is None else misfit(shape, steps, expected, compact=function.compact)
    if problem is not None:
        raise KernelError(function.code.name, -1, [f"argument {spec.name!r}: {problem}"])


def _scalar_word(spec: ArgSpec, value: int | float) -> int:
    return int.from_bytes(struct.pack("<" + _SCALAR_FORMATS[spec.dtype], value).ljust(8, b"\0"), "little")


def buffer_words(spec: ArgSpec, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """A halide_buffer_t and its dimensions, innermost first; pointers are filled in by the block."""
    ndim = spec.ndim
    if len(shape) != ndim:
        raise ValueError(f"argument {spec.name!r}: {ndim} axes were expected, found {len(shape)} (shape {shape})")
    reason = copy_reason(shape, strides, spec.itemsize)
    if reason is not None:
        raise ValueError(f"argument {spec.name!r}: {reason}; copy the array first")
    if spec.is_row:
        span = 1 + sum((n - 1) * (step // spec.itemsize) for n, step in zip(shape, strides))
        shape, strides = (span if all(shape) else 0,), (spec.itemsize,)
    elif spec.runs:
        shape, strides = _merged(shape, strides, spec.runs)
    code, bits = spec.halide_type
    buffer = [0] * BUFFER_WORDS
    buffer[TYPE] = code | bits << 8 | 1 << 16 | len(shape) << 32
    contiguous = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent > _LARGEST:
            raise ValueError(f"argument {spec.name!r}: {extent} elements on one axis, at most {_LARGEST} are possible")
        step = stride // spec.itemsize if extent > 1 else min(contiguous, _LARGEST)  # where no step is ever made
        buffer += [extent << 32, step & 0xFFFFFFFF]
        contiguous *= max(1, extent)
    return buffer


def _merged(shape: tuple[int, ...], strides: tuple[int, ...], runs: Sequence[int]) -> Layout:
    """The shape and strides of a contiguous array with runs of its axes as one, or one of them as two."""
    extents, steps, rest = [], [], list(zip(shape, strides))
    for count in runs:
        if count < 0:
            (extent, step), rest = rest[0], rest[1:]
            extents += [extent // -count, -count]
            steps += [step * -count, step]
            continue
        taken, rest = rest[:count], rest[count:]
        extents.append(math.prod(extent for extent, _ in taken))
        steps.append(next((step for extent, step in reversed(taken) if extent > 1), taken[-1][1]))
    return tuple(extents), tuple(steps)


def check_layouts(function: Function, layouts: Sequence[Layout]) -> None:
    """Refuse what a call would end the process with."""
    if has_device(function.code.target):
        for spec, (shape, strides) in zip(function.buffers, layouts):
            _check_for_device(spec, shape, strides)
    problem = problem_here(function.code.target)
    if problem is not None:
        raise refusal(function.code.name, problem)


def _check_for_device(spec: ArgSpec, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Refuse what would end the process inside Halide's runtime for GPUs."""
    if 0 in shape:
        raise ValueError(f"argument {spec.name!r}: an array without elements (shape {shape}) cannot be on a GPU")
    reason = copy_reason(shape, strides, spec.itemsize, on_device=True)
    if reason is not None:
        raise ValueError(f"argument {spec.name!r}: {reason}; copy the array first")


def copy_reason(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, on_device: bool = False) -> str | None:
    """Why an array with these strides in bytes cannot be passed as it is; None when it can."""
    for axis, (extent, stride) in enumerate(zip(shape, strides)):
        if extent > 1 and stride % itemsize:
            return f"axis {axis} steps by {stride} bytes, no multiple of the {itemsize} bytes of an element"
        if extent > 1 and not -_LARGEST <= stride // itemsize <= _LARGEST:
            return f"axis {axis} steps by {stride // itemsize} elements, more than {_LARGEST}"
        if on_device and extent > 1 and stride < 0:
            return f"axis {axis} runs backwards, which no GPU's memory can"
    return None
