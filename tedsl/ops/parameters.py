"""Parameters of a training step in the nest in which the caller has them, and as a list of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autodiff.heads import IntegerGradientError
from tedsl.analysis.arrays.nests import map_leaves, map_nest, subscripted
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.errors import brief, user_location
from tedsl.lang.tensor import Tensor
from tedsl.ops import language as te
from tedsl.ops.records import closed, opened
from tedsl.ops.transforms import numbers
from tedsl.ops.transforms.compilation import jit

__all__ = [
    "NestPlace",
    "Parameters",
    "as_array",
    "as_parameters",
    "check_keys",
    "each_leaf",
    "in_order",
    "numbered",
    "without_record",
    "zeros_for",
]  # fmt: skip


# What optimizers keep for parameters of 16 bits, at first.
_WIDE_ZEROS = jit(lambda x: te.zeros(x.shape, "float32"))


class Parameters:
    """Placeholders in a nest: of sequences, dicts and dataclasses. Arrays for them come and go in that nest."""

    def __init__(self, given: Any, what: str) -> None:
        self.tensors: list[Tensor] = []
        nest = closed(dict(given) if isinstance(given, Mapping) else given, True)

        def listed(leaf: Any, name: str) -> int:
            if not isinstance(leaf, Tensor):
                raise TypeError(f"{what}: {name}: expected a placeholder, found {type(leaf).__name__} ({leaf!r:.40})")
            self.tensors.append(leaf)
            return len(self.tensors) - 1

        self.nest = map_leaves(nest, "params", listed)
        if isinstance(self.nest, list):
            self.nest = tuple(self.nest)
        self.by_name = {t.name: p for p, t in enumerate(self.tensors)}

    def nested(self, arrays: Sequence[Any]) -> Any:
        """The arrays in the nest."""
        return opened(map_nest(self.nest, arrays.__getitem__))

    def listed(self, given: Any, what: str) -> list[Any]:
        """Arrays given in the nest, or by placeholder or its name, or in order, in the order of the placeholders."""
        given = closed(given, True)
        nest = self.nest
        if isinstance(given, Mapping) and not (isinstance(nest, dict) and given.keys() <= nest.keys()):
            given = {key.name if isinstance(key, Tensor) else key: array for key, array in given.items()}
            if not isinstance(nest, dict) or given.keys() <= self.by_name.keys():
                nest = self.by_name
        elif isinstance(nest, dict) and isinstance(given, (list, tuple)):
            nest = tuple(range(len(self.tensors)))
        found: dict[int, Any] = {}
        _fill(nest, given, "params", what, found)
        return [found[p] for p in range(len(self.tensors))]


def _fill(nest: Any, given: Any, name: str, what: str, found: dict[int, Any]) -> None:
    """The leaves of `given` by the positions that stand in `nest`."""
    if isinstance(nest, int):
        found[nest] = given
    elif isinstance(nest, dict):
        check_keys(nest, given, name, what)
        for key, inner in nest.items():
            _fill(inner, given[key], subscripted(name, key, False), what, found)
    else:
        if not isinstance(given, (list, tuple)):
            given = [given]
        if len(given) != len(nest):
            raise ValueError(f"{what}: {_inner(name)}expected {len(nest)} arrays, found {len(given)}")
        for k, (inner, part) in enumerate(zip(nest, given, strict=True)):
            _fill(inner, part, subscripted(name, k, False), what, found)


def check_keys(nest: Mapping[Any, Any], given: Any, name: str, what: str, of: str = "array", hint: str = "") -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {name}: expected a dict with {_names(nest)}, found {type(given).__name__}")
    for key in nest:
        if key not in given:
            found = f"found those for {_names(given)}{hint}"
            raise ValueError(f"{what}: {_inner(name)}no {of} for parameter {key!r}, {found}")
    for key in given:
        if key not in nest:
            raise ValueError(f"{what}: {_inner(name)}{key!r} is none of the parameters, which are {_names(nest)}")


def _inner(name: str) -> str:
    return "" if name == "params" else f"{name}: "


def _names(keys: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, keys)) or "nothing"


def each_leaf(nest: Any, rule: Callable[[Any], Any]) -> Any:
    """The same nest with `rule(leaf)` at its leaves."""
    return opened(map_nest(closed(nest, True), rule))


def without_record(leaf: Any) -> Any:
    """A tensor of PyTorch as one that its autograd knows nothing of, other things as they are."""
    return leaf.detach() if hasattr(leaf, "requires_grad") else leaf


def as_array(leaf: Any) -> Any:
    """A result of rank 0, which NumPy has as a number of its own, as an array: a number would be static."""
    return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf


def zeros_for(leaf: Any) -> Any:
    """What an optimizer begins with for a parameter: float32 for one of 16 bits."""
    if not hasattr(leaf, "dtype"):
        return leaf
    return as_array(leaf * 0 if as_dtype(leaf.dtype).bits > 16 else _WIDE_ZEROS(leaf))


def as_parameters(nest: Any) -> Any:
    """The nest with numbers, and lists of them, as the arrays that they are to te.grad; other arrays as they are."""
    (made,) = numbers.with_arrays([closed(nest, True)], [True])
    return each_leaf(opened(made), without_record)


class NestPlace:
    """Where an array of a list stands in a nest."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def numbered(nest: Any, what: str) -> tuple[Any, list[Any]]:
    """The nest with places for its arrays, all of which are floats, and these."""
    arrays: list[Any] = []

    def rule(leaf: Any, name: str) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        if not as_dtype(leaf.dtype).is_float:
            raise IntegerGradientError(
                f"{what} at {user_location()}: {name} is {as_dtype(leaf.dtype)}, expected floats to differentiate by "
                "and to step from; make it floats, as 3.0 or x.astype('float32'), or let the function capture it"
            )
        arrays.append(leaf)
        return NestPlace(len(arrays) - 1)

    return map_leaves(closed(nest, True), "params", rule), arrays


def in_order(nest: Any, given: Any, what: str, name: str) -> list[Any]:
    """The arrays of another nest in the order of the places in `nest`, whose form it has."""
    found: list[Any] = []

    def fill(own: Any, part: Any, name: str) -> None:
        if isinstance(own, NestPlace):
            part = as_parameters(part)
            if not hasattr(part, "dtype"):
                raise TypeError(f"{what}: {name}: expected an array, found {type(part).__name__} ({brief(part, 40)})")
            found.append(part)
        elif isinstance(own, dict):
            check_keys(own, part, name, what)
            for key, inner in own.items():
                fill(inner, part[key], subscripted(name, key, False))
        elif isinstance(own, (tuple, list)):
            if not isinstance(part, (tuple, list)) or len(part) != len(own):
                count = f" of {len(part)}" if isinstance(part, (tuple, list)) else ""
                raise TypeError(f"{what}: {name}: expected {len(own)} parts, found {type(part).__name__}{count}")
            for k, (inner, one) in enumerate(zip(own, part, strict=True)):
                fill(inner, one, subscripted(name, k, False))

    fill(nest, closed(given, True), name)
    return found
