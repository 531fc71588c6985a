"""The arrays that a traced function works on: NumPy's operators and views over storages of pure tensors."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to, elementwise
from tedsl.lang.dtypes import INT32, DType, as_dtype
from tedsl.lang.elements import as_tensor, is_one, same_shape, shape_text, tensor_of
from tedsl.lang.errors import AliasError, user_location
from tedsl.lang.expr import Const, Expr, Read
from tedsl.lang.foreign import array_of
from tedsl.lang.joining import stack
from tedsl.lang.names import instead_of, title_of
from tedsl.lang.operators import Fn, Operators
from tedsl.lang.tensor import Tensor
from tedsl.mutation.layouts import Ghost, Layout, ghost_of_result, ghost_with, new_ghost
from tedsl.mutation.outlines import Outline, whole
from tedsl.mutation.slices import is_place
from tedsl.mutation.tracing import Origin, Storage, Trace

__all__ = [
    "Array",
    "as_operand",
    "check_kind",
    "holds_arrays",
    "lowered",
    "new_array",
    "stored",
    "widened",
    "without_leading_ones",
]

FIX = "use np.where / te.select on values, or pass the number as a Python value (the function is traced again for each)"


class Size(int):
    """A number of elements that gives the shape when it is called: x.size of NumPy, x.size() of torch."""

    shape: tuple[Any, ...]

    def __new__(cls, shape: tuple[Any, ...], number: int) -> Size:
        self = super().__new__(cls, number)
        self.shape = shape
        return self

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]


class Array(Operators[Any]):
    """A traced array: a view of a storage.

    `is_value`: NumPy would give a scalar here, which cannot be assigned to. `is_detached`: no derivative flows back
    through what is read here, as x.detach() has it.
    """

    __slots__ = ("ghost", "is_detached", "is_value", "origin", "storage")
    # Further parts, attached by tedsl.mutation.methods, which builds on this module.
    _getitem: Callable[..., Any]
    _setitem: Callable[..., None]
    _methods: dict[str, Callable[..., Any]] = {}  # noqa: RUF012 - one table, filled once
    _numpy: dict[Any, Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(
        self,
        storage: Storage,
        ghost: Any,
        origin: Origin | None = None,
        is_value: bool = False,
        is_detached: bool = False,
    ) -> None:
        self.storage = storage
        self.ghost = ghost  # a Ghost, or an Outline where extents are symbolic
        self.origin = origin
        self.is_value = is_value
        self.is_detached = is_detached

    @property
    def trace(self) -> Trace:
        return self.storage.trace

    @property
    def shape(self) -> tuple[Any, ...]:
        """Integers, and expressions of `te.var`s where an extent is symbolic."""
        shape: tuple[Any, ...] = self.ghost.shape
        return shape

    @property
    def extents(self) -> tuple[Expr, ...]:
        """The shape as expressions."""
        if isinstance(self.ghost, Outline):
            return self.ghost.extents
        return tuple(Const(n, INT32) for n in self.ghost.shape)

    @property
    def ndim(self) -> int:
        rank: int = self.ghost.ndim
        return rank

    @property
    def size(self) -> Any:
        """The number of elements; called, as torch has it, the shape."""
        number = self.ghost.size
        return Size(self.shape, number) if isinstance(number, int) else number

    @property
    def dtype(self) -> DType:
        return self.storage.dtype

    @property
    def layout(self) -> Any:
        """Where it lies in its memory."""
        return self.storage.layout(self.ghost)

    @property
    def value(self) -> Tensor:
        """The elements now, as a tensor."""
        found = self.storage.read(self.ghost)
        return fn.stop_gradient(found) if self.is_detached else found

    @property
    def T(self) -> Array:  # noqa: N802 - NumPy's name
        """The axes in reverse order: a view."""
        return self.view_of(self.ghost.T)

    def view_of(self, ghost: Any, is_value: bool = False) -> Array:
        """Another view of the same storage."""
        return Array(self.storage, ghost, self.origin, is_value, self.is_detached)

    def detached(self) -> Array:
        """The same view, a constant to derivatives."""
        return Array(self.storage, self.ghost, self.origin, self.is_value, is_detached=True)

    def part(self, items: Sequence[Any]) -> Array:
        """The view that slices, integers, None and ... make."""
        key = tuple(items) if any(i is Ellipsis for i in items) else (*items, ...)
        if not isinstance(self.ghost, Outline) and any(map(_is_symbolic, items)):
            raise TypeError(
                f"index at {user_location()}: a symbolic place in an array of shape {self.shape}, whose extents are "
                "numbers; index with an array of length 1, or give the array a symbolic extent"
            )
        try:
            return self.view_of(self.ghost[key])
        except IndexError as error:
            shape = shape_text(self.extents)
            raise IndexError(f"index at {user_location()} of an array of shape {shape}: {error}") from None

    def moved(self, source: Sequence[int], places: Sequence[int]) -> Array:
        """The view with axes at other places."""
        return self.view_of(np.moveaxis(self.ghost, tuple(source), tuple(places)))

    def assign(self, new: Any) -> None:
        """x[...] = new: every element replaced, `new` broadcast to the shape and converted, as in NumPy."""
        self.check_writable()
        self.put(new)

    def put(self, new: Any) -> None:
        """The same unchecked: through a view that NumPy does not write through, of an array that it writes to."""
        if isinstance(new, Array) and new.storage is self.storage and new.layout == self.layout:
            return  # as Python ends x[1:] += 1: with an assignment of the view to its own place
        tensor = lowered(new, self.trace, self.dtype)
        tensor = without_leading_ones(tensor, self.ndim)
        try:
            wide = tensor if same_shape(tensor.extents, self.extents) else broadcast_to(tensor, self.shape)
        except ValueError as error:
            told = "" if not isinstance(self.ghost, Outline) else (
                "; symbolic extents must be equal whatever the variables are: x[0] = x[1] in place of x[:1] = x[1:2]"
            )  # fmt: skip
            raise ValueError(
                f"assignment at {user_location()}: a value of shape {shape_text(tensor.extents)} does not broadcast to "
                f"the target's shape {shape_text(self.extents)}{told}"
            ) from error
        self.storage.write(self.ghost, wide.astype(self.dtype))
        if self.origin is not None:
            self.origin.is_written = True

    def check_writable(self) -> None:
        """ValueError or AliasError where this array cannot be mutated."""
        if self.is_value:
            raise TypeError(
                f"assignment at {user_location()}: x[0] of a vector and sums over all axes are NumPy scalars, which "
                "cannot be mutated; use a slice such as x[0:1]"
            )
        origin = self.origin
        if origin is not None and not origin.is_writable:
            raise ValueError(
                f"assignment at {user_location()}: argument {origin.name!r} is mutated, but its array is read-only; "
                "pass an array that can be written, or mutate te.copy(x)"
            )
        if origin is not None and origin.refusal is not None:
            raise AliasError(
                f"assignment at {user_location()}: argument {origin.name!r} is mutated, but {origin.refusal}"
            )
        if self.trace.torch and _is_repeated(self.ghost):
            raise RuntimeError(
                f"assignment at {user_location()}: several elements of the target lie in one place of memory; write to "
                "a copy, x.clone()"
            )
        if not self.trace.torch and not _is_writable(self.ghost):
            raise ValueError(
                f"assignment at {user_location()}: the target is read-only, a view made by np.broadcast_to or "
                "np.diagonal; write to what it is a view of, or to a copy"
            )

    def update(self, f: Fn, *others: Any) -> Array:
        """x = f(x, *others) in place; a NumPy scalar is replaced, as in NumPy."""
        if self.is_value:
            result = self._apply(f, self, *others)
            assert isinstance(result, Array)
            return result
        new = elementwise(f, self.value, *(as_operand(o, self.trace) for o in others))
        if not same_shape(new.extents, self.extents):
            raise ValueError(
                f"in-place {f.value} at {user_location()}: the result has shape {shape_text(new.extents)}, the target "
                f"{shape_text(self.extents)}; an in-place operation cannot make its target larger"
            )
        check_kind(f.value, new.dtype, self.dtype, self.trace.torch)
        self.assign(new)
        return self

    @staticmethod
    def _apply(f: Fn, *operands: Any) -> Any:
        """The result as an array of its own."""
        for operand in operands:
            if hasattr(operand, "_selected_apply"):
                return operand._selected_apply(f, *operands)
        first = next(o for o in operands if isinstance(o, Array))
        if f is Fn.CAST:
            x, dtype = operands
            return new_array(first.trace, x.value.astype(kind_of(dtype)), [x])
        tensors = [as_operand(o, first.trace) for o in operands]
        return new_array(first.trace, elementwise(f, *tensors), operands)

    def as_scalar(self) -> Expr:
        """The element of an array of rank 0, so that it can stand in an expression."""
        if self.ndim:
            raise TypeError(
                f"a traced array of shape {shape_text(self.extents)} at {user_location()} stands where a scalar is "
                "expected; a te.Tensor met inside a traced function becomes an array by te.copy(t)"
            )
        return Read(self.value, ())

    def __getitem__(self, key: Any) -> Any:
        return Array._getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        Array._setitem(self, key, value)

    def __iadd__(self, other: Any) -> Any:
        return self.update(Fn.ADD, other)

    def __isub__(self, other: Any) -> Any:
        return self.update(Fn.SUB, other)

    def __imul__(self, other: Any) -> Any:
        return self.update(Fn.MUL, other)

    def __itruediv__(self, other: Any) -> Any:
        return self.update(Fn.DIV, other)

    def __ifloordiv__(self, other: Any) -> Any:
        return self.update(Fn.FLOORDIV, other)

    def __imod__(self, other: Any) -> Any:
        return self.update(Fn.MOD, other)

    def __ipow__(self, other: Any) -> Any:
        return self.update(Fn.POW, other)

    def __iand__(self, other: Any) -> Any:
        return self.update(Fn.BITAND, other)

    def __ior__(self, other: Any) -> Any:
        return self.update(Fn.BITOR, other)

    def __ixor__(self, other: Any) -> Any:
        return self.update(Fn.BITXOR, other)

    def __ilshift__(self, other: Any) -> Any:
        return self.update(Fn.LSHIFT, other)

    def __irshift__(self, other: Any) -> Any:
        return self.update(Fn.RSHIFT, other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __matmul__(self, other: Any) -> Any:
        return new_array(self.trace, self.value @ lowered(other, self.trace))

    def __rmatmul__(self, other: Any) -> Any:
        return new_array(self.trace, lowered(other, self.trace) @ self.value)

    def __imatmul__(self, other: Any) -> Any:
        self.assign(self @ other)
        return self

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of a traced array is asked for at {user_location()}, but values are not known; {FIX}"
        )

    def _number(self, what: str) -> Any:
        raise TypeError(
            f"{what} of a traced array is asked for at {user_location()}, but values are not known while the "
            f"function is traced; {FIX}. To store into a NumPy array made inside the function, make it with "
            "np.zeros_like(x) or te.copy(array); te.copy(x) and x.astype(dtype) take the place of np.array(x)"
        )

    def __int__(self) -> int:
        return int(self._number("the integer"))

    def __float__(self) -> float:
        return float(self._number("the number"))

    def __index__(self) -> int:
        return int(self._number("the integer"))

    def __complex__(self) -> complex:
        return complex(self._number("the number"))

    def __tedsl_lower__(self, value: Any) -> Tensor:
        """An argument of an operator (`te.op`) as a tensor of this trace."""
        return lowered(value, self.trace)

    def __tedsl_lift__(self, tensor: Tensor) -> Array:
        """A result of an operator as an array of this trace."""
        return new_array(self.trace, tensor, is_value=False)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        asks = sys._getframe(1).f_code
        by = f", by np.{asks.co_name}," if os.sep + "numpy" + os.sep in asks.co_filename else ""
        return self._number(f"the NumPy array{by}")

    def item(self) -> Any:
        return self._number("the number")

    def tolist(self) -> Any:
        return self._number("the list")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array of rank 0")
        extent = self.shape[0]
        if not isinstance(extent, int):
            raise TypeError(
                f"the length of an array of shape {shape_text(self.extents)} is asked for at {user_location()}, but it "
                "is no number while the function is traced; x.shape[0] is an expression to compute and to slice with, "
                "and statements on slices take the place of a loop over rows (or give the placeholder a known extent)"
            )
        return extent

    def __iter__(self) -> Any:
        return iter([self[d] for d in range(len(self))])

    def __contains__(self, item: Any) -> bool:
        return bool(self._number("membership"))

    def __repr__(self) -> str:
        return f"traced array : {self.dtype}{shape_text(self.extents)}"

    def __format__(self, spec: str) -> str:
        return str(self._number("the text")) if spec else repr(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """np.exp(x), np.maximum(x, y, out=x), np.add.at(x, i, v)."""
        rule = self._numpy.get(ufunc) if method == "__call__" else self._numpy.get((ufunc, method))
        if rule is None:
            title = title_of(ufunc)
            name, told = title if method == "__call__" else f"{title}.{method}", instead_of(title, method)
            raise TypeError(f"{name} at {user_location()}: not supported on traced arrays; {told}")
        return rule(self.trace, *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """np.where, np.concatenate, np.sum and others of the table."""
        rule = self._numpy.get(function)
        if rule is None:
            title = title_of(function)
            raise TypeError(f"{title} at {user_location()}: not supported on traced arrays; {instead_of(title)}")
        out = kwargs.get("out")
        given = {k: v for k, v in kwargs.items() if k != "out"}
        try:
            bound = inspect.signature(rule).bind(self.trace, *args, **given)
        except TypeError as error:
            raise TypeError(
                f"np.{function.__name__} at {user_location()}: {error}; that is not supported on traced arrays"
            ) from None
        result = rule(*bound.args, **bound.kwargs)
        return result if out is None else stored(function.__name__, result, out)

    def __getattr__(self, name: str) -> Any:
        method = self._methods.get(name)
        if method is None:
            known = hasattr(np.ndarray, name)
            told = "; views are slices, transposes, reshapes, squeezes and diagonals, the rest is written with values"
            raise AttributeError(
                f"a traced array has no attribute {name!r}, asked for at {user_location()}{told if known else ''}"
            )
        return lambda *args, **kwargs: _called(method, name, self, *args, **kwargs)


def _called(method: Callable[..., Any], name: str, *args: Any, out: Any = None, **kwargs: Any) -> Any:
    """A method, its result into `out` where that is given."""
    try:
        inspect.signature(method).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name} at {user_location()}: {error}; that is not supported on traced arrays") from None
    found = method(*args, **kwargs)
    return found if out is None else stored(name, found, out)


def _is_repeated(ghost: Ghost | Outline) -> bool:
    if isinstance(ghost, Outline):
        return ghost.is_repeated
    return ghost.size > 0 and any(n > 1 and s == 0 for n, s in zip(ghost.shape, ghost.strides, strict=True))


def _is_writable(ghost: Ghost | Outline) -> bool:
    """By NumPy's rules, which the views of a stand-in follow as well."""
    return ghost.is_writable if isinstance(ghost, Outline) else ghost.flags.writeable


