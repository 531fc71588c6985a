"""`te.jit`: a function of tensors, compiled for the arrays that it is called on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, overload

from tedsl.lang.keywords import own_arguments
from tedsl.ops.op import worth_of
from tedsl.ops.transforms.function import Transformed, tidied, traceable, transformed

__all__ = ["jit"]


@overload
def jit(
    f: Callable[..., Any],
    opt: str = "default",
    symbolic: bool | None = None,
    memory: int | str | None = None,
) -> Transformed: ...
@overload
def jit(
    f: None = None,
    opt: str = "default",
    symbolic: bool | None = None,
    memory: int | str | None = None,
) -> Callable[[Callable[..., Any]], Transformed]: ...


@own_arguments(hint="it has opt=, symbolic= and memory=; what is no array is static as it is")
def jit(
    f: Callable[..., Any] | None = None,
    opt: str = "default",
    symbolic: bool | None = None,
    memory: int | str | None = None,
) -> Any:
    """`f` on arrays: traced and compiled once for given shapes, dtypes, nests and static values.

    Arguments may be nests (tuples, lists, dicts, dataclasses) of arrays. Python's numbers in them are static, unless
    `f` differentiates by them, or there is no array at all: then floats are arrays. Results that are no tensors come
    back as they are. Programs belong to what is returned: make it once, outside of loops. `opt` and `memory` are those
    of `te.build`, `symbolic` is that of `te.op`: `@te.jit(opt="fast")`, `te.jit(te.value_and_grad(f), memory="64MB")`.
    """
    worth = worth_of(opt, memory, symbolic, "te.jit")
    if f is None:
        return functools.partial(jit, opt=opt, symbolic=symbolic, memory=memory)
    inner, options = traceable(f, "jit"), (opt, symbolic, memory)
    argnums = f.signature.argnums if isinstance(f, Transformed) else None
    return transformed(
        jit, f, options, lambda *args, **kwargs: tidied(inner(*args, **kwargs)), argnums, symbolic=symbolic, worth=worth
    )
