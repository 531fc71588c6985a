"""Writes at computed places as AVX-512's scatters: LLVM's masked scatter for the stores that Halide writes.

Halide 21 stores a vector at 16 places by 16 extractions of an index, 16 of a number and 16 stores, some 35 cycles on
x86. The scatter takes about half as long, and writes lanes in the same order, so that the last one of a place counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tedsl.backend.assembly.text import NAME, declaring, each_function
from tedsl.lang.dataclass import dataclass

__all__ = ["scattered"]

_NAMES = re.compile(NAME)
_STORE = re.compile(rf"^  store (float|double|i32|i64) ({NAME}), ptr ({NAME}), align (\d+)(?:, !tbaa (!\d+))?$")
_DEFINED = re.compile(rf"^  ({NAME}) = (extractelement|sext|zext nneg|getelementptr) (.*)$")
_EXTRACT = re.compile(rf"^<(\d+) x (float|double|i32|i64)> ({NAME}), i64 (\d+)$")
_WIDENED = re.compile(rf"^i32 ({NAME}) to i64$")
_ADDRESS = re.compile(rf"^(?:inbounds )?(?:nuw )?(float|double|i32|i64), ptr ({NAME}|@[\w.$]+), i64 ({NAME})$")
_PLAIN = re.compile(rf"^  {NAME} = (?!load |atomicrmw|cmpxchg|(?:(?:tail|musttail|notail) )?call )")
_BYTES = {"float": 4, "double": 8, "i32": 4, "i64": 8}
_SHORT = {"float": "f32", "double": "f64"}
LEAST = 32  # bytes of a vector from which on a scatter is better than single stores


@dataclass(frozen=True)
class _Lane:
    """One store of an element of a vector at a place that is one of another vector."""

    at: int
    number: int
    element: str
    values: str
    places: str
    base: str
    align: int
    alias: str

    @property
    def whole(self) -> tuple[str, ...]:
        """What all lanes of one vector have in common."""
        return self.element, self.values, self.places, self.base


def scattered(lines: list[str]) -> list[str]:
    """The lines of a module, with scatters for vectors that are stored one by one at the lanes of another vector."""
    declared: dict[str, None] = {}
    made = each_function(lines, lambda function: _in_function(function, declared))
    return declaring(made, declared)


def _in_function(lines: list[str], declared: dict[str, None]) -> list[str]:
    defined = {m[1]: (m[2], m[3]) for m in map(_DEFINED.match, lines) if m}
    runs, run = list[list[_Lane]](), list[_Lane]()
    for at, line in enumerate(lines):
        if (lane := _lane(at, line, defined)) is not None:
            if not run or (lane.whole, lane.number) != (run[0].whole, len(run)):
                run = [lane] if lane.number == 0 else []
            else:
                run.append(lane)
            if run and len(run) == _count(run[0].values):
                runs.append(run)
                run = []
        elif _PLAIN.match(line) is None:
            run = []
    gone: set[int] = set()
    for number, lanes in enumerate(runs):
        gone.update(lane.at for lane in lanes[:-1])
        lines[lanes[-1].at] = _scatter(lanes, number, declared)
    return _without_dead([line for at, line in enumerate(lines) if at not in gone]) if runs else lines


def _lane(at: int, line: str, defined: Mapping[str, tuple[str, str]]) -> _Lane | None:
    """The lane that a line stores."""
    store = _STORE.match(line)
    value = _operand(store[2], "extractelement", _EXTRACT, defined) if store else None
    address = _operand(store[3], "getelementptr", _ADDRESS, defined) if store else None
    if store is None or value is None or address is None or address[1] != store[1] or value[2] != store[1]:
        return None
    index = address[3]
    widened = _operand(index, "sext", _WIDENED, defined) or _operand(index, "zext nneg", _WIDENED, defined)
    place = _operand(widened[1] if widened else index, "extractelement", _EXTRACT, defined)
    if place is None or place[1] != value[1] or place[4] != value[4] or (widened is None) != (place[2] == "i64"):
        return None
    values, places = (f"<{m[1]} x {m[2]}> {m[3]}" for m in (value, place))
    if _count(values) * _BYTES[store[1]] < LEAST:
        return None
    return _Lane(at, int(value[4]), store[1], values, places, address[2], int(store[4]), store[5] or "")


def _operand(
    name: str, kind: str, form: re.Pattern[str], defined: Mapping[str, tuple[str, str]]
) -> re.Match[str] | None:
    found, rest = defined.get(name, ("", ""))
    return form.match(rest) if found == kind else None


def _count(vector: str) -> int:
    """How many lanes a vector has."""
    return int(vector[1:].partition(" ")[0])


def _scatter(lanes: list[_Lane], number: int, declared: dict[str, None]) -> str:
    one, count = lanes[0], len(lanes)
    name = f"@llvm.masked.scatter.v{count}{_SHORT.get(one.element, one.element)}.v{count}p0"
    kinds = f"<{count} x {one.element}>, <{count} x ptr>, i32 immarg, <{count} x i1>"
    declared[f"declare void {name}({kinds})"] = None
    mask = ", ".join(["i1 true"] * count)
    alias = f", !tbaa {one.alias}" if one.alias and all(lane.alias == one.alias for lane in lanes) else ""
    return (
        f"  %te.written.{number} = getelementptr {one.element}, ptr {one.base}, {one.places}\n"
        f"  call void {name}({one.values}, <{count} x ptr> %te.written.{number}, "
        f"i32 {min(lane.align for lane in lanes)}, <{count} x i1> <{mask}>){alias}"
    )


def _without_dead(lines: list[str]) -> list[str]:
    """The lines less the parts of places and numbers that nobody uses any more."""
    uses = Counter(name for line in lines for name in _NAMES.findall(line))
    kept: list[str] = []
    for line in reversed(lines):  # users before what they use
        match = _DEFINED.match(line)
        if match is not None and uses[match[1]] == 1:
            uses.subtract(_NAMES.findall(line))
        else:
            kept.append(line)
    return kept[::-1]