def _is_symbolic(item: Any) -> bool:
    """Whether an index is, or is bounded by, an expression of sizes."""
    return is_place(item) or (isinstance(item, slice) and any(map(is_place, (item.start, item.stop, item.step))))


def without_leading_ones(value: Tensor, ndim: int) -> Tensor:
    """A value to be assigned to `ndim` axes: NumPy drops leading axes of extent 1 beyond them."""
    extra = max(0, value.ndim - ndim)
    return value.reshape(value.shape[extra:]) if extra and all(map(is_one, value.extents[:extra])) else value


def kind_of(dtype: Any) -> DType:
    """A dtype as NumPy and torch understand it: Python's types are those of 64 bits."""
    return as_dtype(np.dtype(dtype).name if any(dtype is t for t in (float, int, bool)) else dtype)


def widened(value: Tensor) -> Tensor:
    """Sums of small integers are taken in 64 bits, as NumPy and torch take them."""
    kind = value.dtype
    if kind.is_float or (kind.bits == 64 and not kind.is_bool):
        return value
    return value.astype("uint64" if kind.kind == "u" else "int64")


def stored(what: str, result: Any, out: Any) -> Array:
    """`out=` of a NumPy function: its result goes into an array that is there."""
    (target,) = out if isinstance(out, tuple) else (out,)
    if not isinstance(target, Array):
        raise TypeError(
            f"in-place {what} at {user_location()}: a NumPy array that is no argument of the traced function would be "
            "mutated by values not known yet; make it an argument, or begin with np.zeros_like(x) or te.copy(array)"
        )
    check_kind(what, result.dtype, target.dtype, target.trace.torch)
    target.assign(result)
    return target


