"""Kernels that Halide's own JIT compiles and calls, where objects cannot be loaded.

A call sets the parameters of a pipeline and runs it, one call of a kernel at a time; the GIL is released meanwhile.
Arrays are passed as they are: the buffers that Halide is given are pointed at them. What the rewrites of assembly mend
(`assembly.passes`) is kept from arising:

- no AVX-512, for which LLVM makes wrong instructions of masked stores and of choices between bits;
- an output that its own sums read again, which Halide takes to be aligned, is computed in memory that is;
- atomic sums of floats are refused (`apply`).

Nothing is kept on disk, Halide starts as many threads as te.get_num_threads() says at the first parallel loop, and sums
of products round twice.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import halide as hl
import numpy as np

from tedsl.backend.arguments.addresses import address_of
from tedsl.backend.arguments.blocks import (
    BUFFER_WORDS,
    DIMENSIONS,
    HOST,
    TYPE,
    ArgSpec,
    Array,
    Layout,
    buffer_words,
    check_layouts,
)  # fmt: skip
from tedsl.backend.halide_text.errors import is_out_of_memory, message
from tedsl.backend.host.processors import without_avx512
from tedsl.backend.host.runtime import KernelError, KernelMemoryError, not_finite
from tedsl.backend.host.targets import has_device
from tedsl.backend.host.threads import on_change
from tedsl.backend.lowering.pipeline import Lowered
from tedsl.lang.dataclass import dataclass

__all__ = ["JitFunction"]

THREADS_VARIABLE = "HL_NUM_THREADS"  # Halide reads it at the first parallel loop
_NOT_FOR_JIT = ("no_runtime", "user_context")
_FORK_PATIENCE_S = 5.0
_ALIGNED = 64
_TYPES = {0: hl.Int, 1: hl.UInt, 2: hl.Float, 4: hl.BFloat}


@dataclass(frozen=True)
class JitCode:
    """What a kernel was compiled as; there is no address to call."""

    name: str
    target: str
    address: None = None


class JitFunction:
    """A pipeline compiled by Halide, and what it takes: see `blocks.Function`."""

    shapes = ()  # it checks its arrays itself
    compact = False

    def __init__(
        self, name: str, target: str, lowered: Lowered, arguments: Sequence[ArgSpec], finite: Sequence[int] = ()
    ) -> None:
        _prepare_process()
        self.code = JitCode(name, target)
        self.arguments = tuple(arguments)
        self.buffers = tuple(a for a in self.arguments if a.ndim is not None)
        self.scalars = tuple(a for a in self.arguments if a.ndim is None)
        self.finite = tuple(finite)
        self.is_on_device = has_device(target)
        self.images = (*lowered.inputs.values(), *lowered.previous.values())
        self.numbers = (*lowered.sizes.values(), *([] if lowered.zero is None else [lowered.zero]))
        self.rereads = [r.func.has_update_definition() for r in lowered.results for _ in r.positions]
        self.lock = threading.Lock()
        _functions.add(self)
        self.bound: JitBinding | None = None  # whose buffers and numbers the parameters are
        words = [word for word in without_avx512(target).split("-") if word not in _NOT_FOR_JIT]
        self.target, self.pipeline = hl.Target("-".join(words)), hl.Pipeline([_entry(), *lowered.pipeline.outputs()])
        self.pipeline.compile_jit(self.target)

    def bind(self, layouts: Sequence[Layout], scalars: Sequence[int | float] = ()) -> JitBinding:
        """Prepare calls on arrays of these shapes and strides (one pair per array) and on these scalars."""
        check_layouts(self, layouts)
        return JitBinding(self, layouts, scalars)


def _entry() -> hl.Func:
    """A first output, after which Halide names the compiled function: one called `tanh` would be taken for libm's."""
    entry = hl.Func("te_entry")
    entry[()] = hl.i32(0)
    return entry


