"""Kernels as custom calls of XLA, by its typed FFI: a call of a compiled program does not enter Python.

XLA calls a handler with a frame of structs (xla/ffi/api/c_api.h, version 0). The handler is written in LLVM's assembly
for one kernel and given shapes: it takes the addresses out of the frame, fills them into the kernel's block and calls
the kernel. A failed call asks Python for its message.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax

from tedsl.backend.calling.native_calls import CallSite, call_site
from tedsl.backend.host.emit import emit_object
from tedsl.backend.host.linker import link
from tedsl.lang.structure import structural_key
from tedsl.ops.routines import Routine, TracedRoutine

__all__ = ["lowered_by_ffi"]

# Byte offsets in XLA_FFI_CallFrame, XLA_FFI_Buffer, XLA_FFI_Metadata_Extension, XLA_FFI_Metadata, XLA_FFI_Api.
EXTENSION, API, ARGS, RETS = 8, 16, 72, 112
DATA = 24
EXTENSION_TYPE, METADATA = 8, 24
MAJOR, MINOR = 24, 28
ERROR_CREATE = 48
VERSION = 0, 1  # the oldest whose structs these are
INVALID_ARGUMENT = 3

_names: WeakKeyDictionary[TracedRoutine, str | None] = WeakKeyDictionary()
_kept: dict[str, Any] = {}  # XLA keeps the addresses of handlers for good
_messages: dict[int, Any] = {}
_Complain = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def lowered_by_ffi(context: Any, operands: Sequence[Any], routine: Routine) -> Any:
    """The call of a routine in a program for the CPU; None where that takes more than calls of code."""
    if tuple(context.module_context.platforms) != ("cpu",):
        return None
    specs = tuple((tuple(a.shape), str(a.dtype)) for a in context.avals_in)
    traced = routine.exact(specs)
    avals = (*context.avals_in, *context.avals_out)
    if any(str(a.dtype) != str(t.dtype) for a, t in zip(avals, (*traced.inputs, *traced.outputs), strict=True)):
        return None
    if traced not in _names:
        _names[traced] = _registered(traced)
    name = _names[traced]
    return None if name is None else jax.ffi.ffi_lowering(name)(context, *operands)


def _registered(traced: TracedRoutine) -> str | None:
    """The name under which XLA finds the kernel: that of what it computes, so that programs kept on disk stay right."""
    site = call_site(traced.kernel, [t.shape for t in (*traced.inputs, *traced.outputs)])
    if site is None:
        return None
    key = structural_key(traced.outputs, traced.inputs)
    schedule = hashlib.sha256(repr(site.call.words).encode()).hexdigest()[:8]
    name = f"tedsl_{traced.name}_{key[:32]}_{schedule}"
    if name not in _kept:
        complain = _Complain(_complaint(site))
        address = ctypes.cast(complain, ctypes.c_void_p).value or 0
        library = link(emit_object(handler_assembly(site, address)), ["handler"], {})
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(library["handler"])
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
        _kept[name] = site, complain, library, handler
    return name


def _complaint(site: CallSite) -> Any:
    """What a failed call says: the address of its message."""

    def message(code: int, context: int) -> int:
        text = ctypes.create_string_buffer(str(site.error(code, context or 0)).encode())
        _messages[context or 0] = text
        return ctypes.addressof(text)

    return message


def handler_assembly(site: CallSite, complain: int) -> str:
    """The handler as LLVM's assembly."""
    count = len(site.call.words)
    words = ", ".join(f"i64 {site.constants.get(k, word)}" for k, word in enumerate(site.call.words))
    fill = [
        line
        for place, target in site.call.pointers.items()
        for line in (f"  %t{place} = add i64 %base, {8 * target}", *_into(place, f"%t{place}"))
    ]
    for offset, name, places in ((ARGS, "a", site.inputs), (RETS, "r", site.outputs)):
        fill += [f"  %{name}_at = getelementptr i8, ptr %frame, i64 {offset}", f"  %{name} = load ptr, ptr %{name}_at"]
        for k, place in enumerate(places):
            fill += [
                f"  %{name}{k}_at = getelementptr ptr, ptr %{name}, i64 {k}",
                f"  %{name}{k} = load ptr, ptr %{name}{k}_at",
                f"  %{name}{k}_data = getelementptr i8, ptr %{name}{k}, i64 {DATA}",
                f"  %{name}{k}_host = load i64, ptr %{name}{k}_data",
                *_into(place, f"%{name}{k}_host"),
            ]
    return TEMPLATE.format(
        count=count, words=words, fill="\n".join(fill), size=8 * count, entry=site.call.address, complain=complain,
        extension=EXTENSION, kind=EXTENSION_TYPE, metadata=METADATA, major=MAJOR, minor=MINOR, version=VERSION, api=API,
        create=ERROR_CREATE, code=INVALID_ARGUMENT,
    )  # fmt: skip


def _into(place: int, value: str) -> list[str]:
    return [f"  %w{place} = getelementptr i64, ptr %block, i64 {place}", f"  store i64 {value}, ptr %w{place}"]


TEMPLATE = """\
@template = private constant [{count} x i64] [{words}]

define ptr @handler(ptr %frame) {{
  %extension_at = getelementptr i8, ptr %frame, i64 {extension}
  %extension = load ptr, ptr %extension_at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %run, label %ask
ask:
  %kind_at = getelementptr i8, ptr %extension, i64 {kind}
  %kind = load i32, ptr %kind_at
  %is_metadata = icmp eq i32 %kind, 1
  br i1 %is_metadata, label %tell, label %run
tell:
  %metadata_at = getelementptr i8, ptr %extension, i64 {metadata}
  %metadata = load ptr, ptr %metadata_at
  %major_at = getelementptr i8, ptr %metadata, i64 {major}
  store i32 {version[0]}, ptr %major_at
  %minor_at = getelementptr i8, ptr %metadata, i64 {minor}
  store i32 {version[1]}, ptr %minor_at
  ret ptr null
run:
  %block = alloca [{count} x i64], align 16
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %block, ptr align 8 @template, i64 {size}, i1 false)
  %base = ptrtoint ptr %block to i64
{fill}
  %entry = inttoptr i64 {entry} to ptr
  %result = call i32 %entry(ptr %block)
  %fine = icmp eq i32 %result, 0
  br i1 %fine, label %done, label %failed
done:
  ret ptr null
failed:
  %complain = inttoptr i64 {complain} to ptr
  %message = call ptr %complain(i32 %result, ptr %block)
  %error = alloca [4 x i64], align 16
  store i64 28, ptr %error
  %e1 = getelementptr i64, ptr %error, i64 1
  store i64 0, ptr %e1
  %e2 = getelementptr i64, ptr %error, i64 2
  store ptr %message, ptr %e2
  %e3 = getelementptr i64, ptr %error, i64 3
  store i64 {code}, ptr %e3
  %api_at = getelementptr i8, ptr %frame, i64 {api}
  %api = load ptr, ptr %api_at
  %create_at = getelementptr i8, ptr %api, i64 {create}
  %create = load ptr, ptr %create_at
  %made = call ptr %create(ptr %error)
  ret ptr %made
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
