"""Prepared calls one after another without Python between them: a scan of a kernel for each step is thousands of them.

Where all arrays of all calls lie is known but for a few addresses, those of the inputs, of the results and of the
memory between kernels. A small function in LLVM's assembly adds them to the offsets of the arrays, writes the sums into
the argument blocks, and calls the kernels until one of them fails. With its tables and the argument blocks in one block
of words it is one call for other compilers, which takes the memory between its calls from the heap.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tedsl.backend.arguments.blocks import Binding, OneCall
from tedsl.backend.host.emit import emit_object
from tedsl.backend.host.heap import heap
from tedsl.backend.host.linker import Library, assembled, link
from tedsl.backend.host.runtime import OUT_OF_MEMORY

__all__ = ["CallList", "Spot"]

Spot = tuple[int, int]  # where an array lies: the number of an address, and bytes from there on

_ASSEMBLY = """
%spot = type { ptr, i64, i64 }  ; where an address goes, the number of that which it is counted from, bytes from there
%call = type { ptr, ptr }       ; a function and its argument

define i32 @run(ptr %bases, ptr %spots, i64 %spot.count, ptr %calls, i64 %call.count, ptr %done) {
entry:
  br label %next.spot

next.spot:
  %s = phi i64 [ 0, %entry ], [ %s.next, %spot ]
  %more.spots = icmp ult i64 %s, %spot.count
  br i1 %more.spots, label %spot, label %next.call

spot:
  %place.at = getelementptr %spot, ptr %spots, i64 %s
  %place = load ptr, ptr %place.at
  %number.at = getelementptr %spot, ptr %spots, i64 %s, i32 1
  %number = load i64, ptr %number.at
  %offset.at = getelementptr %spot, ptr %spots, i64 %s, i32 2
  %offset = load i64, ptr %offset.at
  %base.at = getelementptr i64, ptr %bases, i64 %number
  %base = load i64, ptr %base.at
  %address = add i64 %base, %offset
  store i64 %address, ptr %place
  %s.next = add i64 %s, 1
  br label %next.spot

next.call:
  %c = phi i64 [ 0, %next.spot ], [ %c.next, %called ]
  %more.calls = icmp ult i64 %c, %call.count
  br i1 %more.calls, label %call, label %end

call:
  %function.at = getelementptr %call, ptr %calls, i64 %c
  %function = load ptr, ptr %function.at
  %argument.at = getelementptr %call, ptr %calls, i64 %c, i32 1
  %argument = load ptr, ptr %argument.at
  %code = call i32 %function(ptr %argument)
  %fails = icmp ne i32 %code, 0
  br i1 %fails, label %end, label %called

called:
  %c.next = add i64 %c, 1
  br label %next.call

end:
  %result = phi i32 [ 0, %next.call ], [ %code, %call ]
  store i64 %c, ptr %done
  ret i32 %result
}
"""

_ONE = """
define i32 @one(ptr %block) {{
  %take = inttoptr i64 {take} to ptr
  %memory = call ptr %take(ptr null, i64 {bytes})
  %none = icmp eq ptr %memory, null
  br i1 %none, label %failed, label %go

failed:
  ret i32 {no_memory}

go:
{functions}  %memory.at = getelementptr i64, ptr %block, i64 {memory}
  store ptr %memory, ptr %memory.at
  %spots = getelementptr i64, ptr %block, i64 {spots}
  %calls = getelementptr i64, ptr %block, i64 {calls}
  %done = getelementptr i64, ptr %block, i64 {done}
  %run = inttoptr i64 {run} to ptr
  %code = call i32 %run(ptr %block, ptr %spots, i64 {spot_count}, ptr %calls, i64 {call_count}, ptr %done)
  %give = inttoptr i64 {give} to ptr
  call void %give(ptr null, ptr %memory)
  ret i32 %code
}}
"""

_FUNCTION = """\
  %function.{place} = getelementptr i64, ptr %block, i64 {place}
  store i64 {address}, ptr %function.{place}
