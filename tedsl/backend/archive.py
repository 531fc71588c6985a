"""Static libraries, written without tools: objects one after another, before them an index of what they define."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tedsl.backend.constructors import global_symbols

__all__ = ["archive"]

_MAGIC = b"!<arch>\n"


def archive(members: Sequence[tuple[str, bytes]]) -> bytes:
    """An `ar` archive of ELF objects; names have at most 15 characters."""
    symbols = [global_symbols(image) for _, image in members]
    names = b"".join(name.encode() + b"\0" for listed in symbols for name in listed)
    count = sum(map(len, symbols))
    index_size = 4 + 4 * count + len(names)
    at = len(_MAGIC) + 60 + index_size + index_size % 2
    places: list[int] = []
    for listed, (_, image) in zip(symbols, members, strict=True):
        places += [at] * len(listed)
        at += 60 + len(image) + len(image) % 2
    index = struct.pack(f">I{count}I", count, *places) + names
    return _MAGIC + _member("/", index) + b"".join(_member(f"{name}/", image) for name, image in members)


def _member(name: str, content: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(content):<10}`\n".encode()
    return header + content + b"\n" * (len(content) % 2)
