"""Object code to functions in memory, without a linker or a compiler: LLVM's JIT linker through llvmlite.

Every library gets a linker of its own, which is dropped with it: sharing one saves 0.3 ms and leaks 6.5 KB for every
library that was ever loaded. A missing symbol is an error here, where LLVM's older interface would end the process.
Pages of code are never writable while they can be run.

The linker is JITLink, which lays the sections of an object side by side. RuntimeDyld, llvmlite's default, puts each
where there is room, and ends the process when two are 2 GB apart: so it happened with PyTorch and JAX in one process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tedsl.backend.host import files
from tedsl.lang.dataclass import dataclass

__all__ = ["Library", "LoadedCode", "assembled", "initialize", "link", "runtime_names"]

_LIBRARY = "library"
_RUNTIME_NAME = re.compile(rb"(?<=\0)_?(halide_\w+)(?=\0)")


class Library:
    """Loaded object code; its memory is freed when the library is dropped."""

    def __init__(self, linker: Any, tracker: Any) -> None:
        self._linker, self._tracker = linker, tracker

    def __getitem__(self, symbol: str) -> int:
        """The address of an exported symbol."""
        return int(self._tracker[symbol])

    def lookup(self, symbol: str) -> int | None:
        """The address of any symbol, None when there is none of that name; for libraries that stay."""
        try:
            found = self._linker.lookup(_LIBRARY, symbol)
        except RuntimeError:
            return None
        found.detach()  # a second owner would unload the library
        return int(found[symbol])

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if ending():
            return  # llvmlite is half gone; the pages go with the process
        self._tracker.close()  # the code first, then the linker that its pages belong to
        self._linker.close()


@dataclass(frozen=True)
class LoadedCode:
    """A kernel in memory, for as long as this object lives; without an address where it cannot run."""

    name: str
    target: str
    address: int | None
    library: Library | None


def link(image: bytes, exports: Iterable[str], imports: Mapping[str, int]) -> Library:
    """Load object code that may call `imports`, by address, and what the process has, such as libm."""
    initialize()
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    for symbol, address in imports.items():
        builder.import_symbol(symbol, address)
    for symbol in exports:
        builder.export_symbol(symbol)
    linker = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    return Library(linker, builder.link(linker, _LIBRARY))


def runtime_names(image: bytes) -> set[str]:
    """The names of Halide's runtime that object code mentions: what it calls, and perhaps a few more."""
    return {name.decode() for name in _RUNTIME_NAME.findall(image)}


def assembled(name: str, assembly: str) -> bytes:
    """Object code of functions of ours in LLVM's assembly, for this machine; made once and kept."""
    triple = llvm.get_process_triple()
    key = hashlib.sha256(f"{llvmlite.__version__} {triple} {assembly}".encode()).hexdigest()[:24]

    def build() -> bytes:
        initialize()
        module = llvm.parse_assembly(assembly, llvm.create_context())
        machine = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic", codemodel="default")
        return bytes(machine.emit_object(module))

    return files.fetch(f"{name}-{key}.o", build)


def initialize(triple: str = "") -> None:
    """LLVM's code generators: for this machine, and all others where `triple` is another one (16 ms)."""
    _initialize_native()
    if triple and triple.partition("-")[0] != llvm.get_process_triple().partition("-")[0]:
        _initialize_all()


@functools.cache
def _initialize_native() -> None:
    """A process forks between two calls of LLVM, not within one: the child would find LLVM's locks held for good."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if hasattr(os, "register_at_fork"):
        inside = llvm.ffi.lib._lock
        leave = functools.partial(inside.__exit__, None, None, None)
        os.register_at_fork(before=inside.__enter__, after_in_parent=leave, after_in_child=leave)


@functools.cache
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
