"""Routines under names, by which PyTorch's graphs refer to them."""

from __future__ import annotations

from tedsl.ops.routines import Routine
from tedsl.ops.saving import derived_by

__all__ = ["key_of", "routine_of"]

ARROW = " -> "
_routines: dict[str, Routine] = {}  # for good: a graph may hold the name
_keys: dict[Routine, str] = {}


def key_of(routine: Routine) -> str:
    """A name of the routine: the call, with a number where another op of that name came before, and what is derived."""
    known = _keys.get(routine)
    if known is None:
        key = routine.label if routine.of is None else f"{key_of(routine.of)}{ARROW}{routine.label}"
        number = 1
        while key in _routines:
            number += 1
            key = f"{routine.label} #{number}"
        _routines[key], _keys[routine] = routine, key
        known = key
    return known


def routine_of(key: str) -> Routine:
    """The routine of a name; PyTorch's graphs on disk may name one that this process has not derived yet."""
    found = _routines.get(key)
    if found is None:
        parent, arrow, label = key.rpartition(ARROW)
        if not arrow:
            raise RuntimeError(
                f"tedsl::call: {key!r} is not known in this process; call the op before the graph that names it runs"
            )
        found = derived_by(routine_of(parent), label)
        _routines[key], _keys[found] = found, key
    return found
