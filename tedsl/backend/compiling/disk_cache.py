"""Compiled kernels kept on disk: another process that builds the same program for the same machine loads its code.

The key is a digest of all that compiling depends on: the program with its names, the schedule, the form, the target,
the machine, and the versions of Halide, LLVM and this library down to what its source files hold. What is kept is data:
object code and a few numbers, in files that carry their own digest (`host.files`). The name of the code's function has
a seal over these numbers, so that none is believed that the code was not made for. TEDSL_CACHE=off keeps nothing,
TEDSL_CACHE_MB (1024 unless set) is how much is kept; the files used longest ago go first. Where nothing is kept,
processes that compile together pass code on through a folder that is gone afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from schedules.plan import Plan
from schedules.records import parsed, record_of, seal, typed
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.host import files
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.targets import Target, machine_of
from tedsl.backend.host.versions import version_of
from tedsl.backend.scheduling.planner import Planner
from tedsl.lang.dataclass import dataclass
from tedsl.lang.native import Native
from tedsl.lang.structure import structural_key
from tedsl.lang.tensor import Extern
from tedsl.lang.traverse import stages_of

__all__ = [
    "FOLDER",
    "Entry",
    "Kept",
    "entries",
    "forget_all",
    "is_kept",
    "is_off",
    "keep",
    "keeping_meanwhile",
    "key_of",
    "key_of_part",
    "key_of_program",
    "passing_folder",
    "passing_through",
    "read",
    "recall",
    "write",
]

FOLDER = "kernels"
MOST_MB = 1024
SHARES, SMALL_SHARE = 64, 1 << 16  # of what may be kept, one is written between two counts; bytes that are no share
_SOURCES = ("tedsl", "schedules")
_passing: list[Path] = []  # folders in which code is passed on at the moment
_CODE = "code"  # the digest of the code, beside the numbers


@dataclass(frozen=True)
class Kept:
    """Object code of one compiled form, and how to call it without lowering the program again."""

    entry: str
    target: str
    image: bytes
    sizes: tuple[int, ...]  # of the program's symbolic extents, those passed by value
    zero: bool  # whether one more number, always 0, is passed
    order: tuple[int, ...]  # see Variant
    checks: bool  # whether the kernel checks indices or numbers when it runs
    careful: bool  # whether divisions are lowered with care, see lowering.expressions
    title: str  # for people: what it computes
    shapes: tuple[tuple[int, ...] | None, ...] = ()  # of its arguments, where it does not check them itself
    finite: tuple[int, ...] = ()  # the inputs that must hold finite numbers, where it does not look itself

    @property
    def seal(self) -> str:
        """What the name of its function ends with, that of Halide's wrapper apart: how it is to be called."""
        return seal([value for name, value in asdict(self).items() if name not in ("entry", "image", "title")])


def key_of(program: Compilation, form: object) -> str | None:
    """The name of the file for a compiled form; None where nothing is kept."""
    if is_off():
        return None
    planner, inputs, outputs = program.planner, program.inputs, program.outputs
    if planner.part is not None:
        return key_of_part(planner.part.digest, program, form)
    if any(isinstance(op, Extern) and not isinstance(op.function, Native) for op in stages_of(outputs)):
        return None
    structure = structural_key(outputs, inputs, names=True)
    return _digest([structure, program.name, _schedule(planner), *_made_for(form, program.target)])


def key_of_part(digest: str, program: Compilation, form: object) -> str | None:
    """The same for a part of a program, by what it computes and by which loops."""
    asked, in_place = program.planner.is_asked, program.planner.in_place
    return None if is_off() else _digest([digest, str(asked), str(in_place), *_made_for(form, program.target)])


def key_of_program(structure: str, program: Compilation, least: int) -> str | None:
    """The name of the file for how a program is cut, by its structural key; `least`: kernels that are worth it."""
    planner = program.planner
    if is_off() or planner.is_asked or planner.given:
        return None
    decided = _schedule(planner), str(planner.is_over), *_made_for(least, program.target)
    return _digest(["program", structure, program.name, *decided])


_OFF, _ON = ("off", "0", "no", "false"), ("", "on", "1", "yes", "true")


