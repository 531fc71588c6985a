"""Halide's runtime, once per process and kind of target: threads, memory, devices, and errors that never abort.

Kernels are compiled without a runtime and call into this one. Its object takes most of a second to build, so it is kept
on disk. Each call passes a context, a number of its own, under which its messages arrive: a failing call raises what it
failed of, also while others fail beside it.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import halide as hl

from tedsl.backend.halide_text.errors import failed_requirement, requirement_failed
from tedsl.backend.host import files, threads
from tedsl.backend.host.elf import ZeroedMemory, expose_constructors, zeroed_memory
from tedsl.backend.host.gate import Gate
from tedsl.backend.host.heap import heap
from tedsl.backend.host.linker import link
from tedsl.backend.host.pool import Waiting
from tedsl.backend.host.processors import host_words, processor_of
from tedsl.backend.host.scratch import scratch
from tedsl.backend.host.tasks import Tasks
from tedsl.backend.host.versions import version_of
from tedsl.lang.locks import freed_in_children

__all__ = [
    "NOT_FINITE",
    "KernelError",
    "KernelMemoryError",
    "Runtime",
    "failure",
    "loaded_runtimes",
    "not_finite",
    "runtime_for",
    "runtime_object",
]

NOT_FINITE = -1  # the number of the requirement that numbers are finite

OUT_OF_MEMORY = -11
_PATIENCE_S = 0.2  # with loops that still run when the process ends
_PARALLEL = (  # functions that run loops, in the order in which they are set
    "do_par_for", "do_task", "do_loop_task", "do_parallel_tasks", "semaphore_init", "semaphore_try_acquire",
    "semaphore_release",
)  # fmt: skip

_runtimes: dict[str, Runtime] = {}
_lock = freed_in_children(threading.Lock())
_messages: dict[int, list[str]] = {}


class KernelError(RuntimeError):
    """A kernel's call that failed: Halide's code and its messages, the first of which is the cause."""

    def __init__(self, name: str, code: int, messages: list[str]) -> None:
        self.kernel, self.code, self.messages = name, code, messages
        self.explanation = ""  # what a failed requirement means, where that is known already
        super().__init__(f"kernel {name!r} failed: {messages[0] if messages else f'Halide returned {code}'}")

    @property
    def requirement(self) -> tuple[str, ...] | None:
        """What a failed `hl.require(condition, value, *arguments)` printed: the value, then the arguments."""
        return failed_requirement(self.messages)


class KernelMemoryError(KernelError, MemoryError):
    """A kernel found no memory for its intermediate results."""


class Runtime:
    """The loaded runtime of one kind of target."""

    def __init__(self, target: str) -> None:
        self.target = target
        if "cuda" in target.split("-"):
            # Halide 21 allows a thread 64 registers unless this says otherwise: tiles of sums would go to memory.
            os.environ.setdefault("HL_CUDA_JIT_MAX_REGISTERS", "255")
        image, self._constructors = expose_constructors(_runtime_image(target))
        self._waiting, self._gate, self._tasks = Waiting(), Gate(), Tasks()
        self._library = link(image, self._constructors, self._waiting.imports)
        self._addresses: dict[str, int | None] = {}
        self._functions: dict[str, Callable[..., int]] = {}
        self._zeroed = [(self._beginning(part), part.size) for part in zeroed_memory(image)]
        self._construct()
        self.call("halide_set_error_handler", _pointer(_error_callback))
        self.call("halide_set_custom_print", _pointer(_print_callback))
        for setter, function in heap().hooks.items():
            self.call(setter, function)
        functions = {name: self.address(f"halide_default_{name}") or 0 for name in _PARALLEL}
        hooks = self._waiting.hooks(functions["do_par_for"])
        functions |= {name.removeprefix("halide_set_custom_"): function for name, function in hooks.items()}
        functions |= self._tasks.instead(functions)
        functions |= self._gate.before(functions)
        self._tasks.run_by(functions["do_loop_task"])
        self.call("halide_set_custom_parallel_runtime", *functions.values())
        self._most_threads = 0
        threads.on_change(self._set_threads)

    def _beginning(self, part: ZeroedMemory) -> int:
        """Where a part of the runtime's memory lies."""
        found = {(self.address(name) or 0) - offset for name, offset in part.offsets.items()}
        if len(found) != 1:
            raise RuntimeError(
                f"Halide's runtime for {self.target}: {part.size} bytes of its memory are not in one piece"
            )
        return found.pop()

    def _construct(self) -> None:
        for constructor in self._constructors:
            self.call(constructor)

    def address(self, name: str) -> int | None:
        """Where the function `name` begins; None when this runtime has none of that name."""
        if name not in self._addresses:
            self._addresses[name] = self._library.lookup(name)
        return self._addresses[name]

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of the runtime on pointers and numbers; the result is Halide's code, if it has one."""
        if name not in self._functions:
            address = self.address(name)
            if address is None:
                raise LookupError(f"Halide's runtime for {self.target} has no function {name}")
            self._functions[name] = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * len(arguments))(address)
        return self._functions[name](*arguments)

    def _set_threads(self, count: int) -> None:
        """Halide lets threads that run already go on beyond their number, so where there may be more they end first."""
        if count < self._most_threads:
            self.stop_threads()
        self._most_threads = count
        self._waiting.share_among(count)
        self.call("halide_set_num_threads", count)

    def pointer(self, name: str) -> int:
        """What a function of the runtime without arguments returns, an address."""
        address = self.address(name)
        if address is None:
            raise LookupError(f"Halide's runtime for {self.target} has no function {name}")
        return ctypes.CFUNCTYPE(ctypes.c_void_p)(address)() or 0

    def stop_threads(self, patience: float = math.inf) -> None:
        """End the pool's threads, once no loop runs, unless that takes longer; the next loop starts them again."""
        with self._gate.taken(patience) as is_empty:
            if is_empty:
                self.call("halide_shutdown_thread_pool")

    @property
    def can_begin_anew(self) -> bool:
        """Whether a forked process can; where not, the threads must end before."""
        return bool(self._zeroed)

    def begin_anew(self) -> None:
        """As in a new process: in a forked one, where the threads are not there that its queues and locks speak of."""
        for address, size in self._zeroed:
            ctypes.memset(address, 0, size)
        self._construct()
        self._gate.reopen()
        self._most_threads = threads.get_num_threads()
        self.call("halide_set_num_threads", self._most_threads)


