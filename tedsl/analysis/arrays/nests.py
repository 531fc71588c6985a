"""Values that callers pass and functions return: nests of tuples, lists and dicts, and what is static in them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["PLAIN", "map_leaves", "map_nest", "no_key_of", "rebuilt", "static_key", "subscripted", "underscored"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))

Join = Callable[[str, object, bool], str]


def subscripted(name: str, key: object, is_field: bool) -> str:
    """A part as Python writes it: x[0], x['a'], x.a."""
    return f"{name}.{key}" if is_field else f"{name}[{key!r}]"


def underscored(name: str, key: object, is_field: bool) -> str:
    """A part under a name of one word: x_0, x_a."""
    return f"{name}_{key}"


def map_leaves(value: Any, name: str, rule: Callable[[Any, str], Any], join: Join = subscripted) -> Any:
    """The same nest of tuples, lists and dicts with `rule(leaf, name)` at its leaves, whose names `join` makes."""

    def part(key: object, inner: Any, is_field: bool = False) -> Any:
        return map_leaves(inner, join(name, key, is_field), rule, join)

    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return rebuilt(value, (part(f, v, True) for f, v in zip(value._fields, value, strict=True)))
    if isinstance(value, (tuple, list)):
        return rebuilt(value, (part(k, v) for k, v in enumerate(value)))
    if isinstance(value, dict):
        return {k: part(k, v) for k, v in value.items()}
    return rule(value, name)


def map_nest(value: Any, rule: Callable[[Any], Any]) -> Any:
    """The same nest with `rule(leaf)` at its leaves, where no names are asked for: on the way of every call."""
    if isinstance(value, dict):
        return {k: map_nest(v, rule) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return rebuilt(value, [map_nest(v, rule) for v in value])
    return rule(value)


def rebuilt(value: Any, parts: Iterable[Any]) -> Any:
    """A sequence as `value` of other parts: a named tuple, a tuple or a list.

    Of other classes of tuples and lists nobody knows how they are made: `Gradients` would hold adjoints of others.
    """
    if hasattr(value, "_fields"):
        return type(value)(*parts)
    return tuple(parts) if isinstance(value, tuple) else list(parts)


def static_key(value: Any) -> tuple[Any, ...] | None:
    """What tells values apart: 1, 1.0 and True are three, and so are 0.0 and -0.0; None where nothing does."""
    if isinstance(value, (*PLAIN, np.generic)):
        return type(value), repr(value)
    if _is_changeable(value):
        return None
    if isinstance(value, memoryview):
        return None
    try:
        hash(value)
    except TypeError:
        return None
    return type(value), value


def no_key_of(value: Any) -> str:
    """Why nothing tells such values apart, and what to do: for messages, behind the name of its type."""
    if _is_changeable(value):
        return (
            "is known by its identity alone, and what it holds may change between calls; make its class a dataclass, "
            "the fields of which are arguments, or pass what the function reads of it"
        )
    if isinstance(value, (memoryview, bytearray, array)):
        return "is a buffer, and no array; pass np.asarray(x), which is one over its memory"
    return (
        "is neither an array nor hashable, so that calls cannot be told apart by it; pass arrays, numbers, strings, or "
        "nests of them"
    )


def _is_changeable(value: Any) -> bool:
    """Whether a value, hashed by its identity, has attributes; functions and what is made of them are left alone."""
    by_identity: Any = object.__hash__
    if type(value).__hash__ is not by_identity or isinstance(value, (type, FunctionType, ModuleType)):
        return False
    is_ours = type(value).__module__.partition(".")[0] in ("tedsl", "schedules", "autodiff")
    return bool(getattr(value, "__dict__", None)) and not (is_ours or hasattr(value, "__wrapped__"))
