"""What messages call things of the function that is being traced: an array that it uses, and names that it does not."""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

from tedsl.lang.errors import user_frame

__all__ = ["element_of_array", "free_name"]

_NAMES = ("b", "a", "v", "w", "other", "values", "second")


def element_of_array(index: object) -> str:
    """How an element of an array is read at an index: `w = te.constant(w), then w[c]`, w being the one array there."""
    frame = user_frame()
    used = set(_used(frame))
    arrays = {name for name in used if _is_array(_value(frame, name))}
    name = arrays.pop() if len(arrays) == 1 else ""
    made = name or _other_than(used)
    return f"{made} = te.constant({name or 'array'}), then {made}[{index}]"


def free_name() -> str:
    """A name for the second element of an example, none of an axis there."""
    frame = user_frame()
    return _other_than({name for name in _used(frame) if type(_value(frame, name)).__name__ == "Axis"})


def _other_than(used: set[str]) -> str:
    return next((name for name in _NAMES if name not in used), "other_value")


def _used(frame: FrameType) -> Iterator[str]:
    """The variables of a function, and those around it that it names."""
    code = frame.f_code
    yield from frame.f_locals if code.co_name != "<module>" else ()
    yield from (*code.co_varnames, *code.co_freevars, *code.co_cellvars, *code.co_names)


def _value(frame: FrameType, name: str) -> object:
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _is_array(found: object) -> bool:
    return type(found).__module__.split(".")[0] == "numpy" and getattr(found, "ndim", 0) > 0
