"""Dataclasses as nests: on the way through an operator, each stands as a named tuple of its fields.

The function given, and who calls what was made of it, see the dataclass.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from tedsl.analysis.arrays.nests import rebuilt, static_key
from tedsl.lang.expr import Expr
from tedsl.ops.arrays import Static, is_array

__all__ = ["closed", "opened"]

_NESTS = frozenset((dict, list, tuple))
_RECORDS: dict[type, type] = {}  # dataclass -> its named tuple
_CLASSES: dict[type, tuple[type, list[str]]] = {}  # and back, with the names of its fields


def closed(value: Any, always: bool = False) -> Any:
    """A nest with named tuples for the dataclasses in it that hold arrays, or that nothing tells apart, or for all."""
    if type(value) in _NESTS or not _is_record(value):
        return _each(value, lambda part: closed(part, always))
    fields = [f.name for f in dataclasses.fields(value) if f.init]
    parts = [closed(getattr(value, name), always) for name in fields]
    is_nest = always or static_key(value) is None or any(map(_holds_arrays, parts))
    return _record(type(value), fields)(*parts) if is_nest else value


def opened(value: Any) -> Any:
    """The nest with its dataclasses."""
    if not _CLASSES:
        return value
    if type(value) in _CLASSES:
        kind, names = _CLASSES[type(value)]
        return kind(**dict(zip(names, map(opened, value), strict=True)))
    return _each(value, opened)


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, (type, Expr, Static)) and not is_array(value)


def _record(kind: type, fields: list[str]) -> Any:
    found = _RECORDS.get(kind)
    if found is None:
        found = _RECORDS[kind] = namedtuple(kind.__name__, fields, rename=True)
        _CLASSES[found] = kind, fields
    return found


def _each(value: Any, rule: Callable[[Any], Any]) -> Any:
    if isinstance(value, (tuple, list)):
        return rebuilt(value, map(rule, value))
    return {k: rule(v) for k, v in value.items()} if isinstance(value, dict) else value


def _holds_arrays(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_arrays, value.values()))
    return any(map(_holds_arrays, value)) if isinstance(value, (tuple, list)) else is_array(value)