def is_off() -> bool:
    """Whether nothing is kept: the user wants it so, or code is no object here."""
    return not loads_objects() or (not _passing and _is_unwanted())


def _is_unwanted() -> bool:
    said = os.environ.get("TEDSL_CACHE", "").strip()
    if said.lower() in _OFF:
        return True
    if said.lower() in _ON:
        _most_bytes()  # what is wrong there is told before anything is compiled
        return False
    raise ValueError(f"TEDSL_CACHE: 'off' or 'on' was expected, found {said!r}; a folder is TEDSL_CACHE_DIR={said}")


@contextlib.contextmanager
def keeping_meanwhile() -> Iterator[None]:
    """In the block, what this process and its children compile is kept, if only for so long."""
    folder = passing_folder()
    if folder is None:
        yield
        return
    with folder as name, passing_through(name):
        _versions()  # asked here, not by each of the children
        yield


def passing_folder() -> tempfile.TemporaryDirectory[str] | None:
    """A folder to pass code through that another process compiles; None where what it keeps is found anyway."""
    if not _is_unwanted() and files.private_folder(FOLDER) is not None:
        return None
    return tempfile.TemporaryDirectory(prefix="tedsl-", ignore_cleanup_errors=True)


@contextlib.contextmanager
def passing_through(folder: str | None) -> Iterator[None]:
    """In the block, code is written into a folder and found there, if there is one."""
    if folder is None:
        yield
        return
    _passing.append(Path(folder))
    try:
        yield
    finally:
        _passing.pop()


def _folders() -> tuple[Path | None, Path | None]:
    """The folder of our own, and that of many users."""
    own = _passing[-1] if _passing else files.private_folder(FOLDER)
    return own, None if _is_unwanted() else files.shared_folder(FOLDER)


def _made_for(form: object, target: Target) -> tuple[str, ...]:
    return repr(form), target.text, repr(machine_of(target)), *_versions()


def _digest(parts: Sequence[str]) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:40]  # a name may be any text


def _schedule(planner: Planner) -> str:
    """All that a planner does, as text."""
    given = structural_key(list(planner.given.values()), names=True) if planner.given else ""
    options = planner.automatic, planner.deterministic, planner.choices, planner.merged, planner.in_place
    return f"{options!r} {given} {'' if planner.plan is None else _directives(planner.plan)}"


def _directives(plan: Plan) -> str:
    loops = [(key, [s.directive for s in steps]) for key, steps in sorted(plan.loops.items())]
    storage = [(name, [s.directive for s in steps]) for name, steps in sorted(plan.storage.items())]
    places, stores = ([(n, s.directive) for n, s in sorted(m.items())] for m in (plan.places, plan.stores))
    rest = sorted(plan.made), sorted(plan.complete), plan.finite, plan.automatic
    return repr((loops, places, stores, storage, rest))


@functools.cache
def _versions() -> tuple[str, ...]:
    """Of what compiles, and a digest of the compiler's own source files."""
    packages = [f"{name} {version_of(name)}" for name in ("halide", "llvmlite")]
    return (*packages, _digest_of_sources(Path(__file__).parents[3]))


def _digest_of_sources(top: Path) -> str:
    """Of what is in the files, which is the same wherever the library is installed; read once while nothing changes."""
    found = sorted(path for folder in _SOURCES for path in (top / folder).rglob("*.py"))
    names = [path.relative_to(top).as_posix() for path in found]
    stats = [path.stat() for path in found]
    state = _digest([str(top), *(f"{n} {s.st_size} {s.st_mtime_ns}" for n, s in zip(names, stats, strict=True))])
    known = read(state, "sources")
    if known is None:
        contents = [hashlib.sha256(path.read_bytes()).hexdigest() for path in found]
        known = _digest([*names, *contents]).encode()
        write(state, "sources", known)
    return known.decode()


def recall(key: str | None) -> Kept | None:
    """What was kept under a key, if it is there and whole."""
    payload = read(key, "kernel")
    return None if payload is None else _parsed(payload)


def is_kept(key: str | None) -> bool:
    """Whether there is code under a key; it may still be found to be damaged."""
    folders = () if key is None else _folders()
    return any(folder is not None and (folder / f"{key}.kernel").exists() for folder in folders)


