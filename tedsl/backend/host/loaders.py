"""How compiled code comes into this process: as an object file that is linked here, or through Halide's own JIT.

Objects are what kernels are made of where they were tried, on Linux on x86-64: called in a microsecond without the
GIL, kept on disk, given to other compilers' code. Anywhere else (macOS, Windows, other processors) Halide compiles and
calls, with the same results and errors and less of the rest: see `jit`. TEDSL_LOADER=jit takes that way here too, which
a part of the tests does, and TEDSL_LOADER=objects the other way elsewhere.
"""

from __future__ import annotations

import os
import platform
import sys

__all__ = ["LOADER_VARIABLE", "loader", "loads_objects"]

LOADER_VARIABLE = "TEDSL_LOADER"
OBJECTS, JIT = "objects", "jit"


def loader() -> str:
    """ "objects" or "jit"."""
    asked = os.environ.get(LOADER_VARIABLE, "").strip().lower()
    if asked not in ("", OBJECTS, JIT):
        raise ValueError(f"{LOADER_VARIABLE}: 'objects' or 'jit' was expected, found {asked!r}")
    return asked or _usual()


def loads_objects() -> bool:
    """Whether compiled code is linked here."""
    return loader() == OBJECTS


def _usual() -> str:
    return OBJECTS if sys.platform == "linux" and platform.machine() == "x86_64" else JIT
