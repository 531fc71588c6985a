"""The functions that an object file wants to be run before any other, which LLVM's JIT linker neither runs nor shows.

The runtimes for GPUs have a few: they set up the cache of compiled kernels, without which the first launch aborts. They
are local symbols; here they are made global, so that they can be looked up by name and called.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["elf_symbols", "expose_constructors"]

_SYMBOLS, _RELOCATIONS, _CONSTRUCTORS = 2, 4, 14  # types of sections
_SECTION, _FUNCTION, _GLOBAL, _WEAK = 3, 2, 1, 2  # types and bindings of symbols


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


class _Symbol(NamedTuple):
    name: int
    info: int
    visibility: int
    section: int
    value: int
    size: int


def expose_constructors(image: bytes) -> tuple[bytes, list[str]]:
    """The object with its constructors made global, and their names in the order in which they are to run."""
    if image[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian; other systems have no runtimes for GPUs
        return image, []
    sections = _sections(image)
    table = next(section for section in sections if section.kind == _SYMBOLS)
    symbols = [_Symbol(*entry) for entry in _entries("<IBBHQQ", image, table)]
    functions = {(s.section, s.value): number for number, s in enumerate(symbols) if s.info & 15 == _FUNCTION}
    patched, names = bytearray(image), []
    for section in sections:
        if section.kind != _RELOCATIONS or sections[section.info].kind != _CONSTRUCTORS:
            continue
        for _, info, addend in sorted(_entries("<QQq", image, section)):
            target = symbols[info >> 32]
            start = addend if target.info & 15 == _SECTION else target.value + addend
            number = functions[target.section, start]
            names.append(_text(image, sections[table.link].offset + symbols[number].name))
            patched[table.offset + number * struct.calcsize("<IBBHQQ") + 4] = _GLOBAL << 4 | _FUNCTION
    return bytes(patched), names


def elf_symbols(image: bytes) -> list[str]:
    """The names that other objects may use of an ELF object of 64 bits."""
    sections = _sections(image)
    table = next(section for section in sections if section.kind == _SYMBOLS)
    symbols = (_Symbol(*entry) for entry in _entries("<IBBHQQ", image, table))
    names = sections[table.link].offset
    return [_text(image, names + s.name) for s in symbols if s.info >> 4 in (_GLOBAL, _WEAK) and s.section]


def _sections(image: bytes) -> list[_Section]:
    start, size, count = *struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HH", image, 58)
    return [_Section(*struct.unpack_from("<IIQQQQII", image, start + number * size)) for number in range(count)]


def _entries(layout: str, image: bytes, section: _Section) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(layout, image[section.offset : section.offset + section.size]))


def _text(image: bytes, start: int) -> str:
    return image[start : image.index(b"\0", start)].decode()
