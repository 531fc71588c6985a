"""The operations of ATen on traced arrays: one table, a row for each name without its overload.

A row takes what the operation takes, arrays as traced ones. Views are views, in-place operations write through them;
everything else makes arrays of its own. What has a decomposition into these is not listed: `fx_decomposed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.creation import arange, full
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.joining import concatenate
from tedsl.lang.operators import Fn
from tedsl.mutation.array import Array, new_array
from tedsl.mutation.selected import Selected
from tedsl.mutation.tracing import active_trace

__all__ = ["ROWS", "Row", "apply", "copied", "fresh", "is_known", "kind_of", "run_row", "value_of"]

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


def _unary(f: Fn) -> Row:
    return lambda x, **_: apply(f, x)


def _binary(f: Fn) -> Row:
    return lambda a, b, **_: apply(f, a, b)


def _scaled(f: Fn) -> Row:
    """a + alpha b."""
    return lambda a, b, alpha=1: apply(f, a, b if _is_one(alpha) else apply(Fn.MUL, b, alpha))


def _is_one(alpha: Any) -> bool:
    return isinstance(alpha, (int, float)) and alpha == 1


def _div(a: Any, b: Any, rounding_mode: str | None = None) -> Array:
    if rounding_mode == "floor":
        return apply(Fn.FLOORDIV, a, b)
    found = apply(Fn.DIV, a, b)
    return found if rounding_mode is None else apply(Fn.TRUNC, found)


def _fmod(a: Any, b: Any) -> Array:
    """The remainder with the sign of a; MOD has that of b."""
    r = apply(Fn.MOD, a, b)
    turned = apply(Fn.AND, apply(Fn.NE, r, 0), apply(Fn.NE, apply(Fn.LT, a, 0), apply(Fn.LT, b, 0)))
    return apply(Fn.SELECT, turned, apply(Fn.SUB, r, b), r)


def _skipping(f: Fn) -> Row:
    """An extreme of two that is the other one where one is NaN."""

    def row(a: Array, b: Array) -> Any:
        return _where(apply(Fn.ISNAN, a), b, _where(apply(Fn.ISNAN, b), a, apply(f, a, b)))

    return row


def _is_float(x: Any) -> bool:
    return bool(x.storage.dtype.is_float)


def _clamp(x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Array:
    low, high = low if low is not None else min, high if high is not None else max
    below = x if low is None else apply(Fn.MAXIMUM, x, low)
    return below if high is None else apply(Fn.MINIMUM, below, high)


def _where(cond: Any, a: Any, b: Any) -> Array:
    if isinstance(cond, Array) and not cond.storage.dtype.is_bool:
        cond = apply(Fn.NE, cond, 0)
    return apply(Fn.SELECT, cond, a, b)


def _cast(x: Array, dtype: Any) -> Array:
    return copied(x) if dtype is None else apply(Fn.CAST, x, kind_of(dtype))


def copied(x: Any, **_: Any) -> Array:
    """The elements in memory of their own."""
    return fresh(x.value) if isinstance(x, Array) else fresh(full((), x))


ELEMENTWISE: dict[str, Row] = {
    **{f.value: _unary(f) for f in (
        Fn.NEG, Fn.ABS, Fn.SIGN, Fn.RELU, Fn.EXP, Fn.EXP2, Fn.EXPM1, Fn.LOG, Fn.LOG1P, Fn.LOG2, Fn.LOG10, Fn.SQRT,
        Fn.RSQRT, Fn.SIN, Fn.COS, Fn.TAN, Fn.ASIN, Fn.ACOS, Fn.ATAN, Fn.SINH, Fn.COSH, Fn.TANH, Fn.ASINH, Fn.ACOSH,
        Fn.ATANH, Fn.ERF, Fn.ERFC, Fn.SIGMOID, Fn.FLOOR, Fn.CEIL, Fn.ROUND, Fn.TRUNC, Fn.ISNAN, Fn.ISINF,
    )},
    **{f.value: _binary(f) for f in (
        Fn.MUL, Fn.POW, Fn.MAXIMUM, Fn.MINIMUM, Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.ATAN2, Fn.HYPOT,
        Fn.COPYSIGN,
    )},
    "add": _scaled(Fn.ADD), "sub": _scaled(Fn.SUB), "rsub": lambda a, b, alpha=1: _scaled(Fn.SUB)(b, a, alpha),
    "div": _div, "true_divide": _div, "floor_divide": _binary(Fn.FLOORDIV), "remainder": _binary(Fn.MOD), "fmod": _fmod,
    "bitwise_and": _binary(Fn.BITAND), "bitwise_or": _binary(Fn.BITOR), "bitwise_xor": _binary(Fn.BITXOR),
    "__lshift__": _binary(Fn.LSHIFT), "__rshift__": _binary(Fn.RSHIFT), "bitwise_left_shift": _binary(Fn.LSHIFT),
    "bitwise_right_shift": _binary(Fn.RSHIFT), "fmax": _skipping(Fn.MAXIMUM), "fmin": _skipping(Fn.MINIMUM),
    "isposinf": lambda x: apply(Fn.EQ, x, math.inf), "isneginf": lambda x: apply(Fn.EQ, x, -math.inf),
    "signbit": lambda x: apply(Fn.LT, x if not _is_float(x) else apply(Fn.COPYSIGN, 1.0, x), 0),
    "bitwise_not": _unary(Fn.INVERT), "logical_and": lambda a, b: apply(Fn.AND, _truth(a), _truth(b)),
    "logical_or": lambda a, b: apply(Fn.OR, _truth(a), _truth(b)), "logical_not": lambda a: apply(Fn.NOT, _truth(a)),
    "square": lambda x: apply(Fn.MUL, x, x), "reciprocal": lambda x: apply(Fn.DIV, 1.0, x),
    "clamp": _clamp, "clamp_min": _binary(Fn.MAXIMUM), "clamp_max": _binary(Fn.MINIMUM), "where": _where,
    "masked_fill": lambda x, mask, v: _where(mask, v, x), "_to_copy": lambda x, dtype=None, **_: _cast(x, dtype),
    "convert_element_type": _cast, "clone": copied, "lift_fresh_copy": copied, "contiguous": copied,
    "copy": lambda x, source, *_: fresh(_broadcast(source, x.shape)),
}  # fmt: skip


def _truth(x: Any) -> Any:
    return x if not isinstance(x, Array) or x.storage.dtype.is_bool else apply(Fn.NE, x, 0)


def _broadcast(x: Any, shape: Sequence[int]) -> Any:
    return broadcast_to(x.value, tuple(shape)) if isinstance(x, Array) else full(tuple(shape), x)


# Views: what NumPy does to the stand-in of the memory.


def _view(x: Array, shape: Any) -> Array:
    if isinstance(x, Selected) and list(shape) in ([], [-1]):  # PyTorch drops the axis of one element to assign it
        return x
    return x.view_of(np.reshape(x.ghost, tuple(shape), copy=False))


def _reshape(x: Array, shape: Any) -> Array:
    try:
        return _view(x, shape)
    except ValueError:
        return fresh(x.value.reshape(tuple(shape)))


def _slice(x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Array:
    key = (*[slice(None)] * (dim % x.ndim), slice(start, end, step))
    return x.view_of(x.ghost[key])


def _select(x: Array, dim: int, index: int) -> Array:
    key: Any = (*[slice(None)] * (dim % x.ndim), index, ...)
    return x.view_of(np.asarray(x.ghost[key]))


def _squeeze(x: Array, dims: Any = None) -> Array:
    wanted = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = tuple(d % x.ndim for d in wanted if x.ndim and x.shape[d] == 1)
    return x.view_of(np.squeeze(x.ghost, gone))


def _expand(x: Array, shape: Sequence[int], **_: Any) -> Array:
    extra = len(shape) - x.ndim
    wanted = tuple(x.shape[d - extra] if n == -1 else n for d, n in enumerate(shape))
    return x.view_of(np.broadcast_to(x.ghost, wanted))


def _as_strided(x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None) -> Array:
    memory: Any = x.storage.memory
    start = x.layout.offset if storage_offset is None else storage_offset
    flat = np.lib.stride_tricks.as_strided(memory, (memory.size,), (1,))
    return x.view_of(np.lib.stride_tricks.as_strided(flat[start:], tuple(size), tuple(stride)))


def _split(x: Array, sizes: Any, dim: int = 0) -> list[Array]:
    n = x.shape[dim]
    listed = [min(sizes, n - k) for k in range(0, n, sizes)] if isinstance(sizes, int) else list(sizes)
    begins = np.cumsum([0, *listed]).tolist()
    return [_slice(x, dim, a, a + n) for a, n in zip(begins, listed, strict=False)]


VIEWS: dict[str, Row] = {
    "view": _view, "_unsafe_view": _reshape, "reshape": _reshape, "_reshape_alias": lambda x, shape, stride: _reshape(
        x, shape
    ),
    "permute": lambda x, dims: x.view_of(np.transpose(x.ghost, [d % x.ndim for d in dims])),
    "transpose": lambda x, a, b: x.view_of(np.swapaxes(x.ghost, a, b)) if x.ndim else x, "t": lambda x: x.T,
    "slice": _slice, "select": _select, "squeeze": _squeeze, "expand": _expand, "as_strided": _as_strided,
    "unsqueeze": lambda x, dim: x.view_of(np.expand_dims(x.ghost, dim)), "alias": lambda x: x.view_of(x.ghost),
    "detach": lambda x: x.view_of(x.ghost), "split": _split, "split_with_sizes": _split,
    "unbind": lambda x, dim=0: [_select(x, dim, k) for k in range(x.shape[dim])],
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.view_of(np.diagonal(x.ghost, offset, dim1, dim2)),
}  # fmt: skip


# Reductions and products.


def _dims(x: Array, dims: Any) -> Any:
    if dims is None or x.ndim == 0 or (isinstance(dims, (list, tuple)) and not dims):
        return None
    return dims if isinstance(dims, int) else tuple(dims)


def _reduction(name: str) -> Row:
    def row(x: Array, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Array:
        source = x if dtype is None else _cast(x, dtype)
        if isinstance(source, Selected) and not isinstance(
            found := getattr(source, name)(_dims(source, dims), keepdim), Array
        ):
            raise TypeError(f"{name} over axes {dims} of x[mask] leaves its length, which depends on values")
        if isinstance(source, Selected):
            return fresh(value_of(found))
        return fresh(value_of(getattr(source, name)(_dims(x, dims), keepdim)))

    return row


def _extreme(best: str, place: str) -> Row:
    def row(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return fresh(value_of(getattr(x, best)()))
        if not x.ndim:
            return copied(x), fresh(full((), 0, "int64"))
        places = getattr(x.value, place)(dim).astype("int64")
        shape = [1 if d == dim % x.ndim else n for d, n in enumerate(x.shape)]
        return (
            fresh(value_of(getattr(x, best)(dim, keepdim))),
            fresh(places.reshape(tuple(shape)) if keepdim else places),
        )

    return row


def _argument(name: str) -> Row:
    def row(x: Array, dim: Any = None, keepdim: bool = False) -> Array:
        found = getattr(x.value, name)() if dim is None else getattr(x.value, name)(dim)
        if keepdim:
            found = found.reshape(tuple(1 if dim is None or d == dim % x.ndim else n for d, n in enumerate(x.shape)))
        return fresh(found.astype("int64"))

    return row


def _var(x: Array, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Array:
    axes = _dims(x, dims)
    mean = x.value.mean(axes, True)
    d = x.value - mean
    count = x.size // max(1, int(np.prod(mean.shape, dtype=int)))
    below = count - (1 if correction is None else correction)
    return fresh((d * d).sum(axes, keepdim) / (below if below > 0 else float("nan") if below == 0 else 0.0))


def _product(a: Array, b: Array) -> Array:
    return fresh(a.value @ b.value)


def _cumulated(name: str) -> Row:
    return lambda x, dim, **_: fresh(getattr(_widened(x), name)(dim)) if x.ndim else copied(x)


def _widened(x: Array) -> Any:
    return x.value if x.storage.dtype.is_float else x.value.astype("int64")


REDUCTIONS: dict[str, Row] = {
    "sum": _reduction("sum"), "mean": _reduction("mean"), "prod": _reduction("prod"), "any": _reduction("any"),
    "all": _reduction("all"), "amax": _reduction("amax"), "amin": _reduction("amin"), "max": _extreme("amax", "argmax"),
    "min": _extreme("amin", "argmin"), "argmax": _argument("argmax"), "argmin": _argument("argmin"), "var": _var,
    "var_mean": lambda x, dims=None, *, correction=1, keepdim=False: (
        _var(x, dims, correction=correction, keepdim=keepdim), _reduction("mean")(x, dims, keepdim)
    ),
    "mm": _product, "bmm": _product, "mv": _product, "dot": _product, "cumsum": _cumulated("cumsum"),
    "cumprod": _cumulated("cumprod"),
}  # fmt: skip


# New arrays.


def _filled(shape: Any, value: Any, *, dtype: Any = None, **_: Any) -> Array:
    kind = kind_of(dtype) if dtype is not None else "float32" if isinstance(value, float) else None
    if isinstance(value, Array):
        return fresh(_broadcast(value, tuple(shape)).astype(kind or value.storage.dtype))
    return fresh(full(tuple(shape), value, kind))


def _like(value: Any) -> Row:
    def row(x: Array, *given: Any, dtype: Any = None, **_: Any) -> Array:
        kind = x.storage.dtype if dtype is None else kind_of(dtype)
        return fresh(full(x.shape, given[0] if given else value, kind))

    return row


def _new(value: Any) -> Row:
    def row(x: Array, shape: Any, *given: Any, dtype: Any = None, **_: Any) -> Array:
        kind = x.storage.dtype if dtype is None else kind_of(dtype)
        return fresh(full(tuple(shape), given[0] if given else value, kind))

    return row


def _arange(*bounds: Any, dtype: Any = None, **_: Any) -> Array:
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return fresh(arange(start, stop, step, None if dtype is None else kind_of(dtype)))


def _cat(arrays: Sequence[Array], dim: int = 0) -> Array:
    kept = [a for a in arrays if not (a.ndim == 1 and a.size == 0)] or list(arrays[:1])
    return fresh(concatenate([a.value for a in kept], dim))


NEW: dict[str, Row] = {
    "full": _filled, "zeros": lambda shape, **k: _filled(shape, 0.0, **k),
    "ones": lambda shape, **k: _filled(shape, 1.0, **k), "empty": lambda shape, **k: _filled(shape, 0.0, **k),
    "empty_strided": lambda shape, stride, **k: _filled(shape, 0.0, **k), "scalar_tensor": lambda v, **k: _filled(
        (), v, **k
    ),
    "full_like": _like(0), "zeros_like": _like(0), "ones_like": _like(1), "empty_like": _like(0), "new_full": _new(0),
    "new_zeros": _new(0), "new_ones": _new(1), "new_empty": _new(0),
    "new_empty_strided": lambda x, shape, stride, **k: _new(0)(x, shape, **k), "arange": _arange, "cat": _cat,
}  # fmt: skip


# In place.


def _filled_in_place(x: Array, value: Any, *_: Any, **__: Any) -> Array:
    x.assign(value)
    return x


def _set(x: Array, *_: Any) -> Array:
    raise NotImplementedError("a tensor whose memory is exchanged")


IN_PLACE: dict[str, Row] = {
    "copy_": _filled_in_place, "fill_": _filled_in_place, "zero_": lambda x: _filled_in_place(x, 0), "set_": _set,
    "lift_fresh": lambda x: x, "fill": lambda x, value: _filled_in_place(_like(0)(x), value),
}  # fmt: skip

ROWS: dict[str, Row] = {**ELEMENTWISE, **VIEWS, **REDUCTIONS, **NEW, **IN_PLACE}


def run_row(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operation by its name; `name_` without a row of its own is the result of `name`, written in place."""
    out = kwargs.pop("out", None)
    if out is not None:
        out.assign(ROWS[name](*args, **kwargs))
        return out
    row = ROWS.get(name)
    if row is not None:
        return row(*args, **kwargs)
    target = args[0]
    found = ROWS[name.removesuffix("_")](*args, **kwargs)
    target.assign(found)
    return target


def is_view_in_place(name: str) -> bool:
    """Whether an operation changes how a tensor sees its memory (t_, unsqueeze_), and not what is there."""
    return name not in ROWS and name.removesuffix("_") in VIEWS


def is_known(name: str) -> bool:
    """Whether there is a row for a name, or one that is written in place."""
    return name in ROWS or (name.endswith("_") and not name.startswith("_") and name[:-1] in ROWS)
