"""Kernels compiled by several processes: Halide holds Python's lock while it compiles, so threads wait for each other.

Each process takes the next kernel from a pipe, compiles it, and leaves its code on the disk, where this one finds it:
among what is kept, or in a folder for the time of the build.
The others are forked, because what is to be compiled lives in this one. So it is done only where a fork is safe: on
Linux, in a process with one Python thread, and without libraries that object. What another process could not compile is
compiled here, which then says why.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.threads import available_cpus

__all__ = ["JobBeside", "compile_apart", "may_compile_apart", "may_fork"]

LEAST = 8  # kernels that are worth a process
LONG = 400.0  # milliseconds that kernels take, beside the longest, which are worth one too
MOST_SECONDS = 300.0  # that a job may take beside this process
MOST = 8192  # numbers that a pipe holds
_OBJECTING = ("jax",)  # it warns of every fork


def may_compile_apart(count: int, rest_ms: float = 0.0) -> bool:
    """Whether so many kernels are compiled by several processes, of which all but one take about `rest_ms`."""
    return (count >= LEAST or rest_ms >= LONG) and count <= MOST and may_fork()


def may_fork() -> bool:
    """Whether another process may compile what lives in this one, and has a processor for it."""
    alone = sys.platform == "linux" and threading.active_count() == 1 and not _is_beside
    if not alone or available_cpus() < 2 or any(name in sys.modules for name in _OBJECTING):
        return False
    return loads_objects()


_is_beside = False  # in a process that does a job beside another, which wants its processors for itself


class JobBeside:
    """A job that another process does, which nobody waits for; what it returns comes back as text.

    The process goes on with low priority, says nothing, and ends with this one.
    """

    def __init__(self, job: Callable[[], str]) -> None:
        self._begin, self._text = time.monotonic(), b""
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        child = _fork()
        if child == 0:
            try:
                _stand_back()
                os.write(writer, job().encode())
            finally:
                os._exit(0)
        os.close(writer)
        self._end = weakref.finalize(self, _ended, child, self._reader, os.getpid())

    def result(self) -> str | None:
        """What the job returned, "" if it failed; None while it runs."""
        if not self._end.alive:
            return self._text.decode()
        try:
            while found := os.read(self._reader, 1 << 12):
                self._text += found
        except BlockingIOError:
            if time.monotonic() - self._begin < MOST_SECONDS:
                return None
        self._end()
        return self._text.decode()


def _stand_back() -> None:
    """Let the process that this one was forked from have the terminal and the processors."""
    global _is_beside
    _is_beside = True
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _ended(child: int, reader: int, parent: int) -> None:
    """End a process, if it has not yet, on the side of its parent."""
    os.close(reader)
    if os.getpid() == parent:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def compile_apart(
    jobs: Sequence[Callable[[], object]], done: Callable[[], object], meanwhile: Callable[[], object]
) -> None:
    """Run the jobs, each in one of as many processes as there are cores; `done` is called for each that was begun.

    `meanwhile` is called in this process once the others run.
    """
    reader, writer = os.pipe()
    os.write(writer, b"".join(k.to_bytes(2, "little") for k in range(len(jobs))))
    os.close(writer)
    children: list[int] = []
    try:
        children.extend(_forked(reader, jobs) for _ in range(min(available_cpus(), len(jobs)) - 1))
        meanwhile()
        begun = -1
        for k in _taken(reader):
            jobs[k]()
            for _ in range(begun, k):
                done()
            begun = k
        for _ in range(begun + 1, len(jobs)):
            done()
    except BaseException:
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        for child in children:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _taken(reader: int) -> Iterator[int]:
    """The numbers of the jobs that nobody else has taken, one after another."""
    while number := os.read(reader, 2):
        yield int.from_bytes(number, "little")


def _forked(reader: int, jobs: Sequence[Callable[[], object]]) -> int:
    """A process that runs jobs and ends; its number."""
    child = _fork()
    if child == 0:
        try:
            for k in _taken(reader):
                with suppress(Exception):  # this process will meet the same, and tell
                    jobs[k]()
        finally:
            os._exit(0)
    return child


def _fork() -> int:
    """As os.fork: the number of the other process, 0 there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries, which the child does not use
        child = os.fork()
    if child == 0:
        gc.freeze()  # what is there stays: to look for cycles in it would copy it from the other process
    return child
