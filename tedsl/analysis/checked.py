"""`te.checked()`: a context in which calls verify more than they must, and are slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["checked", "is_checked"]

_CHECKED: ContextVar[bool] = ContextVar("tedsl_checked", default=False)

is_checked = _CHECKED.get


@contextmanager
def checked() -> Iterator[None]:
    """Calls inside verify that externs are pure as declared, that no donated memory is used through another array,
    that no NaN comes out of numbers, and that what te.assume says of indices holds; indices that leave their tensors
    are errors inside and outside."""
    token = _CHECKED.set(True)
    try:
        yield
    finally:
        _CHECKED.reset(token)
