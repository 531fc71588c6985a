"""`te.jit`: a function of tensors, compiled for the arrays that it is called on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tedsl.ops.transforms.function import Transformed, tidied, traceable, transformed

__all__ = ["jit"]


def jit(f: Callable[..., Any]) -> Transformed:
    """`f` on arrays: traced and compiled once for given shapes, dtypes, nests and static values.

    Arguments may be nests (tuples, lists, dicts, dataclasses) of arrays; numbers in them are static, unless there is no
    array at all: then floats are arrays. Results that are no tensors come back as they are. Programs belong to what is
    returned: make it once, outside of loops.
    """
    inner = traceable(f, "jit")
    return transformed(jit, f, (), lambda *args, **kwargs: tidied(inner(*args, **kwargs)), argnums=None)
