"""Methods of traced arrays: tables, one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.arrays import METHODS, POINTWISE
from tedsl.lang.elements import normal_axis, product, removed_axes, shape_text
from tedsl.lang.errors import user_location
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, check_kind, kind_of, new_array, widened
from tedsl.mutation.items import accumulate_at, at_axis
from tedsl.mutation.outlines import Outline, UndecidedError, whole
from tedsl.mutation.selected import Selected

__all__ = ["copied"]

_np: Any = np  # whose functions take and give traced arrays here

_IN_PLACE_UNARY = {
    "abs_": Fn.ABS, "ceil_": Fn.CEIL, "cos_": Fn.COS, "exp_": Fn.EXP, "floor_": Fn.FLOOR, "log_": Fn.LOG,
    "neg_": Fn.NEG, "relu_": Fn.RELU, "round_": Fn.ROUND, "rsqrt_": Fn.RSQRT, "sigmoid_": Fn.SIGMOID, "sign_": Fn.SIGN,
    "sin_": Fn.SIN,
    "sqrt_": Fn.SQRT, "tanh_": Fn.TANH, "trunc_": Fn.TRUNC,
}  # fmt: skip
_BINARY = {
    "add": Fn.ADD, "sub": Fn.SUB, "mul": Fn.MUL, "div": Fn.DIV, "floor_divide": Fn.FLOORDIV, "remainder": Fn.MOD,
    "pow": Fn.POW, "maximum": Fn.MAXIMUM, "minimum": Fn.MINIMUM,
}  # fmt: skip


def copied(x: Array, ghost: Any = None) -> Array:
    """A copy in memory of its own, row-major or in the order of `ghost`."""
    return new_array(x.trace, x.value, is_value=x.is_value, order=ghost)


def _reshape(x: Array, *shape: Any, order: str = "C") -> Array:
    """A view where NumPy gives one, else a copy, which the trace records."""
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if order != "C":
        raise ValueError(f"reshape at {user_location()}: expected order='C', found {order!r}")
    undecided = None
    try:
        return x.view_of(np.reshape(x.ghost, wanted, copy=False), x.is_value)
    except UndecidedError as error:
        undecided = f"reshape at {user_location()}: {error}; write x.copy().reshape(...)"
    except ValueError:
        pass
    value = x.value.reshape(tuple(wanted))
    own, new = shape_text(x.extents), shape_text(value.extents)
    why = f"reshape of a view of shape {own} to {new} is no view, at {user_location()}"
    x.trace.copies.append((x.value.name, why))
    made = new_array(x.trace, value, is_value=False)
    if undecided is not None:  # as long as neither is written, a copy is as good as a view
        x.storage.undecided = made.storage.undecided = undecided
    return made


def _torch_view(x: Array, *shape: Any) -> Array:
    if not shape:
        return x.view_of(x.ghost, x.is_value)
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if not all(isinstance(n, (int, np.integer)) for n in wanted):
        raise TypeError(
            f"view at {user_location()}: expected a shape, found {shape[0]!r:.60}; the bytes of an array cannot "
            "be seen as another dtype, x.astype(dtype) converts its values"
        )
    try:
        return x.view_of(np.reshape(x.ghost, wanted, copy=False))
    except ValueError:
        raise ValueError(
            f"view at {user_location()}: an array of shape {x.shape} and strides {x.ghost.strides} cannot be seen as "
            f"{tuple(wanted)} without a copy; use reshape"
        ) from None


def _transpose(x: Array, *axes: Any) -> Array:
    if x.trace.torch and len(axes) == 2:
        return x.view_of(np.swapaxes(x.ghost, *axes))
    return x.view_of(np.transpose(x.ghost, *((axes,) if len(axes) > 1 else axes)))


def _permute(x: Array, *axes: Any) -> Array:
    return x.view_of(np.transpose(x.ghost, axes[0] if len(axes) == 1 else axes))


def _viewed(function: Callable[..., Any]) -> Callable[..., Array]:
    """A NumPy function that gives a view, on the stand-in."""
    return lambda x, *args, **kwargs: x.view_of(function(x.ghost, *args, **kwargs))


def _flip(x: Array, *axes: Any, dims: Any = None) -> Array:
    """A view in NumPy, a copy in torch."""
    chosen = dims if dims is not None else axes[0] if len(axes) == 1 else axes or None
    if not x.ndim:
        return copied(x)
    view = x.view_of(np.flip(x.ghost, tuple(chosen) if isinstance(chosen, list) else chosen))
    return copied(view) if x.trace.torch else view


def _contiguous(x: Array) -> Array:
    return x if x.ghost.flags.c_contiguous else copied(x)


def _in_place(f: Fn) -> Callable[..., Array]:
    def method(x: Array, *others: Any, alpha: Any = 1) -> Array:
        scaled = others if isinstance(alpha, int) and alpha == 1 else (others[0] * alpha,)
        return x.update(f, *scaled)

    return method


def _out_of_place(f: Fn) -> Callable[..., Any]:
    return lambda x, *others: Array._apply(f, x, *others)


def _fill(x: Array, value: Any) -> Array:
    x.assign(value)
    return x


def _clamp_in_place(x: Array, min: Any = None, max: Any = None) -> Array:
    if min is not None:
        x.update(Fn.MAXIMUM, min)
    return x if max is None else x.update(Fn.MINIMUM, max)


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    low = x if min is None else fn.maximum(x, min)
    return low if max is None else fn.minimum(low, max)


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Between two bounds, either of which may be left out."""
    return fn.clip(x, min, max) if min is not None and max is not None else _clamp(x, min, max)


