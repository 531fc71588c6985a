"""How many threads the kernels share: what the process may use, not what the machine has.

A container or a batch job often owns two of the sixty-four cores it sees; sixty-four threads on two cores are slower
than two. The order of precedence is set_num_threads, TEDSL_NUM_THREADS, the affinity mask and the cgroup's quota.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tedsl.lang.keywords import own_arguments
from tedsl.lang.locks import freed_in_children

__all__ = ["MOST_THREADS", "available_cpus", "get_num_threads", "on_change", "set_num_threads"]

MOST_THREADS = 256  # Halide's own limit
_CGROUP_ROOT = Path("/sys/fs/cgroup")

_chosen: int | None = None
_listeners: list[Callable[[int], object]] = []
_changing = freed_in_children(threading.RLock())


@own_arguments()
def set_num_threads(count: int) -> None:
    """Let kernels run on `count` threads from their next call on.

    With fewer threads than before it waits for parallel calls that other threads are in, and most calls that begin
    meanwhile wait too.
    """
    global _chosen
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"set_num_threads: a whole number of threads was expected, found {count!r}")
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"set_num_threads: a number from 1 to {MOST_THREADS} was expected, found {count}")
    with _changing:
        before, _chosen = _chosen, count
        try:
            for listener in _listeners:
                listener(count)
        except BaseException:  # an interrupt, while it waits
            _chosen = before
            raise


@own_arguments()
def get_num_threads() -> int:
    """The number of threads that a parallel kernel uses."""
    if _chosen is not None:
        return _chosen
    named = os.environ.get("TEDSL_NUM_THREADS", "").strip()
    if not named:
        return min(available_cpus(), MOST_THREADS)
    if not named.isdecimal() or not 1 <= int(named) <= MOST_THREADS:
        raise ValueError(f"TEDSL_NUM_THREADS: a number from 1 to {MOST_THREADS} was expected, found {named!r}")
    return int(named)


def on_change(listener: Callable[[int], object]) -> None:
    """Call `listener` with the number now, and again whenever it changes."""
    with _changing:
        listener(get_num_threads())
        _listeners.append(listener)


def available_cpus() -> int:
    """CPUs that this process may keep busy: its affinity mask, cut by the quotas of its cgroups."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, _allotted(_CGROUP_ROOT, int(time.monotonic()))))


@functools.lru_cache(maxsize=1)
def _allotted(root: Path, _second: int) -> int:
    """CPUs by the quotas, which are read once a second at most: each kernel of a large program asks for them."""
    return min(map(math.ceil, _quotas(root)), default=sys.maxsize)


def _quotas(root: Path) -> Iterator[float]:
    for folder in _cgroup_folders(root):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            quota, period = _first_version_quota(folder)
        if quota not in ("max", "-1") and float(period) > 0:
            yield float(quota) / float(period)


def _first_version_quota(folder: Path) -> tuple[str, str]:
    try:
        return (folder / "cpu.cfs_quota_us").read_text().strip(), (folder / "cpu.cfs_period_us").read_text().strip()
    except OSError:
        return "max", "0"


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """The process's control groups, innermost first; a quota anywhere on the way up holds."""
    yield from (root, root / "cpu")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        base = root / "cpu" if "cpu" in controllers.split(",") else root
        group = base / path.lstrip("/")
        while group != base and base in group.parents:
            yield group
            group = group.parent
