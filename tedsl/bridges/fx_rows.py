"""The operations of ATen on traced arrays: one table, a row for each name without its overload.

A row takes what the operation takes, arrays as traced ones, positional arguments in the order of the schema and the
others by its names; what no result depends on (`fx_arguments`) it does not get. Views are views, in-place operations
write through them; everything else makes arrays of its own. What has a decomposition into these is not listed:
`fx_decomposed`. The rows themselves stand in modules by what they do; this one has the table and what they share.
"""

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
    "ROWS",
    "VIEWS",
    "Row",
    "apply",
    "as_kind",
    "broadcast",
    "copied",
    "dtype_of",
    "fresh",
    "in_single",
    "is_known",
    "is_view_in_place",
    "kind_of",
    "row_of",
    "run_row",
    "single",
    "value_of",
]

Row = Callable[..., Any]
ROWS: dict[str, Row] = {}
VIEWS: set[str] = set()  # those of the rows whose results are views of their first argument


def row_of(name: str) -> Row | None:
    """The row of a name; `name_` without one of its own is that of `name`, written in place."""
    row = ROWS.get(name)
    if row is None and name.endswith("_") and not name.startswith("_"):
        row = ROWS.get(name[:-1])
    return row


def is_known(name: str) -> bool:
    """Whether there is a row for a name, or one that is written in place."""
    return row_of(name) is not None


def is_view_in_place(name: str) -> bool:
    """Whether an operation changes how a tensor sees its memory (t_, unsqueeze_), and not what is there."""
    return name not in ROWS and name.removesuffix("_") in VIEWS


def run_row(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operation by its name, on arguments as its row takes them, and `out=`."""
    options = dict(kwargs)
    out = options.pop("out", None)
    row = row_of(name)
    assert row is not None
    found = row(*args, **options)
    target = out if out is not None else None if name in ROWS else args[0]
    if target is None:
        return found
    target.assign(found)
    return target


# What rows share.


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
