"""The pool's threads between loops: awake for a moment, each on a processor of its own, with tasks of its own.

Halide's threads look for work forty times before they sleep, 20 us in all. To wake one takes longer than that, on a
virtual machine several times as long, so of two threads the second came late to every loop of calls that follow each
other: a product of 256 took 0.27 ms on two threads, and 0.26 on one. Each look takes 5 us here, which makes 0.2 ms,
while whoever else wants the processor has it; the product takes 0.15 ms.

A thread that did sleep wakes on the processor that it slept on, or on that of the thread that wakes it. In a virtual
machine the system cannot tell an idle processor from one that its host took away, and avoids both: two threads of a
loop were seen to share one processor for ten calls in a row beside an idle one. So threads note where they are, and one
that finds another thread of the same loop in its place moves to a processor that none of them has, to which it is not
bound.

A thread that takes the tasks of a loop one by one, as they come, finds its arrays in the cache of the other one at the
next call. So the tasks are shared out in blocks, of which a processor always begins with the same; who is done with one
goes on with the next.

The functions stand between Halide's runtime and the kernels or the system. They are LLVM's assembly, since there is no
Python in the pool's threads, and no compiler on the machine; they are compiled once and kept.
"""

from __future__ import annotations

import ctypes
import sys

from tedsl.backend.host.linker import Library, assembled, link

__all__ = ["Waiting"]

LOOK_NS = 5000  # of one look for work
PROCESSORS = 1024  # that the system's set of processors has room for
MOST_BLOCKS = 256  # of the tasks of a loop
MOVES = 16  # in one loop: on a busy machine the system moves threads as well

