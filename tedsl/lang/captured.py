"""What messages call things of the function that is being traced: an array that it uses, and names that it does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from linecache import getline
from types import FrameType

from tedsl.lang.errors import user_frame

__all__ = ["array_read_there", "element_of_array", "free_name"]

_NAMES = ("b", "a", "v", "w", "other", "values", "second")


def element_of_array(index: object) -> str:
    """How an element of an array is read at an index: `w = te.constant(w), then w[c]`, w being the one array there."""
    name = array_read_there()
    made = name or _other_than(set(_used(user_frame())))
    return f"{made} = te.constant({name or 'array'}), then {made}[{index}]"


def array_read_there() -> str:
    """The name of the one array of NumPy that the line reads elements of, or else that the function has; or nothing."""
    frame = user_frame()
    arrays = {name for name in _used(frame) if _is_array(_value(frame, name))}
    line = getline(frame.f_code.co_filename, frame.f_lineno)
    read = {name for name in arrays if re.search(rf"\b{re.escape(name)}\s*\[", line)}
    found = read or arrays
    return found.pop() if len(found) == 1 else ""


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
