"""Names of arguments: NumPy's, and a message for PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from tedsl.lang.errors import user_location

__all__ = ["OTHER_KEYWORDS", "numpy_keywords", "own_keywords"]

OTHER_KEYWORDS = {"dim": "axis", "keepdim": "keepdims", "correction": "ddof", "unbiased": "ddof"}

F = TypeVar("F", bound=Callable[..., Any])


def numpy_keywords(function: F) -> F:
    """The function; called with a keyword of PyTorch's, it says which one it has instead."""

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        for name in given:
            if name in OTHER_KEYWORDS and OTHER_KEYWORDS[name] in signature(function).parameters:
                raise TypeError(
                    f"{checked.__name__} at {user_location()}: found {name}=, expected {OTHER_KEYWORDS[name]}="
                )
        return function(*args, **given)

    return checked  # type: ignore[return-value]


def own_keywords(hint: str = "") -> Callable[[F], F]:
    """The function; called with a keyword that it does not have, it says which it has, or by `hint` what is meant."""

    def decorated(function: F) -> F:
        names = tuple(signature(function).parameters)
        known = frozenset(names)

        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            if not known.issuperset(given):
                name = next(n for n in given if n not in known)
                close = get_close_matches(name, names, 1)
                meant = f"did you mean {close[0]}=?" if close else hint or f"it has {', '.join(names)}"
                raise TypeError(f"te.{function.__name__} at {user_location()}: found {name}=; {meant}")
            return function(*args, **given)

        return checked  # type: ignore[return-value]

    return decorated
