"""Whether a function gives the same program each time it is called on the same tensors.

What hangs on more than arguments, as on random numbers or a counter, shows when a function is called twice. Of what is
made from a function (`te.grad(f)`) the function alone is called again, not what derives from it: that may take longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tedsl.lang.dataclass import dataclass
from tedsl.lang.native import Native
from tedsl.lang.structure import same_program
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.ops.signature import leaves

__all__ = ["Watch", "called", "has_extern", "is_composed", "watched", "with_called_parts"]


@dataclass(eq=False)
class Watch:
    """What was seen of the functions that were called: whether there were any, and whether all of them are pure."""

    is_asked: bool = False
    is_pure: bool = True


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(*, derives: bool) -> Iterator[Watch]:
    """Where something is derived from what people gave, that is called twice within: not what it calls in turn."""
    watch = Watch()
    token = _WATCH.set(watch if derives else None)
    try:
        yield watch
    finally:
        _WATCH.reset(token)


def called(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = {},
    nest: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """What a function that somebody gave returns for tensors; `nest` sees into records."""
    watch = _WATCH.get()
    if watch is None:
        return function(*args, **kwargs)
    token = _WATCH.set(None)
    try:
        first = function(*args, **kwargs)
        results = _tensors(nest(first))
        watch.is_asked = True
        if watch.is_pure and not has_extern(results):
            watch.is_pure = same_program(results, _tensors(nest(function(*args, **kwargs))))
    finally:
        _WATCH.reset(token)
    return first


_COMPOSED = "_calls_parts"


def with_called_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of this package that calls each of those that people gave by `called`, and runs once itself."""
    setattr(function, _COMPOSED, True)
    return function


def is_composed(function: Callable[..., Any]) -> bool:
    """Whether a function is one `with_called_parts`."""
    return hasattr(function, _COMPOSED)


def has_extern(outputs: Sequence[Tensor]) -> bool:
    """Whether Python functions compute some of it: one made by a trace is another one at each."""
    return any(isinstance(op, Extern) and not isinstance(op.function, Native) for op in stages_of(outputs))


def _tensors(nest: Any) -> list[Tensor]:
    return list(dict.fromkeys(leaf for leaf in leaves(nest) if isinstance(leaf, Tensor)))
