"""Ordered alternatives, tried by one piece of code.

A kernel is right in several ways, one faster than the other: divisions with or without care, code with or without
checks of arrays, rewrites that hold for finite numbers only. They are listed from the best to the last; each says which
failure of those before it leads to it, and what no alternative answers is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["first_working"]

Choice = TypeVar("Choice")
Made = TypeVar("Made")


def first_working(
    choices: Iterable[Choice],
    attempt: Callable[[Choice, Exception | None], Made],
    answers: Callable[[Choice, Exception], bool],
    failure: Exception | None = None,
) -> Made:
    """What `attempt` makes of the first choice that does not fail.

    The first is tried in any case, each further one where it answers the last failure, which `attempt` is told.
    `failure`: how somebody else failed with the first choice, so that only those that answer it are left.
    """
    for choice in choices:
        if failure is not None and not answers(choice, failure):
            continue
        try:
            return attempt(choice, failure)
        except Exception as error:
            failure = error
    assert failure is not None, "no alternatives"
    raise failure