def runtime_for(target: str) -> Runtime:
    """The runtime that kernels for Halide's target `target` call into here; loaded at the first use."""
    kind = _runtime_target("-".join(host_words()), target)
    with _lock:
        if kind not in _runtimes:
            _follow_the_process()
            _runtimes[kind] = Runtime(kind)
        return _runtimes[kind]


def loaded_runtimes() -> list[Runtime]:
    """Those in use in this process."""
    return list(_runtimes.values())


def failure(name: str, code: int, context: int) -> KernelError:
    """The error of a call that returned `code`, with the messages that arrived under its context."""
    kind = KernelMemoryError if code == OUT_OF_MEMORY else KernelError
    return kind(name, code, _messages.pop(context, []))


def not_finite(name: str) -> KernelError:
    """The error of a kernel that met an inf or NaN: what `lowering.finite_checks` makes it print."""
    return KernelError(name, -1, [requirement_failed("finite", 0, NOT_FINITE, 0, 0, 0)])


def runtime_object(target: str) -> bytes:
    """The object code of the runtime that kernels for a target call into, for every processor that can run them."""
    return _runtime_image(_runtime_target(processor_of(target), target))


@functools.cache
def _runtime_target(processor: str, target: str) -> str:
    """Kernels that differ in options alone share a runtime: only the platform and the GPU's interface count."""
    return str(hl.Target("-".join([processor, *(name for name in ("cuda", "opencl") if name in target.split("-"))])))


def _runtime_image(target: str) -> bytes:
    """The runtime's object code, from the store when it was built before with this Halide."""

    def build() -> bytes:
        with scratch() as file:
            hl.compile_standalone_runtime(file.path, hl.Target(target))
            return file.read()

    version = version_of("halide")
    key = hashlib.sha256(f"{version} {target}".encode()).hexdigest()[:24]
    return files.fetch(f"runtime-{key}.o", build)


def _on_error(context: int | None, text: bytes | None) -> None:
    """Called by Halide, maybe on one of its own threads, before a call returns its code."""
    _messages.setdefault(context or 0, []).append((text or b"").decode(errors="replace").strip())


def _on_print(context: int | None, text: bytes | None) -> None:
    sys.stdout.write((text or b"").decode(errors="replace"))


_TEXT_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_error_callback, _print_callback = _TEXT_CALLBACK(_on_error), _TEXT_CALLBACK(_on_print)  # kept: Halide calls them


def _pointer(callback: Any) -> int:
    return ctypes.cast(callback, ctypes.c_void_p).value or 0


@functools.cache
def _follow_the_process() -> None:
    """A forked process has none of its parent's threads, and begins anew; one that ends takes its threads along.

    The parent need not wait for its loops: what it forks is the state that the child does not use.
    """

    def before() -> None:
        for runtime in _runtimes.values():
            if not runtime.can_begin_anew:
                runtime.stop_threads(_PATIENCE_S)

    def in_child() -> None:
        for runtime in _runtimes.values():
            if runtime.can_begin_anew:
                runtime.begin_anew()

    def at_exit() -> None:
        for runtime in _runtimes.values():
            runtime.stop_threads(_PATIENCE_S)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_child=in_child)
    atexit.register(at_exit)
