"""The levels of x86 that tests compile for, and the processor here taken for one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from hypothesis import strategies as st

from tedsl.backend.host.processors import HOST_VARIABLE, LEVELS
from tedsl.backend.host.targets import parse_target

__all__ = ["LEVELS", "LEVELS_HERE", "OLDER", "PROCESSORS", "processor"]

LEVELS_HERE = [level for level in LEVELS if parse_target(level).problem is None]
OLDER = [level for level in LEVELS_HERE if level in ("x86-64-v2", "x86-64-v3")]
PROCESSORS = st.sampled_from(["", *OLDER])  # "": the one that there is; to be drawn last, behind what is compiled


@contextmanager
def processor(level: str) -> Iterator[None]:
    """Compile for a processor of that level wherever the host is asked for."""
    with mock.patch.dict(os.environ, {HOST_VARIABLE: level} if level else {}):
        yield
