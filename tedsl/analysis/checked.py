"""`te.checked()`: a context in which calls verify more than they must, and are slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tedsl.lang.keywords import own_arguments

__all__ = ["checked", "is_checked"]

_CHECKED: ContextVar[bool] = ContextVar("tedsl_checked", default=False)

is_checked = _CHECKED.get


@own_arguments()
@contextmanager
def checked() -> Iterator[None]:
    """Calls inside `with te.checked():` look for more faults, and are slower.

    They verify that Python functions are pure as declared, that no donated memory is used through another array, that
    no NaN comes out of numbers, and that what te.assume says of indices holds. An index that leaves its tensor is an
    error anywhere.
    """
    token = _CHECKED.set(True)
    try:
        yield
    finally:
        _CHECKED.reset(token)
