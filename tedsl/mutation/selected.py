"""x[mask] while its length is not known: the elements stay at their places, and only those under the mask count.

It is an array of which one axis has an unknown length. That axis stands for the axes of the mask; the others are those
of the array, along which values broadcast as in NumPy: `x[mask] += row`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tedsl.lang import functions as fn
from tedsl.lang.arrays import METHODS
from tedsl.lang.broadcast import broadcast_shapes, broadcast_to, element_at
from tedsl.lang.dtypes import DType, as_dtype
from tedsl.lang.elements import is_one, normal_axes, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr, Read
from tedsl.lang.operators import Fn, Operators
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.structure import same_program
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.mutation.array import (
    Array,
    as_operand,
    check_kind,
    kind_of,
    lowered,
    new_array,
    widened,
    without_leading_ones,
)
from tedsl.mutation.tracing import Trace

__all__ = ["Selected", "spread"]


class Selected(Operators[Any]):
    """The elements of `full` where `mask` holds; the axes of the mask begin at `place`."""

    __slots__ = ("full", "mask", "place", "trace")
    # Further parts, attached by tedsl.mutation.methods, which builds on this module.
    _methods: dict[str, Callable[..., Any]] = {}  # noqa: RUF012 - one table, filled once
    _numpy: dict[Any, Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self, trace: Trace, full: Tensor, mask: Tensor, place: int) -> None:
        self.trace = trace
        self.full = full
        self.mask = mask
        self.place = place

    @property
    def ndim(self) -> int:
        return self.full.ndim - self.mask.ndim + 1

    @property
    def dtype(self) -> DType:
        return self.full.dtype

    @property
    def behind(self) -> int:
        """The number of axes behind that of unknown length."""
        return self.full.ndim - self.place - self.mask.ndim

    def over(self, operand: Any) -> Any:
        """An operand as a tensor over the places of the selected elements, as far as it has axes; numbers stay."""
        if isinstance(operand, Selected):
            if not _is_same(operand.mask, self.mask):
                raise TypeError(
                    f"x[mask] meets y[other] at {user_location()}: both must be selected by the same mask, computed "
                    "from the same values: m = x > 0; x[m] = y[m]"
                )
            if operand.behind != self.behind:
                raise TypeError(
                    f"x[mask] of {self.ndim} axes meets y[mask] of {operand.ndim} at {user_location()}: the axis of "
                    "unknown length would meet one of another length; give it new axes, y[mask][:, None]"
                )
            return operand.full
        value = as_operand(operand, self.trace)
        return spread(value, self.mask.ndim, self.behind) if isinstance(value, Tensor) else value

    @staticmethod
    def _apply(f: Fn, *operands: Any) -> Any:
        return Selected._selected_apply(f, *operands)

    @staticmethod
    def _selected_apply(f: Fn, *operands: Any) -> Selected:
        """The operation on the selected elements only: the others take no part, not even in a division by zero."""
        own = next(o for o in operands if isinstance(o, Selected))
        if f is Fn.CAST:
            return own.cast(operands[1])
        fulls = [own.over(o) for o in operands]
        shape = broadcast_shapes([o for o in fulls if isinstance(o, Tensor)], f"x[mask], {f.value}")
        place = len(shape) - own.behind - own.mask.ndim

        def element(*axes: Any) -> Expr:
            value = fn.apply(f, *(element_at(o, axes) for o in fulls))
            holds = Read(own.mask, axes[place : place + own.mask.ndim])
            return fn.select_node(holds, value, fn.convert(0, value.dtype))

        return Selected(own.trace, tensor_of(shape, element, f.value), own.mask, place)

    def update(self, f: Fn, *others: Any) -> Selected:
        """x[mask] += v: this copy changes, and Python then assigns it to x[mask]."""
        result = self._selected_apply(f, self, *others)
        if result.ndim != self.ndim or not _are_alike(result.full, self.full):
            found, own = shape_text(result.full.extents), shape_text(self.full.extents)
            raise ValueError(
                f"in-place {f.value} at {user_location()}: the result would lie over places of shape {found}, the "
                f"target lies over {own}; an in-place operation cannot make its target larger"
            )
        check_kind(f.value, result.dtype, self.dtype, self.trace.torch)
        self.full = result.full.astype(self.dtype)
        return self

    def detached(self) -> Selected:
        """The same elements, constants to derivatives."""
        return Selected(self.trace, fn.stop_gradient(self.full), self.mask, self.place)

    def assign(self, value: Any) -> None:
        """Every selected element replaced: x[mask] is a copy, which this changes."""
        self.full = self.replaced(value).astype(self.dtype)

    def replaced(self, value: Any) -> Tensor:
        """A value to be assigned to all of it, over its places."""
        if not isinstance(value, Selected):
            value = without_leading_ones(lowered(value, self.trace, self.dtype), self.ndim)
        try:
            return broadcast_to(self.over(value), self.full.shape)
        except ValueError as error:
            shape = shape_text((value.full if isinstance(value, Selected) else value).extents)
            raise ValueError(
                f"x[mask] = v at {user_location()}: v of shape {shape} does not broadcast to the selected elements of "
                f"an array of shape {shape_text(self.full.extents)} under a mask of shape "
                f"{shape_text(self.mask.extents)}"
            ) from error

    def cast(self, dtype: Any) -> Selected:
        """The selected elements in another dtype."""
        return Selected(self.trace, self.full.astype(kind_of(dtype)), self.mask, self.place)

    def copy(self) -> Selected:
        """The same elements, which no later statement changes."""
        return Selected(self.trace, self.full, self.mask, self.place)

    def reduced(self, kind: str, axis: Any = None, keepdims: bool = False) -> Any:
        """A builtin reduction of the selected elements, over all axes or some."""
        gone = normal_axes(axis, self.ndim, f"x[mask].{kind}")
        places = self._places(gone)
        counted = self.place in gone
        own = self.cast(widened(self.full).dtype) if kind in ("sum", "prod") else self
        source = _neutral(kind, own) if counted else own.full
        found = METHODS[kind](source, places, keepdims)
        if counted:
            return new_array(self.trace, self._with_one_axis(found) if keepdims else found)
        before = sum(d < self.place for d in gone) if not keepdims else 0
        return Selected(self.trace, found, self.mask, self.place - before)

    def averaged(self, axis: Any = None, keepdims: bool = False) -> Any:
        """The sum by the number of elements; of none it is NaN."""
        kind = self.dtype if self.dtype.is_float else as_dtype("float64")
        work = as_dtype("float32") if kind.bits == 16 else kind
        ones = Selected(self.trace, broadcast_to(1, self.full.shape).astype(work), self.mask, self.place)
        total, count = (s.reduced("sum", axis, keepdims) for s in (self.cast(work), ones))
        return (total / count).astype(kind) if kind is not work else total / count

    def _places(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Axes of the selected elements as axes of `full`."""
        width = self.mask.ndim
        found: list[int] = []
        for d in axes:
            if d == self.place:
                found += range(d, d + width)
            else:
                found.append(d if d < self.place else d + width - 1)
        return tuple(found)

    def _with_one_axis(self, value: Tensor) -> Tensor:
        """A value whose axes of the mask, reduced to 1 each, become one."""
        shape = value.shape
        return value.reshape((*shape[: self.place], 1, *shape[self.place + self.mask.ndim :]))

    def __getitem__(self, key: Any) -> Selected:
        items = self._items(key)
        place = sum(not isinstance(i, int) for i in items[: self._position(items)])
        at = self._position(items)
        wide = (*items[:at], *(slice(None),) * self.mask.ndim, *items[at + 1 :])
        return Selected(self.trace, new_array(self.trace, self.full, is_value=False).part(wide).value, self.mask, place)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not all(isinstance(i, slice) and i == slice(None) for i in self._items(key)):
            raise TypeError(
                f"x[mask][...] = v at {user_location()}: x[mask] is a copy; assign to x under the mask, x[mask, 0] = v"
            )
        self.assign(value)

    def _items(self, key: Any) -> list[Any]:
        """A key of slices, integers and None, with one item for each axis."""
        items = list(key) if isinstance(key, tuple) else [key]
        if not all(i is None or i is Ellipsis or isinstance(i, (slice, int)) for i in items):
            self._refuse("[y]")
        used = sum(i is not None and i is not Ellipsis for i in items)
        at = next((p for p, i in enumerate(items) if i is Ellipsis), len(items))
        items = [*items[:at], *[slice(None)] * (self.ndim - used), *items[at + 1 :]]
        if used > self.ndim or items[self._position(items)] != slice(None):
            self._refuse(f"[{repr(key).strip('()')}]")
        return items

    def _position(self, items: Sequence[Any]) -> int:
        """Where among the items that of the axis of unknown length stands."""
        axes = [p for p, i in enumerate(items) if i is not None]
        return axes[self.place]

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Selected) and self.ndim == other.ndim == 1:
            return (self * other).reduced("sum")
        value = None if isinstance(other, Selected) else lowered(other, self.trace)
        if value is None or self.behind == 0 or value.ndim > 2:
            self._refuse(" @ y")
        return Selected(self.trace, self.full @ value, self.mask, self.place)

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(
            f"x[mask]{what} at {user_location()}: the length of x[mask] depends on values; it can be computed with, "
            "reduced (mask.sum() is its length) and assigned back under the same mask, x[mask] = ..."
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = self._methods.get(name)
        if method is None:
            self._refuse(f".{name}")
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __len__(self) -> int:
        self._refuse(" under len()")

    def __iter__(self) -> NoReturn:
        self._refuse(" in a loop")

    def __contains__(self, item: Any) -> bool:
        self._refuse(" after in")

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of x[mask] is asked for at {user_location()}, but values are not known")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse(" as a NumPy array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return Array.__array_ufunc__(self, ufunc, method, *inputs, **kwargs)  # type: ignore[arg-type]

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return Array.__array_function__(self, function, types, args, kwargs)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"x[mask] of a traced array : {self.dtype}{shape_text(self.full.extents)}"


def spread(value: Tensor, masked: int, behind: int) -> Tensor:
    """A value for x[mask], whose axis of unknown length becomes the axes of the mask: there it must be 1."""
    if value.ndim <= behind:
        return value
    at = value.ndim - behind - 1
    if not is_one(value.extents[at]):
        raise TypeError(
            f"x[mask] meets an array of shape {shape_text(value.extents)} at {user_location()}: its axis {at} has one "
            "value per selected element, and their number is not known while the function is traced; select it under "
            "the same mask, y[mask], or use np.where(mask, y, x) with y of the shape of x"
        )
    shape = value.shape
    return value.reshape((*shape[:at], *(1,) * masked, *shape[at + 1 :]))


def _are_alike(a: Tensor, b: Tensor) -> bool:
    return a.ndim == b.ndim and broadcast_shapes([a, b], "x[mask]") == b.extents


def _neutral(kind: str, x: Selected) -> Tensor:
    """The elements with what changes nothing in place of those that are not selected."""
    dtype, full = x.dtype, x.full
    if kind in ("any", "all") and not dtype.is_bool:
        full, dtype = tensor_of(full.extents, lambda *axes: Read(x.full, axes) != 0, "truth"), as_dtype("bool")
    identity = BUILTIN[kind].identity_of(dtype)
    return tensor_of(
        full.extents,
        lambda *axes: fn.select_node(Read(x.mask, axes[x.place : x.place + x.mask.ndim]), Read(full, axes), identity),
        "selected",
    )


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two masks are one, or computed in the same way from the same tensors."""
    if a is b:
        return True
    leaves = [[op.output() for op in stages_of([m]) if not op.inputs] for m in (a, b)]
    if any(isinstance(op, Extern) for op in stages_of([a])) or len(leaves[0]) != len(leaves[1]):
        return False
    return all(map(operator.is_, *leaves)) and same_program(a, b, *leaves)


def _in_place(f: Fn) -> Any:
    return lambda self, other: self.update(f, other)


for _name, _fn in {
    "iadd": Fn.ADD, "isub": Fn.SUB, "imul": Fn.MUL, "itruediv": Fn.DIV, "ifloordiv": Fn.FLOORDIV, "imod": Fn.MOD,
    "ipow": Fn.POW, "iand": Fn.BITAND, "ior": Fn.BITOR, "ixor": Fn.BITXOR, "ilshift": Fn.LSHIFT, "irshift": Fn.RSHIFT,
}.items():  # fmt: skip
    setattr(Selected, f"__{_name}__", _in_place(_fn))
