"""Calls of compiled code on NumPy's arrays by a function of Python's own kind, which reads the arrays' fields itself.

In Python, looking at two arrays, filling in their addresses and calling the code takes four times as long as the code
of a thousand elements. So a `ArrayCall` has a function in LLVM's assembly for it: it compares dtype, shape and strides
of each array with those that the call is for, sees that nothing that is written overlaps what else is passed, writes
the addresses into the block of words, and calls the code without the GIL. Where anything is otherwise it says no, and
the call is made by the ways that explain what is wrong.

The function knows NumPy's array object, whose fields have been the same since NumPy 1.7. Whether they still are is
tried once; where they are not, or Python has no GIL that keeps them as they are meanwhile, there is no such call.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tedsl.backend.arguments.blocks import Binding
from tedsl.backend.host.linker import Library, assembled, link
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import freed_in_children

__all__ = ["ArrayCall", "Passed", "array_call"]

Array = npt.NDArray[Any]

_lock = freed_in_children(threading.Lock())
_HEAD = object.__basicsize__
_DATA, _NDIM, _SHAPE, _STRIDES, _DTYPE, _FLAGS = (_HEAD + 8 * k for k in (0, 1, 2, 3, 5, 6))
_TYPE = _HEAD - 8  # the last word of every object's head
_ALIGNED, _WRITEABLE = 0x0100, 0x0400
_FASTCALL = 0x0080

# Words of a table: these, then arrays of _ARRAY words, pairs of arrays and spots of three words each, then sizes.
_COUNTS = ("arrays", "pairs", "spots")
_WORDS = ("type", *_COUNTS, "pairs_at", "spots_at", "function", "block", "busy", "code", "yes", "no", "failed")
_AT = {name: k for k, name in enumerate(_WORDS)}
_ARRAY = ("dtype", "ndim", "shape", "strides", "begin", "end", "flags", "is_known")
_ASSEMBLY = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)

define internal i64 @word(ptr %table, i64 %k) alwaysinline {
  %at = getelementptr i64, ptr %table, i64 %k
  %value = load i64, ptr %at
  ret i64 %value
}

; a word of a Python object
define internal i64 @field(ptr %object, i64 %offset) alwaysinline {
  %at = getelementptr i8, ptr %object, i64 %offset
  %value = load i64, ptr %at
  ret i64 %value
}

define internal ptr @answer(ptr %table, i64 %which) alwaysinline {
  %value = call i64 @word(ptr %table, i64 %which)
  %object = inttoptr i64 %value to ptr
  call void @Py_IncRef(ptr %object)
  ret ptr %object
}

define internal i64 @data(ptr %arguments, i64 %k) alwaysinline {
  %at = getelementptr ptr, ptr %arguments, i64 %k
  %object = load ptr, ptr %at
  %data = call i64 @field(ptr %object, i64 {data})
  ret i64 %data
}

define internal i1 @same(i64 %a.address, i64 %b.address, i64 %count) {
entry:
  %a = inttoptr i64 %a.address to ptr
  %b = inttoptr i64 %b.address to ptr
  br label %look

look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %alike ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %compare, label %end

compare:
  %x = call i64 @word(ptr %a, i64 %k)
  %y = call i64 @word(ptr %b, i64 %k)
  %k.next = add i64 %k, 1
  %is = icmp eq i64 %x, %y
  br i1 %is, label %alike, label %end

alike:
  br label %look

end:
  %result = phi i1 [ true, %look ], [ false, %compare ]
  ret i1 %result
}

; whether an object is an array as a record says
define internal i1 @fits(ptr %object, i64 %type, ptr %record) {
  %own = call i64 @field(ptr %object, i64 {type})
  %is.array = icmp eq i64 %own, %type
  br i1 %is.array, label %array, label %no

array:
  %dtype = call i64 @field(ptr %object, i64 {dtype})
  %dtype.asked = call i64 @word(ptr %record, i64 0)
  %is.dtype = icmp eq i64 %dtype, %dtype.asked
  %ndim.word = call i64 @field(ptr %object, i64 {ndim})
  %ndim = and i64 %ndim.word, 4294967295
  %ndim.asked = call i64 @word(ptr %record, i64 1)
  %is.ndim = icmp eq i64 %ndim, %ndim.asked
  %flags.word = call i64 @field(ptr %object, i64 {flags})
  %flags.asked = call i64 @word(ptr %record, i64 6)
  %flags = and i64 %flags.word, %flags.asked
  %has.flags = icmp eq i64 %flags, %flags.asked
  %kind = and i1 %is.dtype, %is.ndim
  %all = and i1 %kind, %has.flags
  br i1 %all, label %sizes, label %no

sizes:
  %shape = call i64 @field(ptr %object, i64 {shape})
  %shape.asked = call i64 @word(ptr %record, i64 2)
  %is.shape = call i1 @same(i64 %shape, i64 %shape.asked, i64 %ndim)
  br i1 %is.shape, label %steps, label %no

steps:
  %strides = call i64 @field(ptr %object, i64 {strides})
  %strides.asked = call i64 @word(ptr %record, i64 3)
  %is.strides = call i1 @same(i64 %strides, i64 %strides.asked, i64 %ndim)
  ret i1 %is.strides

no:
  ret i1 false
}

; whether two arrays have no byte in common, or one lies on the other where that is safe
define internal i1 @apart(ptr %records, ptr %arguments, ptr %pair) {
  %i = call i64 @word(ptr %pair, i64 0)
  %j = call i64 @word(ptr %pair, i64 1)
  %safe = call i64 @word(ptr %pair, i64 2)
  %a = call i64 @data(ptr %arguments, i64 %i)
  %b = call i64 @data(ptr %arguments, i64 %j)
  %i.words = mul i64 %i, {array_words}
  %j.words = mul i64 %j, {array_words}
  %i.record = getelementptr i64, ptr %records, i64 %i.words
  %j.record = getelementptr i64, ptr %records, i64 %j.words
  %a.low = call i64 @word(ptr %i.record, i64 4)
  %a.high = call i64 @word(ptr %i.record, i64 5)
  %b.low = call i64 @word(ptr %j.record, i64 4)
  %b.high = call i64 @word(ptr %j.record, i64 5)
  %a.begin = add i64 %a, %a.low
  %a.end = add i64 %a, %a.high
  %b.begin = add i64 %b, %b.low
  %b.end = add i64 %b, %b.high
  %before = icmp ule i64 %a.end, %b.begin
  %after = icmp ule i64 %b.end, %a.begin
  %apart = or i1 %before, %after
  %is.safe = icmp ne i64 %safe, 0
  %on = icmp eq i64 %a, %b
  %safely = and i1 %is.safe, %on
  %result = or i1 %apart, %safely
  ret i1 %result
}

define ptr @call(ptr %self, ptr %arguments, i64 %count) uwtable {
entry:
  %table.address = call i64 @field(ptr %self, i64 {data})
  %table = inttoptr i64 %table.address to ptr
  %records = getelementptr i64, ptr %table, i64 {words}
  %arrays = call i64 @word(ptr %table, i64 {at[arrays]})
  %type = call i64 @word(ptr %table, i64 {at[type]})
  %is.count = icmp eq i64 %count, %arrays
  %busy.at = getelementptr i64, ptr %table, i64 {at[busy]}
  %busy = load i64, ptr %busy.at
  %idle = icmp eq i64 %busy, 0
  %begin = and i1 %is.count, %idle
  br i1 %begin, label %next.array, label %no

next.array:
  %k = phi i64 [ 0, %entry ], [ %k.next, %right ]
  %more.arrays = icmp ult i64 %k, %arrays
  br i1 %more.arrays, label %array, label %pairs

array:
  %object.at = getelementptr ptr, ptr %arguments, i64 %k
  %object = load ptr, ptr %object.at
  %k.words = mul i64 %k, {array_words}
  %record = getelementptr i64, ptr %records, i64 %k.words
  %known = call i64 @word(ptr %record, i64 7)
  %is.known = icmp ne i64 %known, 0
  br i1 %is.known, label %right, label %check

check:
  %fits = call i1 @fits(ptr %object, i64 %type, ptr %record)
  br i1 %fits, label %right, label %no

right:
  %k.next = add i64 %k, 1
  br label %next.array

pairs:
  %pair.count = call i64 @word(ptr %table, i64 {at[pairs]})
  %pairs.word = call i64 @word(ptr %table, i64 {at[pairs_at]})
  %pairs.at = getelementptr i64, ptr %table, i64 %pairs.word
  br label %next.pair

next.pair:
  %p = phi i64 [ 0, %pairs ], [ %p.next, %distinct ]
  %more.pairs = icmp ult i64 %p, %pair.count
  br i1 %more.pairs, label %pair, label %spots

pair:
  %p.words = mul i64 %p, 3
  %pair.at = getelementptr i64, ptr %pairs.at, i64 %p.words
  %apart = call i1 @apart(ptr %records, ptr %arguments, ptr %pair.at)
  br i1 %apart, label %distinct, label %no

distinct:
  %p.next = add i64 %p, 1
  br label %next.pair

spots:
  store i64 1, ptr %busy.at
  %spot.count = call i64 @word(ptr %table, i64 {at[spots]})
  %spots.word = call i64 @word(ptr %table, i64 {at[spots_at]})
  %spots.at = getelementptr i64, ptr %table, i64 %spots.word
  br label %next.spot

next.spot:
  %s = phi i64 [ 0, %spots ], [ %s.next, %spot ]
  %more.spots = icmp ult i64 %s, %spot.count
  br i1 %more.spots, label %spot, label %run

spot:
  %s.words = mul i64 %s, 3
  %spot.at = getelementptr i64, ptr %spots.at, i64 %s.words
  %place.word = call i64 @word(ptr %spot.at, i64 0)
  %place = inttoptr i64 %place.word to ptr
  %number = call i64 @word(ptr %spot.at, i64 1)
  %data = call i64 @data(ptr %arguments, i64 %number)
  store i64 %data, ptr %place
  %s.next = add i64 %s, 1
  br label %next.spot

run:
  %function.word = call i64 @word(ptr %table, i64 {at[function]})
  %function = inttoptr i64 %function.word to ptr
  %block.word = call i64 @word(ptr %table, i64 {at[block]})
  %block = inttoptr i64 %block.word to ptr
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 %function(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  %code.at = getelementptr i64, ptr %table, i64 {at[code]}
  %code.word = sext i32 %code to i64
  store i64 %code.word, ptr %code.at
  %fails = icmp ne i32 %code, 0
  br i1 %fails, label %failed, label %yes

yes:
  store i64 0, ptr %busy.at
  %yes.object = call ptr @answer(ptr %table, i64 {at[yes]})
  ret ptr %yes.object

no:
  %no.object = call ptr @answer(ptr %table, i64 {at[no]})
  ret ptr %no.object

failed:
  %failed.object = call ptr @answer(ptr %table, i64 {at[failed]})
  ret ptr %failed.object
}
"""


