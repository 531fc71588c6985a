"""Methods and functions that PyTorch has beyond NumPy's: a table by name, and its functions sent to the methods.

`torch.relu(x)`, `torch.add(x, y, out=x)` and functions of `torch.nn.functional` ask their arguments first
(`__torch_function__`), so a traced array answers for them by the name of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tedsl.lang.creation import full
from tedsl.lang.elements import normal_axis, product
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Const
from tedsl.lang.joining import concatenate, stack
from tedsl.lang.operators import Fn
from tedsl.mutation.array import Array, check_kind, kind_of, lowered, new_array, stored
from tedsl.mutation.items import accumulate_at, at_axis
from tedsl.mutation.methods import copied

__all__: list[str] = []

Method = Callable[..., Any]
_np: Any = np  # whose functions take and give traced arrays here


def _unary(f: Fn) -> Method:
    return lambda x: Array._apply(f, x)


def _binary(f: Fn) -> Method:
    return lambda x, other: Array._apply(f, x, other)


class Extreme(NamedTuple):
    """What torch's x.max(dim) returns."""

    values: Array
    indices: Array


def _extreme(name: str, places: str, f: Fn) -> Method:
    """x.max(), x.max(dim) with the places, x.max(y)."""
    whole = Array._methods[name]

    def method(x: Array, axis: Any = None, keepdims: bool = False, **kwargs: Any) -> Any:
        if isinstance(axis, Array):
            return Array._apply(f, x, axis)
        dim, kept = kwargs.get("dim", axis), kwargs.get("keepdim", keepdims)
        if not x.trace.torch or not isinstance(dim, int):
            return whole(x, **({} if "dim" in kwargs else {"axis": axis}), **{"keepdims": keepdims, **kwargs})
        found = getattr(x, places)(dim)
        return Extreme(whole(x, dim, kept), _np.expand_dims(found, dim) if kept else found)

    return method


# Views


def _narrow(x: Array, dim: int, start: int, length: int) -> Array:
    found: Array = x[at_axis(normal_axis(dim, x.ndim, "narrow"), slice(start, start + length))]
    return found


def _known(x: Array, dim: int, what: str) -> int:
    extent = x.extents[dim]
    if not isinstance(extent, Const):
        raise TypeError(f"{what} at {user_location()}: an axis of {extent} has no known number of parts; use slices")
    return int(extent.value)


def _split(x: Array, sizes: Any, dim: int = 0) -> tuple[Any, ...]:
    """Views of so many places each, or of the sizes listed."""
    axis = normal_axis(dim, x.ndim, "split")
    if isinstance(sizes, int):
        extent = _known(x, axis, "split")
        sizes = [min(sizes, extent - k) for k in range(0, extent, sizes)]
    begins = np.cumsum([0, *sizes]).tolist()
    return tuple(_narrow(x, axis, a, n) for a, n in zip(begins, sizes, strict=False))


