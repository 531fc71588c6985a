"""What the kernels of a GPU ask of a block, read from Halide's program: too much is an error before anything runs."""

from __future__ import annotations

import math

from schedules.loops import MOST_THREADS
from tedsl.backend.halide_text.programs import HalideProgram, Launch
from tedsl.lang.errors import ScheduleError

__all__ = ["MOST_SHARED", "check_launches"]

MOST_SHARED = 48 << 10  # bytes, which a kernel gets without asking for more


def check_launches(name: str, text: str) -> None:
    """ScheduleError where a launch in Halide's lowered program `text` has blocks that no GPU can run."""
    for launch in HalideProgram(text).launches:
        _check_launch(name, launch)


def _check_launch(name: str, launch: Launch) -> None:
    count = math.prod(n or 1 for n in launch.threads)
    if count > MOST_THREADS:
        across = " x ".join(str(n) for n in launch.threads if n is not None and n > 1)
        raise ScheduleError(
            f"kernel {name!r}: a block of {launch.kernel} would have {across} = {count} threads of {MOST_THREADS};"
            " give smaller factors to the loops over threads"
        )
    if launch.shared is not None and launch.shared > MOST_SHARED:
        raise ScheduleError(
            f"kernel {name!r}: a block of {launch.kernel} would need {launch.shared} bytes of shared memory, of at most"
            f" {MOST_SHARED}; compute its stages for less at a time, or keep them at the root"
        )
