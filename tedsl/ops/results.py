"""Results of an operator that go into memory of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tedsl.ops.routines import TracedRoutine
from tedsl.ops.signature import map_leaves

__all__ = ["into"]


def into(
    traced: TracedRoutine,
    arrays: Sequence[Any],
    out: Any,
    mode: Any,
    memory: Callable[[Any, str], Any] = lambda value, name: value,
    made: Callable[[Any], Any] = lambda array: array,
    target: str = "host",
) -> Any:
    """The results of a call with `out=` or `mode=`, in their nest; those that were not computed leave a tuple.

    `memory(value, name)` is what the kernel writes into of what the caller gave (a NumPy array over it, unless it is on
    a GPU), `made(array)` a result as one of the caller's.
    """
    given: dict[int, tuple[Any, Any]] = {}

    def viewed(value: Any, name: str) -> Any:
        if value is None:
            return None
        array = memory(value, name)
        given[id(array)] = array, value  # the array, so that its id stays its own
        return array

    flat = _flat_out(traced, None if out is None else map_leaves(out, "out", viewed))
    values = traced.kernel_for(target)(*arrays, out=flat, mode=mode)
    results = tuple(given[id(v)][1] if id(v) in given else made(v) for v in values)
    return results if len(results) != len(traced.outputs) else traced.nested(results)


def _flat_out(traced: TracedRoutine, out: Any) -> Any:
    """`out=` given in the nest of the results, as a tuple in the order of the outputs."""
    if out is None or isinstance(traced.result, int):
        return out
    if isinstance(out, dict) and isinstance(traced.result, dict) and set(out) <= set(traced.result):
        flat: list[Any] = [None] * len(traced.outputs)
        for key, value in out.items():
            if isinstance(traced.result[key], int):
                flat[traced.result[key]] = value
        return flat
    if isinstance(out, dict):
        return out
    listed: list[Any] = []
    map_leaves(out, "out", lambda value, name: listed.append(value))
    return listed
