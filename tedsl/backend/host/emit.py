"""LLVM's assembly to object code, or to the assembly of a processor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import llvmlite.binding as llvm

from tedsl.backend.host.linker import initialize

__all__ = ["Definitions", "emit_assembly", "emit_object", "optimized"]

Definitions = Callable[[str, str], Mapping[str, str]]  # (triple, layout of data) -> LLVM assembly by symbol


def emit_object(assembly: str, definitions: Definitions | None = None) -> bytes:
    """Object code of LLVM assembly; it names its machine, and the functions carry their instruction set.

    `definitions` of functions that it calls, for a machine and its layout of data, become its own.
    """
    module = _linked(assembly, definitions)
    return bytes(_machine(module.triple).emit_object(module))


def emit_assembly(assembly: str, definitions: Definitions | None = None) -> str:
    """The same as text."""
    module = _linked(assembly, definitions)
    return str(_machine(module.triple).emit_assembly(module))


def optimized(assembly: str) -> str:
    """The assembly of a module after all of LLVM's passes for speed."""
    module = llvm.parse_assembly(assembly, llvm.create_context())
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(_machine(module.triple), options)
    builder.getModulePassManager().run(module, builder)
    return str(module)


def _linked(assembly: str, definitions: Definitions | None) -> Any:
    """The module with the definitions inside, known to nobody else."""
    context = llvm.create_context()  # a context of its own is freed with the module
    module = llvm.parse_assembly(assembly, context)
    found = {} if definitions is None else definitions(module.triple, module.data_layout)
    for symbol, definition in found.items():
        module.link_in(llvm.parse_assembly(definition, context))
        module.get_function(symbol).linkage = "internal"
    return module


@functools.cache
def _machine(triple: str) -> Any:
    triple = triple or llvm.get_process_triple()
    initialize(triple)
    return llvm.Target.from_triple(triple).create_target_machine(opt=3, reloc="pic", codemodel="default")
