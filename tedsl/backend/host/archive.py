"""Static libraries, written without tools: objects one after another, before them an index of what they define.

The index of Apple's systems has a format of its own, names stand before contents, and contents begin at places that 8
divides.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tedsl.backend.host.symbols import MACH_O, format_of, global_symbols

__all__ = ["archive"]

_MAGIC = b"!<arch>\n"
_HEADER = 60
_NAME = 20  # bytes of a name before a content: with the header's, a multiple of 8


def archive(members: Sequence[tuple[str, bytes]]) -> bytes:
    """An `ar` archive of objects; names have at most 15 characters."""
    symbols = [global_symbols(image) for _, image in members]
    if format_of(members[0][1]) == MACH_O:
        return _apples(members, symbols)
    names = b"".join(name.encode() + b"\0" for listed in symbols for name in listed)
    count = sum(map(len, symbols))
    files = [_member(f"{name}/", image) for name, image in members]
    places = _places(files, symbols, 4 + 4 * count + len(names))
    return _MAGIC + _member("/", struct.pack(f">I{count}I", count, *places) + names) + b"".join(files)


def _apples(members: Sequence[tuple[str, bytes]], symbols: Sequence[Sequence[str]]) -> bytes:
    offsets: list[int] = []
    names = b""
    for name in (name for listed in symbols for name in listed):
        offsets.append(len(names))
        names += name.encode() + b"\0"
    names += b"\0" * (-len(names) % 8)
    files = [_apple_member(name, image) for name, image in members]
    places = _places(files, symbols, _NAME + 8 + 8 * len(offsets) + len(names))
    pairs = b"".join(struct.pack("<II", offset, place) for offset, place in zip(offsets, places, strict=True))
    index = struct.pack("<I", len(pairs)) + pairs + struct.pack("<I", len(names)) + names
    return _MAGIC + _apple_member("__.SYMDEF", index) + b"".join(files)


def _places(files: Sequence[bytes], symbols: Sequence[Sequence[str]], index: int) -> list[int]:
    """For each symbol where the member that defines it begins, behind an index of so many bytes."""
    at = len(_MAGIC) + _HEADER + index + index % 2
    places: list[int] = []
    for listed, file in zip(symbols, files, strict=True):
        places += [at] * len(listed)
        at += len(file)
    return places


def _apple_member(name: str, content: bytes) -> bytes:
    return _member(f"#1/{_NAME}", name.encode().ljust(_NAME, b"\0") + content + b"\n" * (-len(content) % 8))


def _member(name: str, content: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}{len(content):<10}`\n".encode()
    return header + content + b"\n" * (len(content) % 2)
