"""Locks in forked processes: free, where a thread held them that is not there.

What such a thread was about to do is not done in the child. So a lock guards what is whole at every moment, such as a
table that a finished entry is put into.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["cached_property", "freed_in_children"]

Lock = TypeVar("Lock")

_freed: weakref.WeakSet[Any] = weakref.WeakSet()


def freed_in_children(lock: Lock) -> Lock:
    """The lock, which a forked process finds free."""
    _freed.add(lock)
    return lock


def _free() -> None:
    for lock in list(_freed):
        lock._at_fork_reinit()  # as the standard library does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)


if TYPE_CHECKING or sys.version_info >= (3, 12):
    cached_property = functools.cached_property  # noqa: TID251 - what the other one stands for
else:

    class cached_property(functools.cached_property):  # noqa: N801, TID251 - named as what it stands for
        """As from Python 3.12 on: threads that ask at once may each compute the value, and none waits for another.

        The lock that it had before was one for all objects of a class: a child that was forked while any of them was
        asked would wait for good.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
