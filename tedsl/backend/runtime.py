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
import importlib.metadata
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halide as hl

from tedsl.backend import store, threads
from tedsl.backend.constructors import expose_constructors
from tedsl.backend.linker import link
from tedsl.backend.processors import host_words, processor_of
from tedsl.backend.waiting import Waiting

__all__ = [
    "NOT_FINITE",
    "KernelError",
    "KernelMemoryError",
    "Runtime",
    "failure",
    "loaded_runtimes",
    "not_finite",
    "running",
    "runtime_for",
    "runtime_object",
]

NOT_FINITE = -1  # the number of the requirement that numbers are finite

_OUT_OF_MEMORY = -11
_REQUIREMENT = "Requirement Failed: "
_FORK_PATIENCE_S = 5.0

running: deque[None] = deque()  # one entry per call inside a kernel; appended and popped by the callers
_runtimes: dict[str, Runtime] = {}
_lock = threading.Lock()
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
        for text in self.messages:
            if text.startswith(_REQUIREMENT):
                return tuple(text[len(_REQUIREMENT) :].rpartition(")")[2].split())
        return None


class KernelMemoryError(KernelError, MemoryError):
    """A kernel found no memory for its intermediate results."""


class Runtime:
    """The loaded runtime of one kind of target."""

    def __init__(self, target: str) -> None:
        self.target = target
        if "cuda" in target.split("-"):
            # Halide 21 allows a thread 64 registers unless this says otherwise: tiles of sums would go to memory.
            os.environ.setdefault("HL_CUDA_JIT_MAX_REGISTERS", "255")
        image, constructors = expose_constructors(_runtime_image(target))
        self._waiting = Waiting()
        self._library = link(image, constructors, self._waiting.imports)
        self._addresses: dict[str, int | None] = {}
        self._functions: dict[str, Callable[..., int]] = {}
        for constructor in constructors:
            self.call(constructor)
        self.call("halide_set_error_handler", _pointer(_error_callback))
        self.call("halide_set_custom_print", _pointer(_print_callback))
        for name, function in self._waiting.hooks(self.address("halide_default_do_par_for") or 0).items():
            self.call(name, function)
        threads.on_change(self._set_threads)

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
        """Halide lets threads that run already go on beyond their number, so they end first."""
        self.stop_threads()
        self.call("halide_set_num_threads", count)

    def pointer(self, name: str) -> int:
        """What a function of the runtime without arguments returns, an address."""
        address = self.address(name)
        if address is None:
            raise LookupError(f"Halide's runtime for {self.target} has no function {name}")
        return ctypes.CFUNCTYPE(ctypes.c_void_p)(address)() or 0

    def stop_threads(self) -> None:
        """End the pool's threads; the next parallel loop starts them again."""
        self.call("halide_shutdown_thread_pool")


def runtime_for(target: str) -> Runtime:
    """The runtime that kernels for Halide's target `target` call into here; loaded at the first use."""
    kind = _runtime_target("-".join(host_words()), target)
    with _lock:
        if kind not in _runtimes:
            _stop_threads_around_fork_and_exit()
            _runtimes[kind] = Runtime(kind)
        return _runtimes[kind]


def loaded_runtimes() -> list[Runtime]:
    """Those in use in this process."""
    return list(_runtimes.values())


def failure(name: str, code: int, context: int) -> KernelError:
    """The error of a call that returned `code`, with the messages that arrived under its context."""
    kind = KernelMemoryError if code == _OUT_OF_MEMORY else KernelError
    return kind(name, code, _messages.pop(context, []))


def not_finite(name: str) -> KernelError:
    """The error of a kernel that met an inf or NaN: what `lower_finite` makes it print."""
    return KernelError(name, -1, [f"{_REQUIREMENT}finite) 0 {NOT_FINITE} 0 0 0"])


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
        with tempfile.TemporaryDirectory(prefix="tedsl-") as folder:
            path = Path(folder) / "runtime.o"
            hl.compile_standalone_runtime(str(path), hl.Target(target))
            return path.read_bytes()

    version = importlib.metadata.version("halide")
    key = hashlib.sha256(f"{version} {target}".encode()).hexdigest()[:24]
    return store.fetch(f"runtime-{key}.o", build)


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
def _stop_threads_around_fork_and_exit() -> None:
    """A forked child has none of its parent's threads, yet would wait for them; so none may be there when it begins."""

    def stop() -> None:
        for runtime in _runtimes.values():
            runtime.stop_threads()

    def before_fork() -> None:
        _lock.acquire()
        deadline = time.monotonic() + _FORK_PATIENCE_S
        while running and time.monotonic() < deadline:
            time.sleep(0.001)
        stop()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before_fork, after_in_parent=_lock.release, after_in_child=_lock.release)
    atexit.register(stop)
