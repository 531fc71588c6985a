"""The node of an operation on scalars: operands become expressions, are promoted as in NumPy 2, and fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from tedsl.lang.dtypes import (
    BOOL,
    BOTTOM,
    FLOAT32,
    FLOAT64,
    INT32,
    UINT64,
    DType,
    Kind,
    as_dtype,
    default_type,
    dtype_of_array,
    is_masked,
    promote,
)  # fmt: skip
from tedsl.lang.errors import user_location
from tedsl.lang.expr import Apply, Const, Expr, WeakFloat, unmarked
from tedsl.lang.folding import folded, select_node
from tedsl.lang.foreign import has_elements, values_of
from tedsl.lang.intervals import INT32_MAX
from tedsl.lang.keywords import own_arguments
from tedsl.lang.literals import literal
from tedsl.lang.operand_types import COMPARE, decided_by_type, types_of
from tedsl.lang.operators import Fn, Operators
from tedsl.lang.weak import is_weak_kind, kind_of, marked, settled, weak_float, widened

__all__ = ["Scalar", "apply", "as_expr", "const", "convert", "operand"]

Scalar = Any  # Expr, 0-rank tensor, or a Python / NumPy number


@own_arguments()
def const(value: object, dtype: object = None) -> Const:
    """A literal of a strong dtype (a bare Python number is weak: it takes the type of what it meets)."""
    if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0 and not is_masked(value):
        dtype = dtype_of_array(np.asarray(value)) if dtype is None else dtype
        value = value.item() if value.dtype.name != "bfloat16" else float(value)
    if not isinstance(value, (bool, int, float)):
        raise TypeError(
            f"te.const: expected a number, found {type(value).__name__} ({value!r:.60}), at {user_location()}"
        )
    target = default_type(_python_type(value)) if dtype is None else as_dtype(dtype)
    return Const(literal(value, target), target, typed=True)


_PYTHON_TYPES: tuple[type, ...] = (bool, int, float)


def _python_type(value: bool | int | float) -> type:
    return next(kind for kind in _PYTHON_TYPES if isinstance(value, kind))


def as_expr(value: Scalar) -> Expr:
    """The expression for a scalar that stands alone: literals and weak floats become float32, int32 or bool."""
    found = operand(value)
    if isinstance(found, WeakFloat):
        return settled(found, FLOAT32)
    return unmarked(found if isinstance(found, Expr) else const(found))


def operand(value: Scalar) -> Expr | bool | int | float:
    """An operand with its dtype, if it has one: an expression, or a Python number."""
    if isinstance(value, (Expr, bool, int, float)) and not isinstance(value, np.generic):
        return value if isinstance(value, Expr) or type(value) in _PYTHON_TYPES else _python_type(value)(value)
    if isinstance(value, Operators):
        return value.as_scalar()  # type: ignore[attr-defined,no-any-return]
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return const(value)
    is_array = has_elements(value)
    if is_array and getattr(value, "ndim", None) == 0:
        return const(values_of(value, f"an operand at {user_location()}"))
    hint = "; write te.constant(array), a tensor, of which an element is read as c[i]"
    hint = hint if is_array or isinstance(value, (list, tuple)) else ""
    if is_array and not isinstance(value, np.ndarray):
        raise TypeError(
            f"expected a scalar expression or a tensor of tedsl at {user_location()}, found an array, "
            f"{type(value).__module__}.{type(value).__name__}{hint}"
        )
    if isinstance(value, complex):
        hint = "; of complex numbers write the real and the imaginary part, as two expressions"
    raise TypeError(
        f"expected a scalar expression or a tensor of tedsl at {user_location()}, found {type(value).__name__} "
        f"({value!r:.60}){hint}"
    )


def _coerce(value: Expr | bool | int | float, dtype: DType) -> Expr:
    return convert(value, dtype) if isinstance(value, Expr) else Const(literal(value, dtype), dtype)


def convert(x: Scalar, dtype: object) -> Expr:
    """The scalar `x` converted to `dtype`."""
    target = dtype if dtype is BOTTOM else as_dtype(dtype)
    assert isinstance(target, DType)
    if type(x) in (int, float) and target.is_float:  # not by way of int32 or float32
        return Const(literal(x, target), target)
    value = settled(x, target) if isinstance(x, WeakFloat) else as_expr(x)
    if value.dtype is target:
        return value
    if isinstance(value, Const) and not (isinstance(value.value, float) and not target.is_float):
        try:
            return Const(literal(value.value, target), target)
        except (ValueError, OverflowError):
            pass  # an integer that wraps: left to the evaluator
    return Apply(Fn.CAST, (widened(value, target),), target)


# Of two operands of one dtype, which is that of their result, or of two weak ints.
_ALIKE = frozenset({Fn.ADD, Fn.SUB, Fn.MUL, Fn.FLOORDIV, Fn.MOD, Fn.MINIMUM, Fn.MAXIMUM})


def apply(fn: Fn, *operands: Scalar) -> Expr:
    """The node for `fn`, its operands promoted and, where they are integer constants, folded."""
    if fn in _ALIKE and (found := _of_alike(fn, *operands)) is not None:
        return found
    if fn is Fn.CAST:
        return marked(convert(*operands))
    raw = [operand(v) for v in operands]
    kinds = [kind_of(v) for v in raw]
    made = _combined(fn, [unmarked(v) if isinstance(v, Expr) else v for v in raw], kinds)
    is_typed = made.is_weak and not all(map(is_weak_kind, kinds[1:] if fn is Fn.SELECT else kinds))
    return marked(made) if is_typed else made


def _of_alike(fn: Fn, a: Scalar, b: Scalar) -> Expr | None:
    """The node of operands that need no promotion, as most do that analyses write; None of any others."""
    if isinstance(a, Expr):
        dtype = a.dtype
        if dtype is INT32 and a.is_weak:
            if type(b) is int and abs(b) <= INT32_MAX:
                return folded(fn, (a, Const(b, INT32)), INT32)
            if isinstance(b, Expr) and b.dtype is INT32 and b.is_weak:
                return folded(fn, (a, b), INT32)
        elif isinstance(b, Expr) and b.dtype is dtype and dtype.is_float:
            return None if isinstance(a, WeakFloat) or isinstance(b, WeakFloat) else Apply(fn, (a, b), dtype)
    return None


def _combined(fn: Fn, raw: list[Any], kinds: list[Kind]) -> Expr:
    if fn is Fn.SELECT:
        return _select(raw[0], raw[1], raw[2], kinds[1:])
    common = promote(kinds)
    if fn in COMPARE and common.is_integer and (decided := decided_by_type(fn, common, raw)) is not None:
        return decided
    if fn in COMPARE and (mixed := _mixed_signs(fn, raw)) is not None:
        return mixed
    fn, operand_type, result = types_of(fn, common, raw, kinds)
    if all(map(is_weak_kind, kinds)):
        if result.is_float or (fn is Fn.POW and _is_negative(raw[1])):
            return weak_float(fn, raw)
        operand_type = FLOAT64 if operand_type.is_float else operand_type  # compared as Python does
    if fn is Fn.POW and result.is_integer and _is_negative(raw[1]):
        raise ValueError(
            f"`{raw[0]}` is {result}, which its powers with the negative exponent {raw[1]} are not, at "
            f"{user_location()}; make it floats first, by te.cast or astype, or divide 1.0 by a power of it"
        )
    args = tuple(_coerce(v, operand_type) for v in raw)
    return folded(fn, args, result)


def _is_negative(value: Any) -> bool:
    value = value.value if isinstance(value, Const) else value
    return isinstance(value, int) and value < 0


def _mixed_signs(fn: Fn, raw: list[Any]) -> Expr | None:
    """A comparison of uint64 with a signed type, exact: their common type, float64, would round."""
    left, right = raw
    if not (isinstance(left, Expr) and isinstance(right, Expr)):
        return None
    signed = [v.dtype.kind == "i" for v in raw]
    if UINT64 not in {left.dtype, right.dtype} or not any(signed):
        return None
    number = left if signed[0] else right
    answer = apply(fn, *(convert(v, UINT64) for v in raw))
    below = apply(fn, *((-1, 0) if signed[0] else (0, -1)))
    return select_node(apply(Fn.LT, number, 0), below, answer)


def _select(cond: Any, a: Any, b: Any, kinds: list[Kind]) -> Expr:
    condition = as_expr(cond)
    if not condition.dtype.may_be_bool:
        raise TypeError(
            f"te.select at {user_location()}: the condition must be bool, found {condition.dtype} `{condition}`; "
            "write a comparison such as x != 0"
        )
    condition, dtype = convert(condition, BOOL), promote(kinds)
    if dtype.is_float and all(map(is_weak_kind, kinds)):
        return weak_float(Fn.SELECT, [condition, a, b])
    return select_node(condition, _coerce(a, dtype), _coerce(b, dtype))


Expr._apply = staticmethod(apply)
