"""The levels of x86 that tests compile for, and those of them that run on this processor."""

from __future__ import annotations

from tedsl.backend.processors import LEVELS
from tedsl.backend.targets import parse_target

__all__ = ["LEVELS", "LEVELS_HERE"]

LEVELS_HERE = [level for level in LEVELS if parse_target(level).problem is None]
