"""The blocks and loops of a function of LLVM's assembly, and where its names are made."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from tedsl.lang.dataclass import dataclass
from tedsl.lang.locks import cached_property

__all__ = [
    "BITS",
    "NAME",
    "Block",
    "FunctionBody",
    "buffers_of",
    "declaring",
    "each_function",
    "everywhere",
    "free_metadata",
    "functions_of",
    "joined",
    "metadata_of",
]

NAME = r'%(?:[\w.$-]+|"[^"]*")'
BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}  # of LLVM's float types
_DEFINED = re.compile(rf"^  ({NAME}) = ")
_LABEL = re.compile(r'^([\w.$-]+|"[^"]*"):')
_TARGET = re.compile(rf"label ({NAME})")
_DECLARED = re.compile(r"^declare [^@]*(@[\w.$-]+)\(")
_METADATA = re.compile(r"^!(\d+) = ")
_SPLAT = re.compile(rf"^shufflevector <\d+ x i32> ({NAME}), <\d+ x i32> poison, <\d+ x i32> zeroinitializer$")
_FIRST = re.compile(rf"^insertelement <\d+ x i32> poison, i32 ({NAME}|-?\d+), i64 0$")


def functions_of(lines: Sequence[str]) -> list[tuple[int, int]]:
    """From which line to which the functions of a module go, the closing brace left out."""
    found: list[tuple[int, int]] = []
    begin = None
    for k, line in enumerate(lines):
        if line.startswith("define "):
            begin = k
        elif line == "}" and begin is not None:
            found.append((begin, k))
            begin = None
    return found


def each_function(lines: list[str], rewrite: Callable[[list[str]], list[str]]) -> list[str]:
    """The lines of a module, those of every function rewritten."""
    made: list[str] = []
    done = 0
    for begin, end in functions_of(lines):
        made += lines[done:begin]
        made += rewrite(lines[begin:end])
        done = end
    return made + lines[done:]


def declaring(lines: list[str], declarations: Iterable[str]) -> list[str]:
    """The lines of a module, with declarations of what it does not declare, with other attributes maybe."""
    known = {m[1] for line in lines if line.startswith("declare ") and (m := _DECLARED.match(line))}
    return [*lines, *(d for d in declarations if (m := _DECLARED.match(d)) is None or m[1] not in known)]


def free_metadata(lines: Sequence[str]) -> str:
    """A name for metadata that a module does not have."""
    return f"!{1 + max((int(m[1]) for m in map(_METADATA.match, metadata_of(lines)) if m), default=-1)}"


def metadata_of(lines: Sequence[str]) -> list[str]:
    """The lines of a module that define metadata, or name some: a few of many."""
    return [line for line in lines if line[:1] == "!"]


@dataclass(frozen=True)
class Block:
    """Lines that run one after another, and the blocks that they lead to."""

    label: str
    begin: int
    end: int
    leads_to: tuple[str, ...]


@dataclass
class FunctionBody:
    """The lines of one function, from `define` on."""

    lines: list[str]
    blocks: dict[str, Block] = field(default_factory=dict)
    born: dict[str, tuple[str, int]] = field(default_factory=dict)  # the block and line of a name

    def __post_init__(self) -> None:
        candidates = [(at, line) for at, line in enumerate(self.lines) if at and line[:1] not in (" ", "")]
        marks = [(at, m[1]) for at, line in candidates if (m := _LABEL.match(line))]
        if not marks or any(line.strip() for line in self.lines[1 : marks[0][0]]):
            marks.insert(0, (0, ""))
        ends = [at for at, _ in marks[1:]] + [len(self.lines)]
        for (mark, label), end in zip(marks, ends, strict=True):
            jumps = [line for line in self.lines[mark + 1 : end] if "label %" in line]
            leads_to = tuple(t[1:] for line in jumps for t in _TARGET.findall(line))
            self.blocks[label] = Block(label, mark + 1, end, leads_to)
            for at in range(mark + 1, end):
                if (match := _DEFINED.match(self.lines[at])) is not None:
                    self.born[match[1]] = label, at

    def block_at(self, at: int) -> str:
        """The block in which a line stands."""
        return next(b.label for b in self.blocks.values() if b.begin <= at < b.end)

    def behind(self, name: str) -> int:
        """The line before which something that needs `name` can stand."""
        label, at = self.born[name]
        at += 1
        while at < self.blocks[label].end and " = phi " in self.lines[at]:
            at += 1
        return at

    @cached_property
    def loops(self) -> dict[str, frozenset[str]]:
        """The loops by the blocks at their heads: all the blocks from which one comes back to the head."""
        comes_from: dict[str, list[str]] = defaultdict(list)
        for block in self.blocks.values():
            for to in block.leads_to:
                comes_from[to].append(block.label)
        found: dict[str, set[str]] = {}
        for source, head in self._back_edges():
            body, pending = found.setdefault(head, {head}), [source]
            while pending:
                label = pending.pop()
                if label not in body:
                    body.add(label)
                    pending += comes_from[label]
        return {head: frozenset(body) for head, body in found.items()}

    def around(self, label: str) -> list[str]:
        """The heads of the loops around a block, the innermost first."""
        return sorted((h for h, body in self.loops.items() if label in body), key=lambda h: len(self.loops[h]))

    def _back_edges(self) -> list[tuple[str, str]]:
        """The edges that lead back to a block on the way from the entry."""
        entry = next(iter(self.blocks))
        found: list[tuple[str, str]] = []
        seen, open_ = {entry}, {entry}
        stack = [(entry, iter(self.blocks[entry].leads_to))]
        while stack:
            label, rest = stack[-1]
            to = next(rest, None)
            if to is None:
                stack.pop()
                open_.discard(label)
            elif to in open_:
                found.append((label, to))
            elif to not in seen:
                seen.add(to)
                open_.add(to)
                stack.append((to, iter(self.blocks[to].leads_to)))
        return found


def everywhere(vector: str, made: Mapping[str, str]) -> str:
    """The one place that all lanes of a vector are, "" where they differ; `made`: what names stand for."""
    shuffled = _SPLAT.match(made.get(vector, ""))
    first = _FIRST.match(made.get(shuffled[1], "")) if shuffled else None
    return first[1] if first else ""


_BUFFER = re.compile(r'^(!\d+) = !\{!"([^"]*)", (!\d+), i64 0\}$')
_ROOT = re.compile(r'^(!\d+) = !\{!"Halide buffer"\}$')
_ALIAS = re.compile(r"^(!\d+) = !\{(!\d+), \2, i64 0\}$")


def buffers_of(lines: Sequence[str]) -> dict[str, str]:
    """The buffer that each mark of an access belongs to; what is in one is in no other."""
    metadata = metadata_of(lines)
    above = {m[1]: m[3] for line in metadata if (m := _BUFFER.match(line))}
    root = next((m[1] for line in metadata if (m := _ROOT.match(line))), "")
    found = {}
    for line in metadata:
        if (m := _ALIAS.match(line)) is not None:
            node = m[2]
            while above.get(node, root) != root:
                node = above[node]
            if node in above:
                found[m[1]] = node
    return found


def joined(line: str, ends: dict[str, str]) -> str:
    """A line in which what comes from a block that was cut comes from its last part."""
    if not ends or " = phi " not in line:
        return line
    return re.sub(rf", ({NAME}) \]", lambda m: f", %{ends.get(m[1][1:], m[1][1:])} ]", line)
