"""A private folder of checked files: what is costly to build is kept there from one process to the next.

Machine code is read back from it, so the folder must belong to the user alone, and every file carries the digest of
its name and of what it holds: what is damaged, or was kept under another name, is built again, never run. Where no such
folder can be had, nothing is kept. A second folder, which many users share, is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from tedsl.lang.errors import warn_user

__all__ = [
    "fetch", "folder_or_problem", "private_folder", "read", "read_whole", "shared_folder", "verified", "write",
    "write_whole",
]  # fmt: skip

MOST_BYTES = 1 << 28  # of a file
_DIGEST_BYTES = hashlib.sha256().digest_size
# A pipe would let its reader wait, a device never end, a link leave the folder.
_CAREFULLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def private_folder(name: str = "objects") -> Path | None:
    """A folder in $TEDSL_CACHE_DIR, else in ~/.cache/tedsl; None when we cannot write it or others can.

    Of one that somebody named that is told, once.
    """
    found = folder_or_problem(name)
    if isinstance(found, Path):
        return found
    named = os.environ.get("TEDSL_CACHE_DIR")
    if named and named not in _told:
        _told.add(named)
        warn_user(
            f"TEDSL_CACHE_DIR={named}: {found}; until then nothing that is compiled is kept there, and kernels are "
            "compiled by each process anew"
        )
    return None


_told: set[str] = set()  # values of TEDSL_CACHE_DIR


def folder_or_problem(name: str = "objects") -> Path | str:
    """The same folder, or what is wrong with it and how to mend that."""
    named = os.environ.get("TEDSL_CACHE_DIR") or (os.environ.get("XDG_CACHE_HOME") or "~/.cache") + "/tedsl"
    try:
        folder = Path(named).expanduser() / name
    except RuntimeError as error:
        return f"{named} cannot be found ({error}); name a folder from / on by TEDSL_CACHE_DIR"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        file = next((p for p in (folder, *folder.parents) if p.exists() and not p.is_dir()), None)
        if file is not None:
            return f"{file} is a file, and a folder is needed; move it away, or name a folder by TEDSL_CACHE_DIR"
        why = (error.strerror or str(error)).lower()
        return f"{folder} cannot be made ({why}); name a folder of your own by TEDSL_CACHE_DIR"
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return (
            f"{folder} belongs to somebody else, and code is run from it; name a folder of your own by TEDSL_CACHE_DIR"
        )
    if _is_open(found):
        return f"others may write to {folder}, and code is run from it; `chmod go-w {folder}` lets you alone"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written; `chmod u+rwx {folder}`, or name another folder by TEDSL_CACHE_DIR"
    return folder


def shared_folder(name: str) -> Path | None:
    """A folder in $TEDSL_CACHE_SHARED, which is only read; None where others than we and root could write it."""
    named = os.environ.get("TEDSL_CACHE_SHARED")
    if not named:
        return None
    folder = Path(named).expanduser() / name
    try:
        levels = [path.stat() for path in (folder, folder.parent)]
    except OSError:
        return None
    return folder if all(_is_trusted(found) and not _is_open(found) for found in levels) else None


def _is_open(found: os.stat_result) -> bool:
    """Whether others than its owner may write it."""
    return os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o022 != 0


def _is_trusted(found: os.stat_result) -> bool:
    """Whether it belongs to us or to root."""
    return not hasattr(os, "getuid") or found.st_uid in (0, os.getuid())


def fetch(name: str, build: Callable[[], bytes]) -> bytes:
    """The bytes kept under `name`, or `build()`, which is then kept."""
    folder = private_folder()
    if folder is None:
        return build()
    path = folder / name
    kept = read(path)
    if kept is None:
        kept = build()
        write(path, kept)
    return kept


def read(path: Path) -> bytes | None:
    """What `write` put there; None where that is missing or damaged, or was put elsewhere."""
    stored = read_whole(path)
    return None if stored is None else verified(path.name, stored)


def verified(name: str, stored: bytes) -> bytes | None:
    """The payload of what `write` puts into a file of that name; None of anything else."""
    digest, payload = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    return payload if _digest(name, payload) == digest else None


def write(path: Path, payload: bytes) -> None:
    """Put a payload with its digest there, if that can be done."""
    write_whole(path, _digest(path.name, payload) + payload)


def _digest(name: str, payload: bytes) -> bytes:
    """Of a payload in its place: the names of files tell what is in them."""
    return hashlib.sha256(os.fsencode(name) + b"\0" + payload).digest()


def read_whole(path: Path) -> bytes | None:
    """What a file holds; None where there is none, or no plain one of a reasonable size that is ours or root's."""
    try:
        handle = os.open(path, _CAREFULLY)
    except OSError:
        return None
    try:
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            is_ours = stat.S_ISREG(found.st_mode) and _is_trusted(found)
            return file.read() if is_ours and found.st_size <= MOST_BYTES else None
    except OSError:
        return None


def write_whole(path: Path, content: bytes) -> bool:
    """Write all or nothing: readers in other processes see the old file or the new one. A full disk is no error."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")  # created 0600
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException as error:  # an interrupt too
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            return False
        raise
    return True
