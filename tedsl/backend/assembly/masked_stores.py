"""Masked stores of one lane as stores of one element.

Where the value was truncated, LLVM 22 stores the element from before: the last 16-bit number of a row of 17 took the
two bytes behind it along.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["masked_singly", "unmasked"]

# What LLVM may know of an argument; it stands between the type and the value, and only in calls.
_KNOWN = r"(?:(?:nonnull|noundef|nocapture|readonly|writeonly|noalias|align \d+|\w+\([^)]*\)) )*"
_STORE = re.compile(
    rf"^  (?:tail )?call void @llvm\.masked\.store\.v\w+\.p0\((<\d+ x (\w+)>) {_KNOWN}(.*), ptr {_KNOWN}(.*), "
    r"i32 (\d+), <\d+ x i1> <([^>]*)>\)(.*)$"
)
_ANY_MASK = re.compile(r"<\d+ x i1> <([^>]*)>")


def unmasked(lines: Sequence[str]) -> list[str]:
    """The lines of a module without such stores."""
    made: list[str] = []
    count = 0
    for line in lines:
        match = _STORE.match(line) if "@llvm.masked.store." in line else None
        if match is None or not _is_single(match[6]):
            made.append(line)
            continue
        vector, element, value, address, align, mask, rest = match.groups()
        lane = mask.split(", ").index("i1 true")
        made += [
            f"  %te.element.{count} = extractelement {vector} {value}, i64 {lane}",
            f"  %te.address.{count} = getelementptr {element}, ptr {address}, i64 {lane}",
            f"  store {element} %te.element.{count}, ptr %te.address.{count}, align {align}{rest}",
        ]
        count += 1
    return made


def masked_singly(lines: Sequence[str]) -> str | None:
    """A line that still stores one lane under a mask."""
    return next((line for line in lines if "call void @llvm.masked.store." in line and _has_single_mask(line)), None)


def _has_single_mask(line: str) -> bool:
    return any(map(_is_single, _ANY_MASK.findall(line)))


def _is_single(mask: str) -> bool:
    return mask.split(", ").count("i1 true") == 1
