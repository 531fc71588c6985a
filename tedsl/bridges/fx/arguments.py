"""Which arguments of an operation its row gets: each is read by the row, without influence, or refused.

The schemas of ATen say what an operation can be given. A row has parameters for what it honors; what is not among
them may only be given where no result depends on it, or as its default.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tedsl.bridges.fx.rows.arrays import Row
from tedsl.bridges.fx.rows.table import row_of

__all__ = ["UNREAD", "UNREAD_BY_ALL", "UnsupportedArgument", "bound", "name_of"]

# Where a result lies and how it is laid out is known from PyTorch's own result, and checked on it.
UNREAD_BY_ALL = frozenset({"device", "layout", "memory_format", "non_blocking", "pin_memory"})
UNREAD: dict[str, frozenset[str]] = {
    "_reshape_alias": frozenset({"stride"}),  # that of the result
    "convolution_backward": frozenset({"bias_sizes"}),  # known from the gradient
    "embedding": frozenset({"padding_idx", "scale_grad_by_freq", "sparse"}),  # about the gradient
    "empty_strided": frozenset({"stride"}),  # that of the result
    "expand": frozenset({"implicit"}),  # who asked for it
    "gather": frozenset({"sparse_grad"}),  # about the gradient
    "max_pool2d_with_indices_backward": frozenset(
        {"kernel_size", "stride", "padding", "dilation", "ceil_mode"}  # the indices say it all
    ),
    "new_empty_strided": frozenset({"stride"}),  # that of the result
}


class UnsupportedArgument(NotImplementedError):
    """An argument that a row would have to ignore."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(f"argument {name}={value!r:.60} is not supported")
        self.name = name


def name_of(target: Any) -> str | None:
    """The name of an operation of ATen without its overload; None for anything else."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        space, _, name = str(schema.name).partition("::")
        return name if space in ("aten", "prims") else None
    return None


def bound(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call of an operation that has a row, as the row takes them."""
    name = str(name_of(target))
    row = row_of(name)
    assert row is not None
    places, names = _capacity(row)
    unread = UNREAD_BY_ALL | UNREAD.get(name, frozenset())
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument, value in _given(target._schema, args, kwargs):
        if argument.name in unread:
            continue
        if argument.name in names or (argument.is_out and argument.name == "out"):
            named[argument.name] = value
        elif not argument.kwarg_only and len(positional) < places:
            positional.append(value)
        elif not _is_default(argument, value):
            raise UnsupportedArgument(argument.name, value)
    return positional, named


def _given(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The arguments of a call in the order of the schema; positional ones up to the last that was given."""
    arguments = list(schema.arguments)
    last = max([len(args) - 1, *(k for k, a in enumerate(arguments) if a.name in kwargs and not a.kwarg_only)])
    for place, argument in enumerate(arguments):
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]
        elif place < len(args):
            yield argument, args[place]
        elif place < last and not argument.kwarg_only:
            yield argument, argument.default_value


@functools.cache
def _capacity(row: Row) -> tuple[int, frozenset[str]]:
    """How many positional arguments a row takes, and what it takes by name only."""
    parameters = inspect.signature(row).parameters.values()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(places), frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def _is_default(argument: Any, value: Any) -> bool:
    if not argument.has_default_value() or type(value) is not type(argument.default_value):
        return False
    return bool(value == argument.default_value)