class JitBinding:
    """A function prepared for arrays of given shapes and strides."""

    def __init__(self, function: JitFunction, layouts: Sequence[Layout], scalars: Sequence[int | float]) -> None:
        self._function, self._layouts, self._scalars = function, layouts, tuple(scalars)
        self._buffers = [_Buffer(spec, *layout) for spec, layout in zip(function.buffers, layouts, strict=True)]
        self._inputs = self._buffers[: len(function.images)]
        self._outputs = self._buffers[len(function.images) :]
        self._results = [hl.Buffer.make_scalar(hl.Int(32)), *(buffer.halide for buffer in self._outputs)]

    def run(self, arrays: Sequence[Array]) -> None:
        """Call the function on NumPy arrays (nothing else) of the shapes, strides and types bound here."""
        function = self._function
        for place in function.finite:
            if not np.isfinite(arrays[place]).all():
                raise not_finite(function.code.name)
        apart = self._apart(arrays)
        with _calling(function):
            for place, (buffer, array) in enumerate(zip(self._buffers, arrays, strict=True)):
                buffer.point_at(apart.get(place, array))
            if function.bound is not self:
                self._set()
            try:
                function.pipeline.realize(self._results, function.target)
                for buffer in self._outputs if function.is_on_device else ():
                    buffer.halide.copy_to_host()
            except hl.HalideError as error:
                raise _error(function.code.name, str(error)) from None
            finally:
                for buffer in self._buffers if function.is_on_device else ():
                    buffer.halide.device_free()
        for place, array in apart.items():
            arrays[place][...] = array

    def _set(self) -> None:
        function = self._function
        function.bound = None
        for image, buffer in zip(function.images, self._inputs, strict=True):
            image.set(buffer.halide)
        for parameter, number in zip(function.numbers, self._scalars, strict=True):
            parameter.set(number)
        function.bound = self

    def _apart(self, arrays: Sequence[Array]) -> dict[int, Array]:
        """Memory of the same layout for the outputs that are taken to be aligned and are not."""
        begin = len(self._inputs)
        return {
            begin + k: _aligned(arrays[begin + k])
            for k, rereads in enumerate(self._function.rereads)
            if rereads and address_of(arrays[begin + k]) % _ALIGNED
        }


class _Buffer:
    """A buffer of Halide's that is pointed at arrays of one layout."""

    def __init__(self, spec: ArgSpec, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        words = buffer_words(spec, shape, strides)
        code, bits, ndim = words[TYPE] & 0xFF, words[TYPE] >> 8 & 0xFF, words[TYPE] >> 32
        kind = _TYPES[code](bits)
        self.halide = hl.Buffer(kind, [1] * ndim) if ndim else hl.Buffer.make_scalar(kind)
        self._words: Any = (ctypes.c_uint64 * BUFFER_WORDS).from_address(self.halide._get_raw_halide_buffer_t())
        dimensions: Any = (ctypes.c_uint64 * (2 * ndim)).from_address(self._words[DIMENSIONS])
        dimensions[:] = words[BUFFER_WORDS:]
        self._is_input = not spec.output

    def point_at(self, array: Array) -> None:
        self._words[HOST] = address_of(array)
        if self._is_input:
            self.halide.set_host_dirty()


def _aligned(array: Array) -> Array:
    """Memory of the same layout whose first element is aligned to a vector."""
    low = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True) if n and s < 0)
    high = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True) if n and s > 0)
    memory = np.empty(high - low + array.itemsize + _ALIGNED, np.uint8)
    offset = -low + -(address_of(memory) - low) % _ALIGNED
    made: Array = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
    return made


def _error(name: str, said: str) -> KernelError:
    return (KernelMemoryError if is_out_of_memory(said) else KernelError)(name, -1, [message(said)])


_functions: weakref.WeakSet[JitFunction] = weakref.WeakSet()
_turn = threading.Lock()  # to begin a call, or to fork
_calls = 0  # inside Halide


@contextmanager
def _calling(function: JitFunction) -> Iterator[None]:
    """A call of Halide's: one at a time of a function, and none while the process forks."""
    global _calls
    with function.lock:
        with _turn:
            _calls += 1
        try:
            yield
        finally:
            with _turn:
                _calls -= 1


@functools.cache
def _prepare_process() -> None:
    """Tell Halide how many threads it may start, before its first loop; let forks and the end wait for calls."""
    if THREADS_VARIABLE not in os.environ:
        on_change(lambda count: os.environ.update({THREADS_VARIABLE: str(count)}))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_quiet, after_in_parent=_turn.release, after_in_child=_in_child)
    atexit.register(_quiet)  # a thread that comes back from Halide to a Python that is gone ends the process


def _quiet() -> None:
    """Let calls end, and none begin: a forked child has one thread, which would wait for the locks of others."""
    deadline = time.monotonic() + _FORK_PATIENCE_S
    _turn.acquire()
    while _calls and time.monotonic() < deadline:
        _turn.release()
        time.sleep(0.001)
        _turn.acquire()


def _in_child() -> None:
    global _calls
    _calls = 0
    for function in _functions:
        function.lock = threading.Lock()
    _turn.release()
