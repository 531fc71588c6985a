"""What a user's function takes: the axes, states and values that it is called with when it is traced.

Arguments with a default are the user's own (`lambda k, w=w: ...` in a loop) and are left to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tedsl.lang.errors import user_location

__all__ = ["defaults_of", "parameters_of", "takes"]


def parameters_of(function: Callable[..., Any], what: str) -> tuple[list[str], str | None]:
    """The names of the positional arguments without a default, and that of `*args` if there is one."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        raise TypeError(
            f"{what} at {user_location()}: the arguments of {function!r:.60} are not known to Python; wrap it in a "
            "lambda"
        ) from None
    several = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in positional if p.default is p.empty], several[0] if several else None


def defaults_of(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments with a default."""
    return [p.name for p in inspect.signature(function).parameters.values() if p.default is not p.empty]


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many positional arguments, as far as Python knows."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # builtins that do not tell
        return True
    return True
