"""The larger or smaller of two vectors, NaN where either has one, in three instructions of x86 instead of four.

`max` of the processor gives its second operand beside NaN. With what a maximum has held so far as that one, only NaN in
the new values is left to be put in, where LLVM compares twice, joins the two masks and selects.
"""

from __future__ import annotations

import re
from collections.abc import Set

from tedsl.backend.assembly.text import declaring

__all__ = ["extremes"]

_NAME = r'%(?:[\w.$-]+|"[^"]*")'
_COMPARED = re.compile(rf"^  ({_NAME}) = fcmp (ogt|olt|uno) <(8|16) x float> ({_NAME}), ({_NAME}|zeroinitializer)$")
_EITHER = re.compile(rf"^  ({_NAME}) = or <(?:8|16) x i1> ({_NAME}), ({_NAME})$")
_CHOICE = re.compile(rf"^  ({_NAME}) = select <(8|16) x i1> ({_NAME}), <\2 x float> ({_NAME}), <\2 x float> ({_NAME})$")
_INTRINSIC = {8: "llvm.x86.avx.{}.ps.256", 16: "llvm.x86.avx512.{}.ps.512"}
_NEEDED = {8: "avx", 16: "avx512"}


def extremes(lines: list[str], features: Set[str]) -> list[str]:
    """The lines of a module, with the processor's `max` and `min` where something is the larger or smaller of two."""
    widths = {n for n, feature in _NEEDED.items() if feature in features}
    if not widths or not any(" = fcmp uno <" in line for line in lines):
        return lines
    made: list[str] = []
    declared: dict[str, None] = {}
    compared: dict[str, tuple[str, str, str]] = {}
    either: dict[str, tuple[str, str]] = {}
    for line in lines:
        if line.startswith("define "):
            compared, either = {}, {}
        if (test := _COMPARED.match(line)) is not None:
            compared[test[1]] = test[2], test[4], test[5]
        elif (joined := _EITHER.match(line)) is not None:
            either[joined[1]] = joined[2], joined[3]
        elif (choice := _CHOICE.match(line)) is not None and int(choice[2]) in widths:
            name, width, condition, new, held = choice[1], int(choice[2]), choice[3], choice[4], choice[5]
            found = _extreme(either.get(condition, ()), compared, new, held)
            if found is not None:
                made += _processors(*found, name, width, new, held, declared)
                continue
        made.append(line)
    return declaring(made, declared)


def _extreme(
    tests: tuple[str, ...], compared: dict[str, tuple[str, str, str]], new: str, held: str
) -> tuple[str, str] | None:
    """`max` or `min`, and the test for NaN, of a choice of `new` where either of two tests holds."""
    for order, nan in (tests, tests[::-1]) if tests else ():
        kind, *operands = compared.get(order, ("", "", ""))
        if compared.get(nan) != ("uno", new, "zeroinitializer") or kind not in ("ogt", "olt"):
            continue
        if operands == [new, held]:
            return ("max" if kind == "ogt" else "min"), nan
        if operands == [held, new]:
            return ("min" if kind == "ogt" else "max"), nan
    return None


def _processors(
    which: str, nan: str, name: str, width: int, new: str, held: str, declared: dict[str, None]
) -> list[str]:
    kind, intrinsic, own = (
        f"<{width} x float>",
        _INTRINSIC[width].format(which),
        f'%"te.extreme.{name[1:].strip(chr(34))}"',
    )
    rounding, given = (", i32 immarg", ", i32 4") if width == 16 else ("", "")
    declared[f"declare {kind} @{intrinsic}({kind}, {kind}{rounding})"] = None
    return [
        f"  {own} = call {kind} @{intrinsic}({kind} {new}, {kind} {held}{given})",
        f"  {name} = select <{width} x i1> {nan}, {kind} {new}, {kind} {own}",
    ]
