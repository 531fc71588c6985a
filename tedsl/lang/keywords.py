"""Names of arguments: NumPy's, and a message for PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from tedsl.lang.errors import user_location

__all__ = ["OTHER_KEYWORDS", "numpy_keywords"]

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
