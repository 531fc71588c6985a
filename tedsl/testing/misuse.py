"""Arguments of `check_op` that describe nothing: told before anything is drawn, and not as a fault of the operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tedsl.lang.dtypes import as_dtype
from tedsl.lang.errors import user_location
from tedsl.lang.tensor import Tensor
from tedsl.ops.arrays import is_array
from tedsl.ops.signature import is_tensor_annotation, leaves

__all__ = ["check_described", "check_descriptions", "listed", "shape_hints", "size_hints"]


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def check_described(
    title: str, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any], count: int
) -> None:
    """Once some arrays are described, every parameter without a default is given."""
    needed = [name for name, p in parameters.items() if p.default is p.empty]
    missing = [name for name in needed if name not in given]
    for value in given.values() if missing else ():
        if isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(part, str) for part in value):
            raise TypeError(
                f"check_op at {user_location()}: descriptions are arguments of their own, found the "
                f"{type(value).__name__} {value!r:.60}; write check_op({title}, {', '.join(map(repr, value))})"
            )
    if count and missing:
        raise TypeError(
            f"check_op at {user_location()}: {title} takes {listed(needed)}; found {count} "
            f"description{'s' * (count != 1)}; describe {listed(missing)} as well ('...' for an array of any shape)"
        )


def check_descriptions(title: str, op: Callable[..., Any], static: Mapping[str, Any], has_arrays: bool) -> None:
    """What is given as it is can be what the operator takes: no arrays, and no shapes that are not text."""
    notes = {name: p.annotation for name, p in inspect.signature(op).parameters.items()}
    for name, value in static.items():
        if isinstance(value, st.SearchStrategy):
            continue
        if is_array(value):
            raise TypeError(f"check_op at {user_location()}: argument {name!r} is {_kind(value)}; {_described(value)}")
        if any(map(is_array, leaves(value))):
            raise TypeError(
                f"check_op at {user_location()}: argument {name!r} has arrays in it ({type(value).__name__}); wrap "
                f"{title} in a function with a parameter for each array, and describe these as text, such as 'n m'"
            )
        if is_tensor_annotation(notes[name]) and value is not None:
            raise TypeError(
                f"check_op at {user_location()}: argument {name!r} of {title} is annotated as a tensor, found "
                f"{value!r:.60}; give its shape as text: {_text(value)!r}"
            )
    if not has_arrays and static and not any(isinstance(v, st.SearchStrategy) for v in static.values()):
        found = ", ".join(f"{name}={value!r:.40}" for name, value in static.items())
        raise TypeError(
            f"check_op at {user_location()}: no argument of {title} is described as an array: {found}; give the shape "
            f"of one as text: {_text(next(iter(static.values())))!r}"
        )


UNDESCRIBED = (
    "no shape was given, so that arrays of any shape and rank were drawn; where only some of them are meant, give a "
    "shape for each array, such as 'n m' and 'm'"
)


def shape_hints(static: Mapping[str, Any], is_described: bool = True) -> list[str]:
    """Of an operator that failed: what nobody said, and static arguments that may have meant the shape of an array."""
    return [UNDESCRIBED] * (not is_described) + [
        f"{name}={value!r:.40} is given as it is; where it is the shape of an array, give {_text(value)!r}"
        for name, value in static.items()
        if _is_shape(value)
    ]


def size_hints(names: Sequence[str]) -> list[str]:
    """Of an operator that failed where these extents were as small as they are drawn."""
    wider = ", ".join(f'"{name}": (3, 9)' for name in names)
    some = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} 1 here; if that is too small, say so"
    return [f"{some}: sizes={{{wider}}}"] if names else []


def _kind(value: Any) -> str:
    return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} ({type(value).__name__})"


def _described(value: Any) -> str:
    """How to say what an array is, and how to give it as it is."""
    shape = " ".join(map(str, value.shape)) if hasattr(value, "shape") else "n m"
    try:
        dtype = f", {str(as_dtype(value.dtype))!r}"
    except (AttributeError, TypeError):  # of a framework that names dtypes otherwise
        dtype = ""
    return (
        f"describe it: {shape!r}, or with names, as 'n m', for extents that vary, or "
        f"te.testing.array({shape!r}{dtype}) for a dtype and a range of values; a constant is st.just(...)"
    )


def _text(value: Any) -> str:
    """A shape given as a tuple of integers, as text."""
    return " ".join(map(str, value)) if _is_shape(value) else "n m"


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and all(type(n) is int and n >= 0 for n in value)