class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@dataclass(frozen=True)
class Passed:
    """An array that a call is for; one that the caller has just made is known to be right."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_written: bool = False
    is_known: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """The bytes that it lies in, from the address of its first element on."""
        ends = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0) + self.dtype.itemsize


class ArrayCall:
    """A call of a binding on arrays of given dtypes, shapes and strides; `run(*arrays)` is True where it was made.

    It is None where these are others, or another thread is calling: nothing has happened then. It is False where the
    code has failed, of which `error` tells.
    """

    __slots__ = ("_binding", "_block", "_held", "_table", "run")

    def __init__(
        self, binding: Binding, passed: Sequence[Passed], order: Sequence[int],
        pairs: Iterable[tuple[int, int, bool]],
    ) -> None:  # fmt: skip
        """`order`: the arrays in the order of the binding's; `pairs`: those that may not overlap, unless it is safe
        that they are one."""
        self._binding, self._block = binding, binding.block()
        self._held: list[Any] = [p.dtype for p in passed]
        arrays, apart = list[int](), [word for i, j, safe in pairs for word in (i, j, int(safe))]
        for p in passed:
            begin, end = p.span
            flags = _ALIGNED | (_WRITEABLE if p.is_written else 0)
            arrays += (
                id(p.dtype),
                len(p.shape),
                self._sizes(p.shape),
                self._sizes(p.strides),
                begin,
                end,
                flags,
                p.is_known,
            )
        spots = [
            word
            for host, k in zip(binding.hosts, order, strict=True)
            for word in (self._block.address + 8 * host, k, 0)
        ]
        head = {
            "type": id(np.ndarray), "arrays": len(passed), "pairs": len(apart) // 3, "spots": len(spots) // 3,
            "pairs_at": len(_WORDS) + len(arrays), "spots_at": len(_WORDS) + len(arrays) + len(apart),
            "function": binding.address, "block": self._block.address,
            "yes": id(True), "no": id(None), "failed": id(False),
        }  # fmt: skip
        self._table = np.array([*(head.get(name, 0) for name in _WORDS), *arrays, *apart, *spots], np.int64)
        self.run: Callable[..., bool | None] = _function(self._table)

    def _sizes(self, sizes: Sequence[int]) -> int:
        """Where numbers lie that are compared with those of arrays."""
        held = np.array(sizes, np.int64)
        self._held.append(held)
        return int(held.ctypes.data)

    def error(self) -> Exception:
        """Why the code has failed in the last call; no other one begins before this is asked."""
        found = self._binding.error(int(self._table[_AT["code"]]), self._block.address)
        self._table[_AT["busy"]] = 0
        return found


def array_call(
    run: Callable[..., Any], passed: Sequence[Passed], order: Sequence[int], pairs: Iterable[tuple[int, int, bool]]
) -> ArrayCall | None:
    """The call that `run`, of a binding, makes; None where it does more, or there are no such calls here."""
    binding = getattr(run, "__self__", None)
    if type(binding) is not Binding or not _is_known():
        return None
    return ArrayCall(binding, passed, order, pairs)


def _function(table: Array) -> Callable[..., Any]:
    """A function of Python's for a table, which it holds."""
    with _lock:  # one for good: functions look at its method until they are gone
        _, method = _library()
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = make(ctypes.addressof(method), table, None)
    return made


