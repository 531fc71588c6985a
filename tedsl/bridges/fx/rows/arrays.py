"""What the rows of operations share: traced arrays from tensors, operations on them, and their dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.creation import full
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.operators import Fn
from tedsl.mutation.array import Array, new_array
from tedsl.mutation.selected import Selected
from tedsl.mutation.tracing import active_trace

__all__ = [
    "Row",
    "apply",
    "as_kind",
    "broadcast",
    "copied",
    "dtype_of",
    "fresh",
    "in_single",
    "kind_of",
    "single",
    "value_of",
]

Row = Callable[..., Any]


def fresh(value: Any) -> Array:
    """A tensor as an array of its own of the running trace."""
    trace = active_trace()
    assert trace is not None
    return new_array(trace, value, is_value=False)


def value_of(x: Any) -> Any:
    """The tensor of a traced array."""
    return x.value if isinstance(x, Array) else x


def kind_of(dtype: Any) -> Any:
    """A dtype of torch as ours."""
    return as_dtype(str(dtype).removeprefix("torch."))


def copied(x: Any) -> Array:
    """The elements in memory of their own."""
    return fresh(x.value) if isinstance(x, Array) else fresh(full((), x))


def apply(f: Fn, *operands: Any) -> Array:
    """An operation element by element, of arrays and numbers; of x[mask] it is one again."""
    selected = next((o for o in operands if isinstance(o, Selected)), None)
    if selected is not None:
        made = selected.cast(operands[1]) if f is Fn.CAST else Selected._selected_apply(f, *operands)
        return cast(Array, made)
    if not any(isinstance(o, Array) for o in operands):
        operands = (fresh(full((), operands[0])), *operands[1:])
    found = Array._apply(f, *operands)
    assert isinstance(found, Array)
    found.is_value = False
    return found


def dtype_of(x: Any) -> Any:
    """The dtype of an array, or of x[mask]."""
    return x.full.dtype if isinstance(x, Selected) else x.storage.dtype


def as_kind(x: Any, kind: Any) -> Any:
    """An array in another dtype: itself where it has it."""
    return x if dtype_of(x) is kind else apply(Fn.CAST, x, kind)


def single(row: Row) -> Row:
    """The row computed in float32 where operands have half the precision: PyTorch rounds results only."""

    @functools.wraps(row)
    def run(*args: Any, **options: Any) -> Any:
        return row(*[in_single(a) for a in args], **{k: in_single(v) for k, v in options.items()})

    return run


def in_single(value: Any) -> Any:
    """An argument; an array of half precision in float32."""
    is_half = isinstance(value, (Array, Selected)) and str(dtype_of(value)) in ("float16", "bfloat16")
    return apply(Fn.CAST, value, "float32") if is_half else value


def broadcast(x: Any, shape: Sequence[int]) -> Any:
    """The tensor of an array or a number, in a shape."""
    return broadcast_to(x.value, tuple(shape)) if isinstance(x, Array) else full(tuple(shape), x)
