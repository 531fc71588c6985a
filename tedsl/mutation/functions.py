"""The NumPy functions that accept traced arrays: a table, one row each; results go into `out=` where that is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.contraction import einsum, outer, tensordot
from tedsl.lang.creation import arange, full
from tedsl.lang.elements import normal_axes, normal_axis, same_shape, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Read
from tedsl.lang.joining import concatenate, pad, stack
from tedsl.lang.operators import UFUNCS, Fn
from tedsl.lang.reshaping import flattened
from tedsl.lang.tensor import Tensor
from tedsl.mutation.array import Array, check_kind, kind_of, lowered, new_array, stored
from tedsl.mutation.items import accumulate_at, at_axis
from tedsl.mutation.methods import copied
from tedsl.mutation.selected import Selected

__all__: list[str] = []


def _ufunc(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function element by element, its result into `out`, and where `where` holds."""

    def call(trace: Any, *inputs: Any, out: Any = None, where: Any = True, **options: Any) -> Any:
        if options:
            raise TypeError(f"np.{name} at {user_location()}: {sorted(options)} is not supported on traced arrays")
        if where is not True:
            return _stored_where(trace, name, function, inputs, out, where)
        if out is None:
            return function(trace, *inputs)
        target = out[0] if isinstance(out, tuple) else out
        fn_of = getattr(function, "fn", None)
        if fn_of is not None and isinstance(target, Array) and inputs and inputs[0] is target:
            return target.update(fn_of, *inputs[1:])
        if not any(isinstance(i, (Array, Selected)) for i in inputs):
            raise TypeError(f"np.{name} at {user_location()}: compute the constant first, then assign out[...] = it")
        return stored(name, function(trace, *inputs), out)

    return call


class _Pointwise:
    """One of our operations as a function of arrays."""

    def __init__(self, f: Fn) -> None:
        self.fn = f

    def __call__(self, trace: Any, *inputs: Any) -> Any:
        own = next((i for i in inputs if isinstance(i, (Array, Selected))), None)
        return (own if own is not None else _array(inputs[0], trace))._apply(self.fn, *inputs)


def _stored_where(trace: Any, name: str, function: Any, inputs: Any, out: Any, where: Any) -> Any:
    """np.add(x, y, out=z, where=mask): the other elements of z stay."""
    target = out[0] if isinstance(out, tuple) else out
    if not isinstance(target, Array):
        raise TypeError(
            f"np.{name} at {user_location()}: where= leaves elements undefined unless out= is an array of the "
            "function; write np.where(mask, result, other)"
        )
    found = function(trace, *inputs)
    check_kind(name, found.dtype, target.dtype, target.trace.torch)
    target.assign(_where(trace, where, found, target))
    return target


def _array(value: Any, trace: Any) -> Any:
    return value if isinstance(value, (Array, Selected)) else new_array(trace, lowered(value, trace))


def _method(name: str) -> Callable[..., Any]:
    return lambda trace, x, *args, **kwargs: getattr(_array(x, trace), name)(*args, **kwargs)


def _where(trace: Any, cond: Any, a: Any, b: Any) -> Any:
    operands = [o if isinstance(o, (Array, Selected, bool, int, float)) else _array(o, trace) for o in (cond, a, b)]
    if any(isinstance(o, Selected) for o in operands):
        return Selected._selected_apply(Fn.SELECT, *operands)
    found = Array._apply(Fn.SELECT, *operands)
    found.is_value = False  # of rank 0 too, unlike arithmetic
    return found


