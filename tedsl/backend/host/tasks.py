"""Tasks that wait for one another: each runs on a thread of its own, so that whoever is waited for goes on.

A stage that is computed ahead of its reader is a task beside it; they tell each other by semaphores how far they are.
Halide 21 lets the threads of its pool take such tasks, and a thread that finds one whose semaphore is not free may
sleep beyond the moment when it is: the call never ends. So tasks have threads of their own here, begun with them and
joined before the call goes on, and a thread that waits for a semaphore looks again and again. When a task fails the
others stop waiting, and return its code.

Loops inside of tasks are run by the pool. The functions are LLVM's assembly, since no Python may run in these threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from tedsl.backend.host.linker import Library, assembled, link

__all__ = ["Tasks"]

_LOOKS = 200  # for a semaphore, before the thread sleeps between them
_WAIT_US = 20
_NO_THREAD = -11  # Halide's code of a lack of memory

# The task of Halide: function, closure, name, semaphores, how many, first, count, threads, whether in order.
_ASSEMBLY = f"""
%task = type {{ ptr, ptr, ptr, ptr, i32, i32, i32, i32, i8 }}
%wanted = type {{ ptr, i32 }}
%job = type {{ ptr, ptr, ptr, i64 }}                 ; the call's context, the task, the code of the tasks, the thread

@next.loop = global ptr null                         ; how the pool runs a loop
@part = global ptr null                              ; how a part of a loop is run

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @sched_yield()
declare i32 @usleep(i32)

; for halide_semaphore_init
define i32 @set(ptr %semaphore, i32 %count) {{
  store atomic i32 %count, ptr %semaphore seq_cst, align 8
  ret i32 %count
}}

; for halide_semaphore_release
define i32 @release(ptr %semaphore, i32 %count) {{
  %before = atomicrmw add ptr %semaphore, i32 %count seq_cst
  %now = add i32 %before, %count
  ret i32 %now
}}

; for halide_semaphore_try_acquire
define i1 @acquire(ptr %semaphore, i32 %count) {{
  %value = load atomic i32, ptr %semaphore seq_cst, align 8
  br label %look

look:
  %there = phi i32 [ %value, %0 ], [ %found, %try ]
  %enough = icmp sge i32 %there, %count
  br i1 %enough, label %try, label %no

try:
  %left = sub i32 %there, %count
  %pair = cmpxchg ptr %semaphore, i32 %there, i32 %left seq_cst seq_cst
  %found = extractvalue {{ i32, i1 }} %pair, 0
  %done = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %done, label %yes, label %look

yes:
  ret i1 true

no:
  ret i1 false
}}

; for halide_do_parallel_tasks; `parent` is where tasks around these keep their code
define i32 @tasks(ptr %context, i32 %count, ptr %tasks, ptr %parent) {{
  %own = alloca i32, align 8
  store i32 0, ptr %own
  %outermost = icmp eq ptr %parent, null
  %code = select i1 %outermost, ptr %own, ptr %parent
  %some = icmp sgt i32 %count, 0
  br i1 %some, label %begin, label %none

none:
  ret i32 0

begin:
  %jobs = alloca %job, i32 %count
  %last = sub i32 %count, 1
  br label %each

each:
  %k = phi i32 [ 0, %begin ], [ %k.next, %started ]
  %more = icmp slt i32 %k, %last
  br i1 %more, label %start, label %rest

start:
  %job = getelementptr %job, ptr %jobs, i32 %k
  %task = getelementptr %task, ptr %tasks, i32 %k
  %task.at = getelementptr %job, ptr %job, i32 0, i32 1
  %code.at = getelementptr %job, ptr %job, i32 0, i32 2
  %thread.at = getelementptr %job, ptr %job, i32 0, i32 3
  store ptr %context, ptr %job
  store ptr %task, ptr %task.at
  store ptr %code, ptr %code.at
  %failed = call i32 @pthread_create(ptr %thread.at, ptr null, ptr @thread, ptr %job)
  %begun = icmp eq i32 %failed, 0
  br i1 %begun, label %started, label %without

started:
  %k.next = add i32 %k, 1
  br label %each

without:
  call void @fail(ptr %code, i32 {_NO_THREAD})
  br label %join

rest:
  %task.last = getelementptr %task, ptr %tasks, i32 %last
  call void @run(ptr %context, ptr %task.last, ptr %code)
  br label %join

join:
  %j = phi i32 [ 0, %rest ], [ 0, %without ], [ %j.next, %wait ]
  %running = icmp slt i32 %j, %k
  br i1 %running, label %wait, label %end

wait:
  %thread.of = getelementptr %job, ptr %jobs, i32 %j, i32 3
  %thread = load i64, ptr %thread.of
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  %j.next = add i32 %j, 1
  br label %join

end:
  %result = load atomic i32, ptr %code seq_cst, align 4
  ret i32 %result
}}

define internal ptr @thread(ptr %job) {{
  %task.at = getelementptr %job, ptr %job, i32 0, i32 1
  %code.at = getelementptr %job, ptr %job, i32 0, i32 2
  %context = load ptr, ptr %job
  %task = load ptr, ptr %task.at
  %code = load ptr, ptr %code.at
  call void @run(ptr %context, ptr %task, ptr %code)
  ret ptr null
}}

; the first code counts
define internal void @fail(ptr %code, i32 %number) {{
  %before = cmpxchg ptr %code, i32 0, i32 %number seq_cst seq_cst
  ret void
}}

