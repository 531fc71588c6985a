"""What a name, a literal, a let, an assert, a loop look like where Halide writes a program or its loops."""

from __future__ import annotations

import re

__all__ = [
    "ASSERT",
    "ERROR",
    "LET",
    "LOOP",
    "LOOP_KINDS",
    "NAME",
    "PART",
    "SIGNATURE",
    "TOKEN",
    "TYPE",
    "unmarked",
]

NAME = r"[A-Za-z_][\w$]*(?:\.[\w$]+)*"  # of a buffer, a field, a loop; a number after `$` tells equals apart
TYPE = r"(?:u?int\d+|float\d+|bfloat16)(?:x\d+)?|(?:struct[ ]\w+|void)[ ]\*"

SIGNATURE = re.compile(r"^external_plus_metadata func \S+ \(([^)]*)\) \{$", re.MULTILINE)
LET = re.compile(rf"^( *)let ({NAME}) = (.*)$", re.MULTILINE)
ASSERT = re.compile(r"^( *)assert\((.*)\)$", re.MULTILINE)
ERROR = re.compile(r"(?<![\w.$])halide_error_(\w+)\(")  # the function that an assert calls

TOKEN = re.compile(
    rf"""\s*(?:
        (?P<type>\((?:{TYPE})\))
        | (?P<real>\d+\.\d+(?:e[+-]?\d+)?f?|nan|inf)(?![\w.$])
        | (?P<int>\d+)
        | (?P<text>"(?:[^"\\]|\\.)*")
        | (?P<name>reinterpret<[^>(]*(?:\(void\ \*\))?>|{NAME})
        | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!=(),\[\]])
    )""",
    re.VERBOSE,
)

LOOP_KINDS = "parallel|vectorized|unrolled|gpu[ _]block|gpu[ _]thread"
LOOP = re.compile(rf"(?P<mark>for|{LOOP_KINDS})(?:<\w+>)? (?P<name>\S+?)(?: in \[(?P<low>.+), (?P<high>.+)\])?:$")
PART = re.compile(r"(?P<verb>produce|consume) (?P<name>\S+?):$")  # of a stage; of what reads it

_MARK = re.compile(r"\$\d+")


def unmarked(text: str) -> str:
    """A text without the numbers that tell equal names apart."""
    return _MARK.sub("", text)
