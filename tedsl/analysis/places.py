"""Stages whose integers are places in tables, made by a schedule that reads each of them only where it was computed.

Their values are known to lie in the tables, so a reader needs no clamp of its own.
"""

from __future__ import annotations

import weakref

from tedsl.lang.tensor import Operation

__all__ = ["are_places", "mark_places"]

_MARKED: weakref.WeakSet[Operation] = weakref.WeakSet()


def mark_places(op: Operation) -> None:
    """Say that every element of `op` that is read was computed before."""
    _MARKED.add(op)


def are_places(op: Operation) -> bool:
    """Whether a schedule said so."""
    return op in _MARKED
