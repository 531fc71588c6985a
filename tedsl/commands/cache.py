"""`tedsl cache`: the kernels kept on disk."""

from __future__ import annotations

import argparse
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

FIRST = 20  # kernels that are listed


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options."""
    parser = commands.add_parser(
        "cache",
        help="list, clear, pack or unpack the kernels kept on disk",
        description="Compiled kernels are kept in $TEDSL_CACHE_DIR (else ~/.cache/tedsl), at most $TEDSL_CACHE_MB "
        "(1024) megabytes of them; TEDSL_CACHE=off keeps none. Those of $TEDSL_CACHE_SHARED are used, too, if it "
        "belongs to root or to you and nobody else can write it. Unpacked code is run: unpack what you packed.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    listed = actions.add_parser("list", help="the kernels, the one used last first")
    listed.add_argument("--all", action="store_true", help=f"not only the first {FIRST}")
    actions.add_parser("clear", help="remove them")
    packed = actions.add_parser("pack", help="write them into a file")
    unpacked = actions.add_parser("unpack", help="put those of a file to them")
    for each in (packed, unpacked):
        each.add_argument("file", type=Path)
    unpacked.add_argument("--into", type=Path, metavar="FOLDER", help="a folder to be shared ($TEDSL_CACHE_SHARED)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    actions: dict[str | None, Callable[[], int]] = {
        "clear": _clear, "pack": lambda: _pack(options.file), "unpack": lambda: _unpack(options.file, options.into),
    }  # fmt: skip
    return actions.get(options.action, lambda: _list(all=getattr(options, "all", False)))()


def _clear() -> int:
    from tedsl.backend.compiling.disk_cache import FOLDER, forget_all
    from tedsl.backend.host.files import folder_or_problem

    if isinstance(problem := folder_or_problem(FOLDER), str):
        return _failed(f"no kernels are kept: {problem}")
    print(f"{_counted(forget_all())} removed")
    return 0


def _pack(path: Path) -> int:
    from tedsl.backend.compiling.prepared import pack

    try:
        kernels, size = pack(path)
    except OSError as error:
        return _failed(error)
    print(f"{_counted(kernels)}, {size / 2**20:.1f} MB, in {path} ({path.stat().st_size / 2**20:.1f} MB)")
    return 0


def _unpack(path: Path, into: Path | None) -> int:
    from tedsl.backend.compiling.prepared import unpack

    try:
        kernels, fresh = unpack(path, into)
    except zipfile.BadZipFile:
        return _failed(f"{path} is no file that `tedsl cache pack` writes")
    except (OSError, ValueError) as error:
        return _failed(error)
    print(f"{_counted(kernels)}, {fresh} of them new")
    return 0


def _failed(reason: object) -> int:
    print(f"tedsl cache: {reason}", file=sys.stderr)
    return 1


def _list(*, all: bool) -> int:
    from tedsl.backend.compiling.disk_cache import FOLDER, entries
    from tedsl.backend.host.files import folder_or_problem

    folder = folder_or_problem(FOLDER)
    if isinstance(folder, str):
        return _failed(f"no kernels are kept: {folder}")
    found = entries()
    total = sum(entry.bytes for entry in found)
    print(f"{_counted(len(found))}, {total / 2**20:.1f} MB, in {folder}")
    for entry in found if all else found[:FIRST]:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(f"  {entry.bytes / 1024:8.0f} kB  {used}  {entry.title}")
    if len(found) > FIRST and not all:
        print(f"  and {len(found) - FIRST} others, which `tedsl cache list --all` lists")
    return 0


def _counted(kernels: int) -> str:
    return f"{kernels} kernel{'s' * (kernels != 1)}"