define internal void @run(ptr %context, ptr %task, ptr %code) {{
  %closure.at = getelementptr %task, ptr %task, i32 0, i32 1
  %wanted.at = getelementptr %task, ptr %task, i32 0, i32 3
  %kinds.at = getelementptr %task, ptr %task, i32 0, i32 4
  %first.at = getelementptr %task, ptr %task, i32 0, i32 5
  %count.at = getelementptr %task, ptr %task, i32 0, i32 6
  %order.at = getelementptr %task, ptr %task, i32 0, i32 8
  %function = load ptr, ptr %task
  %closure = load ptr, ptr %closure.at
  %wanted = load ptr, ptr %wanted.at
  %kinds = load i32, ptr %kinds.at
  %first = load i32, ptr %first.at
  %count = load i32, ptr %count.at
  %order = load i8, ptr %order.at
  %part = load ptr, ptr @part
  %some = icmp sgt i32 %count, 0
  br i1 %some, label %which, label %end

which:
  %free = icmp eq i32 %kinds, 0
  br i1 %free, label %freely, label %iterations

freely:
  %any = icmp eq i8 %order, 0
  %several = icmp sgt i32 %count, 1
  %parallel = and i1 %any, %several
  br i1 %parallel, label %pool, label %whole

pool:
  %pair = alloca [2 x ptr], align 8
  %pair.code = getelementptr ptr, ptr %pair, i64 1
  store ptr %task, ptr %pair
  store ptr %code, ptr %pair.code
  %loop = load ptr, ptr @next.loop
  %code.loop = call i32 %loop(ptr %context, ptr @iteration, i32 %first, i32 %count, ptr %pair)
  br label %done

whole:
  %code.whole = call i32 %part(ptr %context, ptr %function, i32 %first, i32 %count, ptr %closure, ptr %code)
  br label %done

done:
  %found = phi i32 [ %code.loop, %pool ], [ %code.whole, %whole ]
  call void @fail(ptr %code, i32 %found)
  ret void

iterations:
  %n = phi i32 [ 0, %which ], [ %n.next, %next ]
  %go = icmp slt i32 %n, %count
  br i1 %go, label %semaphores, label %end

semaphores:
  %s = phi i32 [ 0, %iterations ], [ %s.next, %had ]
  %left = icmp slt i32 %s, %kinds
  br i1 %left, label %one, label %call

one:
  %at = getelementptr %wanted, ptr %wanted, i32 %s
  %many.at = getelementptr %wanted, ptr %at, i32 0, i32 1
  %semaphore = load ptr, ptr %at
  %many = load i32, ptr %many.at
  %got = call i1 @wait(ptr %semaphore, i32 %many, ptr %code)
  br i1 %got, label %had, label %end

had:
  %s.next = add i32 %s, 1
  br label %semaphores

call:
  %number = add i32 %first, %n
  %code.part = call i32 %part(ptr %context, ptr %function, i32 %number, i32 1, ptr %closure, ptr %code)
  %bad = icmp ne i32 %code.part, 0
  br i1 %bad, label %stop, label %next

next:
  %n.next = add i32 %n, 1
  br label %iterations

stop:
  call void @fail(ptr %code, i32 %code.part)
  br label %end

end:
  ret void
}}

; one iteration of a loop that the pool runs
define internal i32 @iteration(ptr %context, i32 %number, ptr %pair) {{
  %code.at = getelementptr ptr, ptr %pair, i64 1
  %task = load ptr, ptr %pair
  %code = load ptr, ptr %code.at
  %closure.at = getelementptr %task, ptr %task, i32 0, i32 1
  %function = load ptr, ptr %task
  %closure = load ptr, ptr %closure.at
  %part = load ptr, ptr @part
  %result = call i32 %part(ptr %context, ptr %function, i32 %number, i32 1, ptr %closure, ptr %code)
  ret i32 %result
}}

; whether the semaphore was acquired; not where another task failed
define internal i1 @wait(ptr %semaphore, i32 %count, ptr %code) {{
  br label %look

look:
  %looks = phi i32 [ 0, %0 ], [ %looks.next, %yield ], [ %looks.next, %sleep ]
  %got = call i1 @acquire(ptr %semaphore, i32 %count)
  br i1 %got, label %yes, label %ask

ask:
  %failed = load atomic i32, ptr %code seq_cst, align 4
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %no, label %again

again:
  %looks.next = add i32 %looks, 1
  %few = icmp ult i32 %looks, {_LOOKS}
  br i1 %few, label %yield, label %sleep

yield:
  %yielded = call i32 @sched_yield()
  br label %look

sleep:
  %slept = call i32 @usleep(i32 {_WAIT_US})
  br label %look

yes:
  ret i1 true

no:
  ret i1 false
}}
"""

_HOOKS = {
    "do_parallel_tasks": "tasks",
    "semaphore_init": "set",
    "semaphore_try_acquire": "acquire",
    "semaphore_release": "release",
}


class Tasks:
    """The functions in memory, for one runtime."""

    def __init__(self) -> None:
        names = [*_HOOKS.values(), "next.loop", "part"]
        self._library: Library = link(assembled("tasks", _ASSEMBLY), names, {})

    def instead(self, functions: Mapping[str, int]) -> dict[str, int]:
        """Functions that take the place of those of the pool, by the same names; loops are left to it."""
        ctypes.c_void_p.from_address(self._library["next.loop"]).value = functions["do_par_for"]
        return {name: self._library[own] for name, own in _HOOKS.items()}

    def run_by(self, part: int) -> None:
        """Let parts of loops be run by this function."""
        ctypes.c_void_p.from_address(self._library["part"]).value = part
