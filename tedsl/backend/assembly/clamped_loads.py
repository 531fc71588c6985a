"""Vectors at neighbouring places that were clamped: loads under masks instead of gathers.

Where a choice reads one array before a place and another one behind it, each read is clamped to its array: elements lie
side by side up to an end, and from there on all are the last one. A mask says where the places are what they would be
without the clamp; all others hold the first element, or the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

from tedsl.backend.assembly.text import NAME, declaring, each_function
from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = ["clamped_places", "loaded_under_masks"]

_VECTOR = r"<\d+ x i32>"
_PLACES = re.compile(rf"^  (%te\.places\.\d+) = getelementptr (\w+), ptr (\S+), {_VECTOR} ({NAME})$")
_GATHER = re.compile(
    rf"^  ({NAME}) = call <(\d+) x (\w+)> (@llvm\.masked)\.gather\.(v\w+)\.v\d+p0\(<\d+ x ptr> (%te\.places\.\d+), "
    rf"i32 (\d+), .* poison\)(, !tbaa !\d+)?$"
)
_CLAMP = re.compile(
    rf"^  {NAME} = (?:tail )?call {_VECTOR} @llvm\.([us](?:min|max)|usub\.sat)\.v\d+i32"
    rf"\({_VECTOR} (.*), {_VECTOR} (.*)\)$"
)
_CHOICE = re.compile(
    rf"^  {NAME} = select <\d+ x i1> ({NAME}), {_VECTOR} ({NAME}), {_VECTOR} ({NAME}|splat \(i32 -?\d+\))$"
)
_COMPARED = re.compile(rf"^  {NAME} = icmp (?:samesign )?([us])lt {_VECTOR} ({NAME}), ({NAME}|splat \(i32 -?\d+\))$")
_SUM = re.compile(rf"^  {NAME} = (or disjoint|add(?: nuw)?(?: nsw)?) {_VECTOR} ({NAME}), (.*)$")
_BROADCAST = re.compile(rf"^  {NAME} = shufflevector {_VECTOR} ({NAME}), {_VECTOR} poison, {_VECTOR} zeroinitializer$")
_FIRST = re.compile(rf"^  {NAME} = insertelement {_VECTOR} poison, i32 ({NAME}|-?\d+), i64 0$")
_NUMBER = re.compile(r"^splat \(i32 (-?\d+)\)$")
_ZEROS = "zeroinitializer"
_LANE = re.compile(r"i32 (-?\d+)")
_DEFINED = re.compile(rf"^  ({NAME}) = ")
_FROM_ABOVE = frozenset({"umin", "smin", "uchoice", "schoice"})
_FROM_BELOW = frozenset({"umax", "smax", "usub.sat"})


@dataclass(frozen=True)
class _Step:
    """What happens to every place alike: a clamp, a choice or "add", the other operand as a vector and as one number.

    `flags`: "nuw" and "nsw" of a sum that does not wrap. A choice, signed or not, is of the place where it is below a
    limit, or where the number is that all places are counted from, and of the operand from there on.
    """

    name: str
    vector: str
    number: str
    flags: frozenset[str] = frozenset()
    limit: str = ""
    compared: str = ""  # that number; the place itself where there is none


@dataclass(frozen=True)
class _Ramp:
    """Places one after another, as a vector, from its first on, and what happens to them."""

    vector: str
    first: str
    offset: int
    steps: tuple[_Step, ...]


def loaded_under_masks(lines: list[str]) -> list[str]:
    """The lines of a module, with loads under masks for gathers of neighbours that were clamped."""
    declared: dict[str, None] = {}
    made = each_function(lines, lambda function: _Function(function).rewritten(declared))
    return declaring(made, declared)


def clamped_places(lines: list[str]) -> Callable[[str], bool]:
    """Whether a vector of places in a function is of neighbours that were clamped."""
    function = _Function(lines)
    return lambda name: function.ramp(name) is not None


class _Function:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    @cached_property
    def defined(self) -> dict[str, str]:
        """The line of each name."""
        lines = (line for made in self.lines for line in made.split("\n"))
        return {m[1]: line for line in lines if (m := _DEFINED.match(line))}

    def rewritten(self, declared: dict[str, None]) -> list[str]:
        if not any(".gather." in line for line in self.lines):
            return self.lines
        lines = [line for made in self.lines for line in made.split("\n")]
        loads = {at: found for at, line in enumerate(lines) if (found := self._load(line, declared))}
        return [made for at, line in enumerate(lines) for made in loads.get(at, [line])] if loads else self.lines

    def _load(self, line: str, declared: dict[str, None]) -> list[str]:
        """What takes the place of a gather of neighbours; nothing of any other line."""
        gather = _GATHER.match(line)
        places = None if gather is None else _PLACES.match(self.defined.get(gather[6], ""))
        ramp = None if places is None else self.ramp(places[4])
        if gather is None or places is None or ramp is None:
            return []
        return _Loads(gather, places, ramp, declared).lines()

    def ramp(self, name: str) -> _Ramp | None:
        """The neighbours that a vector of places was made of; None where nothing was clamped."""
        steps: list[_Step] = []
        while True:
            line = self.defined.get(name, "")
            clamp, total = _CLAMP.match(line), _SUM.match(line)
            choice = _CHOICE.match(line)
            if clamp is not None:
                name, step = self._clamp(*clamp.groups())
            elif choice is not None:
                name, step = choice[2], self._choice(choice)
            elif total is not None:
                found = self._beginning(name, total, steps)
                if found is not None or not total[1].startswith("add"):
                    return found
                name, step = self._sum(total)
            else:
                return None
            if step is None:
                return None
            steps.insert(0, step)

    def _beginning(self, name: str, total: re.Match[str], steps: list[_Step]) -> _Ramp | None:
        first, lanes = self._number(total[2]), [int(n) for n in _LANE.findall(total[3])]
        if first is None or len(lanes) < 2 or lanes != list(range(lanes[0], lanes[0] + len(lanes))):
            return None
        asked: set[str] = set()  # of the sums before a clamp: no place is less than the one before it
        for step in reversed(steps):
            if step.name != "add":
                asked.add("nsw" if step.name.startswith("s") else "nuw")
            elif not asked <= step.flags:
                return None
        if not asked or not (total[1] == "or disjoint" or asked <= set(total[1].split())):
            return None
        return _Ramp(name, first, lanes[0], tuple(steps))

    def _clamp(self, kind: str, place: str, end: str) -> tuple[str, _Step | None]:
        """The place that is clamped, and at which end; LLVM names them in either order, but for a difference."""
        step = self._step(kind, end)
        if step is None and kind != "usub.sat":
            return end, self._step(kind, place)
        return place, step

    def _choice(self, choice: re.Match[str]) -> _Step | None:
        """A minimum as LLVM says it where the number that places are counted from decides for all lanes."""
        below, place, other = choice.groups()
        compared = _COMPARED.match(self.defined.get(below, ""))
        number = self._number(other)
        limit = None if compared is None else self._number(compared[3])
        if compared is None or number is None or limit is None:
            return None
        first = "" if compared[2] == place else self._number(compared[2])
        if first is None or (first and first != self._first(place)):
            return None
        return _Step(f"{compared[1]}choice", other, number, limit=limit, compared=first)

    def _first(self, place: str) -> str | None:
        """The number that neighbors are counted from."""
        total = _SUM.match(self.defined.get(place, ""))
        return None if total is None else self._number(total[2])

    def _sum(self, total: re.Match[str]) -> tuple[str, _Step | None]:
        """The part that is no broadcast, and the other one."""
        step = self._step("add", total[3], total[1])
        return (total[2], step) if step is not None else (total[3], self._step("add", total[2], total[1]))

    def _step(self, name: str, operand: str, words: str = "") -> _Step | None:
        number = self._number(operand)
        return None if number is None else _Step(name, operand, number, frozenset(words.split()))

    def _number(self, operand: str) -> str | None:
        """The number of which all lanes of a vector are."""
        if operand == _ZEROS:
            return "0"
        if known := _NUMBER.match(operand):
            return known[1]
        broadcast = _BROADCAST.match(self.defined.get(operand, ""))
        first = None if broadcast is None else _FIRST.match(self.defined.get(broadcast[1], ""))
        return None if first is None else first[1]


class _Loads:
    """The lines that take the place of a gather."""

    def __init__(self, gather: re.Match[str], places: re.Match[str], ramp: _Ramp, declared: dict[str, None]) -> None:
        self.result, self.lanes, self.element, self.masked, self.short, named, self.align, alias = gather.groups()
        self.alias = alias or ""
        self.base, self.places, self.ramp, self.declared = places[3], places[4], ramp, declared
        self.kind = f"<{self.lanes} x {self.element}>"
        self.names = (f"{named.replace('places', 'near')}.{k}" for k in count())
        self.made: list[str] = []

    def lines(self) -> list[str]:
        ramp, lanes, integers = self.ramp, int(self.lanes), f"<{self.lanes} x i32>"
        clamps = {step.name for step in ramp.steps}
        free = self._free(ramp.vector, integers, [step.vector for step in ramp.steps])
        begin = self._free(self._sum(ramp.first, ramp.offset), "i32", [step.number for step in ramp.steps])
        inside = self._new(f"icmp eq {integers} {self.places}, {free}")
        # Where no lane is inside, the load begins at an element that there is: far from it, it would be slow.
        start, others = begin, ""
        if clamps & _FROM_ABOVE:
            last = self._clamped(ramp.offset + lanes - 1)
            behind = self._new(f"icmp sgt i32 {begin}, {last}")
            start, others = self._new(f"select i1 {behind}, i32 {last}, i32 {start}"), self._element(last)
        if clamps & _FROM_BELOW:
            first = self._clamped(ramp.offset)
            before = self._new(f"icmp slt i32 {self._sum(begin, lanes - 1)}, {first}")
            start, below = self._new(f"select i1 {before}, i32 {first}, i32 {start}"), self._element(first)
            if others:
                up = self._new(f"icmp sgt {integers} {self.places}, {free}")
                below = self._new(f"select <{lanes} x i1> {up}, {self.kind} {below}, {self.kind} {others}")
            others = below
        address = self._new(f"getelementptr {self.element}, ptr {self.base}, i32 {start}")
        load = f"{self.kind} {self.masked}.load.{self.short}.p0"
        self.made.append(
            f"  {self.result} = call {load}(ptr {address}, i32 {self.align}, <{lanes} x i1> {inside}, "
            f"{self.kind} {others}){self.alias}"
        )
        self.declared[f"declare {load}(ptr, i32 immarg, <{lanes} x i1>, {self.kind})"] = None
        return self.made

    def _new(self, value: str) -> str:
        name = next(self.names)
        self.made.append(f"  {name} = {value}")
        return name

    def _sum(self, number: str, offset: int) -> str:
        return self._new(f"add i32 {number}, {offset}") if offset else number

    def _clamped(self, lane: int) -> str:
        """The place of one lane."""
        place = self._sum(self.ramp.first, lane)
        for step in self.ramp.steps:
            if step.name == "add":
                place = self._new(f"add i32 {place}, {step.number}")
            elif step.limit:
                below = self._new(f"icmp {step.name[0]}lt i32 {step.compared or place}, {step.limit}")
                place = self._new(f"select i1 {below}, i32 {place}, i32 {step.number}")
            else:
                place = self._new(f"call i32 @llvm.{step.name}.i32(i32 {place}, i32 {step.number})")
                self.declared[f"declare i32 @llvm.{step.name}.i32(i32, i32)"] = None
        return place

    def _free(self, place: str, kind: str, operands: list[str]) -> str:
        """The place, or the vector of places, as it were without clamps."""
        for step, operand in zip(self.ramp.steps, operands, strict=True):
            if step.name in ("add", "usub.sat"):
                place = self._new(f"{'add' if step.name == 'add' else 'sub'} {kind} {place}, {operand}")
        return place

    def _element(self, place: str) -> str:
        """A vector of the element at one place."""
        address = self._new(f"getelementptr {self.element}, ptr {self.base}, i32 {place}")
        value = self._new(f"load {self.element}, ptr {address}, align {self.align}{self.alias}")
        lane = self._new(f"insertelement {self.kind} poison, {self.element} {value}, i64 0")
        return self._new(f"shufflevector {self.kind} {lane}, {self.kind} poison, <{self.lanes} x i32> zeroinitializer")
