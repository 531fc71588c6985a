"""Masked stores of one lane, which LLVM gets wrong."""

from __future__ import annotations

import itertools
import re

__all__ = ["unmasked"]

# What LLVM may know of an argument; it stands between the type and the value, and only in calls.
_KNOWN = r"(?:(?:nonnull|noundef|nocapture|readonly|writeonly|noalias|align \d+|\w+\([^)]*\)) )*"
_MASKED_STORE = re.compile(
    rf"^  (?:tail )?call void @llvm\.masked\.store\.v\w+\.p0\((<\d+ x (\w+)>) {_KNOWN}(.*), ptr {_KNOWN}(.*), "
    r"i32 (\d+), <\d+ x i1> <([^>]*)>\)(.*)$",
    re.MULTILINE,
)


def unmasked(assembly: str) -> str:
    """Masked stores of one lane as stores of one element.

    Where the value was truncated, LLVM 22 stores the element from before: the last 16-bit number of a row of 17 took
    the two bytes behind it along.
    """
    count = itertools.count()

    def single(match: re.Match[str]) -> str:
        vector, element, value, address, align, mask, rest = match.groups()
        lanes = [lane for lane, bit in enumerate(mask.split(", ")) if bit == "i1 true"]
        if len(lanes) != 1:
            return match[0]
        number, lane = next(count), lanes[0]
        return (
            f"  %te.element.{number} = extractelement {vector} {value}, i64 {lane}\n"
            f"  %te.address.{number} = getelementptr {element}, ptr {address}, i64 {lane}\n"
            f"  store {element} %te.element.{number}, ptr %te.address.{number}, align {align}{rest}"
        )

    return _MASKED_STORE.sub(single, assembly)
