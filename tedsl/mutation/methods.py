"""Methods of traced arrays and the NumPy functions that accept them: tables, one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.arrays import METHODS, POINTWISE
from tedsl.lang.creation import full
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.elements import removed_axes, same_shape, shape_text
from tedsl.lang.errors import user_location
from tedsl.lang.joining import concatenate, stack
from tedsl.lang.operators import UFUNCS, Fn
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, check_kind, lowered, new_array, stored, widened
from tedsl.mutation.items import accumulate_at
from tedsl.mutation.outlines import Outline, UndecidedError, whole
from tedsl.mutation.selected import Selected

__all__ = ["copied"]

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


def _astype(x: Array, dtype: Any, **options: Any) -> Any:
    kind = as_dtype(dtype)
    return copied(x, x.ghost) if kind is x.dtype else Array._apply(Fn.CAST, x, kind)


def _to(x: Array, dtype: Any, copy: bool = False, **options: Any) -> Any:
    """torch gives the tensor itself where it has the dtype already."""
    return x if as_dtype(dtype) is x.dtype and x.trace.torch and not copy else _astype(x, dtype)


def _flatten(x: Array) -> Array:
    """A copy in NumPy; in torch a view where there can be one."""
    if x.trace.torch:
        return x if x.ndim == 1 else _reshape(x, -1)
    return new_array(x.trace, x.value.reshape(-1), is_value=False)


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
        renamed = _renamed(kwargs)
        axis, keepdims = renamed.pop("axis", axis), renamed.pop("keepdims", keepdims)
        if renamed:
            raise TypeError(f"{name} at {user_location()}: unknown arguments {sorted(renamed)}")
        found = METHODS[name](widened(x.value) if name in _COUNTING else x.value, axis, keepdims)
        if isinstance(x.ghost, Outline):
            return new_array(x.trace, found, order=whole(found.extents, is_ordered=x.ghost.c_contiguous))
        gone = set(removed_axes(axis, x.ndim, name))
        key: Any = tuple((slice(0, 1) if keepdims else 0) if d in gone else slice(None) for d in range(x.ndim))
        order = new_array(x.trace, found, [x.view_of(x.ghost[key])]).ghost if found.ndim and x.size else None
        return new_array(x.trace, found, order=order)

    return method


_REDUCED = ("sum", "mean", "prod", "max", "min", "any", "all")
_COUNTING = frozenset({"sum", "prod", "cumsum", "cumprod"})
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
    found = _where(x.trace, mask, value, x)
    check_kind("masked_fill", found.dtype, x.dtype, x.trace.torch)
    x.assign(found)
    return x


Array._methods.update({name: _whole(name) for name in METHODS if name not in ("getitem", "split", "text")})
Array._methods.update({name: _reduction(name) for name in _REDUCED})
Array._methods.update({name: _in_place(f) for name, f in _IN_PLACE_UNARY.items()})
Array._methods.update({f"{name}_": _in_place(f) for name, f in _BINARY.items()})
Array._methods.update({name: _out_of_place(f) for name, f in _BINARY.items()})
Array._methods.update({
    "reshape": _reshape, "view": _torch_view, "ravel": lambda x: _reshape(x, -1), "flatten": _flatten,
    "transpose": _transpose, "permute": _permute, "swapaxes": _viewed(np.swapaxes), "moveaxis": _viewed(np.moveaxis),
    "squeeze": _viewed(np.squeeze), "unsqueeze": _viewed(np.expand_dims), "t": _viewed(np.transpose),
    "flip": _flip, "diagonal": _viewed(np.diagonal),
    "copy": copied, "clone": copied, "detach": lambda x: x, "contiguous": _contiguous, "astype": _astype, "to": _to,
    "float": lambda x: _to(x, "float32"), "double": lambda x: _to(x, "float64"),
    "fill": lambda x, v: x.assign(v), "fill_": _fill, "copy_": _fill, "zero_": lambda x: _fill(x, 0),
    "clamp_": _clamp_in_place, "clip_": _clamp_in_place, "clamp": _clamp, "dim": lambda x: x.ndim,
    "size": lambda x, d=None: x.shape if d is None else x.shape[d], "index_add_": _index_add, "index_put_": _index_put,
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
Selected._methods.update(
    {name: Array._methods[name] for name in (*_IN_PLACE_UNARY, *_BINARY, *map("{}_".format, _BINARY))}
)
Selected._methods.update({
    name: (lambda f: lambda x, *args: f(x, *args))(getattr(fn, name)) for name in POINTWISE
})  # fmt: skip
Selected._methods.update({
    "copy": Selected.copy, "clone": Selected.copy, "flatten": Selected.copy, "detach": lambda x: x,
    "astype": lambda x, dtype, **options: x.cast(dtype), "to": lambda x, dtype, **options: x.cast(dtype),
    "float": lambda x: x.cast("float32"), "double": lambda x: x.cast("float64"), "fill": lambda x, v: x.assign(v),
    "fill_": _fill, "copy_": _fill, "zero_": lambda x: _fill(x, 0), "clamp": _clamp, "clamp_": _clamp_in_place,
    "clip_": _clamp_in_place, "dim": lambda x: x.ndim, "dot": lambda x, y: x @ y,
})  # fmt: skip


def _ufunc(f: Fn) -> Callable[..., Any]:
    def call(trace: Any, *inputs: Any, out: Any = None, where: Any = True, **options: Any) -> Any:
        if options:
            raise TypeError(f"np.{f.value} at {user_location()}: {sorted(options)} is not supported on traced arrays")
        if where is not True:
            return _stored_where(trace, f, inputs, out, where)
        if out is None:
            own = next(i for i in inputs if hasattr(i, "_selected_apply") or isinstance(i, Array))
            return own._apply(f, *inputs)
        target = out[0] if isinstance(out, tuple) else out
        if isinstance(target, Array) and inputs and inputs[0] is target:
            return target.update(f, *inputs[1:])
        if not _has_array(inputs):
            raise TypeError(f"np.{f.value} at {user_location()}: compute the constant first, then assign out[...] = it")
        return stored(f.value, Array._apply(f, *inputs), out)

    return call


def _stored_where(trace: Any, f: Fn, inputs: Any, out: Any, where: Any) -> Any:
    """np.add(x, y, out=z, where=mask): the other elements of z stay."""
    target = out[0] if isinstance(out, tuple) else out
    if not isinstance(target, Array):
        raise TypeError(
            f"np.{f.value} at {user_location()}: where= leaves elements undefined unless out= is an array of the "
            "function; write np.where(mask, result, other)"
        )
    found = _array(inputs[0], trace)._apply(f, *inputs)
    check_kind(f.value, found.dtype, target.dtype, target.trace.torch)
    target.assign(_where(trace, where, found, target))
    return target


def _has_array(inputs: Any) -> bool:
    return any(isinstance(i, Array) for i in inputs)


def _matmul(trace: Any, a: Any, b: Any) -> Any:
    return new_array(trace, lowered(a, trace) @ lowered(b, trace))


def _like(value: Any) -> Callable[..., Array]:
    def make(trace: Any, x: Any, fill: Any = value, dtype: Any = None, shape: Any = None) -> Array:
        kind = x.dtype if dtype is None else as_dtype(dtype)
        if shape is not None:
            return new_array(trace, full(shape, fill, kind), is_value=False)
        return new_array(trace, full(x.shape, fill, kind), [x], is_value=False)

    return make


def _joined(function: Callable[..., Tensor]) -> Callable[..., Array]:
    return lambda trace, arrays, axis=0: new_array(trace, function([lowered(a, trace) for a in arrays], axis))


def _where(trace: Any, cond: Any, a: Any, b: Any) -> Any:
    operands = [o if isinstance(o, (Array, Selected, bool, int, float)) else _array(o, trace) for o in (cond, a, b)]
    if any(isinstance(o, Selected) for o in operands):
        return Selected._selected_apply(Fn.SELECT, *operands)
    found = Array._apply(Fn.SELECT, *operands)
    found.is_value = False  # of rank 0 too, unlike arithmetic
    return found


def _array(value: Any, trace: Any) -> Any:
    return value if isinstance(value, (Array, Selected)) else new_array(trace, lowered(value, trace))


def _method(name: str) -> Callable[..., Any]:
    return lambda trace, x, *args, **kwargs: getattr(_array(x, trace), name)(*args, **kwargs)


def _copyto(trace: Any, target: Any, value: Any, casting: str = "same_kind", where: Any = True) -> None:
    own = lowered(value, trace).dtype if not isinstance(value, Selected) else value.dtype
    if isinstance(value, (Array, np.ndarray, Selected)) and casting != "unsafe":
        check_kind("copyto", own, target.dtype, trace.torch)
    target.assign(value if where is True else _where(trace, where, value, target))


def _putmask(trace: Any, target: Any, mask: Any, values: Any) -> None:
    value = _array(values, trace)
    if value.ndim and not same_shape(value.extents, target.extents):
        raise TypeError(
            f"np.putmask at {user_location()}: values of shape {shape_text(value.extents)} would be repeated over an "
            f"array of shape {shape_text(target.extents)}; write x[...] = np.where(mask, values, x)"
        )
    target.assign(_where(trace, mask, value, target))


Array._numpy.update({ufunc: _ufunc(f) for ufunc, f in UFUNCS.items()})
Array._numpy.update({
    np.square: lambda trace, x: x * x, np.reciprocal: lambda trace, x: 1 / x,
    np.positive: lambda trace, x: copied(x, x.ghost),
    np.matmul: _matmul, np.dot: lambda trace, a, b: _method("dot")(trace, a, lowered(b, trace)),
    np.where: _where, np.zeros_like: _like(0), np.ones_like: _like(1), np.empty_like: _like(0), np.full_like: _like(0),
    np.concatenate: _joined(concatenate), np.stack: _joined(stack), np.copyto: _copyto, np.putmask: _putmask,
    np.count_nonzero: lambda trace, x, axis=None, *, keepdims=False: (_array(x, trace) != 0).sum(
        axis=axis, keepdims=keepdims
    ),
    np.copy: lambda trace, x: copied(x, x.ghost), np.shape: lambda trace, x: x.shape, np.ndim: lambda trace, x: x.ndim,
    np.clip: lambda trace, x, low, high: Array._apply(Fn.CLIP, x, low, high), np.round: _method("round"),
    np.transpose: lambda trace, x, axes=None: _permute(x, axes) if axes else x.T,
    np.moveaxis: _method("moveaxis"), np.swapaxes: _method("swapaxes"), np.squeeze: _method("squeeze"),
    np.flip: _method("flip"), np.diagonal: _method("diagonal"), np.reshape: _method("reshape"),
    np.ravel: _method("ravel"),
    np.expand_dims: _method("unsqueeze"), np.roll: _method("roll"), np.cumsum: _method("cumsum"),
    np.cumprod: _method("cumprod"), np.argmax: _method("argmax"), np.argmin: _method("argmin"),
    np.take: _method("take"),
    np.sum: _method("sum"), np.mean: _method("mean"), np.prod: _method("prod"), np.max: _method("max"),
    np.min: _method("min"), np.any: _method("any"), np.all: _method("all"), np.tril: _method("tril"),
    np.triu: _method("triu"),
    (np.add, "at"): lambda trace, x, key, value: accumulate_at(x, key, value, "add"),
    (np.subtract, "at"): lambda trace, x, key, value: accumulate_at(x, key, -value, "add"),
    (np.multiply, "at"): lambda trace, x, key, value: accumulate_at(x, key, value, "mul"),
    (np.maximum, "at"): lambda trace, x, key, value: accumulate_at(x, key, value, "max"),
    (np.minimum, "at"): lambda trace, x, key, value: accumulate_at(x, key, value, "min"),
    (np.add, "reduce"): lambda trace, x, axis=0, **options: x.sum(axis),
})  # fmt: skip
_OF_SELECTED = (np.where, np.clip, np.sum, np.mean, np.prod, np.max, np.min, np.any, np.all, np.square, np.reciprocal,
                np.count_nonzero, np.round, np.positive, np.dot, np.copy, np.ndim)  # fmt: skip
Selected._numpy.update({f: Array._numpy[f] for f in (*UFUNCS, *_OF_SELECTED)})
Selected._numpy.update({
    np.dot: lambda trace, a, b: a @ b, np.copy: lambda trace, x: x.copy(), np.positive: lambda trace, x: x.copy(),
})  # fmt: skip
