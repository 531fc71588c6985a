"""Python's collector of cycles put off while many objects are made that stay: it would walk them over and over."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collected_later"]


@contextmanager
def collected_later() -> Iterator[None]:
    """Nothing is collected inside, unless another thread asks for it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