def _astype(x: Array, dtype: Any, *, copy: bool = True, **options: Any) -> Any:
    kind = kind_of(dtype)
    if kind is x.dtype:
        return copied(x, x.ghost) if copy else x
    return Array._apply(Fn.CAST, x, kind)


def _to(x: Array, dtype: Any, copy: bool = False, **options: Any) -> Any:
    """torch gives the tensor itself where it has the dtype already."""
    return x if kind_of(dtype) is x.dtype and x.trace.torch and not copy else _astype(x, dtype)


def _whole(name: str) -> Callable[..., Any]:
    """A method of whole tensors: its result is an array of its own, one per tensor."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        trace = x.trace
        lowered_args = [a.value if isinstance(a, Array) else a for a in args]
        found = METHODS[name](widened(x.value) if name in _COUNTING else x.value, *lowered_args, **_renamed(kwargs))
        if name in _POSITIONS:
            found = found.astype("int64")
        return [new_array(trace, t) for t in found] if isinstance(found, (tuple, list)) else new_array(trace, found)

    return method


def _reduction(name: str) -> Callable[..., Any]:
    def method(x: Array, axis: Any = None, keepdims: bool = False, **kwargs: Any) -> Any:
        renamed = {k: v for k, v in _renamed(kwargs).items() if v is not None}
        axis, keepdims = renamed.pop("axis", axis), renamed.pop("keepdims", keepdims)
        dtype, where = renamed.pop("dtype", None), renamed.pop("where", True)
        if renamed or (where is not True and name not in _NEUTRAL):
            raise TypeError(f"{name} at {user_location()}: unknown arguments {sorted(renamed) or ['where']}")
        if dtype is not None:
            x = _astype(x, dtype, copy=False)
        if where is not True:
            x = _np.where(where, x, _np.full_like(x, _NEUTRAL[name]))
        found = METHODS[name](widened(x.value) if name in _COUNTING else x.value, axis, keepdims)
        if dtype is not None and name in _COUNTING:
            found = found.astype(kind_of(dtype))
        return _reduced_like(x, found, axis, keepdims, name)

    return method


def _reduced_like(x: Array, found: Tensor, axis: Any, keepdims: bool, name: str) -> Array:
    """A result over axes of x, in memory as NumPy lays it out."""
    if isinstance(x.ghost, Outline):
        return new_array(x.trace, found, order=whole(found.extents, is_ordered=x.ghost.c_contiguous))
    gone = set(removed_axes(axis, x.ndim, name))
    key: Any = tuple((slice(0, 1) if keepdims else 0) if d in gone else slice(None) for d in range(x.ndim))
    order = new_array(x.trace, found, [x.view_of(x.ghost[key])]).ghost if found.ndim and x.size else None
    return new_array(x.trace, found, order=order)


def _variance(x: Array, axis: Any = None, ddof: Any = None, keepdims: bool = False, **kwargs: Any) -> Any:
    """The mean square distance from the mean; torch divides by one less than the number of elements."""
    renamed = _renamed(kwargs)
    axis, keepdims = renamed.pop("axis", axis), renamed.pop("keepdims", keepdims)
    if isinstance(axis, bool):
        raise TypeError(f"var at {user_location()}: expected an axis, found {axis}; write correction=0 or 1")
    if "unbiased" in renamed:
        ddof = int(renamed.pop("unbiased"))
    less = renamed.pop("correction", int(x.trace.torch) if ddof is None else ddof)
    if renamed:
        raise TypeError(f"var at {user_location()}: unknown arguments {sorted(renamed)}")
    gap = x - x.mean(axis, True)
    square = gap * gap
    if not less:
        return square.mean(axis, keepdims)
    count = product(x.extents[d] for d in removed_axes(axis, x.ndim, "var")) - less
    return square.sum(axis, keepdims) / fn.maximum(count, 0)


def _take(x: Array, indices: Any, axis: Any = None) -> Any:
    """The elements at some places of an axis, or of all in a row: a copy."""
    source = _reshape(x, -1) if axis is None else x
    dim = normal_axis(0 if axis is None else axis, source.ndim, "take")
    found = source[at_axis(dim, indices)]
    return copied(found) if isinstance(indices, (int, np.integer)) and isinstance(found, Array) else found


def _rounded(x: Any, decimals: int = 0) -> Any:
    """To a number of decimal places, as NumPy does it."""
    if not decimals or not x.dtype.is_float:
        return fn.round(x) if x.dtype.is_float else x.copy()
    scale = 10.0 ** abs(decimals)
    return fn.round(x * scale) / scale if decimals > 0 else fn.round(x / scale) * scale


def _expand(x: Array, *shape: Any) -> Array:
    """torch's view with axes of one place repeated; -1 keeps an extent."""
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    extra = len(wanted) - x.ndim
    kept = tuple(x.shape[d - extra] if isinstance(n, int) and n == -1 else n for d, n in enumerate(wanted))
    return x.view_of(np.broadcast_to(x.ghost, kept))


