"""Versions of installed packages, told by the folders that installers leave beside them.

`importlib.metadata` knows them too, but importing it and reading what it finds takes 30 ms of the first kernel.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["version_of"]


def version_of(package: str) -> str:
    """The version of an installed package of that name."""
    spec = find_spec(package)
    origin = None if spec is None else spec.origin
    beside = [] if origin is None else list(Path(origin).parents[1].glob(f"{package}-*.dist-info"))
    if len(beside) == 1:
        return beside[0].name.removesuffix(".dist-info").removeprefix(f"{package}-")
    import importlib.metadata  # slow to load, and needed where the package lies elsewhere

    return importlib.metadata.version(package)
