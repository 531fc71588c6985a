"""Calls of operators that torch.compile traces: what it cannot follow is in functions that are constants to it."""

from __future__ import annotations

import weakref
from importlib import import_module
from typing import Any

import numpy as np

from tedsl.ops.homes import BRIDGES

__all__ = ["OPS", "compiling"]

OPS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # every operator by its key


def compiling(op: Any, torch: Any, args: tuple[Any, ...], out: Any, kwargs: dict[str, Any]) -> Any:
    """The results of a call, as one operator of PyTorch's."""
    if out is not None:
        raise TypeError(f"op {op.name}: out= cannot be used under torch.compile")
    tensors: list[Any] = []

    def taken(value: Any) -> Any:
        if isinstance(value, (torch.Tensor, np.ndarray)):
            tensors.append(torch.as_tensor(value))
            return ("array",)
        if isinstance(value, tuple):
            return ("tuple", *[taken(v) for v in value])
        if isinstance(value, list):
            return ("list", *[taken(v) for v in value])
        if isinstance(value, dict):
            return ("dict", *[(k, taken(v)) for k, v in value.items()])
        if isinstance(value, (int, float)):  # known to torch.compile as a symbol, perhaps
            value = bool(value) if isinstance(value, bool) else int(value) if isinstance(value, int) else float(value)
        return ("static", value)

    given = tuple([taken(a) for a in args])
    named = tuple([(k, taken(v)) for k, v in kwargs.items()])
    name = op.key + ""  # computed, which makes torch.compile look at the value
    key = _constant_key(name, given, named)
    values = torch.ops.tedsl.call(key, tensors)
    return _rebuilt(_constant_nest(key), values)


def _constant_key(name: str, given: tuple[Any, ...], named: tuple[Any, ...]) -> str:
    """The key of the routine for a call."""
    found: str = import_module(BRIDGES["torch"]).constant_key(OPS[name], given, named)
    return found


def _constant_nest(key: str) -> Any:
    """The nest of a routine's results, known once it was traced for the shapes of its results."""
    return import_module(BRIDGES["torch"]).constant_nest(key)


# What torch.compiler.assume_constant_result does.
_constant_key._dynamo_marked_constant = True  # type: ignore[attr-defined]
_constant_nest._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _rebuilt(nest: Any, values: Any) -> Any:
    """`Traced.nested` for a nest written in tuples, which torch.compile can follow."""
    if isinstance(nest, int):
        return values[nest]
    kind, items = nest
    if kind == "static":
        return items
    if kind == "dict":
        return {k: _rebuilt(v, values) for k, v in items}
    found = [_rebuilt(v, values) for v in items]
    return found if kind == "list" else tuple(found)