_REDUCED = ("sum", "mean", "prod", "max", "min", "any", "all")
_COUNTING = frozenset({"sum", "prod", "cumsum", "cumprod"})
_NEUTRAL = {"sum": 0, "prod": 1, "any": 0, "all": 1}
_POSITIONS = frozenset({"argmax", "argmin"})


def _renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    """torch's names of arguments as NumPy's."""
    names = {"dim": "axis", "keepdim": "keepdims"}
    return {names.get(k, k): v for k, v in kwargs.items()}


def _index_add(x: Array, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Array:
    value = source if isinstance(alpha, int) and alpha == 1 else source * alpha
    accumulate_at(x, (*(slice(None),) * (dim % x.ndim), index), value, "add")
    return x


def _index_put(x: Array, indices: Any, values: Any, accumulate: bool = False) -> Array:
    if accumulate:
        accumulate_at(x, tuple(indices), values, "add")
    else:
        x[tuple(indices)] = values
    return x


def _select(x: Array, dim: int, index: Any) -> Array:
    key = (*(slice(None) for _ in range(dim % x.ndim)), index)
    found: Array = x[key]
    return found


def _masked_fill(x: Array, mask: Any, value: Any) -> Array:
    """x.masked_fill_(mask, v): torch broadcasts the mask to x."""
    found = _np.where(mask, value, x)
    check_kind("masked_fill", found.dtype, x.dtype, x.trace.torch)
    x.assign(found)
    return x


Array._methods.update({name: _whole(name) for name in METHODS if name not in ("getitem", "split", "text")})
Array._methods.update({name: _reduction(name) for name in _REDUCED})
Array._methods.update({name: _in_place(f) for name, f in _IN_PLACE_UNARY.items()})
Array._methods.update({f"{name}_": _in_place(f) for name, f in _BINARY.items()})
Array._methods.update({name: _out_of_place(f) for name, f in _BINARY.items()})
Array._methods.update({
    "reshape": _reshape, "view": _torch_view, "ravel": lambda x: _reshape(x, -1),
    "transpose": _transpose, "permute": _permute, "swapaxes": _viewed(np.swapaxes), "moveaxis": _viewed(np.moveaxis),
    "unsqueeze": _viewed(np.expand_dims), "t": _viewed(np.transpose),
    "flip": _flip, "diagonal": _viewed(np.diagonal),
    "copy": copied, "clone": copied, "detach": Array.detached, "contiguous": _contiguous, "astype": _astype, "to": _to,
    "float": lambda x: _to(x, "float32"), "double": lambda x: _to(x, "float64"),
    "fill": lambda x, v: x.assign(v), "fill_": _fill, "copy_": _fill, "zero_": lambda x: _fill(x, 0),
    "clamp_": _clamp_in_place, "clip_": _clamp_in_place, "clamp": _clamp, "dim": lambda x: x.ndim,
    "index_add_": _index_add, "index_put_": _index_put,
    "std": lambda x, *args, **kwargs: fn.sqrt(_variance(x, *args, **kwargs)), "var": _variance,
    "round": _rounded, "clip": _clip,
    "take": _take, "expand": _expand,
    "ptp": lambda x, *args, **kwargs: np.ptp(x, *args, **kwargs),
    "select": _select, "index_select": _select, "masked_fill_": _masked_fill,
    "masked_fill": lambda x, mask, value: _masked_fill(copied(x), mask, value),
})  # fmt: skip


def _of_selected(kind: str) -> Callable[..., Any]:
    """A reduction of x[mask]."""

    def method(x: Selected, axis: Any = None, keepdims: bool = False, **kwargs: Any) -> Any:
        renamed = {k: v for k, v in _renamed(kwargs).items() if v is not None}
        axis, keepdims = renamed.pop("axis", axis), renamed.pop("keepdims", keepdims)
        if renamed:
            raise TypeError(f"{kind} at {user_location()}: unknown arguments {sorted(renamed)}")
        return x.averaged(axis, keepdims) if kind == "mean" else x.reduced(kind, axis, keepdims)

    return method


Selected._methods.update({kind: _of_selected(kind) for kind in _REDUCED})
Selected._methods.update({"amax": Selected._methods["max"], "amin": Selected._methods["min"]})
Selected._methods.update(
    {name: Array._methods[name] for name in (*_IN_PLACE_UNARY, *_BINARY, *map("{}_".format, _BINARY))}
)
Selected._methods.update({
    name: (lambda f: lambda x, *args: f(x, *args))(getattr(fn, name)) for name in POINTWISE if name != "round"
})  # fmt: skip
Selected._methods.update({
    "copy": Selected.copy, "clone": Selected.copy, "flatten": Selected.copy, "detach": Selected.detached,
    "astype": lambda x, dtype, **options: x.cast(dtype), "to": lambda x, dtype, **options: x.cast(dtype),
    "float": lambda x: x.cast("float32"), "double": lambda x: x.cast("float64"), "fill": lambda x, v: x.assign(v),
    "fill_": _fill, "copy_": _fill, "zero_": lambda x: _fill(x, 0), "clamp": _clamp, "clamp_": _clamp_in_place,
    "clip_": _clamp_in_place, "clip": _clip, "round": _rounded, "dim": lambda x: x.ndim, "dot": lambda x, y: x @ y,
})  # fmt: skip