def read(key: str | None, kind: str) -> bytes | None:
    """The content of a kept file, if it is there and whole, in the folder of our own or in that of many users."""
    if key is None:
        return None
    folder, shared = _folders()
    payload = None if folder is None else files.read(folder / f"{key}.{kind}")
    if folder is not None and payload is not None:
        with contextlib.suppress(OSError):
            os.utime(folder / f"{key}.{kind}")  # used just now
        return payload
    return None if shared is None else files.read(shared / f"{key}.{kind}")


def write(key: str | None, kind: str, payload: bytes) -> None:
    """Keep a file, if there is a place to keep it in."""
    folder = None if key is None else _folders()[0]
    if folder is not None:
        files.write(folder / f"{key}.{kind}", payload)
        if not _passing and _is_turn(f"{key}.{kind}", len(payload)):
            _make_room(folder)


def keep(key: str | None, kept: Kept) -> None:
    """Keep a compiled form, if there is a place to keep it in."""
    numbers = {name: value for name, value in asdict(kept).items() if name != "image"}
    header = json.dumps({**numbers, _CODE: hashlib.sha256(kept.image).hexdigest()}).encode()
    write(key, "kernel", len(header).to_bytes(4, "little") + header + kept.image)


def _parsed(payload: bytes) -> Kept | None:
    size = int.from_bytes(payload[:4], "little")
    image = payload[4 + size :]
    try:
        numbers = typed(dict, parsed(payload[4 : 4 + size]))
        if numbers.pop(_CODE, None) != hashlib.sha256(image).hexdigest():
            return None
        kept: Kept = record_of(Kept, {**numbers, "image": image})
    except ValueError:
        return None
    return kept if kept.entry.endswith(f"_{kept.seal}_argv") else None


@dataclass(frozen=True)
class Entry:
    """One file of those kept."""

    path: Path
    bytes: int
    used: float  # when, in seconds since 1970
    title: str


def entries() -> list[Entry]:
    """Every kept kernel, the one used last first."""
    folder = files.folder_or_problem(FOLDER)
    found = []
    for path in folder.glob("*.kernel") if isinstance(folder, Path) else ():
        payload = files.read(path)
        kept = None if payload is None else _parsed(payload)
        with contextlib.suppress(OSError):  # another process removed it
            found.append(Entry(path, path.stat().st_size, path.stat().st_mtime, kept.title if kept else "damaged"))
    return sorted(found, key=lambda entry: -entry.used)


def forget_all() -> int:
    """Remove every kept kernel; how many there were."""
    folder = files.folder_or_problem(FOLDER)
    if not isinstance(folder, Path):
        return 0
    kernels = sum(_is_removed(path) for path in folder.glob("*.kernel*"))
    for path in (*folder.glob("*.program*"), *folder.glob("*.sources*")):
        _is_removed(path)
    return kernels


def _is_removed(path: Path) -> bool:
    """Whether a file could be removed; what is no file is none of ours."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _is_turn(name: str, size: int) -> bool:
    """Whether this file is one after which the others are counted: after a share of what may be kept, in the mean.

    Ten thousand files take as long to count as a kernel to compile. Which file it is depends on its name alone, so that
    many short processes keep no more than a long one.
    """
    share = _most_bytes() / SHARES
    drawn = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
    return share < SMALL_SHARE or drawn * share < size


def _make_room(folder: Path) -> None:
    """Remove the files used longest ago until the rest is as much as may be kept."""
    most, found, entries = _most_bytes(), [], list[os.DirEntry[str]]()
    with contextlib.suppress(OSError):  # another process removed the folder
        entries += os.scandir(folder)
    for entry in entries:
        with contextlib.suppress(OSError):  # or a file
            if not entry.is_dir(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                found.append((info.st_mtime, info.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        total -= size * _is_removed(Path(path))


def _most_bytes() -> float:
    said = os.environ.get("TEDSL_CACHE_MB", "").strip()
    try:
        most = float(said or MOST_MB)
    except ValueError:
        most = math.nan
    if not most >= 0:
        raise ValueError(f"TEDSL_CACHE_MB: a number of megabytes was expected, found {said!r}")
    return most * 2**20
