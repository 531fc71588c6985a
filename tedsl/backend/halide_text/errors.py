"""What Halide says is wrong: at a call, and of a program or its schedule."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tedsl.backend.halide_text.forms import unmarked

__all__ = [
    "divides_by_zero", "failed_requirement", "is_out_of_memory", "message", "readable", "requirement_failed",
    "says_nothing",
]  # fmt: skip

_ERROR = re.compile(r"^(User )?[Ee]rror:\s*")
_REQUIREMENT = "Requirement Failed: "
_OUT_OF_MEMORY = "Out of memory"
_DIVISION_BY_ZERO = "Division by constant zero"


def message(said: str) -> str:
    """What is said of an error, without the word."""
    return _ERROR.sub("", said.strip()).strip()


def readable(error: Exception) -> str:
    """Halide's message on one line, without the marks that it adds to names."""
    return " ".join(message(unmarked(str(error))).split()) or "no reason"


def says_nothing(error: Exception) -> bool:
    """Whether an error has no text."""
    return not message(str(error))


def divides_by_zero(error: Exception) -> bool:
    """Whether Halide refused a program because it found a divisor to be the constant 0."""
    return _DIVISION_BY_ZERO in str(error)


def is_out_of_memory(said: str) -> bool:
    """Whether a call found no memory."""
    return _OUT_OF_MEMORY in said


def failed_requirement(messages: Sequence[str]) -> tuple[str, ...] | None:
    """What a failed `hl.require(condition, value, *arguments)` printed: the value, then the arguments."""
    for text in messages:
        if text.startswith(_REQUIREMENT):
            return tuple(text[len(_REQUIREMENT) :].rpartition(")")[2].split())
    return None


def requirement_failed(name: str, *printed: int) -> str:
    """What Halide would say of a requirement that was tested elsewhere."""
    return f"{_REQUIREMENT}{name}) {' '.join(map(str, printed))}"
