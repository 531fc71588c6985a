"""x[mask] while its length is not known: the elements stay at their places, and only those under the mask count."""

from __future__ import annotations

import operator
from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.broadcast import broadcast_to
from tedsl.lang.elements import tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Expr, Read
from tedsl.lang.operators import Fn, Operators
from tedsl.lang.structure import same_program
from tedsl.lang.tensor import Extern, Tensor
from tedsl.lang.traverse import stages_of
from tedsl.mutation.array import Array, check_kind, lowered, new_array
from tedsl.mutation.tracing import Trace

__all__ = ["Selected"]


class Selected(Operators):
    """The elements of `full` where `mask` holds; the mask covers the axes from `place` on."""

    __slots__ = ("full", "mask", "place", "trace")

    def __init__(self, trace: Trace, full: Tensor, mask: Tensor, place: int) -> None:
        self.trace = trace
        self.full = full
        self.mask = mask
        self.place = place

    def under(self, mask: Tensor, place: int, shape: tuple[int, ...]) -> Tensor:
        """The elements in place, for an assignment under the same mask."""
        if place != self.place or self.full.shape != shape or not _is_same(mask, self.mask):
            raise TypeError(
                f"x[mask] = y[other] at {user_location()}: both sides must be selected by the same mask, computed "
                "from the same values: m = x > 0; x[m] = y[m]"
            )
        return self.full

    @staticmethod
    def _apply(f: Fn, *operands: Any) -> Any:
        return Selected._selected_apply(f, *operands)

    @staticmethod
    def _selected_apply(f: Fn, *operands: Any) -> Selected:
        """The operation on the selected elements only: the others take no part, not even in a division by zero."""
        own = next(o for o in operands if isinstance(o, Selected))
        fulls = [_full(o, own) for o in operands]

        def element(*axes: Any) -> Expr:
            inner = axes[own.place : own.place + own.mask.ndim]
            at = [Read(o, axes) if isinstance(o, Tensor) and o.ndim else o for o in fulls]
            value = fn.apply(f, *at)
            return fn.select_node(Read(own.mask, inner), value, fn.convert(0, value.dtype))

        return Selected(own.trace, tensor_of(own.full.extents, element, f.value), own.mask, own.place)

    def update(self, f: Fn, other: Any) -> Selected:
        """x[mask] += v: this copy changes, and Python then assigns it to x[mask]."""
        result = self._selected_apply(f, self, other)
        check_kind(f.value, result.full.dtype, self.full.dtype, self.trace.torch)
        self.full = result.full.astype(self.full.dtype)
        return self

    def assign(self, value: Any) -> None:
        """Every selected element replaced: x[mask] is a copy, which this changes."""
        full = _full(value, self)
        if not isinstance(full, Tensor) or not full.ndim:
            full = broadcast_to(lowered(full, self.trace, self.full.dtype), self.full.shape)
        check_kind("assignment", full.dtype, self.full.dtype, self.trace.torch)
        self.full = full.astype(self.full.dtype)

    def cast(self, dtype: Any) -> Selected:
        """The selected elements in another dtype."""
        return Selected(self.trace, self.full.astype(dtype), self.mask, self.place)

    def sum(self) -> Any:
        """The sum of the selected elements."""
        zeroed = tensor_of(
            self.full.extents,
            lambda *axes: fn.select_node(
                Read(self.mask, axes[self.place : self.place + self.mask.ndim]),
                Read(self.full, axes),
                fn.convert(0, self.full.dtype),
            ),
            "selected",
        )
        return new_array(self.trace, zeroed.sum())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TypeError(
            f"x[mask].{name} at {user_location()}: the length of x[mask] depends on values; it can be computed with, "
            "summed and assigned back under the same mask, x[mask] = ..."
        )

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of x[mask] is asked for at {user_location()}, but values are not known")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return Array.__array_ufunc__(self, ufunc, method, *inputs, **kwargs)  # type: ignore[arg-type]

    @property
    def _numpy(self) -> Any:
        return Array._numpy


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
    "ipow": Fn.POW, "iand": Fn.BITAND, "ior": Fn.BITOR, "ixor": Fn.BITXOR,
}.items():  # fmt: skip
    setattr(Selected, f"__{_name}__", _in_place(_fn))


def _full(operand: Any, own: Selected) -> Any:
    """An operand over the places of `own`."""
    if isinstance(operand, Selected):
        return operand.under(own.mask, own.place, own.full.shape)
    if isinstance(operand, (bool, int, float)):
        return operand
    tensor = lowered(operand, own.trace)
    if tensor.ndim:
        raise TypeError(
            f"x[mask] meets an array of shape {tensor.shape} at {user_location()}: the number of selected elements "
            "is not known; select it under the same mask, y[mask], or use np.where(mask, ..., x)"
        )
    return tensor
