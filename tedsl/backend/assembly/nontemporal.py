"""Large results written past the cache.

A store to a line that is not in the cache fetches the line first, and a large array that is only written pushes out
what is read: two trips through memory where one is enough. The stores of whole lines to such results go straight to
memory, where their addresses are those of lines; arrays that NumPy allocated begin 16 bytes behind one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Set
from itertools import count

from tedsl.backend.assembly.text import NAME, FunctionBody, declaring, each_function, free_metadata, joined, metadata_of

__all__ = ["is_streamed", "streamed", "tags_of"]

_STORE = re.compile(rf"^  store <(\d+) x (float|double|i32|i64)> .*, ptr ({NAME}), align \d+, !tbaa (!\d+)$")
_NODE = re.compile(r'^(!\d+) = !\{!"([^"]*)", !\d+, i64 0\}$')  # of a buffer
_TAG = re.compile(r"^(!\d+) = !\{(!\d+), \2, i64 0\}$")
_BYTES = {"float": 4, "double": 8, "i32": 4, "i64": 8}
_LINE = 64
_FENCE = "llvm.x86.sse.sfence"


def tags_of(lines: list[str], names: Collection[str]) -> frozenset[str]:
    """What marks accesses to the buffers of these names."""
    if not names:
        return frozenset()
    metadata = metadata_of(lines)
    nodes = {m[1] for line in metadata if (m := _NODE.match(line)) and m[2] in names}
    return frozenset(m[1] for line in metadata if (m := _TAG.match(line)) and m[2] in nodes)


def is_streamed(line: str, tags: Collection[str]) -> bool:
    """Whether a line stores a whole line of the cache to one of the buffers."""
    match = _STORE.match(line) if tags else None
    return match is not None and match[4] in tags and int(match[1]) * _BYTES[match[2]] == _LINE


def streamed(lines: list[str], tags: Collection[str], features: Set[str]) -> list[str]:
    """The lines of a module, with stores past the cache for those with the `tags`, in loops."""
    if "avx" not in features or not any(is_streamed(line, tags) for line in lines):
        return lines
    numbers, marker = count(), free_metadata(lines)
    made = each_function(lines, lambda function: _function(function, tags, numbers, marker))
    if next(numbers) == 0:
        return lines
    return [*declaring(made, [f"declare void @{_FENCE}()"]), f"{marker} = !{{i32 1}}"]


def _function(lines: list[str], tags: Collection[str], numbers: count[int], marker: str) -> list[str]:
    stores = [at for at, line in enumerate(lines) if is_streamed(line, tags)]
    flow = FunctionBody(lines) if stores else None
    stores = [at for at in stores if flow is not None and flow.around(flow.block_at(at))]
    if flow is None or not stores:
        return lines
    instead: dict[int, list[str]] = {}
    ends: dict[str, str] = {}
    for at in stores:
        number = next(numbers)
        instead[at] = _past(lines[at], number, marker)
        ends[flow.block_at(at)] = f"te.stored.{number}"
    made: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith("  ret "):  # before anybody may be told that all is done
            made.append(f"  call void @{_FENCE}()")
        made += instead.get(at) or [joined(line, ends)]
    return made


def _past(store: str, number: int, marker: str) -> list[str]:
    """A store past the cache where the address is that of a line, else as it was."""
    match = _STORE.match(store)
    assert match is not None
    own, value = f"%te.stream.{number}", store.partition(", align ")[0]
    return [
        f"  {own} = ptrtoint ptr {match[3]} to i64",
        f"  {own}.low = and i64 {own}, {_LINE - 1}",
        f"  {own}.whole = icmp eq i64 {own}.low, 0",
        f"  br i1 {own}.whole, label %te.past.{number}, label %te.through.{number}",
        "",
        f"te.past.{number}:",
        f"{value}, align {_LINE}, !nontemporal {marker}",
        f"  br label %te.stored.{number}",
        "",
        f"te.through.{number}:",
        store,
        f"  br label %te.stored.{number}",
        "",
        f"te.stored.{number}:",
    ]
