"""What a forked process finds of locks that other threads held, and properties that lock nothing."""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any

import pytest

from tedsl.lang.locks import cached_property, freed_in_children


def in_child(check: Any) -> bool:
    """Whether `check()` is true in a forked process, within five seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking a process with threads
        child = os.fork()
    if child == 0:
        right = False
        try:
            right = check()
        finally:
            os._exit(not right)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_a_lock_that_another_thread_holds_is_free_in_a_child(kind: Any) -> None:
    lock, plain = freed_in_children(kind()), kind()
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with lock, plain:
            held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(lambda: lock.acquire(timeout=1))
        assert not in_child(lambda: plain.acquire(timeout=0.1))
        assert not lock.acquire(blocking=False)  # here it is held still
    finally:
        go.set()
        thread.join()


def test_a_property_is_computed_once_and_waits_for_no_other_object() -> None:
    class Slow:
        def __init__(self, other: Slow | None = None) -> None:
            self.other, self.asked = other, 0

        @cached_property
        def value(self) -> list[int]:
            self.asked += 1
            if self.other is not None:  # another thread asks another object meanwhile
                thread = threading.Thread(target=lambda: self.other.value)  # type: ignore[union-attr]
                thread.start()
                thread.join(5)
                return [thread.is_alive()]
            return [7]

    slow = Slow(Slow())
    assert slow.value is slow.value
    assert slow.value == [False]
    assert slow.asked == 1
    assert isinstance(Slow.value, cached_property)


def test_a_property_may_ask_that_of_the_class_above() -> None:
    class Above:
        @cached_property
        def values(self) -> tuple[int, ...]:
            return 1, 2, 3

    class Below(Above):
        @cached_property
        def values(self) -> tuple[int, ...]:
            return super().values[1:]

    below = Below()
    assert below.values == (2, 3)
    assert below.values is below.values
