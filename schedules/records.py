"""Records kept as JSON: what is read back has the types and the values that were written, or is refused.

A file whose digest is right may still hold what no program wrote: somebody edited it and signed it again. So every type
is checked, and where nobody is to edit, a seal over the values stands beside them, or in the code that they describe.
"""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["hints_of", "parsed", "record_of", "seal", "typed", "unsealed", "with_seal"]

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
        raise ValueError("lists and objects are nested too deeply") from None


def record_of(kind: Any, values: Mapping[str, Any], place: str = "") -> Any:
    """A dataclass whose fields are these values; ValueError where one is missing, of another type, or one too many."""
    hints = hints_of(kind)
    missing, unknown = [n for n in hints if n not in values], [n for n in values if n not in hints]
    if missing or unknown:
        found = [f"there is no {', '.join(missing)}"] * bool(missing) + [f"found {_shown(unknown)}"] * bool(unknown)
        raise ValueError(f"{_at(place)}expected {', '.join(hints)}; {', and '.join(found)}")
    return kind(**{name: typed(hint, values[name], f"{place}.{name}") for name, hint in hints.items()})


@functools.cache
def hints_of(kind: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def typed(kind: Any, value: Any, place: str = "") -> Any:
    """A value of JSON as one of a type, lists as tuples and as fields of dataclasses; ValueError where it is none.

    `place` is where it stands, for the message.
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return _plain(value, place)
    if is_dataclass(kind):
        make: Any = kind
        return make(*_tuple(list(hints_of(make).values()), value, place))
    if origin in (Union, types.UnionType):
        return None if value is None else typed(next(k for k in inside if k is not type(None)), value, place)
    if origin is tuple:
        return _tuple(inside, value, place)
    if origin is dict:
        found = typed(dict, value, place)
        return {typed(str, name, place): typed(inside[1], v, f"{place}.{name}") for name, v in found.items()}
    if origin is Literal:
        if not isinstance(value, str) or value not in inside:
            raise ValueError(f"{_at(place)}expected {' or '.join(map(repr, inside))}, found {_shown(value)}")
    elif type(value) is not kind:
        raise ValueError(f"{_at(place)}expected {_NOUNS.get(kind, kind.__name__)}, found {_shown(value)}")
    return _text(value, place) if kind is str else value


_NOUNS = {int: "a whole number", str: "a text", bool: "true or false", dict: "an object", list: "a list"}


def _tuple(kinds: Sequence[Any], value: Any, place: str) -> tuple[Any, ...]:
    listed = value if isinstance(value, tuple) else typed(list, value, place)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(typed(kinds[0], v, f"{place}[{k}]") for k, v in enumerate(listed))
    if len(listed) != len(kinds):
        raise ValueError(f"{_at(place)}expected {len(kinds)} values, found {len(listed)}")
    return tuple(typed(kind, v, f"{place}[{k}]") for k, (kind, v) in enumerate(zip(kinds, listed, strict=True)))


def _plain(value: Any, place: str) -> Any:
    """Anything that JSON holds, its lists as tuples."""
    if isinstance(value, list):
        return tuple(_plain(v, place) for v in value)
    return _text(value, place) if isinstance(value, str) else value


def _text(value: str, place: str) -> str:
    """Text that can be printed and encoded: JSON can write halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{_at(place)}expected a text of whole characters, found {value!r:.40}") from None
    return value


def _at(place: str) -> str:
    return f"{place.lstrip('.')}: " if place else ""


def _shown(value: Any) -> str:
    """A value in a message, however large; `ascii` since it may hold anything."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
