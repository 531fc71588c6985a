"""The errors of the library and the place in the user's code that they point at.

A message says what is wrong, where, what was expected, what was found and how to mend it.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import warnings
from types import FrameType

__all__ = [
    "AliasError",
    "GradientError",
    "MissingKeyError",
    "RankError",
    "ScheduleError",
    "ZeroDivisorError",
    "brief",
    "is_own_file",
    "place_of",
    "user_frame",
    "user_location",
    "warn_user",
]

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OWN_PACKAGES = ("tedsl", "autodiff", "schedules")
# What calls back into the library on behalf of the user: functions written in Python, plots, what draws cases.
_CALLING = ("hypothesis", "jax", "matplotlib", "numpy", "torch")
_SPECS = filter(None, map(importlib.util.find_spec, _CALLING))
_OWN_FOLDERS = (
    *(os.path.join(_PACKAGE_ROOT, name) + os.sep for name in _OWN_PACKAGES),
    *(os.path.dirname(os.path.abspath(spec.origin)) + os.sep for spec in _SPECS if spec.origin),
)


class AliasError(ValueError):
    """An output and an input share memory in a way that cannot be proven safe."""


class ScheduleError(ValueError):
    """A directive that cannot be applied to the loops there are."""


class GradientError(ArithmeticError):
    """A derivative that does not exist or is not known."""


class ZeroDivisorError(ValueError, ZeroDivisionError):
    """An integer division by a constant zero."""


class RankError(ValueError, IndexError):
    """More or fewer indices than a tensor has dimensions."""


class MissingKeyError(KeyError):
    """A key that a function did not find; its text is a sentence, where that of a KeyError is the key."""

    def __str__(self) -> str:
        return str(self.args[0])


def user_location() -> str:
    """`file:line` of the nearest caller outside the library; `In[3]:line` in the third cell that a notebook ran."""
    frame, _ = _user_frame()
    return f"{_title(frame.f_code.co_filename)}:{frame.f_lineno}"


def place_of(function: object) -> str:
    """`file:line` where a function of the caller begins; of one that has no text of its own, the nearest caller."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    if code is None or is_own_file(code.co_filename):
        return user_location()
    return f"{_title(code.co_filename)}:{code.co_firstlineno}"


def _title(file: str) -> str:
    """A file as the user knows it: a cell by its number, and not by where Jupyter keeps it."""
    if "ipykernel" not in file or (ipython := sys.modules.get("IPython")) is None:
        return file
    cells = getattr(getattr(ipython.get_ipython(), "compile", None), "_filename_map", {})
    return f"In[{cells[file]}]" if file in cells else file


def brief(value: object, most: int = 60) -> str:
    """The text of a value in one line, cut where it is long, and so that one sees it."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 4].rstrip()} ..."


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning that points at the nearest caller outside the library."""
    warnings.warn(message, category, stacklevel=1 + _user_frame()[1])


def user_frame() -> FrameType:
    """The nearest frame outside the library."""
    return _user_frame()[0]


def _user_frame() -> tuple[FrameType, int]:
    """The nearest frame outside the library, and how many frames it lies above that which asks."""
    frame, above = sys._getframe(1), 0
    while frame.f_back is not None and _is_own(frame):
        frame, above = frame.f_back, above + 1
    return frame, above


def _is_own(frame: FrameType) -> bool:
    """Whether a frame runs the library's code; the constructors that dataclasses write have no file."""
    name = frame.f_code.co_filename
    if name == "<string>":
        return str(frame.f_globals.get("__name__", "")).split(".")[0] in _OWN_PACKAGES
    return is_own_file(name)


def is_own_file(name: str) -> bool:
    """Whether a file of code is the library's."""
    return name.startswith(_OWN_FOLDERS)