_ASSEMBLY = f"""
%loop = type {{ ptr, ptr, i32, i32, i32, [{MOST_BLOCKS} x i32] }}  ; task, closure, first, count, blocks, taken of each

@pool = global ptr null                                          ; halide_default_do_par_for
@loops = internal global i64 0                                   ; begun so far
@tasks = internal global i64 0                                   ; ended so far
@moves = internal global i64 0                                   ; in this loop
@blocks = global i32 1                                           ; that loops are shared out in, at most {MOST_BLOCKS}
@numbers = internal global [{PROCESSORS} x i32] zeroinitializer  ; of processors, from 1, in the order they were seen
@numbered = internal global i32 0
@places = internal global [{PROCESSORS} x i64] zeroinitializer   ; the loop (16 bits) and thread last seen there

declare i64 @pthread_self()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)

; for halide_do_par_for
define i32 @par_for(ptr %context, ptr %task, i32 %first, i32 %count, ptr %closure) {{
  %loop = alloca %loop, align 8
  %before = atomicrmw add ptr @loops, i64 1 monotonic
  store atomic i64 0, ptr @moves monotonic, align 8
  call void @settle()
  call void @share(ptr %loop, ptr %task, i32 %first, i32 %count, ptr %closure)
  %pool = load ptr, ptr @pool
  %code = call i32 %pool(ptr %context, ptr %task, i32 %first, i32 %count, ptr %loop)
  ret i32 %code
}}

; for halide_do_task; which task it is, is found here
define i32 @do_task(ptr %context, ptr %ignored, i32 %any, ptr %loop) {{
  call void @settle()
  %number = call i32 @next(ptr %loop)
  %closure.at = getelementptr %loop, ptr %loop, i32 0, i32 1
  %task = load ptr, ptr %loop
  %closure = load ptr, ptr %closure.at
  %code = call i32 %task(ptr %context, i32 %number, ptr %closure)
  %before = atomicrmw add ptr @tasks, i64 1 monotonic
  ret i32 %code
}}

define internal void @share(ptr %loop, ptr %task, i32 %first, i32 %count, ptr %closure) {{
  %closure.at = getelementptr %loop, ptr %loop, i32 0, i32 1
  %first.at = getelementptr %loop, ptr %loop, i32 0, i32 2
  %count.at = getelementptr %loop, ptr %loop, i32 0, i32 3
  %blocks.at = getelementptr %loop, ptr %loop, i32 0, i32 4
  %taken.at = getelementptr %loop, ptr %loop, i32 0, i32 5
  %blocks = load atomic i32, ptr @blocks monotonic, align 4
  store ptr %task, ptr %loop
  store ptr %closure, ptr %closure.at
  store i32 %first, ptr %first.at
  store i32 %count, ptr %count.at
  store i32 %blocks, ptr %blocks.at
  br label %each

each:
  %k = phi i32 [ 0, %0 ], [ %k.next, %each ]
  %at = getelementptr i32, ptr %taken.at, i32 %k
  store atomic i32 0, ptr %at monotonic, align 4
  %k.next = add i32 %k, 1
  %more = icmp ult i32 %k.next, %blocks
  br i1 %more, label %each, label %end

end:
  ret void
}}

; a task that nobody took, there is one
define internal i32 @next(ptr %loop) {{
  %first.at = getelementptr %loop, ptr %loop, i32 0, i32 2
  %count.at = getelementptr %loop, ptr %loop, i32 0, i32 3
  %blocks.at = getelementptr %loop, ptr %loop, i32 0, i32 4
  %taken.at = getelementptr %loop, ptr %loop, i32 0, i32 5
  %first = load i32, ptr %first.at
  %count = load i32, ptr %count.at
  %blocks = load i32, ptr %blocks.at
  %processor = call i32 @number()
  %many = zext i32 %count to i64
  %parts = zext i32 %blocks to i64
  br label %try

try:
  %seen = phi i32 [ %processor, %0 ], [ %seen.next, %try ]
  %block = urem i32 %seen, %blocks
  %wide = zext i32 %block to i64
  %low.product = mul i64 %wide, %many
  %low = udiv i64 %low.product, %parts
  %high.product = add i64 %low.product, %many
  %high = udiv i64 %high.product, %parts
  %at = getelementptr i32, ptr %taken.at, i32 %block
  %taken = atomicrmw add ptr %at, i32 1 monotonic
  %offset = zext i32 %taken to i64
  %found = add i64 %low, %offset
  %is.there = icmp ult i64 %found, %high
  %seen.next = add i32 %block, 1
  br i1 %is.there, label %end, label %try

end:
  %from = trunc i64 %found to i32
  %number = add i32 %first, %from
  ret i32 %number
}}

; of this processor, among those that were seen
define internal i32 @number() {{
  %processor = call i32 @sched_getcpu()
  %low = and i32 %processor, {PROCESSORS - 1}
  %wide = zext i32 %low to i64
  %at = getelementptr i32, ptr @numbers, i64 %wide
  %there = load atomic i32, ptr %at monotonic, align 4
  %new = icmp eq i32 %there, 0
  br i1 %new, label %give, label %end

give:
  %before = atomicrmw add ptr @numbered, i32 1 monotonic
  %own = add i32 %before, 1
  store atomic i32 %own, ptr %at monotonic, align 4
  br label %end

end:
  %from.one = phi i32 [ %there, %0 ], [ %own, %give ]
  %number = sub i32 %from.one, 1
  ret i32 %number
}}

; for sched_yield: one look for work, which ends when a loop begins or a task ends
define i32 @yield() {{
  call void @settle()
  %loops = load atomic i64, ptr @loops monotonic, align 8
  %tasks = load atomic i64, ptr @tasks monotonic, align 8
  %begin = call i64 @now()
  br label %look

look:
  %ignored = call i32 @sched_yield()
  %loops.now = load atomic i64, ptr @loops monotonic, align 8
  %tasks.now = load atomic i64, ptr @tasks monotonic, align 8
  %begun = icmp ne i64 %loops.now, %loops
  %ended = icmp ne i64 %tasks.now, %tasks
  %time = call i64 @now()
  %took = sub i64 %time, %begin
  %late = icmp sgt i64 %took, {LOOK_NS}
  %new = or i1 %begun, %ended
  %stop = or i1 %new, %late
  br i1 %stop, label %end, label %look

end:
  ret i32 0
}}

define internal i64 @now() {{
  %time = alloca [2 x i64], align 8
  %failed = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %at, align 8
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}}

; what a thread of the present loop leaves in its place
define internal i64 @mark() {{
  %loop = load atomic i64, ptr @loops monotonic, align 8
  %high = shl i64 %loop, 48
  %self = call i64 @pthread_self()
  %low = and i64 %self, {(1 << 48) - 1}
  %mark = or i64 %high, %low
  ret i64 %mark
}}

define internal ptr @place() {{
  %processor = call i32 @sched_getcpu()
  %low = and i32 %processor, {PROCESSORS - 1}
  %wide = zext i32 %low to i64
  %at = getelementptr i64, ptr @places, i64 %wide
  ret ptr %at
}}

; whether a mark is one of another thread of the same loop
define internal i1 @is_others(i64 %there, i64 %mark) {{
  %differ = xor i64 %there, %mark
  %loop = lshr i64 %differ, 48
  %same = icmp eq i64 %loop, 0
  %other = icmp ne i64 %differ, 0
  %both = and i1 %same, %other
  ret i1 %both
}}

define internal void @settle() {{
  %mark = call i64 @mark()
  %at = call ptr @place()
  %there = load atomic i64, ptr %at monotonic, align 8
  %own = icmp eq i64 %there, %mark
  br i1 %own, label %end, label %look

look:
  %taken = call i1 @is_others(i64 %there, i64 %mark)
  br i1 %taken, label %away, label %note

away:
  call void @move(i64 %mark)
  br label %note

note:
  %now = call ptr @place()
  store atomic i64 %mark, ptr %now monotonic, align 8
  br label %end

end:
  ret void
}}

; to a processor that is allowed and has no mark of another thread; once there, all that were allowed are so again
define internal void @move(i64 %mark) noinline {{
  %allowed = alloca [{PROCESSORS // 64} x i64], align 8
  %free = alloca [{PROCESSORS // 64} x i64], align 8
  %before = atomicrmw add ptr @moves, i64 1 monotonic
  %enough = icmp uge i64 %before, {MOVES}
  br i1 %enough, label %end, label %ask

ask:
  %failed = call i32 @sched_getaffinity(i32 0, i64 {PROCESSORS // 8}, ptr %allowed)
  %known = icmp eq i32 %failed, 0
  br i1 %known, label %words, label %end

words:
  %word = phi i64 [ 0, %ask ], [ %word.next, %store ]
  %some = phi i64 [ 0, %ask ], [ %some.next, %store ]
  %from = getelementptr i64, ptr %allowed, i64 %word
  %bits = load i64, ptr %from, align 8
  %first = shl i64 %word, 6
  br label %processors

processors:
  %k = phi i64 [ 0, %words ], [ %k.next, %processors ]
  %left = phi i64 [ %bits, %words ], [ %left.next, %processors ]
  %number = add i64 %first, %k
  %at = getelementptr i64, ptr @places, i64 %number
  %there = load atomic i64, ptr %at monotonic, align 8
  %taken = call i1 @is_others(i64 %there, i64 %mark)
  %bit = shl i64 1, %k
  %others = xor i64 %bit, -1
  %without = and i64 %left, %others
  %left.next = select i1 %taken, i64 %without, i64 %left
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, 64
  br i1 %more, label %processors, label %store

store:
  %to = getelementptr i64, ptr %free, i64 %word
  store i64 %left.next, ptr %to, align 8
  %some.next = or i64 %some, %left.next
  %word.next = add i64 %word, 1
  %rest = icmp ult i64 %word.next, {PROCESSORS // 64}
  br i1 %rest, label %words, label %chosen

chosen:
  %none = icmp eq i64 %some.next, 0
  br i1 %none, label %end, label %go

go:
  %there.now = call i32 @sched_setaffinity(i32 0, i64 {PROCESSORS // 8}, ptr %free)
  %loose.now = call i32 @sched_setaffinity(i32 0, i64 {PROCESSORS // 8}, ptr %allowed)
  br label %end

end:
  ret void
}}
"""


class Waiting:
    """The functions in memory, for one runtime; none on systems whose threads are not told where they run."""

    def __init__(self) -> None:
        self._library: Library | None = None
        if sys.platform == "linux":
            self._library = link(assembled("waiting", _ASSEMBLY), ["pool", "blocks", "par_for", "do_task", "yield"], {})

    @property
    def imports(self) -> dict[str, int]:
        """What the runtime calls instead of the system's functions."""
        return {} if self._library is None else {"sched_yield": self._library["yield"]}

    def hooks(self, pool: int) -> dict[str, int]:
        """Arguments for functions of the runtime that put ours around its own; `pool`: how it runs a loop."""
        if self._library is None:
            return {}
        ctypes.c_void_p.from_address(self._library["pool"]).value = pool
        return {
            "halide_set_custom_do_par_for": self._library["par_for"],
            "halide_set_custom_do_task": self._library["do_task"],
        }

    def share_among(self, count: int) -> None:
        """Let loops that begin from now on be shared out among so many threads."""
        if self._library is not None:
            ctypes.c_int32.from_address(self._library["blocks"]).value = min(count, MOST_BLOCKS)