def check_kind(what: str, found: DType, own: DType, torch: bool) -> None:
    """Float results do not go into integers, nor signed ones into unsigned (torch: only floats are refused)."""
    ranks = {"b": 0, "u": 1, "i": 1 if torch else 2, "f": 3}
    if ranks[found.kind] > ranks[own.kind]:
        raise TypeError(
            f"in-place {what} at {user_location()}: the result is {found}, the target {own}; compute it out of "
            f"place, and convert: x[...] = y.astype({str(own)!r})"
        )


def lowered(value: Any, trace: Trace, dtype: DType | None = None) -> Tensor:
    """A tensor for any operand; one for an array of `dtype` has a number in all the digits of that."""
    found = as_operand(value, trace)
    if isinstance(found, Tensor):
        return found
    if dtype is not None and isinstance(found, float if dtype.is_float else int):
        found = fn.const(found, dtype)
    return as_tensor(found, "traced array")


def as_operand(value: Any, trace: Trace) -> Any:
    """What elementwise operations take: a tensor, or a Python number, which stays weak."""
    if isinstance(value, Array):
        return value.value
    if hasattr(value, "_selected_apply"):
        raise TypeError(
            f"x[mask] at {user_location()} has a length that depends on values; it can be assigned back under the same "
            "mask, x[mask] = ..., or written with np.where(mask, x, 0)"
        )
    if isinstance(value, (list, tuple, range)):
        if holds_arrays(value):
            return stack([lowered(v, trace) for v in value])
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return fn.const(value) if value.ndim == 0 else trace.capture(value)
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        return trace.capture(array_of(value))
    return value