"""  # where it lies in memory is no matter of the words


@functools.cache
def _library() -> tuple[Library, Any]:
    library = link(assembled("calls", _ASSEMBLY), ["run"], {})
    pointer, size = ctypes.c_void_p, ctypes.c_uint64
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, size, pointer, size, pointer)  # releases the GIL
    return library, prototype(library["run"])


class CallList:
    """Calls by their bindings, with the spots of their arrays, run in this order; safe to use from several threads."""

    def __init__(self, calls: Sequence[tuple[Binding, Sequence[Spot]]], addresses: int) -> None:
        self._calls, self._addresses = [(binding, tuple(spots)) for binding, spots in calls], addresses
        self._free: list[_Tables] = []
        self._library, self._run = _library()  # the library is held: threads may have made two at once

    @staticmethod
    def takes(binding: object) -> bool:
        """Whether a call does no more than to run a function."""
        return type(binding) is Binding

    def run(self, addresses: Sequence[int]) -> tuple[int, Exception] | None:
        """Run them where the arrays lie at these addresses; which call failed first, and how."""
        try:
            tables = self._free.pop()
        except IndexError:
            tables = _Tables(self._calls, self._addresses)
        tables.addresses[:] = list(addresses)
        code = self._run(*tables.arguments)
        failed = None
        if code:
            number = tables.done.value
            failed = number, self._calls[number][0].error(code, tables.blocks[number].address)
        self._free.append(tables)
        return failed

    def in_one(self, memory: int, explained: Callable[[int, Exception], Exception]) -> OneCall:
        """The calls as one, which takes so many bytes of memory for what lies at the last address.

        `explained`: the error of a call in the terms of its program.
        """
        words, pointers, begins = [0] * (self._addresses + 1), dict[int, int](), list[int]()
        for binding, _ in self._calls:
            begins.append(len(words))
            own = binding.in_one()
            pointers.update((begins[-1] + place, begins[-1] + target) for place, target in own.pointers.items())
            words += own.words
        spots = len(words)
        for begin, (binding, places) in zip(begins, self._calls, strict=True):
            for host, (number, offset) in zip(binding.hosts, places, strict=True):
                pointers[len(words)] = begin + host
                words += (0, number, offset % (1 << 64))
        calls, functions = len(words), list[str]()
        for begin, (binding, _) in zip(begins, self._calls, strict=True):
            pointers[len(words) + 1] = begin
            functions.append(_FUNCTION.format(place=len(words), address=binding.address))
            words += (0, 0)
        hooks = heap().hooks
        text = _ONE.format(
            take=hooks["halide_set_custom_malloc"], give=hooks["halide_set_custom_free"], run=self._library["run"],
            bytes=memory, memory=self._addresses - 1, done=self._addresses, spots=spots, calls=calls,
            functions="".join(functions), spot_count=(calls - spots) // 3, call_count=len(self._calls),
            no_memory=OUT_OF_MEMORY,
        )  # fmt: skip
        library = link(emit_object(text), ["one"], {})
        each, done = (
            [(binding, begin) for begin, (binding, _) in zip(begins, self._calls, strict=True)],
            self._addresses,
        )

        def error(code: int, context: int) -> Exception:  # of the first call where no memory was there for any
            number = ctypes.c_uint64.from_address(context + 8 * done).value
            binding, begin = each[number]
            return explained(number, binding.error(code, context + 8 * begin))

        held = self._library, library
        return OneCall(library["one"], words, pointers, tuple(range(self._addresses - 1)), error, held)


class _Tables:
    """What the function takes: blocks of arguments for one run at a time."""

    def __init__(self, calls: Sequence[tuple[Binding, Sequence[Spot]]], addresses: int) -> None:
        self.blocks = [binding.block() for binding, _ in calls]
        self.addresses = (ctypes.c_uint64 * addresses)()
        self.done = ctypes.c_uint64()
        spots, entries = list[int](), list[int]()
        for block, (binding, own) in zip(self.blocks, calls, strict=True):
            for host, (number, offset) in zip(binding.hosts, own, strict=True):
                spots += (block.address + 8 * host, number, offset % (1 << 64))
            entries += (binding.address, block.address)
        self._spots, self._entries = ((ctypes.c_uint64 * len(words))(*words) for words in (spots, entries))
        self.arguments = (
            ctypes.addressof(self.addresses), ctypes.addressof(self._spots), len(spots) // 3,
            ctypes.addressof(self._entries), len(calls), ctypes.addressof(self.done),
        )  # fmt: skip
