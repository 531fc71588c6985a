"""LLVM's assembly to object code, or to the assembly of a processor."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

from tedsl.backend.host.linker import initialize

__all__ = ["emit_assembly", "emit_object"]


def emit_object(assembly: str) -> bytes:
    """Object code of LLVM assembly; it names its machine, and the functions carry their instruction set."""
    module = _parsed(assembly)
    return bytes(_machine(module.triple).emit_object(module))


def emit_assembly(assembly: str) -> str:
    """The same as text."""
    module = _parsed(assembly)
    return str(_machine(module.triple).emit_assembly(module))


def _parsed(assembly: str) -> Any:
    # A context of its own is freed with the module.
    return llvm.parse_assembly(assembly, llvm.create_context())


@functools.cache
def _machine(triple: str) -> Any:
    triple = triple or llvm.get_process_triple()
    initialize(triple)
    return llvm.Target.from_triple(triple).create_target_machine(opt=3, reloc="pic", codemodel="default")
