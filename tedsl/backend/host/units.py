"""Numbers of bytes as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

__all__ = ["parse_bytes", "readable"]

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*((?:[KMGT]I?)?B?)\s*", re.IGNORECASE)
_UNITS = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


def parse_bytes(memory: Any, what: str = "te.build") -> int:
    """A number of bytes, or a text such as "512MB"."""
    if isinstance(memory, (int, float, np.integer)) and not isinstance(memory, bool) and 0 < memory == int(memory):
        return int(memory)
    match = _SIZE.fullmatch(memory) if isinstance(memory, str) else None
    if match is None or not float(match[1]):
        raise ValueError(f"{what}: memory= is a number of bytes or a text such as '512MB', found {memory!r}")
    unit = match[2].upper().replace("I", "")
    return int(float(match[1]) * _UNITS[unit if unit in _UNITS else f"{unit}B"])


def readable(size: float, *, enough: bool = False) -> str:
    """A number of bytes as people write it; `enough`: no less than it is."""
    units = iter(("B", "KB", "MB", "GB"))
    unit = next(units)
    while size >= 1024 and unit != "GB":
        size, unit = size / 1024, next(units)
    shown = math.ceil(10 * size) / 10 if enough else size
    return f"{size:.0f} {unit}" if unit == "B" else f"{shown:.1f} {unit}"
