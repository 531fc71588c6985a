"""The names that an object file defines for others, in the three formats that LLVM writes: ELF, Mach-O and COFF."""

from __future__ import annotations

import struct

from tedsl.backend.host.elf import elf_symbols, text_at

__all__ = ["COFF", "ELF", "MACH_O", "format_of", "global_symbols"]

ELF, MACH_O, COFF = "ELF", "Mach-O", "COFF"
_MAGIC = {b"\x7fELF": ELF, b"\xcf\xfa\xed\xfe": MACH_O}  # of 64 bits, little endian
_MACHINES = {b"\x64\x86": COFF, b"\x64\xaa": COFF}
_SYMBOL_TABLE = 2  # LC_SYMTAB
_DEBUG, _TYPE, _SECTION, _EXTERNAL = 0xE0, 0x0E, 0x0E, 1  # of Mach-O's symbols
_COFF_EXTERNAL = 2


def format_of(image: bytes) -> str:
    """The format of an object file."""
    found = _MAGIC.get(image[:4]) or _MACHINES.get(image[:2])
    if found is None:
        raise ValueError(f"an object file was expected, found bytes that begin with {image[:4]!r}")
    return found


def global_symbols(image: bytes) -> list[str]:
    """The names that other objects may use of an object."""
    return {ELF: elf_symbols, MACH_O: _mach_o_symbols, COFF: _coff_symbols}[format_of(image)](image)


def _mach_o_symbols(image: bytes) -> list[str]:
    (commands,) = struct.unpack_from("<I", image, 16)
    at = 32
    for _ in range(commands):
        kind, size = struct.unpack_from("<II", image, at)
        if kind == _SYMBOL_TABLE:
            table, count, names, _ = struct.unpack_from("<IIII", image, at + 8)
            entries = struct.iter_unpack("<IBBHQ", image[table : table + 16 * count])
            return [
                text_at(image, names + name)
                for name, flags, *_ in entries
                if not flags & _DEBUG and flags & _EXTERNAL and flags & _TYPE == _SECTION
            ]
        at += size
    return []


def _coff_symbols(image: bytes) -> list[str]:
    table, count = struct.unpack_from("<II", image, 8)
    names = table + 18 * count
    found, at = [], 0
    while at < count:
        entry = image[table + 18 * at : table + 18 * (at + 1)]
        section, _, storage, more = struct.unpack_from("<hHBB", entry, 12)
        if storage == _COFF_EXTERNAL and section > 0:
            place = struct.unpack_from("<I", entry, 4)[0]
            found.append(
                text_at(image, names + place) if entry[:4] == b"\0\0\0\0" else entry[:8].rstrip(b"\0").decode()
            )
        at += 1 + more
    return found