@functools.cache
def _library() -> tuple[Library, _Method]:
    text = _ASSEMBLY
    numbers = {"data": _DATA, "ndim": _NDIM, "shape": _SHAPE, "strides": _STRIDES, "dtype": _DTYPE, "flags": _FLAGS}
    numbers |= {"type": _TYPE, "words": len(_WORDS), "array_words": len(_ARRAY)}
    for name, value in {**numbers, **{f"at[{name}]": k for name, k in _AT.items()}}.items():
        text = text.replace(f"{{{name}}}", str(value))
    needed = ("PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")
    imports = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in needed}
    library = link(assembled("array_calls", text), ["call"], imports)
    return library, _Method(b"call", library["call"], _FASTCALL, None)


@functools.cache
def _is_known() -> bool:
    """Whether arrays are laid out as the function reads them, and stay so while it does."""
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not has_gil or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    matrix = np.arange(24.0).reshape(4, 6)
    fixed = np.arange(6, dtype="i2")[1:]
    fixed.flags.writeable = False
    return all(_is_laid_out(a) for a in (matrix, matrix[1:, 2:], matrix[::-1, ::-2], np.array(3.0, "f4"), fixed))


def _is_laid_out(array: Array) -> bool:
    def word(offset: int) -> int:
        return ctypes.c_int64.from_address(id(array) + offset).value

    flags = (_WRITEABLE if array.flags.writeable else 0) | (_ALIGNED if array.flags.aligned else 0)
    if word(_TYPE) != id(type(array)) or word(_DATA) != array.ctypes.data or word(_DTYPE) != id(array.dtype):
        return False
    if word(_NDIM) & 0xFFFFFFFF != array.ndim or word(_FLAGS) & (_WRITEABLE | _ALIGNED) != flags:
        return False
    sizes = [(ctypes.c_int64 * array.ndim).from_address(word(at)) for at in (_SHAPE, _STRIDES) if array.ndim]
    return [tuple(s) for s in sizes] == ([array.shape, array.strides] if array.ndim else [])
