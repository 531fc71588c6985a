"""Giving back memory that nobody uses between two calls.

A program of several kernels keeps the block in which these hand over tensors for its next call, as fresh pages would
cost more than what is computed into them; every form that was called keeps the blocks of words that it is called with.
One kernel asks for what it needs inside at each call and frees it at its end; large blocks are kept then, a bounded
number of bytes in all (`host/heap`), and small ones by the C library.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from pathlib import Path
from typing import Protocol

from tedsl.backend.host.heap import heap
from tedsl.lang.keywords import own_arguments
from tedsl.lang.locks import freed_in_children

__all__ = ["Pool", "free_memory", "register"]


_STATE = Path("/proc/self/statm")


class Pool(Protocol):
    """Something that keeps memory for its next call."""

    def release(self) -> int:
        """Let go of what no call uses now; its bytes."""


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_lock = freed_in_children(threading.Lock())


def register(pool: Pool) -> None:
    """Let `free_memory` empty a pool."""
    with _lock:
        _pools.add(pool)


@own_arguments()
def free_memory() -> int:
    """Give back the memory that kernels keep between calls, and what the C library holds on to; the number of bytes.

    Compiled code stays, and so does what calls in other threads use. The bytes are those by which this process got
    smaller, as the system counts; where it does not count them, those of the blocks alone. For GPUs there is
    `te.free_device_memory`.
    """
    before = _resident()
    with _lock:
        pools = list(_pools)
    freed = sum(pool.release() for pool in pools) + heap().release()
    _trim()
    return max(freed, before - _resident())


def _trim() -> None:
    """Ask the C library to give back free pages; only GNU's can."""
    trim = getattr(ctypes.pythonapi, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _resident() -> int:
    """Bytes of this process that are in memory; 0 where nobody tells."""
    try:
        return int(_STATE.read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return 0
