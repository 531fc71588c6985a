"""`te.jit`: a function of tensors, compiled for the arrays that it is called on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, overload

from tedsl.backend.building.planners import check_opt
from tedsl.lang.errors import user_location
from tedsl.ops.transforms.function import Transformed, tidied, traceable, transformed

__all__ = ["jit"]


@overload
def jit(f: Callable[..., Any], opt: str = "default") -> Transformed: ...
@overload
def jit(f: None = None, opt: str = "default") -> Callable[[Callable[..., Any]], Transformed]: ...


def jit(f: Callable[..., Any] | None = None, opt: str = "default") -> Any:
    """`f` on arrays: traced and compiled once for given shapes, dtypes, nests and static values.

    Arguments may be nests (tuples, lists, dicts, dataclasses) of arrays. Python's numbers in them are static, unless
    `f` differentiates by them, or there is no array at all: then floats are arrays. Results that are no tensors come
    back as they are. Programs belong to what is returned: make it once, outside of loops. `opt` is as of `te.build`:
    `te.jit(f, opt="fast")`, `@te.jit(opt="fast")`.
    """
    check_opt(opt, f"te.jit at {user_location()}")
    if f is None:
        return functools.partial(jit, opt=opt)
    inner = traceable(f, "jit")
    argnums = f.signature.argnums if isinstance(f, Transformed) else None
    return transformed(jit, f, (opt,), lambda *args, **kwargs: tidied(inner(*args, **kwargs)), argnums, opt=opt)
