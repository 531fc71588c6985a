"""Prepared kernels: what is kept on disk, in one file, for images of containers and for CI.

A zip file with the kept files as they are. Whoever unpacks it runs the code in it, as with any library: the digests
find what is damaged, not what is ill meant.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path

from tedsl.backend.compiling.disk_cache import FOLDER
from tedsl.backend.host import files

__all__ = ["pack", "unpack"]

_OBJECTS = "objects"  # the runtimes
_KEPT = re.compile(rf"{FOLDER}/([0-9a-f]+\.(?:kernel|program))|{_OBJECTS}/([\w.+-]+)")


def pack(path: Path) -> tuple[int, int]:
    """Write all that is kept into a file; how many kernels, and how many bytes."""
    kernels = size = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in (FOLDER, _OBJECTS):
            private = files.folder_or_problem(folder)
            for kept in sorted(private.iterdir()) if isinstance(private, Path) else ():
                name, stored = f"{folder}/{kept.name}", files.read_whole(kept)
                if _KEPT.fullmatch(name) and stored is not None and files.verified(kept.name, stored) is not None:
                    archive.writestr(zipfile.ZipInfo(name), stored)
                    kernels += kept.suffix == ".kernel"
                    size += len(stored)
    return kernels, size


def unpack(path: Path, into: Path | None = None) -> tuple[int, int]:
    """Put what a file holds to what is kept, or into a folder for many users; how many kernels, how many are new."""
    kernels = fresh = 0
    with zipfile.ZipFile(path) as archive:
        contents = [(info, _content(archive, info, path)) for info in archive.infolist()]
    for info, stored in contents:
        folder, _, name = info.filename.partition("/")
        target = _folder_for(folder, into)
        there = (target / name).exists()
        if not there and not files.write_whole(target / name, stored):
            raise OSError(f"{target / name} could not be written")
        if into is not None:
            (target / name).chmod(0o644)
        kernels += name.endswith(".kernel")
        fresh += name.endswith(".kernel") and not there
    return kernels, fresh


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> bytes:
    """A file of the archive, whole and under a name that we give; nothing is written before all are."""
    stored = None
    if _KEPT.fullmatch(info.filename) and info.file_size <= files.MOST_BYTES:
        try:
            stored = archive.read(info)
        except (zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"{path}: {info.filename} is damaged ({error}); pack it again") from None
    if stored is None or files.verified(info.filename.partition("/")[2], stored) is None:
        what = f"{info.filename!r} is none of the files that `tedsl cache pack` writes"
        raise ValueError(f"{path}: {what}; pack it again")
    return stored


def _folder_for(name: str, into: Path | None) -> Path:
    if into is not None:
        folder = into / name
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return folder
    private = files.folder_or_problem(name)
    if not isinstance(private, Path):
        raise OSError(f"there is no folder to keep kernels in: {private}")
    return private
