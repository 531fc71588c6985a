"""Rows that are needed next, fetched while this one is computed.

A loop over rows that goes through each row several times, as softmax does, waits at the start of every row, and again
where a result is stored: the processor fetches ahead within a page, and a row of 1024 numbers is one. So the loops
inside ask for the lines of the row that comes next, of what is read and of what is written, those with the most work
for the most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field
from itertools import count

from tedsl.backend.assembly.nontemporal import is_streamed
from tedsl.backend.assembly.text import NAME, FunctionBody, declaring, functions_of
from tedsl.lang.dataclass import dataclass

__all__ = ["fetched_ahead"]

_KIND = r"<(\d+) x (float|double|i32|i64)>"
_ACCESS = re.compile(rf"^  (?:{NAME} = load {_KIND}|store {_KIND} {NAME}), ptr ({NAME}),")
_STEP = re.compile(rf"^  {NAME} = (add|sub|mul|shl) (?:nuw |nsw )*i64 ({NAME}|-?\d+), ({NAME}|-?\d+)$")
_ADDRESS = re.compile(
    rf"^  {NAME} = getelementptr (?:inbounds |nuw |nusw )*(i8|float|double|i32|i64), ptr ({NAME}), i64 ({NAME}|-?\d+)$"
)
_TIMES = re.compile(rf"^  {NAME} = icmp eq i64 {NAME}, (\d+)$")
_BYTES = {"i8": 1, "float": 4, "double": 8, "i32": 4, "i64": 8}
_LINE = 64
_LEAST, _MOST = 1 << 10, 1 << 14  # bytes of a row: the processor sees ahead of short ones, long ones push others out
_REQUEST, _DIVISION = 30, 10  # instructions in the time of a line from memory, of a division
_DECLARED = "declare void @llvm.prefetch.p0(ptr readonly captures(none), i32 immarg, i32 immarg, i32 immarg)"


def fetched_ahead(lines: list[str], past: Collection[str] = ()) -> list[str]:
    """The lines of a module, with requests for the next row in loops that go through each row more than once.

    What is stored with one of the tags `past` does not come into the cache.
    """
    before: dict[int, list[str]] = {}
    numbers = count()
    for begin, end in functions_of(lines):
        if sum(" = phi " in line for line in lines[begin:end]) < 3:
            continue
        flow = FunctionBody(lines[begin:end])
        for head, loops in _rows(flow).items():
            rows = _Rows(flow, head, loops, past)
            rows.find()
            for at, requests in rows.requests(numbers).items():
                before.setdefault(begin + at, []).extend(requests)
    if not before:
        return lines
    made: list[str] = []
    for at, line in enumerate(lines):
        made += before.get(at, [])
        made.append(line)
    return declaring(made, [_DECLARED])


def _rows(flow: FunctionBody) -> dict[str, list[str]]:
    """The loops with several innermost ones inside, and these."""
    found: dict[str, list[str]] = {}
    for label, body in flow.loops.items():
        around = flow.around(label) if body == {label} else []
        if len(around) > 1:
            found.setdefault(around[1], []).append(label)
    return {head: inside for head, inside in found.items() if len(inside) > 1}


@dataclass
class _Loop:
    """An innermost loop of so many steps; `left` is work that no request has been put beside."""

    label: str
    times: int
    left: int


@dataclass
class _Rows:
    """A loop over rows, and the arrays whose rows the loops inside read and write."""

    flow: FunctionBody
    head: str
    labels: Sequence[str]
    past: Collection[str]
    loops: list[_Loop] = field(default_factory=list)
    streams: dict[str, tuple[int, bool]] = field(default_factory=dict)  # where a row begins: its lines, whether written
    begins: dict[str, str] = field(default_factory=dict)  # where rows begin, by how that is computed

    def find(self) -> None:
        """The loops, and the rows that they go through."""
        for label in self.labels:
            block = self.flow.blocks[label]
            lines = self.flow.lines[block.begin : block.end]
            times = next((int(m[1]) for m in map(_TIMES.match, lines) if m), 0)
            if times < 2 or not self._steps(label) or not any(line.startswith("  br ") for line in lines):
                continue
            work = sum(_DIVISION if " = fdiv <" in line else 1 for line in lines)
            self.loops.append(_Loop(label, times, times * work))
            kept = [line for line in lines if not is_streamed(line, self.past)]
            found = [m for m in map(_ACCESS.match, kept) if m and self._is_line(m)]
            accesses = [(self._row(label, m[5]), m[3] is not None) for m in found]
            for (row, is_written), alike in Counter(accesses).items():
                if row and _LEAST <= times * alike * _LINE <= _MOST:
                    self._stream(row, times * alike, is_written=is_written)

    def _is_line(self, access: re.Match[str]) -> bool:
        number, kind = (access[1], access[2]) if access[1] else (access[3], access[4])
        return int(number) * _BYTES[kind] == _LINE

    def _row(self, label: str, address: str) -> str:
        """The beginning of the row in which an address lies; nothing where it does not change with the rows."""
        while (home := self.flow.born.get(address)) is not None and home[0] == label:
            match = _ADDRESS.match(self.flow.lines[home[1]])
            if match is None:
                return ""
            address = match[2]
        return address if home is not None and home[0] in self.flow.loops[self.head] else ""

    def _stream(self, row: str, lines: int, *, is_written: bool) -> None:
        source = self._source(row)
        if source is None or self._number() not in source:
            return
        own = self.begins.setdefault(source, row)
        before = self.streams.get(own, (0, False))
        self.streams[own] = max(before[0], lines), before[1] or is_written

    def _source(self, name: str) -> str | None:
        """How a number or address is computed from the row's number and from what the loop does not change."""
        home = self.flow.born.get(name)
        if not name.startswith("%") or home is None or home[0] not in self.flow.loops[self.head]:
            return name
        line = self.flow.lines[home[1]]
        if name == self._number():
            return name
        if (match := _STEP.match(line)) is not None:
            kind, operands = match[1], (match[2], match[3])
        elif (match := _ADDRESS.match(line)) is not None:
            kind, operands = f"address {match[1]}", (match[2], match[3])
        else:
            return None
        found = [self._source(o) for o in operands]
        return None if None in found else f"{kind}({found[0]}, {found[1]})"

    def _number(self) -> str:
        """The number of the row: what is one more in the next step of the loop."""
        block = self.flow.blocks[self.head]
        for line in self.flow.lines[block.begin : block.end]:
            match = re.match(rf"^  ({NAME}) = phi i64 ", line)
            if match is not None and self._counts(match[1], line):
                return match[1]
        return "none"

    def _counts(self, name: str, phi: str) -> bool:
        coming = [n for n in re.findall(rf"\[ ({NAME}), {NAME} \]", phi) if n in self.flow.born]
        following = [self.flow.lines[self.flow.born[n][1]] for n in coming]
        return any(re.search(rf" = add (?:nuw |nsw )*i64 {re.escape(name)}, 1$", f) for f in following)

    # --------------------------------------------------------------------------------------------------- requests

    def requests(self, numbers: count[int]) -> dict[int, list[str]]:
        """Lines to be put before others."""
        made: dict[int, list[str]] = {}
        if not self.loops:
            return made
        for row, (lines, is_written) in self.streams.items():
            loop = max(self.loops, key=lambda loop: loop.left)
            loop.left -= lines * _REQUEST
            number = next(numbers)
            begin: list[str] = []
            start = self._next(row, number, begin, {})
            made.setdefault(self.flow.behind(self._number()), []).extend(begin)
            body = self.flow.blocks[loop.label]
            made.setdefault(body.end - self._tail(body.end), []).extend(
                self._asked(loop, start, lines, number, is_written=is_written)
            )
        return made

    def _tail(self, end: int) -> int:
        """Lines from the last jump of a block to its end."""
        return next(k for k in range(1, end) if self.flow.lines[end - k].startswith("  br "))

    def _asked(self, loop: _Loop, start: str, lines: int, number: int, *, is_written: bool) -> list[str]:
        """Requests for this step's share of a row."""
        share = -(-lines // loop.times)
        own = f"%te.ahead.{number}"
        made = [
            f"  {own}.place = mul i64 {self._steps(loop.label)}, {share * _LINE}",
            f"  {own}.0 = getelementptr i8, ptr {start}, i64 {own}.place",
        ]
        made += [f"  {own}.{k} = getelementptr i8, ptr {own}.0, i64 {k * _LINE}" for k in range(1, share)]
        wanted = f"i32 {int(is_written)}, i32 3, i32 1"
        return [*made, *(f"  call void @llvm.prefetch.p0(ptr {own}.{k}, {wanted})" for k in range(share))]

    def _steps(self, label: str) -> str:
        """The number of a loop's step; nothing where it has none."""
        block = self.flow.blocks[label]
        phis = [line for line in self.flow.lines[block.begin : block.end] if " = phi i64 " in line]
        names = [(m[1], line) for line in phis if (m := re.match(rf"^  ({NAME}) = phi", line))]
        return next((name for name, line in names if self._counts(name, line)), "")

    def _next(self, name: str, number: int, made: list[str], known: dict[str, str]) -> str:
        """What a number or address is for the next row, computed at the beginning of this one."""
        home = self.flow.born.get(name)
        if not name.startswith("%") or home is None or home[0] not in self.flow.loops[self.head]:
            return name
        if name in known:
            return known[name]
        own = f"%te.next.{number}.{len(known)}"
        known[name] = own
        line = self.flow.lines[home[1]]
        if name == self._number():
            made.append(f"  {own} = add i64 {name}, 1")
        elif (match := _STEP.match(line)) is not None:
            operands = [self._next(o, number, made, known) for o in (match[2], match[3])]
            made.append(f"  {own} = {match[1]} i64 {operands[0]}, {operands[1]}")
        elif (match := _ADDRESS.match(line)) is not None:
            operands = [self._next(o, number, made, known) for o in (match[2], match[3])]
            made.append(f"  {own} = getelementptr {match[1]}, ptr {operands[0]}, i64 {operands[1]}")
        return own
