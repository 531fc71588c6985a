"""Calls of an operator taken apart: arrays on one side, on the other a template of everything else.

Two calls with equal templates trace the same program for arrays of the same shapes. Arrays may lie inside tuples, lists
and dicts; the template remembers where.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tedsl.analysis.arrays import nests
from tedsl.lang.constants import constant, is_plain
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Expr
from tedsl.lang.keywords import own_keyword
from tedsl.lang.tensor import Tensor
from tedsl.ops.arrays import is_array
from tedsl.ops.records import closed, opened

__all__ = [
    "OpCall", "Signature", "Slot", "Template", "is_tensor_annotation", "leaves", "map_leaves",
]  # fmt: skip

map_leaves = functools.partial(nests.map_leaves, join=nests.underscored)  # a part is named as its placeholder is


@dataclass(frozen=True)
class Slot:
    """The place of the k-th array in a template."""

    index: int

    def __repr__(self) -> str:
        return f"array {self.index}"


@dataclass(frozen=True, eq=False)
class Template:
    """Arguments with slots for arrays; `names` are those of the arrays, `key` tells templates apart."""

    key: tuple[Any, ...]
    arguments: dict[str, Any]
    names: tuple[str, ...]

    @property
    def statics(self) -> dict[str, Any]:
        """The arguments without an array in them."""
        return {n: v for n, v in self.arguments.items() if not any(isinstance(x, Slot) for x in leaves(v))}


@dataclass(frozen=True, eq=False)
class OpCall:
    """One call: its template and its arrays."""

    template: Template
    arrays: tuple[Any, ...]


class Signature:
    """The parameters of an operator's function; messages leave out those that nobody gave who reads them."""

    unspoken: frozenset[str] = frozenset()
    label: str | None = None  # what people know it by, who did not make it by te.op
    is_last: bool = False  # whether nobody differentiates it
    derives: bool = False  # whether the function is made of one that people gave, and opens what it gives to that

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name = function, name
        self.is_ours = str(getattr(function, "__module__", "")).startswith(
            "tedsl."
        )  # its names mean nothing to callers
        self.parameters = inspect.signature(function)
        self._templates: dict[tuple[Any, ...], Template] = {}

    def __str__(self) -> str:
        """The names, as messages have them."""
        return f"{self.name}({self._spoken})"

    @property
    def title(self) -> str:
        """What messages begin with."""
        return f"op {self}" if self.label is None else f"{self.label}({self._spoken})"

    @property
    def _spoken(self) -> str:
        return ", ".join(name for name in self.parameters.parameters if name not in self.unspoken)

    @property
    def annotated(self) -> str:
        """As it is written: annotations that are text stand without quotes."""
        found = self.parameters
        plain = [p.replace(annotation=_bare(p.annotation)) for p in found.parameters.values()]
        return f"{self.name}{found.replace(parameters=plain, return_annotation=_bare(found.return_annotation))}"

    def _unknown(self, kwargs: Iterable[str]) -> str:
        """What is said of the first keyword that is no argument, if there is one."""
        known = self.parameters.parameters
        if any(p.kind is p.VAR_KEYWORD for p in known.values()):
            return ""
        name = next((k for k in kwargs if k not in known), "")
        near = [own] if (own := own_keyword(name, known)) else difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no argument {name!r}{hint}" if name else ""

    def _too_many(self, args: Sequence[Any]) -> str:
        """How many arguments by place are taken, if there are more."""
        placed = [
            p for p in self.parameters.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        is_open = any(p.kind is p.VAR_POSITIONAL for p in self.parameters.parameters.values())
        if is_open or len(args) <= len(placed):
            return ""
        most = "at most " * any(p.default is not p.empty for p in placed)
        return f"expected {most}{len(placed)} argument{'s' * (len(placed) != 1)}, found {len(args)}"

    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> OpCall:
        """A call taken apart."""
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.title}: {self._unknown(kwargs) or self._too_many(args) or error}") from None
        bound.apply_defaults()
        arrays: list[Any] = []
        names: list[str] = []
        key: list[Any] = []

        def taken(value: Any, name: str) -> Any:
            if not is_array(value):
                nest = closed(value)
                if nest is not value:
                    key.append(_shape_of_nest(nest))
                    return map_leaves(nest, name, taken)
                key.append(self._static(value, name))
                return value
            key.append(Slot)
            arrays.append(value)
            names.append(name)
            return Slot(len(arrays) - 1)

        arguments = {}
        for parameter, value in bound.arguments.items():
            if is_tensor_annotation(self.parameters.parameters[parameter].annotation) and _is_list(value):
                value = self._array(value, parameter)
            key.append(_shape_of_nest(value))
            arguments[parameter] = map_leaves(value, parameter, taken)
        known = tuple(key)
        template = self._templates.get(known)
        if template is None:
            template = self._templates.setdefault(known, Template(known, arguments, tuple(names)))
        return OpCall(template, tuple(arrays))

    def _array(self, numbers: Any, name: str) -> Any:
        """Lists of numbers where a tensor is expected, in the dtype that they have as a constant."""
        try:
            return constant(numbers, name).op.array  # type: ignore[attr-defined]
        except ValueError as error:
            raise ValueError(f"{self.title}: argument {name!r}: {error}") from None

    def _static(self, value: Any, name: str) -> tuple[Any, ...]:
        key = (Expr, id(value)) if isinstance(value, Expr) else nests.static_key(value)  # kept in the template
        if key is None:
            raise TypeError(f"{self.title}: argument {name!r} of type {type(value).__name__} {nests.no_key_of(value)}")
        return key

    def misfit(self, template: Template) -> str | None:
        """The first argument that is annotated as a tensor, or as a number, and is none; None without one."""
        for name, value in template.arguments.items():
            note = self.parameters.parameters[name].annotation
            is_absent = value is None and str(note).endswith("None")
            if is_absent or isinstance(value, Slot):
                continue
            if is_tensor_annotation(note) and not ("float" in str(note) and isinstance(value, _NUMBERS)):
                kind = type(value).__name__
                if isinstance(value, (dict, list, tuple)):
                    parts = ", ".join(map(str, value)) if isinstance(value, dict) else f"{len(value)} parts"
                    return f"argument {name!r}: expected an array, found {kind} of {parts}; call it for each of them"
                return f"argument {name!r}: expected an array, found {kind} ({value!r:.40})"
            if str(getattr(note, "__name__", note)) in ("int", "float") and not isinstance(value, _NUMBERS):
                return f"argument {name!r}: expected a number, found {type(value).__name__} ({value!r:.40})"
        return None

    def given(self, template: Template, inputs: Sequence[Tensor]) -> str:
        """What a call was given, in words: the tensors, and what differs from the defaults."""
        unspoken = [leaves(template.arguments.get(name)) for name in self.unspoken]
        silent = {leaf.index for nest in unspoken for leaf in nest if isinstance(leaf, Slot)}
        words = [repr(t) for n, t in enumerate(inputs) if n not in silent]
        for name, value in template.statics.items():
            if name not in self.unspoken and not _is_default(value, self.parameters.parameters[name]):
                words.append(f"{name}={value!r:.40}")
        return ", ".join(words)

    def called(self, template: Template, arrays: Sequence[Any]) -> Any:
        """What the function returns for these arrays in the slots."""

        def filled(value: Any, name: str) -> Any:
            return arrays[value.index] if isinstance(value, Slot) else value

        bound = self.parameters.bind_partial()
        bound.arguments.update({n: map_leaves(v, n, filled) for n, v in template.arguments.items()})
        args, kwargs = bound.args, bound.kwargs
        return self.function(*args, **kwargs) if self.derives else self.function(*opened(args), **opened(kwargs))


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether a static argument says nothing: its default, or none of `*args` and `**kwargs`."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return not value
    key = nests.static_key(value)
    return value is parameter.default or (key is not None and key == nests.static_key(parameter.default))


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and is_plain(value)


class _Bare(str):
    """Text that shows itself without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def is_tensor_annotation(note: Any) -> bool:
    """Whether an annotation, or its text, says that a parameter is a tensor; it may be a number or None beside."""
    text = note if isinstance(note, str) else getattr(note, "__name__", str(note))
    return str(text).removeprefix("te.").removesuffix(" | None").removesuffix(" | float") == "Tensor"


_NUMBERS = (int, float, np.generic, Expr)


def leaves(value: Any) -> list[Any]:
    """The leaves of a nest, in order."""
    found: list[Any] = []
    nests.map_nest(value, found.append)
    return found


def _shape_of_nest(value: Any) -> Any:
    """What tells nests apart, their leaves aside."""
    if isinstance(value, (tuple, list)):
        return type(value), *map(_shape_of_nest, value)
    return (dict, *((k, _shape_of_nest(v)) for k, v in value.items())) if isinstance(value, dict) else None
