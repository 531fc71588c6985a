"""Whole-tensor arithmetic with NumPy's broadcasting: each operation is a pointwise compute underneath."""

from __future__ import annotations

from typing import Any

from tedsl.lang import functions as fn
from tedsl.lang.axes import as_shape
from tedsl.lang.constants import constants_of_lists
from tedsl.lang.dtypes import BOOL, INT8, INT32, as_dtype
from tedsl.lang.elements import as_tensor, is_one, scalar_operand, shape_text, tensor_of
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import same_extent, two_of_a_name
from tedsl.lang.keywords import own_arguments
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Shape, Tensor
from tedsl.lang.titles import takes_variables, takes_variables_only

__all__ = ["broadcast_shapes", "broadcast_to", "element_at", "elementwise", "expression_operator", "where"]

_ZERO = Const(0, INT32)
_NAMES = {Fn.AND: "logical_and", Fn.OR: "logical_or", Fn.NOT: "logical_not"}  # the others are called as they print


@takes_variables_only
def elementwise(f: Fn, *operands: Any) -> Any:
    """`f` on tensors element by element; a scalar expression when only scalars and 0-rank tensors meet one."""
    if f is Fn.CAST:
        return _cast(*operands)
    name = _NAMES.get(f, f.value)
    what = f"te.{name}"
    tensors = [o for o in operands if isinstance(o, Tensor)]
    if f is Fn.POW and type(operands[1]) is int and operands[1] == 2 and tensors and tensors[0].dtype is BOOL:
        operands = operands[0], Const(2, INT8)  # NumPy makes it a square, which of bools is int8
    if not any(t.extents for t in tensors) and any(isinstance(o, Expr) for o in operands):
        return fn.apply(f, *operands)
    operands = tuple(constants_of_lists(operands, what, f is Fn.SELECT))
    tensors = [o for o in operands if isinstance(o, Tensor)]
    for operand in operands:
        scalar_operand(operand, what)
    shape = broadcast_shapes(tensors, what)
    return tensor_of(shape, lambda *axes: fn.apply(f, *(element_at(o, axes) for o in operands)), name)


def _cast(x: Tensor, dtype: object) -> Tensor:
    target = as_dtype(dtype)
    if x.dtype is target:
        return x
    return tensor_of(x.extents, lambda *axes: fn.convert(Read(x, axes), target), f"{x.name}_{target}")


def element_at(operand: Any, axes: tuple[Axis, ...]) -> Any:
    """The element of an operand that a broadcast over `axes` uses."""
    if not isinstance(operand, Tensor):
        return operand
    own = axes[len(axes) - operand.ndim :]
    pairs = zip(operand.extents, own, strict=True)
    return Read(operand, tuple(_ZERO if is_one(n) and n is not a.extent else a for n, a in pairs))


def broadcast_shapes(tensors: list[Tensor], what: str) -> Shape:
    """The common shape: extents are aligned at the end, 1 stretches, all others must be equal."""
    ndim = max((t.ndim for t in tensors), default=0)
    shape: list[Expr] = []
    for back in range(ndim, 0, -1):
        found: Expr | None = None
        for tensor in tensors:
            extent = tensor.extents[-back] if tensor.ndim >= back else None
            if extent is None or extent is found or (is_one(extent) and found is not None):
                continue
            if found is not None and not is_one(found) and not same_extent(extent, found):
                listed = " and ".join(f"{t.name} {shape_text(t.extents)}" for t in tensors)
                raise ValueError(
                    f"{what} at {user_location()}: shapes do not broadcast: {listed}; dimension -{back} is "
                    f"{found} in one and {extent} in another; expected equal extents or 1"
                    f"{two_of_a_name(found, extent)}"
                )
            found = extent if found is None or is_one(found) else found
        assert found is not None
        shape.append(found)
    return tuple(shape)


@takes_variables
def broadcast_to(x: Any, shape: Any) -> Tensor:
    """`x` repeated along extents of 1, and along new leading axes, to `shape`."""
    from_tensor = as_tensor(x, "te.broadcast_to")
    extents = as_shape(shape, "te.broadcast_to")
    own = from_tensor.extents
    fits = len(own) <= len(extents) and all(
        is_one(a) or same_extent(a, b) for a, b in zip(own, extents[len(extents) - len(own) :], strict=True)
    )
    if not fits:
        raise ValueError(
            f"te.broadcast_to at {user_location()}: {from_tensor!r} does not broadcast to {shape_text(extents)}"
        )
    return tensor_of(extents, lambda *axes: element_at(from_tensor, axes), f"{from_tensor.name}_wide")


@own_arguments()
@takes_variables
def where(cond: Any, a: Any = None, b: Any = None) -> Any:
    """`a` where `cond`, else `b`, with broadcasting; the same as te.select."""
    if a is None and b is None:
        raise TypeError(
            f"te.where(cond) at {user_location()}: how many places there are would depend on data; "
            "te.where(cond, a, b) chooses, x.sum(where=cond) leaves out, te.count_nonzero(cond) counts"
        )
    return fn.select(cond, a, b)


def expression_operator(f: Fn, *operands: Any) -> Any:
    """An operator of a scalar expression: with a whole tensor on its other side it works element by element."""
    for operand in operands:
        if isinstance(operand, Tensor) and operand.extents:
            return elementwise(f, *operands)
    return fn.apply(f, *operands)
