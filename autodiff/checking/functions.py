"""A function of tensors, called on placeholders of float64 for the arrays that it is to be checked at."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from tedsl.analysis.arrays.nests import PLAIN, map_leaves, rebuilt, underscored
from tedsl.lang.compute import placeholder
from tedsl.lang.constants import captured
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.elements import whole
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr
from tedsl.lang.foreign import is_torch, values_of
from tedsl.lang.tensor import Tensor

__all__ = ["traced"]

Array = np.ndarray[Any, Any]


def traced(function: Callable[..., Any], given: Any) -> tuple[list[Tensor], list[Tensor], dict[Tensor, Array]]:
    """The float tensors that a function returns, those that it is given, and the arrays of these and of integers."""
    several = isinstance(given, (tuple, list)) and not hasattr(given, "_fields")
    arguments = _Arguments()
    tensors = [arguments.taken(v, name) for name, v in _named(function, tuple(given) if several else (given,))]
    if not arguments.floats:
        found = ", ".join(f"{t.dtype} {t.name}" for t in arguments.feeds) or "none"
        raise TypeError(
            f"gradcheck at {user_location()}: expected an array of floats to differentiate by, found {found}"
        )
    with captured():
        returned = function(*tensors)
    outputs: dict[Tensor, None] = {}

    def listed(leaf: Any, name: str) -> None:
        tensor = whole(leaf, name)
        if isinstance(tensor, Tensor) and tensor.dtype.is_float:
            outputs[tensor] = None

    _each(returned, "result", listed)
    if not outputs:
        raise TypeError(
            f"gradcheck at {user_location()}: {_title(function)} must return a tensor of floats, found "
            f"{type(returned).__name__} ({returned!r:.60})"
        )
    return list(outputs), list(arguments.floats), arguments.feeds


@dataclass
class _Arguments:
    """Placeholders for arrays: of float64 for those of floats, which are moved, of their own dtype for others."""

    floats: dict[Tensor, None] = field(default_factory=dict)
    feeds: dict[Tensor, Array] = field(default_factory=dict)

    def taken(self, value: Any, name: str) -> Any:
        """An argument with tensors in place of arrays, floats, and lists of numbers with a float among them."""
        table = _table(value)
        if table is not None:
            return self._tensor(table, name)
        if isinstance(value, list):
            return [self.taken(v, underscored(name, k, False)) for k, v in enumerate(value)]
        return self._leaf(value, name) if not _is_nest(value) else _each(value, name, self.taken, deep=False)

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            if value.dtype.is_float:
                self.floats[value] = None
            return value
        if isinstance(value, (float, np.floating)):
            return self._tensor(np.asarray(value, "float64"), name)
        if isinstance(value, (*PLAIN, np.generic, type, Expr)) or not hasattr(value, "__array__"):
            return value
        place = f"gradcheck at {user_location()}: argument {name!r}"
        return self._tensor(values_of(value.detach() if is_torch(value) else value, place), name)

    def _tensor(self, array: Array, name: str) -> Tensor:
        try:
            dtype = as_dtype(array.dtype)
        except TypeError as error:
            raise TypeError(f"gradcheck at {user_location()}: argument {name!r}: {error}") from None
        held = array.astype("float64") if dtype.is_float else array
        made = placeholder(held.shape, str(as_dtype(held.dtype)), name=name)
        self.feeds[made] = held
        if dtype.is_float:
            self.floats[made] = None
        return made


def _named(function: Callable[..., Any], given: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """The arguments with the names of the parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin without a signature
        return [(f"x{k}", value) for k, value in enumerate(given)]
    try:
        bound = signature.bind(*given)
    except TypeError:
        names = [name for name, p in signature.parameters.items() if p.default is p.empty]
        raise TypeError(
            f"gradcheck at {user_location()}: {_title(function)} takes {' and '.join(names) or 'nothing'}; found "
            f"{len(given)} argument{'s' * (len(given) != 1)}; a tuple or a list is its arguments, as in "
            "te.gradcheck(f, (x, y))"
        ) from None
    named: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        rest = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        named += [(f"{name}_{k}", v) for k, v in enumerate(value)] if rest else [(name, value)]
    return named


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, (type, Expr, Tensor))


def _is_nest(value: Any) -> bool:
    return isinstance(value, (tuple, list, dict)) or _is_record(value)


def _each(value: Any, name: str, rule: Callable[[Any, str], Any], deep: bool = True) -> Any:
    """The nest, of dataclasses as well, with `rule(part, name)` for its leaves; or for its parts, if not `deep`."""

    def part(inner: Any, at: str) -> Any:
        return _each(inner, at, rule) if deep else rule(inner, at)

    if _is_record(value):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return type(value)(**{n: part(getattr(value, n), underscored(name, n, True)) for n in fields})
    if isinstance(value, dict):
        return {k: part(v, underscored(name, k, False)) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [part(v, underscored(name, k, False)) for k, v in enumerate(value)]
        return rebuilt(value, parts)
    return rule(value, name)


def _table(value: Any) -> Array | None:
    """A list of numbers with a float among them, or of such lists of one length, as an array."""
    if not isinstance(value, list):
        return None
    found: list[Any] = []
    map_leaves(value, "", lambda leaf, name: found.append(leaf))
    if not all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in found):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # of different lengths
        return None
    return array if array.dtype.kind == "f" else None


def _title(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