def _chosen(trace: Any, conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Any:
    """np.select: the first choice whose condition holds."""
    kinds = [v.dtype.numpy if isinstance(v, (Array, Selected)) else v for v in (*choices, default)]
    kind = np.result_type(*kinds).name
    found = _array(default, trace).astype(kind)
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        found = _where(trace, condition, _array(choice, trace).astype(kind), found)
    return found


def _reciprocal(trace: Any, x: Any) -> Any:
    if _array(x, trace).dtype.is_float:
        return 1 / x
    return _where(trace, abs(x) == 1, x, _array(x, trace) * 0)  # of integers, cut off


def _positive(trace: Any, x: Any) -> Any:
    return x.copy() if isinstance(x, Selected) else copied(x, x.ghost)


def _clipped(trace: Any, x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return _array(x, trace).clip(a_min if min is None else min, a_max if max is None else max)


def _divmod(trace: Any, a: Any, b: Any) -> Any:
    return a // b, a % b


def _larger(f: Fn) -> Callable[..., Any]:
    """np.fmax, np.fmin: the number where the other one is NaN."""

    def call(trace: Any, a: Any, b: Any) -> Any:
        a, b = (v if isinstance(v, (bool, int, float)) else _array(v, trace) for v in (a, b))
        found = (a if isinstance(a, (Array, Selected)) else b)._apply(f, a, b)
        for one, other in ((a, b), (b, a)):
            found = _where(trace, one != one, other, found) if isinstance(one, (Array, Selected)) else found
        return found

    return call


# Products


def _matmul(trace: Any, a: Any, b: Any) -> Any:
    if isinstance(a, Selected):
        return a @ b
    return new_array(trace, lowered(a, trace) @ lowered(b, trace))


def _dot(trace: Any, a: Any, b: Any) -> Any:
    return a @ b if isinstance(a, Selected) else _array(a, trace).dot(lowered(b, trace))


def _of_tensors(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """A function of whole tensors, whose further arguments are Python values."""

    def call(trace: Any, *args: Any, **kwargs: Any) -> Any:
        given = [lowered(a, trace) if isinstance(a, (Array, np.ndarray)) else a for a in args]
        return new_array(trace, function(*given, **kwargs))

    return call


def _outer(trace: Any, a: Any, b: Any) -> Any:
    return new_array(trace, outer(lowered(a, trace).reshape(-1), lowered(b, trace).reshape(-1)))


def _outer_of(f: Fn) -> Callable[..., Any]:
    """np.add.outer(a, b): all pairs."""

    def call(trace: Any, a: Any, b: Any) -> Any:
        first, second = _array(a, trace), _array(b, trace)
        apart = (..., *[None] * second.ndim)
        return first._apply(f, first[apart], second)

    return call


def _norm(trace: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The root of the sum of squares."""
    if ord is not None and not (ord == 2 and (isinstance(axis, int) or x.ndim == 1)):
        raise TypeError(f"np.linalg.norm at {user_location()}: ord={ord!r} is not supported on traced arrays")
    wide = x if x.dtype.is_float else x.astype("float64")
    return np.sqrt((wide * wide).sum(axis=axis, keepdims=keepdims))


# New arrays


def _like(value: Any) -> Callable[..., Array]:
    def make(trace: Any, x: Any, fill: Any = value, dtype: Any = None, shape: Any = None) -> Array:
        kind = x.dtype if dtype is None else kind_of(dtype)
        if shape is not None:
            return new_array(trace, full(shape, fill, kind), is_value=False)
        return new_array(trace, full(x.shape, fill, kind), [x], is_value=False)

    return make


def _joined(function: Callable[..., Tensor]) -> Callable[..., Array]:
    return lambda trace, arrays, axis=0: new_array(trace, function([lowered(a, trace) for a in arrays], axis))


def _side_by_side(trace: Any, arrays: Sequence[Any]) -> Array:
    """np.hstack"""
    listed = [_at_least(1)(trace, a) for a in arrays]
    return new_array(trace, concatenate([a.value for a in listed], 0 if listed[0].ndim == 1 else 1))


def _one_below_the_other(trace: Any, arrays: Sequence[Any]) -> Array:
    """np.vstack"""
    return new_array(trace, concatenate([_at_least(2)(trace, a).value for a in arrays], 0))


def _columns(trace: Any, arrays: Sequence[Any]) -> Array:
    """np.column_stack"""
    listed = [_array(a, trace) for a in arrays]
    return new_array(trace, concatenate([(a[:, None] if a.ndim == 1 else a).value for a in listed], 1))


def _at_least(rank: int) -> Callable[..., Any]:
    """np.atleast_1d, np.atleast_2d: with leading axes of one place."""

    def call(trace: Any, x: Any) -> Any:
        array = _array(x, trace)
        key = (*[None] * (rank - array.ndim), ...)
        return array[key] if array.ndim < rank else array

    return call


def _padded(trace: Any, x: Any, width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    return new_array(trace, pad(lowered(x, trace), width, mode, constant_values))


def _tiled(trace: Any, x: Any, reps: Any) -> Any:
    """np.tile: the whole again and again along each axis."""
    counts = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    value = lowered(x, trace)
    value = value.reshape((*(1,) * (len(counts) - value.ndim), *value.shape))
    counts = (*(1,) * (value.ndim - len(counts)), *counts)
    apart = value.reshape(tuple(n for extent in value.shape for n in (1, extent)))
    wide = broadcast_to(apart, tuple(n for pair in zip(counts, value.shape, strict=True) for n in pair))
    return new_array(trace, wide.reshape(tuple(c * n for c, n in zip(counts, value.shape, strict=True))))


def _repeated(trace: Any, x: Any, repeats: Any, axis: Any = None) -> Any:
    """np.repeat: each element again and again."""
    if not isinstance(repeats, (int, np.integer)):
        raise TypeError(f"np.repeat at {user_location()}: expected one number, found {repeats!r:.40}")
    value = lowered(x, trace)
    value, axis = (value.reshape(-1), 0) if axis is None else (value, normal_axis(axis, value.ndim, "np.repeat"))
    before, n, after = value.shape[:axis], value.shape[axis], value.shape[axis + 1 :]
    wide = broadcast_to(value.reshape((*before, n, 1, *after)), (*before, n, int(repeats), *after))
    return new_array(trace, wide.reshape((*before, n * int(repeats), *after)))


def _differences(trace: Any, x: Any, n: int = 1, axis: int = -1) -> Any:
    """np.diff: each element without the one before it."""
    for _ in range(n):
        axis = normal_axis(axis, x.ndim, "np.diff")
        later, earlier = (x[at_axis(axis, part)] for part in (slice(1, None), slice(None, -1)))
        x = later != earlier if x.dtype.is_bool else later - earlier
    return x


# Views


def _rot90(trace: Any, x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    a, b = normal_axes(axes, x.ndim, "np.rot90")
    turned = {0: lambda: x[...], 1: lambda: np.swapaxes(np.flip(x, b), a, b), 2: lambda: np.flip(x, (a, b)),
              3: lambda: np.flip(np.swapaxes(x, a, b), b)}  # fmt: skip
    return turned[k % 4]()


def _rolled_axis(trace: Any, x: Any, axis: int, start: int = 0) -> Any:
    source = normal_axis(axis, x.ndim, "np.rollaxis")
    place = start + x.ndim if start < 0 else start
    return np.moveaxis(x, source, place - 1 if source < place else place)


def _pieces(trace: Any, x: Any, sections: Any, axis: int = 0, *, equal: bool = True) -> list[Any]:
    """np.split: views one after another."""
    dim = normal_axis(axis, x.ndim, "np.split")
    if isinstance(sections, (int, np.integer)):
        extent = x.shape[dim]
        if not isinstance(extent, int) or (equal and extent % sections):
            raise ValueError(
                f"np.split at {user_location()}: an axis of {extent} does not divide into {sections} equal sections; "
                "give the positions of the cuts"
            )
        each, more = divmod(extent, int(sections))
        sections = np.cumsum([each + (k < more) for k in range(sections - 1)]).tolist()
    cuts = [None, *sections, None]
    return [x[at_axis(dim, slice(a, b))] for a, b in pairwise(cuts)]


def _stretched(trace: Any, x: Any, shape: Any) -> Any:
    """np.broadcast_to: a view that cannot be written."""
    array = _array(x, trace)
    wanted = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    broadcast_to(array.value, wanted)  # says what does not fit
    return array.view_of(np.broadcast_to(array.ghost, wanted))


# In place


def _copyto(trace: Any, target: Any, value: Any, casting: str = "same_kind", where: Any = True) -> None:
    own = lowered(value, trace).dtype if not isinstance(value, Selected) else value.dtype
    if isinstance(value, (Array, np.ndarray, Selected)) and casting != "unsafe":
        check_kind("copyto", own, target.dtype, trace.torch)
    target.assign(value if where is True else _where(trace, where, value, target))


def _putmask(trace: Any, target: Any, mask: Any, values: Any) -> None:
    """Elements under the mask from the values at their places, which begin anew where there are fewer of them."""
    value = _array(values, trace)
    if value.ndim and not same_shape(value.extents, target.extents):
        row = value.value.reshape(-1)
        value = new_array(trace, tensor_of(
            target.extents, lambda *axes: Read(row, (flattened(axes, target.extents) % row.extents[0],)), "repeated",
        ))  # fmt: skip
    target.assign(_where(trace, mask, value, target))


def _filled_diagonal(trace: Any, x: Any, value: Any, wrap: bool = False) -> None:
    if x.ndim != 2 or wrap:
        raise TypeError(f"np.fill_diagonal at {user_location()}: expected a matrix and wrap=False; index it instead")
    x.check_writable()
    x.diagonal().put(value)


def _along(trace: Any, x: Any, indices: Any, axis: Any) -> tuple[Any, tuple[Any, ...]]:
    """The array, and the index that takes x[.., indices[..], ..] along an axis for all points of `indices`."""
    places = _array(indices, trace)
    if axis is None:
        x, axis = x.reshape(-1), 0
    dim = normal_axis(axis, x.ndim, "axis")
    others = [
        new_array(trace, arange(n).reshape(tuple(n if k == d else 1 for k in range(places.ndim))), is_value=False)
        for d, n in enumerate(places.shape)
    ]
    return x, tuple(places if d == dim else others[d] for d in range(x.ndim))


def _taken_along(trace: Any, x: Any, indices: Any, axis: Any = -1) -> Any:
    array, key = _along(trace, _array(x, trace), indices, axis)
    return array[key]


def _put_along(trace: Any, x: Any, indices: Any, values: Any, axis: Any) -> None:
    array, key = _along(trace, x, indices, axis)
    array[key] = values


def _accumulated(kind: str, change: Callable[[Any], Any] = lambda v: v) -> Callable[..., None]:
    return lambda trace, x, key, value: accumulate_at(x, key, change(_array(value, trace)), kind)


def _folded(name: str) -> Callable[..., Any]:
    """np.add.reduce and its like, which reduce the first axis unless told otherwise."""
    return lambda trace, x, axis=0, **options: getattr(_array(x, trace), name)(
        axis=axis, **{k: v for k, v in options.items() if v is not None}
    )


Array._numpy.update({ufunc: _ufunc(_Pointwise(f), f.value) for ufunc, f in UFUNCS.items()})
_FURTHER: dict[Any, Callable[..., Any]] = {
    np.square: lambda trace, x: x * x, np.reciprocal: _reciprocal, np.positive: _positive, np.matmul: _matmul,
    np.fmax: _larger(Fn.MAXIMUM), np.fmin: _larger(Fn.MINIMUM), np.fabs: lambda trace, x: abs(x / 1),
    np.deg2rad: lambda trace, x: x * (np.pi / 180), np.rad2deg: lambda trace, x: x * (180 / np.pi),
}  # fmt: skip
Array._numpy.update({ufunc: _ufunc(function, ufunc.__name__) for ufunc, function in _FURTHER.items()})
Array._numpy.update({(ufunc, "outer"): _outer_of(f) for ufunc, f in UFUNCS.items() if ufunc.nin == 2})
Array._numpy.update({
    name: _method(name.__name__)
    for name in (np.swapaxes, np.moveaxis, np.squeeze, np.flip, np.diagonal, np.reshape, np.ravel, np.roll, np.cumsum,
                 np.cumprod, np.argmax, np.argmin, np.take, np.sum, np.mean, np.prod, np.any, np.all,
                 np.tril, np.triu, np.round, np.std, np.var)
})  # fmt: skip
Array._numpy.update({
    np.divmod: _divmod, np.dot: _dot, np.vdot: lambda trace, a, b: _array(a, trace).reshape(-1).dot(
        lowered(b, trace).reshape(-1)
    ),
    np.outer: _outer, np.einsum: _of_tensors(einsum), np.tensordot: _of_tensors(tensordot),
    np.linalg.norm: _norm, np.where: _where, np.select: _chosen, np.clip: _clipped,
    np.zeros_like: _like(0), np.ones_like: _like(1), np.empty_like: _like(0), np.full_like: _like(0),
    np.concatenate: _joined(concatenate), np.stack: _joined(stack), np.hstack: _side_by_side,
    np.vstack: _one_below_the_other, np.column_stack: _columns, np.atleast_1d: _at_least(1),
    np.atleast_2d: _at_least(2), np.pad: _padded, np.tile: _tiled, np.repeat: _repeated, np.diff: _differences,
    np.ptp: lambda trace, x, axis=None, keepdims=False: x.amax(axis, keepdims) - x.amin(axis, keepdims),
    np.trace: lambda trace, x, offset=0, axis1=0, axis2=1: x.diagonal(offset, axis1, axis2).sum(-1),
    np.count_nonzero: lambda trace, x, axis=None, *, keepdims=False: (_array(x, trace) != 0).sum(
        axis=axis, keepdims=keepdims
    ),
    np.copy: _positive, np.shape: lambda trace, x: x.shape, np.ndim: lambda trace, x: x.ndim,
    np.transpose: lambda trace, x, axes=None: x.transpose(tuple(axes)) if axes else x.T,
    np.max: _method("amax"), np.min: _method("amin"), np.expand_dims: _method("unsqueeze"), np.rot90: _rot90,
    np.rollaxis: _rolled_axis,
    np.fliplr: lambda trace, x: np.flip(x, 1), np.flipud: lambda trace, x: np.flip(x, 0),
    np.split: _pieces, np.array_split: lambda trace, x, sections, axis=0: _pieces(
        trace, x, sections, axis, equal=False
    ),
    np.broadcast_to: _stretched, np.copyto: _copyto, np.putmask: _putmask, np.fill_diagonal: _filled_diagonal,
    np.take_along_axis: _taken_along, np.put_along_axis: _put_along,
    (np.add, "at"): _accumulated("add"), (np.subtract, "at"): _accumulated("add", lambda v: -v),
    (np.multiply, "at"): _accumulated("mul"), (np.maximum, "at"): _accumulated("max"),
    (np.minimum, "at"): _accumulated("min"),
    (np.add, "reduce"): _folded("sum"), (np.multiply, "reduce"): _folded("prod"),
    (np.maximum, "reduce"): _folded("amax"), (np.minimum, "reduce"): _folded("amin"),
    (np.logical_or, "reduce"): _folded("any"), (np.logical_and, "reduce"): _folded("all"),
    (np.add, "accumulate"): lambda trace, x, axis=0, **_: x.cumsum(axis),
    (np.multiply, "accumulate"): lambda trace, x, axis=0, **_: x.cumprod(axis),
})  # fmt: skip
_OF_SELECTED = (np.where, np.select, np.clip, np.sum, np.mean, np.prod, np.max, np.min, np.any, np.all, np.square,
                np.reciprocal, np.count_nonzero, np.positive, np.dot, np.matmul, np.copy, np.ndim, np.fmax,
                np.fmin, np.fabs)  # fmt: skip
Selected._numpy.update({f: Array._numpy[f] for f in (*UFUNCS, *_OF_SELECTED)})
