"""The operator catalogue, written in the language itself with `te.op`: every entry found on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Name -> the module that defines it.
_HOME: dict[str, str] = {}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tedsl.ops' has no attribute {name!r}", name=name)
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
