"""Records kept as JSON: what is read back has the types and the values that were written, or is none.

A file whose digest is right may still hold what no program wrote: somebody edited it and signed it again. So every type
is checked, and a seal over the values stands beside them, or in the code that they describe.
"""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

__all__ = ["parsed", "record_of", "seal", "typed", "unsealed", "with_seal"]

_SEAL = "seal"


def seal(values: object) -> str:
    """A digest of values that JSON can hold."""
    text = json.dumps(values, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values and their seal."""
    return {**values, _SEAL: seal(values)}


def unsealed(text: bytes) -> dict[str, Any]:
    """The values of a sealed JSON object; ValueError where they are not those that were written."""
    values = parsed(text)
    if not isinstance(values, dict) or values.pop(_SEAL, None) != seal(values):
        raise ValueError("the values are not those that were sealed")
    return values


def parsed(text: bytes) -> Any:
    """What JSON text says; ValueError where it is none, or none that can be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the text is nested too deeply") from None


def record_of(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass whose fields are these values; ValueError where one is missing, of another type, or one too many."""
    hints = _hints(kind)
    if set(values) != set(hints):
        raise ValueError(f"expected the fields {', '.join(hints)}, found {', '.join(values)}")
    return kind(**{name: typed(hint, values[name]) for name, hint in hints.items()})


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def typed(kind: Any, value: Any) -> Any:
    """A value of JSON as one of a type, lists as tuples and fields of dataclasses; ValueError where it is none."""
    if is_dataclass(kind):
        make: Any = kind
        return make(*_tuple(list(_hints(make).values()), value))
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else typed(next(k for k in inside if k is not type(None)), value)
    if origin is tuple:
        return _tuple(inside, value)
    if type(value) is not kind:
        raise ValueError(f"expected {kind.__name__}, found {value!r:.40}")
    return value


def _tuple(kinds: Sequence[Any], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, found {value!r:.40}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(typed(kinds[0], v) for v in value)
    if len(value) != len(kinds):
        raise ValueError(f"expected {len(kinds)} values, found {len(value)}")
    return tuple(typed(kind, v) for kind, v in zip(kinds, value, strict=True))
