"""How much work something is, counted: a clock would measure the machine and what else runs on it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["calls_in"]


def calls_in(function: Callable[[], object]) -> int:
    """The number of calls, of Python functions and of built-in ones, that a call of it makes."""
    count = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
