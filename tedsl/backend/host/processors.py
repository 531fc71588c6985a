"""Processors: the levels of x86 by name, the one of this machine, and the figures that schedules are made for.

A named processor means the same instructions and the same figures on every machine, so that a program has the same
schedule and the same texts everywhere; only "host" reads the machine. TEDSL_HOST=x86-64-v3 takes the processor here for
one of that name, with its figures, as tests do to run as on an older machine.

A processor is told in Halide's words, such as `x86-64-linux-avx2-fma`. Some of them imply others: Halide compiles avx2
for Haswell, with fused multiply-add and 16-bit floats.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence, Set
from pathlib import Path

import halide as hl

from schedules.default import Machine
from tedsl.backend.host.threads import available_cpus

__all__ = [
    "HOST_VARIABLE",
    "LEVELS",
    "features_of",
    "figures_here",
    "figures_of",
    "host_words",
    "is_same_machine",
    "misfit_here",
    "processor_of",
    "triple_of",
    "without_avx512",
    "words_of",
]

HOST_VARIABLE = "TEDSL_HOST"
LEVELS = {
    "x86-64-v2": ("sse41",),
    "x86-64-v3": ("sse41", "avx", "avx2", "f16c", "fma"),
    "x86-64-v4": ("sse41", "avx", "avx2", "f16c", "fma", "avx512", "avx512_skylake"),
}
ARCHITECTURES = ("x86-64", "arm-64")
SYSTEMS = ("linux", "osx", "windows", "android", "ios")
_TRIPLES = {
    "x86-64-linux": "x86_64--linux-gnu",
    "x86-64-osx": "x86_64-apple-macosx12.0.0",
    "x86-64-windows": "x86_64-pc-windows-msvc",
    "x86-64-android": "x86_64--linux-android",
    "x86-64-ios": "x86_64-apple-ios17.0.0",
    "arm-64-linux": "aarch64--linux-gnueabihf",
    "arm-64-osx": "arm64-apple-macosx11.0.0",
    "arm-64-windows": "aarch64-pc-windows-msvc",
    "arm-64-android": "aarch64--linux-eabi",
    "arm-64-ios": "aarch64-apple-ios17.0.0",
}
_IMPLIED = {
    "avx": ("sse41",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "fma4": ("avx",),
    "avx2": ("avx", "f16c", "fma"),
    "avx512": ("avx2",),
    "avx512_knl": ("avx512",),
    "avx512_skylake": ("avx512",),
    "avx512_cannonlake": ("avx512_skylake",),
    "avx512_zen4": ("avx512_cannonlake",),
    "avx512_zen5": ("avx512_zen4",),
    "avx512_sapphirerapids": ("avx512_cannonlake",),
    "avx10_1": ("avx512_cannonlake",),
    "sve2": ("sve",),
}
_INSTRUCTIONS = re.compile(r"(sse|avx|fma|f16c|x86apx|arm_|armv|sve)\w*")
# What named processors have: of what carries their names the smaller one, and cores for which there is work.
_L1, _L2, _L2_OF_AVX512, _L3, _CORES = 32 << 10, 512 << 10, 1 << 20, 16 << 20, 8


def words_of(name: str) -> list[str]:
    """Halide's words for a processor by name, with options behind it; ValueError for what is none."""
    words = name.split("-")
    if words[0] == "host":
        return [*host_words(), *words[1:]]
    level, options = "-".join(words[:3]), words[3:]
    if level in LEVELS:
        system = next((option for option in options if option in SYSTEMS), _system_here())
        return ["x86", "64", system, *LEVELS[level], *(option for option in options if option not in SYSTEMS)]
    if "-".join(words[:2]) not in ARCHITECTURES or words[2:3] not in [[system] for system in SYSTEMS]:
        raise ValueError(
            f"target: {name!r} does not begin with one of host, cuda, opencl, {', '.join(LEVELS)}, or with Halide's "
            f"words for a processor ({' or '.join(ARCHITECTURES)}, then {', '.join(SYSTEMS[:-1])} or {SYSTEMS[-1]}: "
            "'arm-64-linux', 'x86-64-windows-avx2')"
        )
    return words


def host_words() -> list[str]:
    """Halide's words for the processor here, or for the one that TEDSL_HOST takes it for."""
    named = os.environ.get(HOST_VARIABLE, "").strip()
    return list(_words_here(named))


