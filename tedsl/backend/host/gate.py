"""The gate before the pool of threads: loops pass through it, and wait while somebody changes the pool.

Halide's pool may be shut down only when no loop runs in it: a loop that begins or goes on meanwhile finds a queue that
is being cleared, and the process ends. So loops are counted as they come and go. Whoever changes the pool takes it once
nobody is inside, and new loops wait until it is given back.

A loop that is begun by a task of another one never waits, since that other one is what a change would wait for. Threads
know by a mark of their own that they are inside.

The functions stand between Halide's runtime and its pool, for every caller: Python, XLA and other compiled code. A
parallel loop costs two additions more, a kernel without one nothing.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tedsl.backend.host.linker import Library, assembled, link

__all__ = ["Gate"]

_TAKEN = 1 << 62  # in the count of loops: somebody changes the pool
_WAIT_US = 50  # of a loop, before it looks again
_POLL_S = 0.0002
_HELD_S, _PERIOD_S = 0.1, 1.0  # loops wait for a change that cannot begin for so long, out of so long

_ASSEMBLY = f"""
@inside = global i64 0     ; loops in the pool that no other loop began
@closed = global i64 0     ; whether loops that come wait
@key = global i64 0        ; of a thread's mark
@next.loop = global ptr null
@next.tasks = global ptr null
@next.task = global ptr null
@next.part = global ptr null

declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare i32 @usleep(i32)

; for halide_do_par_for
define i32 @loop(ptr %context, ptr %task, i32 %first, i32 %count, ptr %closure) {{
  %own = call i1 @enter()
  %next = load ptr, ptr @next.loop
  %code = call i32 %next(ptr %context, ptr %task, i32 %first, i32 %count, ptr %closure)
  call void @leave(i1 %own)
  ret i32 %code
}}

; for halide_do_parallel_tasks
define i32 @tasks(ptr %context, i32 %count, ptr %tasks, ptr %parent) {{
  %own = call i1 @enter()
  %next = load ptr, ptr @next.tasks
  %code = call i32 %next(ptr %context, i32 %count, ptr %tasks, ptr %parent)
  call void @leave(i1 %own)
  ret i32 %code
}}

; for halide_do_task
define i32 @task(ptr %context, ptr %task, i32 %number, ptr %closure) {{
  call void @mark()
  %next = load ptr, ptr @next.task
  %code = tail call i32 %next(ptr %context, ptr %task, i32 %number, ptr %closure)
  ret i32 %code
}}

; for halide_do_loop_task
define i32 @part(ptr %context, ptr %task, i32 %first, i32 %count, ptr %closure, ptr %parent) {{
  call void @mark()
  %next = load ptr, ptr @next.part
  %code = tail call i32 %next(ptr %context, ptr %task, i32 %first, i32 %count, ptr %closure, ptr %parent)
  ret i32 %code
}}

; the pool to oneself, if it is empty: 1 is then written to %taken
define void @take(ptr %taken) {{
  %pair = cmpxchg ptr @inside, i64 0, i64 {_TAKEN} seq_cst seq_cst
  %done = extractvalue {{ i64, i1 }} %pair, 1
  %number = zext i1 %done to i64
  store i64 %number, ptr %taken
  ret void
}}

define void @give() {{
  %before = atomicrmw sub ptr @inside, i64 {_TAKEN} seq_cst
  ret void
}}

; whether the loop was counted
define internal i1 @enter() {{
  %key = load i64, ptr @key
  %mark = call ptr @pthread_getspecific(i64 %key)
  %outside = icmp eq ptr %mark, null
  br i1 %outside, label %look, label %within

look:
  %closed = load atomic i64, ptr @closed seq_cst, align 8
  %open = icmp eq i64 %closed, 0
  br i1 %open, label %try, label %wait

try:
  %before = atomicrmw add ptr @inside, i64 1 seq_cst
  %free = icmp ult i64 %before, {_TAKEN}
  br i1 %free, label %in, label %back

back:
  %again = atomicrmw sub ptr @inside, i64 1 seq_cst
  br label %wait

wait:
  %slept = call i32 @usleep(i32 {_WAIT_US})
  br label %look

in:
  %marked = call i32 @pthread_setspecific(i64 %key, ptr @inside)
  ret i1 true

within:
  ret i1 false
}}

define internal void @leave(i1 %own) {{
  br i1 %own, label %out, label %end

out:
  %key = load i64, ptr @key
  %unmarked = call i32 @pthread_setspecific(i64 %key, ptr null)
  %before = atomicrmw sub ptr @inside, i64 1 seq_cst
  br label %end

end:
  ret void
}}

; a thread of the pool is always inside
define internal void @mark() {{
  %key = load i64, ptr @key
  %mark = call ptr @pthread_getspecific(i64 %key)
  %outside = icmp eq ptr %mark, null
  br i1 %outside, label %set, label %end

set:
  %marked = call i32 @pthread_setspecific(i64 %key, ptr @inside)
  br label %end

end:
  ret void
}}
"""

# What the runtime calls them, ours that stand before them, and where ours find what they pass loops on to.
_PLACES = {
    "do_par_for": ("loop", "next.loop"),
    "do_parallel_tasks": ("tasks", "next.tasks"),
    "do_task": ("task", "next.task"),
    "do_loop_task": ("part", "next.part"),
}


class Gate:
    """The gate of one runtime's pool."""

    def __init__(self) -> None:
        ours = [name for pair in _PLACES.values() for name in pair]
        image = assembled("gate", _ASSEMBLY)
        self._library: Library = link(image, [*ours, "inside", "closed", "key", "take", "give"], {})
        self._inside, self._closed = self._word("inside"), self._word("closed")
        self._take = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library["take"])
        self._give = ctypes.CFUNCTYPE(None)(self._library["give"])
        if ctypes.CDLL(None).pthread_key_create(ctypes.c_void_p(self._library["key"]), None):
            raise RuntimeError("the system has no key left for data of threads, of which a pool of threads needs one")

    def _word(self, name: str) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._library[name])

    def before(self, functions: Mapping[str, int]) -> dict[str, int]:
        """Functions that stand before those of the pool, by the same names."""
        for name, (_, next_one) in _PLACES.items():
            ctypes.c_void_p.from_address(self._library[next_one]).value = functions[name]
        return {name: self._library[own] for name, (own, _) in _PLACES.items()}

    @property
    def inside(self) -> int:
        """How many loops run in the pool, without those that are begun by others."""
        return self._inside.value % _TAKEN

    @contextmanager
    def taken(self, patience: float = float("inf")) -> Iterator[bool]:
        """The pool without loops, while new ones wait; whether it was empty within so many seconds.

        While a long loop is waited for, others pass most of the time.
        """
        taken = ctypes.c_int64(0)  # written by the function itself: an interrupt may come right after it
        begin = time.monotonic()
        try:
            self._take(ctypes.addressof(taken))
            while not taken.value and (waited := time.monotonic() - begin) < patience:
                self._closed.value = waited % _PERIOD_S < _HELD_S
                time.sleep(_POLL_S)
                self._take(ctypes.addressof(taken))
            yield bool(taken.value)
        finally:
            if taken.value:
                self._give()
            self._closed.value = 0

    def reopen(self) -> None:
        """Nobody is inside: for a forked process, which has none of the threads that were."""
        self._inside.value = self._closed.value = 0
