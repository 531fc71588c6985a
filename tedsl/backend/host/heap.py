"""Memory inside kernels, kept between their calls: fresh pages cost more than what most kernels compute into them.

A kernel asks for the memory of what it computes on the way when it is called, and frees it at its end. The C library
gives large blocks back to the system, which hands out pages of zeros at the next call, one fault after another: of the
gradient of twenty steps of fdtd_2d on 200 x 220, 49 MB, these took nine tenths of the time. So large blocks wait here
for the next call that wants as much, until there are too many of them.

A block is in a slot or somebody's own: who takes it out by an atomic exchange may look at it, so nothing needs a lock.
The functions are LLVM's assembly, since kernels call them in any of their threads.
"""

from __future__ import annotations

import ctypes
import functools

from tedsl.backend.host.linker import Library, assembled, link

__all__ = ["Heap", "heap"]

LEAST = 1 << 16  # bytes of a block that is kept; the C library keeps smaller ones
MOST = 1 << 28  # bytes of all that are kept
SLOTS = 64
ALIGNMENT = 128  # two lines of the cache
PAGE = 4096

# Before a block lie the address that the C library gave, and the bytes of a block that may be kept, else 0.
_ASSEMBLY = f"""
@slots = internal global [{SLOTS} x ptr] zeroinitializer
@kept = internal global i64 0                     ; bytes of the blocks in them
@turn = internal global i64 0                     ; the slot that is emptied next

declare ptr @malloc(i64)
declare void @free(ptr)

; for halide_malloc
define ptr @take(ptr %context, i64 %wanted) {{
  %small = icmp ult i64 %wanted, {LEAST}
  br i1 %small, label %plain, label %large

plain:
  %p = call ptr @fresh(i64 %wanted, i64 0)
  ret ptr %p

large:
  %huge = icmp ugt i64 %wanted, {1 << 62}
  br i1 %huge, label %never, label %whole

never:
  ret ptr null

whole:
  %up = add i64 %wanted, {PAGE - 1}
  %size = and i64 %up, -{PAGE}
  %more = lshr i64 %size, 2
  %most = add i64 %size, %more
  br label %look

look:
  %k = phi i64 [ 0, %whole ], [ %k.next, %next ]
  %slot = getelementptr ptr, ptr @slots, i64 %k
  %there = load atomic ptr, ptr %slot monotonic, align 8
  %empty = icmp eq ptr %there, null
  br i1 %empty, label %next, label %try

try:
  %own = call ptr @out(ptr %slot)
  %gone = icmp eq ptr %own, null
  br i1 %gone, label %next, label %ask

ask:
  %has = call i64 @size_of(ptr %own)
  %enough = icmp uge i64 %has, %size
  %little = icmp ule i64 %has, %most
  %fits = and i1 %enough, %little
  br i1 %fits, label %found, label %back

found:
  ret ptr %own

back:
  call void @put(ptr %own, i64 %has)
  br label %next

next:
  %k.next = add i64 %k, 1
  %left = icmp ult i64 %k.next, {SLOTS}
  br i1 %left, label %look, label %none

none:
  %new = call ptr @fresh(i64 %size, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %pressed, label %end

pressed:
  %freed = call i64 @empty()
  %last = call ptr @fresh(i64 %size, i64 %size)
  ret ptr %last

end:
  ret ptr %new
}}

; for halide_free
define void @give(ptr %context, ptr %block) {{
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %some

some:
  %size = call i64 @size_of(ptr %block)
  %small = icmp eq i64 %size, 0
  %large = icmp ugt i64 %size, {MOST}
  %free = or i1 %small, %large
  br i1 %free, label %away, label %room

away:
  call void @drop(ptr %block)
  ret void

room:                                             ; others go where all would be too much
  %tries = phi i64 [ 0, %some ], [ %tries.next, %evict ]
  %kept = load atomic i64, ptr @kept monotonic, align 8
  %sum = add i64 %kept, %size
  %full = icmp ugt i64 %sum, {MOST}
  %again = icmp ult i64 %tries, {SLOTS}
  %go = and i1 %full, %again
  br i1 %go, label %evict, label %store

evict:
  call void @make_room()
  %tries.next = add i64 %tries, 1
  br label %room

store:
  call void @put(ptr %block, i64 %size)
  br label %end

end:
  ret void
}}

; frees all that is kept; its bytes
define i64 @empty() {{
  br label %look

look:
  %k = phi i64 [ 0, %0 ], [ %k.next, %next ]
  %sum = phi i64 [ 0, %0 ], [ %sum.next, %next ]
  %slot = getelementptr ptr, ptr @slots, i64 %k
  %own = call ptr @out(ptr %slot)
  %gone = icmp eq ptr %own, null
  br i1 %gone, label %next, label %free

free:
  %size = call i64 @size_of(ptr %own)
  %more = add i64 %sum, %size
  call void @drop(ptr %own)
  br label %next

next:
  %sum.next = phi i64 [ %sum, %look ], [ %more, %free ]
  %k.next = add i64 %k, 1
  %left = icmp ult i64 %k.next, {SLOTS}
  br i1 %left, label %look, label %end

end:
  ret i64 %sum.next
}}

; into an empty slot; where there is none, in the place of another block
define internal void @put(ptr %block, i64 %size) {{
  %before = atomicrmw add ptr @kept, i64 %size monotonic
  br label %look

look:
  %k = phi i64 [ 0, %0 ], [ %k.next, %next ]
  %slot = getelementptr ptr, ptr @slots, i64 %k
  %pair = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %done = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %done, label %end, label %next

next:
  %k.next = add i64 %k, 1
  %left = icmp ult i64 %k.next, {SLOTS}
  br i1 %left, label %look, label %instead

instead:
  %at = call ptr @turned()
  %old = atomicrmw xchg ptr %at, ptr %block acq_rel
  %none = icmp eq ptr %old, null
  br i1 %none, label %end, label %other

other:
  %bytes = call i64 @size_of(ptr %old)
  %was = atomicrmw sub ptr @kept, i64 %bytes monotonic
  call void @drop(ptr %old)
  br label %end

end:
  ret void
}}

define internal ptr @turned() {{
  %count = atomicrmw add ptr @turn, i64 1 monotonic
  %k = urem i64 %count, {SLOTS}
  %slot = getelementptr ptr, ptr @slots, i64 %k
  ret ptr %slot
}}

define internal void @make_room() {{
  %slot = call ptr @turned()
  %old = call ptr @out(ptr %slot)
  %none = icmp eq ptr %old, null
  br i1 %none, label %end, label %some

some:
  call void @drop(ptr %old)
  br label %end

end:
  ret void
}}

; what is in a slot, which is empty then; null where it was
define internal ptr @out(ptr %slot) {{
  %own = atomicrmw xchg ptr %slot, ptr null acq_rel
  %none = icmp eq ptr %own, null
  br i1 %none, label %end, label %some

some:
  %size = call i64 @size_of(ptr %own)
  %before = atomicrmw sub ptr @kept, i64 %size monotonic
  br label %end

end:
  ret ptr %own
}}

define internal i64 @size_of(ptr %block) {{
  %at = getelementptr i64, ptr %block, i64 -2
  %size = load i64, ptr %at, align 8
  ret i64 %size
}}

define internal void @drop(ptr %block) {{
  %at = getelementptr ptr, ptr %block, i64 -1
  %raw = load ptr, ptr %at, align 8
  call void @free(ptr %raw)
  ret void
}}

define internal ptr @fresh(i64 %bytes, i64 %size) {{
  %all = add i64 %bytes, {2 * ALIGNMENT}
  %fits = icmp ugt i64 %all, %bytes
  br i1 %fits, label %ask, label %failed

ask:
  %raw = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %raw, null
  br i1 %none, label %failed, label %place

place:
  %from = ptrtoint ptr %raw to i64
  %up = add i64 %from, {2 * ALIGNMENT - 1}
  %down = and i64 %up, -{ALIGNMENT}
  %block = inttoptr i64 %down to ptr
  %raw.at = getelementptr ptr, ptr %block, i64 -1
  %size.at = getelementptr i64, ptr %block, i64 -2
  store ptr %raw, ptr %raw.at, align 8
  store i64 %size, ptr %size.at, align 8
  ret ptr %block

failed:
  ret ptr null
}}
"""


class Heap:
    """The functions in memory."""

    def __init__(self) -> None:
        self._library: Library = link(assembled("heap", _ASSEMBLY), ["take", "give", "empty"], {})
        self._empty = ctypes.CFUNCTYPE(ctypes.c_int64)(self._library["empty"])

    @property
    def hooks(self) -> dict[str, int]:
        """Arguments for the functions of Halide's runtime that say where memory comes from."""
        return {"halide_set_custom_malloc": self._library["take"], "halide_set_custom_free": self._library["give"]}

    def release(self) -> int:
        """Give back all that is kept; its bytes."""
        return int(self._empty())


@functools.cache
def heap() -> Heap:
    """That of this process."""
    return Heap()
