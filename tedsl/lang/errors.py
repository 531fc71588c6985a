"""The errors of the library and the place in the user's code that they point at.

A message says what is wrong, where, what was expected, what was found and how to mend it.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

__all__ = ["AliasError", "GradientError", "RankError", "ScheduleError", "ZeroDivisorError", "user_location"]

_PACKAGE_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OWN_PACKAGES = ("tedsl", "autodiff", "schedules")
_OWN_FOLDERS = tuple(os.path.join(_PACKAGE_ROOT, name) + os.sep for name in _OWN_PACKAGES)


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


def user_location() -> str:
    """`file:line` of the nearest caller outside the library."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_own(frame: FrameType) -> bool:
    """Whether a frame runs the library's code; the constructors that dataclasses write have no file."""
    name = frame.f_code.co_filename
    if name == "<string>":
        return str(frame.f_globals.get("__name__", "")).split(".")[0] in _OWN_PACKAGES
    return name.startswith(_OWN_FOLDERS)
