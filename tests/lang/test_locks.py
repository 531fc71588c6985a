"""What a forked process finds of locks that other threads held, and properties that lock nothing."""

from __future__ import annotations

import os
import threading

import pytest

from tedsl.lang.locks import cached_property
from tests.processes import run_script


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_lock_that_another_thread_holds_is_free_in_a_child(kind: str) -> None:
    """In a process of its own: threads of others, which tests before it started, are in the way of a fork."""
    assert (
        run_script(f"""
        import os, threading, warnings
        from tedsl.lang.locks import freed_in_children
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking a process with threads

        def in_child(check):
            child = os.fork()
            if not child:
                os._exit(not check())
            return os.waitpid(child, 0)[1] == 0

        lock, plain = freed_in_children(threading.{kind}()), threading.{kind}()
        held, go = threading.Event(), threading.Event()

        def hold():
            with lock, plain:
                held.set()
                go.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        print(in_child(lambda: lock.acquire(timeout=1)), in_child(lambda: plain.acquire(timeout=0.1)))
        print(lock.acquire(blocking=False))  # here it is held still
        go.set()
        thread.join()
    """)
        == "True False\nFalse\n"
    )


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
