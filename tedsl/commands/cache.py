"""`tedsl cache`: the kernels kept on disk."""

from __future__ import annotations

import argparse
import time


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The options."""
    parser = commands.add_parser(
        "cache",
        help="list or clear the kernels kept on disk",
        description="Compiled kernels are kept in $TEDSL_CACHE_DIR (else ~/.cache/tedsl), at most $TEDSL_CACHE_MB "
        "(1024) megabytes of them; TEDSL_CACHE=off keeps none.",
    )
    parser.add_argument("action", nargs="?", choices=("list", "clear"), default="list")
    parser.set_defaults(run=lambda options: _clear() if options.action == "clear" else _list())


def _clear() -> int:
    from tedsl.backend.compiling.disk_cache import forget_all

    print(f"{forget_all()} kernels removed")
    return 0


def _list() -> int:
    from tedsl.backend.compiling.disk_cache import FOLDER, entries
    from tedsl.backend.host.files import private_folder

    found = entries()
    total = sum(entry.bytes for entry in found)
    print(
        f"{len(found)} kernels, {total / 2**20:.1f} MB, in {private_folder(FOLDER) or 'no folder that is ours alone'}"
    )
    for entry in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        print(f"  {entry.bytes / 1024:8.0f} kB  {used}  {entry.title}")
    return 0
