"""What a call of an operator depends on, as a key of dictionaries: the way to a call that was prepared."""

from __future__ import annotations

from typing import Any

from tedsl.ops.homes import ARRAYS

__all__ = ["is_plain", "key_of", "nest_key"]

SIMPLE = frozenset({int, bool, str, type(None)})  # static arguments that dictionary keys tell apart by themselves


def is_plain(args: tuple[Any, ...]) -> bool:
    """Whether all arguments are arrays and simple values, so that `key_of` is the whole of what they say."""
    return all(type(a) in ARRAYS or type(a) in SIMPLE for a in args)


def key_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key of arguments that are arrays and simple values."""
    return tuple([(a.__class__, a.dtype, a.shape) if a.__class__ in ARRAYS else (a.__class__, a) for a in args])


def nest_key(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """The key of arguments that are nests of arrays and simple values, and the arrays; None for others."""
    arrays: list[Any] = []
    try:
        key = tuple([_part(a, arrays) for a in args])
    except TypeError:
        return None
    return key, tuple(arrays)


def _part(value: Any, arrays: list[Any]) -> Any:
    kind = value.__class__
    if kind in ARRAYS:
        arrays.append(value)
        return kind, value.dtype, value.shape
    if kind is dict:
        return kind, tuple(value), tuple([_part(v, arrays) for v in value.values()])
    if issubclass(kind, (tuple, list)):
        return kind, tuple([_part(v, arrays) for v in value])
    if kind in SIMPLE:
        return kind, value
    raise TypeError(kind)