@functools.lru_cache(maxsize=8)
def _words_here(named: str) -> tuple[str, ...]:
    own = tuple(str(hl.get_host_target()).split("-"))
    if named in ("", "host"):
        return own
    try:
        words = tuple(words_of(named))
    except ValueError as error:
        raise ValueError(f"{HOST_VARIABLE}: {error}") from None
    if words[:3] != own[:3] or (lacking := _lacking(words, own)):
        what = f"has no {', '.join(lacking)}" if words[:3] == own[:3] else f"is {'-'.join(own[:3])}"
        raise ValueError(f"{HOST_VARIABLE}={named}: this machine {what}; take a processor that it can stand for")
    return words


def _system_here() -> str:
    return str(hl.get_host_target()).split("-")[2]


def misfit_here(text: str) -> str | None:
    """Why code for a Halide target cannot run on the processor here; None where it can."""
    wanted, found = text.split("-"), host_words()
    if wanted[:3] != found[:3]:
        return f"it is compiled for {'-'.join(wanted[:3])}, and this machine is {'-'.join(found[:3])}"
    lacking = _lacking(wanted, found)
    if not lacking:
        return None
    named = os.environ.get(HOST_VARIABLE, "").strip()
    here = f"the one here ({HOST_VARIABLE}={named})" if named else "the one here"
    return f"it is compiled for a processor with {', '.join(lacking)}, which {here} does not have"


def is_same_machine(text: str) -> bool:
    """Whether a Halide target is of the architecture and the system here."""
    return text.split("-")[:3] == host_words()[:3]


def _lacking(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """The instruction sets among Halide's words for a processor that another one does not have."""
    has = features_of("-".join(found))
    return sorted(w for w in wanted[3:] if _INSTRUCTIONS.fullmatch(w) and not _with_implied({w}) <= has)


def processor_of(text: str) -> str:
    """The processor alone of a Halide target."""
    words = text.split("-")
    return "-".join([*words[:3], *(word for word in words[3:] if _INSTRUCTIONS.fullmatch(word))])


def without_avx512(text: str) -> str:
    """A Halide target less AVX-512."""
    kept = [word for word in text.split("-") if not word.startswith(("avx512", "avx10", "tune_"))]
    wide = "avx512" in features_of(text)
    return "-".join([*kept, *(("avx2", "fma", "f16c") if wide else ())])


def triple_of(text: str) -> str:
    """LLVM's name for the machine of a Halide target, as Halide writes it."""
    return _TRIPLES["-".join(text.split("-")[:3])]


def features_of(text: str) -> Set[str]:
    """The instruction sets that code for a Halide target may use, with those that they imply."""
    found = _with_implied({word for word in text.split("-")[3:] if _INSTRUCTIONS.fullmatch(word)})
    return found | {"fma"} if text.startswith("arm-64-") else found


def _with_implied(words: Set[str]) -> frozenset[str]:
    found, pending = set(words), list(words)
    while pending:
        more = set(_IMPLIED.get(pending.pop(), ())) - found
        found |= more
        pending += more
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def figures_of(text: str) -> Machine:
    """The figures of a named processor: the same on every machine."""
    vectors, registers = _registers(text)
    return Machine(vectors, registers, _L1, _L2_OF_AVX512 if vectors == 64 else _L2, _L3, _CORES)


def figures_here(text: str) -> Machine:
    """The figures of the processor here, as code for a Halide target sees it."""
    vectors, registers = _registers(text)
    return Machine(vectors, registers, *_cache_sizes(), available_cpus())


@functools.lru_cache(maxsize=64)
def _registers(text: str) -> tuple[int, int]:
    """Bytes of a vector, and how many registers hold one."""
    target = hl.Target(text)
    many = "avx512" in features_of(text) or target.arch == hl.TargetArch.ARM
    return target.natural_vector_size(hl.UInt(8)), 32 if many else 16


@functools.cache
def _cache_sizes() -> tuple[int, int, int]:
    """Bytes of the data caches; those of a common small core where the system does not tell."""
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind, size = (_text(entry / part) for part in ("level", "type", "size"))
        if kind != "Instruction" and level.isdecimal() and size.endswith("K"):
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes[1], sizes[2], sizes[3]


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
