"""What Halide says about schedules: the loops of a kernel, and refusals, in the user's names.

Halide writes loops to the process's standard error and nowhere else, so that is caught, for the moment it takes. To
Python's standard output it writes warnings of what is ruled out by conditions that a kernel checks first: they are left
out.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import Any

import halide as hl

from tedsl.backend.halide_text.errors import readable
from tedsl.backend.halide_text.forms import unmarked
from tedsl.backend.host.scratch import scratch
from tedsl.lang.errors import ScheduleError

__all__ = ["loop_nest_text", "schedule_refused"]

_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child must not inherit another standard error
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def loop_nest_text(funcs: Iterable[hl.Func]) -> str:
    """The loop nest of the pipeline that ends in these functions."""
    listed = list(funcs)
    return unmarked(_caught(listed[0] if len(listed) == 1 else hl.Pipeline(listed))).strip()


def _caught(func: Any) -> str:
    with _LOCK, scratch() as file, redirect_stdout(io.StringIO()):
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(file.number, 2)
            func.print_loop_nest()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        return file.text()


def schedule_refused(kernel: str, error: Exception) -> ScheduleError:
    """What Halide refuses only when it compiles."""
    return ScheduleError(f"the schedule of kernel {kernel!r} cannot be compiled; Halide says: {readable(error)}")
