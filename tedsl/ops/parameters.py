"""Parameters of a training step in the nest in which the caller has them, and as a list of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedsl.analysis.arrays.nests import map_leaves, subscripted
from tedsl.lang.tensor import Tensor
from tedsl.ops.transforms.records import closed, opened

__all__ = ["Parameters"]


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
        return opened(map_leaves(self.nest, "params", lambda p, _: arrays[p]))

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
        _check_keys(nest, given, name, what)
        for key, inner in nest.items():
            _fill(inner, given[key], subscripted(name, key, False), what, found)
    else:
        if not isinstance(given, (list, tuple)):
            given = [given]
        if len(given) != len(nest):
            raise ValueError(f"{what}: {_inner(name)}expected {len(nest)} arrays, found {len(given)}")
        for k, (inner, part) in enumerate(zip(nest, given, strict=True)):
            _fill(inner, part, subscripted(name, k, False), what, found)


def _check_keys(nest: Mapping[Any, Any], given: Any, name: str, what: str) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: {name}: expected a dict with {_names(nest)}, found {type(given).__name__}")
    for key in nest:
        if key not in given:
            raise ValueError(f"{what}: {_inner(name)}no array for parameter {key!r}, found those for {_names(given)}")
    for key in given:
        if key not in nest:
            raise ValueError(f"{what}: {_inner(name)}{key!r} is none of the parameters, which are {_names(nest)}")


def _inner(name: str) -> str:
    return "" if name == "params" else f"{name}: "


def _names(keys: Mapping[Any, Any]) -> str:
    return ", ".join(map(str, keys)) or "nothing"