def _chunk(x: Array, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    return _split(x, -(-_known(x, normal_axis(dim, x.ndim, "chunk"), "chunk") // chunks), dim)


def _unbind(x: Array, dim: int = 0) -> tuple[Any, ...]:
    axis = normal_axis(dim, x.ndim, "unbind")
    return tuple(x[at_axis(axis, k)] for k in range(_known(x, axis, "unbind")))


def _squeeze(x: Array, dim: Any = None) -> Array:
    """Without axes of one place; those of more stay, where NumPy refuses."""
    if not x.trace.torch:
        return x.view_of(np.squeeze(x.ghost, dim))
    wanted = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = tuple(d % x.ndim for d in wanted if x.ndim and x.shape[d] == 1)
    return x.view_of(np.squeeze(x.ghost, gone)) if gone else x


def _flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Any:
    if not x.trace.torch:
        return new_array(x.trace, x.value.reshape(-1), is_value=False)
    if x.ndim <= 1:
        return x if x.ndim else x.reshape(-1)
    first, last = normal_axis(start_dim, x.ndim, "flatten"), normal_axis(end_dim, x.ndim, "flatten")
    return x if first == last else x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


# In place, and as new arrays


def _in_place(name: str) -> Method:
    """x.name_(..): what x.name(..) gives, stored in x."""

    def method(x: Array, *args: Any, **kwargs: Any) -> Array:
        found = Array._methods[name](x, *args, **kwargs)
        check_kind(f"{name}_", found.dtype, x.dtype, x.trace.torch)
        x.assign(found)
        return x

    return method


def _changed(change: Method) -> Method:
    """A method that changes a copy."""

    def method(x: Array, *args: Any, **kwargs: Any) -> Array:
        made = copied(x)
        made.is_value = False
        change(made, *args, **kwargs)
        return made

    return method


def _places(x: Array, dim: int, index: Any) -> tuple[Any, ...]:
    """The key that names x[.., index[..], ..] along `dim`, for all points of `index`."""
    axis = normal_axis(dim, x.ndim, "scatter")
    found: list[Any] = []
    for d, extent in enumerate(index.shape):
        if d == axis:
            found.append(index)
            continue
        numbers = np.arange(extent).reshape([extent if k == d else 1 for k in range(index.ndim)])
        found.append(numbers)
    return tuple(found)


def _cut(source: Any, index: Any) -> Any:
    return source[tuple(slice(n) for n in index.shape)] if hasattr(source, "shape") and source.ndim else source


def _scatter(x: Array, dim: int, index: Any, source: Any, *, reduce: str | None = None) -> None:
    if reduce is None:
        x[_places(x, dim, index)] = _cut(source, index)
    else:
        accumulate_at(x, _places(x, dim, index), _cut(source, index), {"add": "add", "multiply": "mul"}[reduce])


def _scatter_add(x: Array, dim: int, index: Any, source: Any) -> None:
    accumulate_at(x, _places(x, dim, index), _cut(source, index), "add")


def _index_fill(x: Array, dim: int, index: Any, value: Any) -> None:
    x[at_axis(normal_axis(dim, x.ndim, "index_fill"), index)] = value


def _filled_diagonal(x: Array, value: Any, wrap: bool = False) -> Array:
    _np.fill_diagonal(x, value, wrap)
    return x


def _new(value: Any) -> Method:
    """x.new_zeros(shape): an array like x in all but its shape."""

    def method(x: Array, *shape: Any, fill: Any = value, dtype: Any = None) -> Array:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        return new_array(x.trace, full(tuple(wanted), fill, kind_of(dtype or x.dtype)), is_value=False)

    return method


def _repeat(x: Array, *sizes: Any, axis: Any = None) -> Any:
    """torch repeats the whole, NumPy each element."""
    if not x.trace.torch:
        return _np.repeat(x, *sizes, **({} if axis is None else {"axis": axis}))
    return _np.tile(x, sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes)


_UNARY = {
    "neg": Fn.NEG, "negative": Fn.NEG, "rsqrt": Fn.RSQRT, "exp2": Fn.EXP2, "expm1": Fn.EXPM1, "log1p": Fn.LOG1P,
    "log2": Fn.LOG2, "log10": Fn.LOG10, "tan": Fn.TAN, "asin": Fn.ASIN, "acos": Fn.ACOS, "atan": Fn.ATAN,
    "sinh": Fn.SINH, "cosh": Fn.COSH, "erf": Fn.ERF, "erfc": Fn.ERFC, "isnan": Fn.ISNAN, "isinf": Fn.ISINF,
    "isfinite": Fn.ISFINITE, "bitwise_not": Fn.INVERT,
}  # fmt: skip
_BINARY = {
    "eq": Fn.EQ, "ne": Fn.NE, "lt": Fn.LT, "le": Fn.LE, "gt": Fn.GT, "ge": Fn.GE, "bitwise_and": Fn.BITAND,
    "bitwise_or": Fn.BITOR, "bitwise_xor": Fn.BITXOR, "clamp_min": Fn.MAXIMUM, "clamp_max": Fn.MINIMUM,
    "atan2": Fn.ATAN2, "hypot": Fn.HYPOT, "multiply": Fn.MUL, "subtract": Fn.SUB, "divide": Fn.DIV,
    "true_divide": Fn.DIV,
}  # fmt: skip
Array._methods.update({name: _unary(f) for name, f in _UNARY.items()})
Array._methods.update({name: _binary(f) for name, f in _BINARY.items()})
Array._methods.update({"amax": Array._methods["max"], "amin": Array._methods["min"]})
Array._methods.update({
    "max": _extreme("max", "argmax", Fn.MAXIMUM), "min": _extreme("min", "argmin", Fn.MINIMUM),
    "norm": lambda x: (x * x).sum() ** 0.5,
    "square": lambda x: x * x, "reciprocal": lambda x: 1 / x, "rsub": lambda x, other: other - x,
    "logical_not": lambda x: x == 0, "logical_and": lambda x, y: (x != 0) & (y != 0),
    "logical_or": lambda x, y: (x != 0) | (y != 0), "logical_xor": lambda x, y: (x != 0) ^ (y != 0),
    "lerp": lambda x, end, weight: x + weight * (end - x),
    "addcmul": lambda x, a, b, value=1: x + value * a * b, "addcdiv": lambda x, a, b, value=1: x + value * (a / b),
    "where": lambda x, condition, other: _np.where(condition, x, other),
    "mm": lambda x, y: x @ y, "bmm": lambda x, y: x @ y, "mv": lambda x, y: x @ y, "matmul": lambda x, y: x @ y,
    "outer": lambda x, y: _np.outer(x, y), "narrow": _narrow, "split": _split, "chunk": _chunk, "unbind": _unbind,
    "movedim": Array._methods["moveaxis"], "squeeze": _squeeze, "flatten": _flatten, "repeat": _repeat,
    "expand_as": lambda x, other: x.expand(*other.shape), "view_as": lambda x, other: x.view(*other.shape),
    "reshape_as": lambda x, other: x.reshape(*other.shape),
    "long": lambda x: x.to("int64"), "int": lambda x: x.to("int32"), "bool": lambda x: x.to("bool"),
    "half": lambda x: x.to("float16"), "bfloat16": lambda x: x.to("bfloat16"),
    "numel": lambda x: _number(x), "nelement": lambda x: _number(x),
    "is_contiguous": lambda x: x.ghost.flags.c_contiguous,
    "new_zeros": _new(0), "new_ones": _new(1), "new_empty": _new(0),
    "new_full": lambda x, shape, value, **kwargs: _new(value)(x, shape, **kwargs),
    "gather": lambda x, dim, index: x[_places(x, dim, index)], "scatter": _changed(_scatter),
    "scatter_add": _changed(_scatter_add), "index_fill": _changed(_index_fill),
    "index_copy": _changed(_index_fill), "index_add": _changed(lambda x, *a, **k: x.index_add_(*a, **k)),
    "index_put": _changed(lambda x, *a, **k: x.index_put_(*a, **k)), "fill_diagonal_": _filled_diagonal,
})  # fmt: skip
Array._methods.update({
    f"{name}_": _in_place(name)
    for name in ("square", "reciprocal", "lerp", "addcmul", "addcdiv", "logical_not", "logical_and", "logical_or",
                 "logical_xor", "cumsum", "cumprod", "tril", "triu", "scatter", "scatter_add", "index_fill",
                 "index_copy", *_UNARY, *_BINARY)
    if f"{name}_" not in Array._methods
})  # fmt: skip


def _number(x: Array) -> Any:
    total = product(x.extents)
    return int(total.value) if isinstance(total, Const) else total


# Functions


def _joined(function: Callable[..., Any]) -> Method:
    def call(trace: Any, tensors: Sequence[Any], dim: int = 0) -> Array:
        return new_array(trace, function([lowered(t, trace) for t in tensors], dim))

    return call


_FUNCTIONS: dict[str, Method] = {
    "cat": _joined(concatenate), "concat": _joined(concatenate), "concatenate": _joined(concatenate),
    "stack": _joined(stack), "where": lambda trace, condition, a, b: _np.where(condition, a, b),
    "zeros_like": lambda trace, x, **kwargs: _new(0)(x, x.shape, **kwargs),
    "ones_like": lambda trace, x, **kwargs: _new(1)(x, x.shape, **kwargs),
    "empty_like": lambda trace, x, **kwargs: _new(0)(x, x.shape, **kwargs),
    "full_like": lambda trace, x, value, **kwargs: _new(value)(x, x.shape, **kwargs),
    "einsum": lambda trace, text, *operands: _np.einsum(text, *operands),
}  # fmt: skip


def _torch_function(cls: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """A function of PyTorch that met a traced array."""
    given = dict(kwargs or {})
    name = getattr(function, "__name__", str(function))
    own = next(a for a in _flat([args, given]) if isinstance(a, Array))
    out, in_place = given.pop("out", None), given.pop("inplace", False)
    if name in _FUNCTIONS:
        found = _FUNCTIONS[name](own.trace, *args, **given)
    else:
        first = args[0] if args else given.pop("input")
        x = first if isinstance(first, Array) else new_array(own.trace, lowered(first, own.trace), is_value=False)
        method = Array._methods.get(f"{name}_" if in_place else name) or getattr(Array, name, None)
        if method is None:
            raise TypeError(
                f"torch's {name} at {user_location()}: not supported on traced arrays; te.from_fx knows more of the "
                "functions of torch"
            )
        found = method(x, *args[1:], **given)
    return found if out is None else stored(name, found, out)


def _flat(values: Any) -> list[Any]:
    listed = values.values() if isinstance(values, dict) else values
    return [w for v in listed for w in (_flat(v) if isinstance(v, (list, tuple, dict)) else [v])]


setattr(Array, "__torch_function__", classmethod(_torch_function))  # noqa: B010 - in place of what scalars say
