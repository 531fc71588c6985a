"""What LLVM's JIT linker does not tell of an object file: functions to run first, and its memory that begins as zeros.

The runtimes for GPUs have a few such functions: they set up the cache of compiled kernels, without which the first
launch aborts. They are local symbols; here they are made global, so that they can be looked up by name and called.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["ZeroedMemory", "elf_symbols", "expose_constructors", "text_at", "zeroed_memory"]

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
_SYMBOLS, _RELOCATIONS, _ZEROED, _CONSTRUCTORS = 2, 4, 8, 14  # types of sections
_WRITABLE, _OF_THREADS = 1, 1 << 10  # flags of sections
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


class ZeroedMemory(NamedTuple):
    """Memory that is all 0 when the object is loaded, and where in it the global symbols lie."""

    size: int
    offsets: dict[str, int]


def zeroed_memory(image: bytes) -> list[ZeroedMemory]:
    """What an ELF object writes to that begins as zeros: the state of its locks and queues."""
    if image[:6] != _MAGIC:
        return []
    sections = _sections(image)
    table = next(section for section in sections if section.kind == _SYMBOLS)
    symbols = [_Symbol(*entry) for entry in _entries("<IBBHQQ", image, table)]
    names, found = sections[table.link].offset, []
    for number, section in enumerate(sections):
        if section.kind == _ZEROED and section.size and section.flags & (_WRITABLE | _OF_THREADS) == _WRITABLE:
            inside = (s for s in symbols if s.section == number and s.info >> 4 in (_GLOBAL, _WEAK))
            found.append(ZeroedMemory(section.size, {text_at(image, names + s.name): s.value for s in inside}))
    return found


def expose_constructors(image: bytes) -> tuple[bytes, list[str]]:
    """The object with its constructors made global, and their names in the order in which they are to run."""
    if image[:6] != _MAGIC:  # other systems have no runtimes for GPUs
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
            names.append(text_at(image, sections[table.link].offset + symbols[number].name))
            patched[table.offset + number * struct.calcsize("<IBBHQQ") + 4] = _GLOBAL << 4 | _FUNCTION
    return bytes(patched), names


def elf_symbols(image: bytes) -> list[str]:
    """The names that other objects may use of an ELF object of 64 bits."""
    sections = _sections(image)
    table = next(section for section in sections if section.kind == _SYMBOLS)
    symbols = (_Symbol(*entry) for entry in _entries("<IBBHQQ", image, table))
    names = sections[table.link].offset
    return [text_at(image, names + s.name) for s in symbols if s.info >> 4 in (_GLOBAL, _WEAK) and s.section]


def _sections(image: bytes) -> list[_Section]:
    start, size, count = *struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HH", image, 58)
    return [_Section(*struct.unpack_from("<IIQQQQII", image, start + number * size)) for number in range(count)]


def _entries(layout: str, image: bytes, section: _Section) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(layout, image[section.offset : section.offset + section.size]))


def text_at(image: bytes, start: int) -> str:
    """The text of an object that begins at a place and ends with a zero byte."""
    return image[start : image.index(b"\0", start)].decode()
