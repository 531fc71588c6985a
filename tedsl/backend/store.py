"""A private folder of checked files: what is costly to build is kept there from one process to the next.

Machine code is read back from it, so the folder must belong to the user alone, and every file carries the digest of
what it holds: a damaged entry is built again, never run. Where no such folder can be had, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["fetch", "private_folder", "read", "write", "write_whole"]

_DIGEST_BYTES = hashlib.sha256().digest_size


def private_folder(name: str = "objects") -> Path | None:
    """A folder in $TEDSL_CACHE_DIR, else in ~/.cache/tedsl; None when we cannot write it or others can."""
    named = os.environ.get("TEDSL_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME", "~/.cache") + "/tedsl"
    try:
        folder = Path(named).expanduser() / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError):
        return None
    foreign = hasattr(os, "getuid") and found.st_uid != os.getuid()
    open_to_others = os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o022 != 0
    return None if foreign or open_to_others or not os.access(folder, os.W_OK | os.X_OK) else folder


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
    """What `write` put there; None where that is missing or damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, payload = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def write(path: Path, payload: bytes) -> None:
    """Put a payload with its digest there, if that can be done."""
    write_whole(path, hashlib.sha256(payload).digest() + payload)


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
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
