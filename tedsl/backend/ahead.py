"""Rows that are needed next, fetched while this one is computed.

A loop over rows that goes through each row several times, as softmax does, waits at the start of every row: the
processor fetches ahead within a page, and a row of 1024 numbers is one. So the loop with the most work for what it
loads asks for the same place of the row that comes next.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from tedsl.backend.flow import NAME, Flow, functions_of

__all__ = ["fetched_ahead"]

_LOAD = re.compile(rf"^  {NAME} = load <(\d+) x (float|double|i32|i64)>, ptr ({NAME}),")
_STEP = re.compile(rf"^  {NAME} = (add|sub|mul|shl) (?:nuw |nsw )*i64 ({NAME}|-?\d+), ({NAME}|-?\d+)$")
_ADDRESS = re.compile(
    rf"^  {NAME} = getelementptr (?:inbounds |nuw |nusw )*(i8|float|double|i32|i64), ptr ({NAME}), i64 ({NAME}|-?\d+)$"
)
_TIMES = re.compile(rf"^  ({NAME}) = icmp eq i64 ({NAME}), (\d+)$")
_INCOMING = re.compile(rf"\[ ({NAME}|-?\w+), {NAME} \]")
_BYTES = {"i8": 1, "float": 4, "double": 8, "i32": 4, "i64": 8}
_LINE = 64
_LEAST, _MOST = (
    1 << 10,
    1 << 14,
)  # bytes of a row: the processor looks further ahead than short ones, long ones push others out
_DECLARED = "declare void @llvm.prefetch.p0(ptr readonly captures(none), i32 immarg, i32 immarg, i32 immarg)"


def fetched_ahead(lines: list[str]) -> list[str]:
    """The lines of a module, with requests for the next row in loops that go through each row more than once."""
    before: dict[int, list[str]] = {}
    numbers = count()
    for begin, end in functions_of(lines):
        if sum(" = phi " in line for line in lines[begin:end]) < 3:
            continue
        flow = Flow(lines[begin:end])
        for stream in _streams(flow):
            before[begin + stream.at] = stream.request(next(numbers))
    if not before:
        return lines
    made: list[str] = []
    for at, line in enumerate(lines):
        made += before.get(at, [])
        made.append(line)
    return made if any("@llvm.prefetch.p0(" in line and line.startswith("declare") for line in lines) else [
        *made, _DECLARED,
    ]  # fmt: skip


@dataclass(frozen=True)
class _Change:
    """How a number changes from one step of a loop to the next: `fixed`, and `times` an unknown number."""

    fixed: int = 0
    times: int = 0
    unknown: str = ""

    def scaled(self, by: int) -> _Change:
        return _Change(self.fixed * by, self.times * by, self.unknown)

    def plus(self, other: _Change) -> _Change | None:
        if self.times and other.times and self.unknown != other.unknown:
            return None
        return _Change(self.fixed + other.fixed, self.times + other.times, self.unknown or other.unknown)


@dataclass(frozen=True)
class _Stream:
    """A load in a loop inside of a loop over rows, and how its address changes from row to row."""

    at: int
    address: str
    change: _Change
    source: str
    work: float  # instructions for each load

    def request(self, number: int) -> list[str]:
        own, change = f"%te.ahead.{number}", self.change
        fixed, (of, unknown) = change.fixed, _element(change)
        made = [f"  {own} = getelementptr {of}, ptr {self.address}, i64 {unknown or fixed}"]
        return [*made, f"  call void @llvm.prefetch.p0(ptr {own}, i32 0, i32 3, i32 1)"]


def _element(change: _Change) -> tuple[str, str]:
    kinds = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}
    return (kinds[change.times], change.unknown) if change.times else ("i8", "")


def _streams(flow: Flow) -> list[_Stream]:
    """For every array that rows are read of, the load in the loop with the most work, and those beside it."""
    best: dict[tuple[str, str], list[_Stream]] = {}
    for label in flow.loops:
        outer = _rows_around(flow, label)
        if outer is None:
            continue
        found: dict[tuple[str, str], list[_Stream]] = {}
        for stream in _loads(flow, label, outer):
            found.setdefault((outer, stream.source), []).append(stream)
        for key, streams in found.items():
            if key not in best or streams[0].work > best[key][0].work:
                best[key] = streams
    return [stream for streams in best.values() for stream in streams]


def _rows_around(flow: Flow, label: str) -> str | None:
    """The loop around an innermost one, where it has others inside."""
    if flow.loops[label] != {label}:
        return None
    around = flow.around(label)
    if len(around) < 2:
        return None
    inside = [h for h in flow.loops if h != around[1] and flow.loops[h] < flow.loops[around[1]]]
    return around[1] if len(inside) > 1 else None


def _loads(flow: Flow, label: str, outer: str) -> Iterator[_Stream]:
    block = flow.blocks[label]
    lines = flow.lines[block.begin : block.end]
    times = next((int(m[3]) for m in map(_TIMES.match, lines) if m), 0)
    if times * _LINE < _LEAST // 8 or times * _LINE > _MOST:
        return
    changes = _Changes(flow, outer)
    loads = [(at, m[3]) for at in range(block.begin, block.end) if (m := _LOAD.match(flow.lines[at])) and _is_line(m)]
    sources = [changes.source(address) for _, address in loads]
    alike = Counter(sources)
    for (at, address), source in zip(loads, sources, strict=True):
        if not _LEAST <= times * alike[source] * _LINE <= _MOST:
            continue
        found = changes.of(address)
        if found is not None and (found.fixed == 0) != (found.times == 0) and found.times in (0, 1, 2, 4, 8):
            yield _Stream(at, address, found, source, len(lines) / alike[source])


def _is_line(load: re.Match[str]) -> bool:
    return int(load[1]) * _BYTES[load[2]] == _LINE


class _Changes:
    """What changes by how much from one step of a loop to the next."""

    def __init__(self, flow: Flow, head: str) -> None:
        self.flow, self.head, self.body = flow, head, flow.loops[head]
        self.known: dict[str, _Change | None] = {}

    def of(self, name: str) -> _Change | None:
        """The change of a number; None where it is not known."""
        home = self.flow.born.get(name)
        if not name.startswith("%") or home is None or home[0] not in self.body:
            return _Change()
        if name not in self.known:
            self.known[name] = _Change()  # a loop's own number, while that is looked at
            self.known[name] = self._found(*home)
        return self.known[name]

    def source(self, address: str) -> str:
        """The array in which an address lies."""
        home = self.flow.born.get(address)
        match = _ADDRESS.match(self.flow.lines[home[1]]) if home is not None and home[0] in self.body else None
        return address if match is None else self.source(match[2])

    def _found(self, label: str, at: int) -> _Change | None:
        line = self.flow.lines[at]
        if " = phi " in line:
            return self._number(label, line)
        if (step := _STEP.match(line)) is not None:
            return self._step(step[1], step[2], step[3])
        if (address := _ADDRESS.match(line)) is not None:
            start, along = self.of(address[2]), self.of(address[3])
            return None if start is None or along is None else start.plus(along.scaled(_BYTES[address[1]]))
        return None

    def _number(self, label: str, line: str) -> _Change | None:
        """The number of a loop: of the loop over rows it is one more, of those inside it starts again."""
        coming = _INCOMING.findall(line)
        if label == self.head:
            following = [self.flow.lines[self.flow.born[n][1]] for n in coming if n in self.flow.born]
            return _Change(fixed=1) if any(re.search(rf"= add [a-z ]*i64 {NAME}, 1$", f) for f in following) else None
        return _Change() if all(self.of(n) in (_Change(),) for n in coming) else None

    def _step(self, kind: str, left: str, right: str) -> _Change | None:
        a, b = self.of(left), self.of(right)
        if a is None or b is None:
            return None
        if kind in ("add", "sub"):
            return a.plus(b if kind == "add" else b.scaled(-1))
        if kind == "shl":
            return a.scaled(1 << int(right)) if right.isdecimal() else None
        if a == _Change():
            a, b, left, right = b, a, right, left
        if b != _Change():
            return None
        if not right.startswith("%"):
            return a.scaled(int(right))
        if a == _Change():
            return a
        return _Change(times=a.fixed, unknown=right) if not a.times else None