def holds_arrays(value: Any) -> bool:
    """Whether a list has traced arrays among its entries, or theirs."""
    return any(isinstance(v, Array) or (isinstance(v, (list, tuple)) and holds_arrays(v)) for v in value)


def new_array(
    trace: Trace,
    value: Any,
    like: Sequence[Any] = (),
    *,
    is_value: bool | None = None,
    order: Ghost | Outline | None = None,
) -> Array:
    """A fresh storage holding `value`, its axes in memory as NumPy lays them out after `like`, or as in `order`."""
    if isinstance(value, Expr):
        scalar = value
        value = tensor_of((), lambda: scalar, "scalar")
    found = [o.ghost for o in like if isinstance(o, Array)] + ([] if order is None else [order])
    is_told = all(g.flags.c_contiguous for g in found if isinstance(g, Outline))
    memory: Any
    ghost: Any
    base: Layout | Outline
    if not all(isinstance(n, int) for n in value.shape) or (not is_told and value.ndim > 1):
        memory = ghost = base = whole(value.extents, is_ordered=all(g.flags.c_contiguous for g in found))
    else:
        ghosts = [g for g in found if isinstance(g, np.ndarray) and g is not order]
        memory = ghost = ghost_of_result(ghosts, value.shape) if ghosts else new_ghost(value.shape)
        if isinstance(order, np.ndarray) and order.shape == value.shape:
            memory, ghost = ghost_with(order.shape, order.strides)
        base = Layout.of(ghost, memory)
    storage = Storage(trace, memory, base, value)
    scalar_rank = not value.shape and not trace.torch
    return Array(storage, ghost, None, scalar_rank if is_value is None else is_value)
