"""Builders of pointwise expressions: they promote operands as NumPy 2 does, check kinds and fold integer constants.

Every function here takes scalars (expressions, 0-rank tensors, Python and NumPy numbers) and gives an expression; given
a whole tensor it works element by element (see `tedsl.lang.broadcast`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tedsl.lang.dtypes import (
    BOOL,
    BOTTOM,
    FLOAT32,
    FLOAT64,
    INDEX,
    INT8,
    UINT64,
    DType,
    Kind,
    as_dtype,
    default_type,
    divide_type,
    dtype_of_array,
    float_type,
    integer_bounds,
    is_masked,
    promote,
)
from tedsl.lang.errors import ZeroDivisorError, user_location
from tedsl.lang.expr import FALSE, TRUE, Apply, Const, Expr, WeakFloat, unmarked
from tedsl.lang.literals import literal
from tedsl.lang.operators import Fn, Operators
from tedsl.lang.weak import is_weak_kind, kind_of, marked, settled, weak_float, widened

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "cbrt",
    "ceil",
    "clip",
    "const",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "pow",
    "relu",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]  # fmt: skip

COMPARE = frozenset({Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE})
FLOAT_UNARY = frozenset({
    Fn.EXP, Fn.EXP2, Fn.EXPM1, Fn.LOG, Fn.LOG1P, Fn.LOG2, Fn.LOG10, Fn.SQRT, Fn.RSQRT, Fn.CBRT, Fn.SIN, Fn.COS, Fn.TAN,
    Fn.ASIN, Fn.ACOS, Fn.ATAN, Fn.SINH, Fn.COSH, Fn.TANH, Fn.ASINH, Fn.ACOSH, Fn.ATANH, Fn.ERF, Fn.ERFC, Fn.SIGMOID,
})  # fmt: skip
FLOAT_BINARY = frozenset({Fn.ATAN2, Fn.HYPOT, Fn.COPYSIGN})
ROUNDING = frozenset({Fn.FLOOR, Fn.CEIL, Fn.ROUND, Fn.TRUNC})
CLASSIFY = frozenset({Fn.ISNAN, Fn.ISINF, Fn.ISFINITE})
LOGIC = frozenset({Fn.AND, Fn.OR, Fn.NOT})
BITS = {Fn.BITAND: Fn.AND, Fn.BITOR: Fn.OR, Fn.BITXOR: Fn.NE, Fn.INVERT: Fn.NOT}
SHIFTS = frozenset({Fn.LSHIFT, Fn.RSHIFT})
# On bools NumPy reads these as logic.
BOOL_ARITHMETIC = {Fn.ADD: Fn.OR, Fn.MUL: Fn.AND, Fn.MINIMUM: Fn.AND, Fn.MAXIMUM: Fn.OR}

Scalar = Any  # Expr, 0-rank tensor, or a Python / NumPy number


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
    is_array = isinstance(value, (np.ndarray, list, tuple))
    hint = "; te.constant(array) makes it a tensor, of which an element is read: c[i]" if is_array else ""
    raise TypeError(
        f"expected a scalar expression at {user_location()}, found {type(value).__name__} ({value!r:.60}){hint}"
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


def apply(fn: Fn, *operands: Scalar) -> Expr:
    """The node for `fn`, its operands promoted and, where they are integer constants, folded."""
    if fn is Fn.CAST:
        return marked(convert(*operands))
    raw = [operand(v) for v in operands]
    kinds = [kind_of(v) for v in raw]
    made = _combined(fn, [unmarked(v) if isinstance(v, Expr) else v for v in raw], kinds)
    is_typed = made.is_weak and not all(map(is_weak_kind, kinds[1:] if fn is Fn.SELECT else kinds))
    return marked(made) if is_typed else made


def _combined(fn: Fn, raw: list[Any], kinds: list[Kind]) -> Expr:
    if fn is Fn.SELECT:
        return _select(raw[0], raw[1], raw[2], kinds[1:])
    common = promote(kinds)
    if fn in COMPARE and common.is_integer and (decided := _decided(fn, common, raw)) is not None:
        return decided
    if fn in COMPARE and (mixed := _mixed_signs(fn, raw)) is not None:
        return mixed
    fn, operand_type, result = _typing(fn, common, raw, kinds)
    if all(map(is_weak_kind, kinds)):
        if result.is_float or (fn is Fn.POW and _is_negative(raw[1])):
            return weak_float(fn, raw)
        operand_type = FLOAT64 if operand_type.is_float else operand_type  # compared as Python does
    args = tuple(_coerce(v, operand_type) for v in raw)
    return _folded(fn, args, result)


def _is_negative(value: Any) -> bool:
    value = value.value if isinstance(value, Const) else value
    return isinstance(value, int) and value < 0


def _typing(fn: Fn, common: DType, raw: list[Any], kinds: list[Kind]) -> tuple[Fn, DType, DType]:
    """Operation, operand type and result type."""
    if fn in BITS or fn in SHIFTS:
        if common.is_bool and fn in BITS:
            return BITS[fn], BOOL, BOOL
        if not common.may_be_integer and not common.is_bool:
            raise TypeError(_refusal(fn, raw, "bool or integer operands"))
        kind = INT8 if common.is_bool else common
        return fn, kind, kind
    if fn in LOGIC:
        if not common.may_be_bool:
            raise TypeError(_refusal(fn, raw, "bool operands; write a comparison such as x != 0"))
        return fn, BOOL, BOOL
    if fn in COMPARE:
        return fn, common, BOOL
    if fn in FLOAT_UNARY or fn in FLOAT_BINARY or fn in CLASSIFY:
        kind = _float_kind(common, kinds)
        return fn, kind, BOOL if fn in CLASSIFY else kind
    if fn is Fn.DIV:
        kind = divide_type(common)
        return fn, kind, kind
    if common.is_bool:
        return _bool_typing(fn, raw)
    return fn, common, common


def _float_kind(common: DType, kinds: list[Kind]) -> DType:
    """The type in which exp, atan2, ... are evaluated; float32 for weak numbers alone."""
    strong = [kind for kind in kinds if isinstance(kind, DType) and kind is not INDEX]
    if len(strong) == len(kinds):
        return promote(float_type(d) for d in strong)
    return float_type(common) if strong else FLOAT32


def _bool_typing(fn: Fn, raw: list[Any]) -> tuple[Fn, DType, DType]:
    if fn in BOOL_ARITHMETIC:
        return BOOL_ARITHMETIC[fn], BOOL, BOOL
    if fn in (Fn.SUB, Fn.NEG, Fn.SIGN):
        raise TypeError(_refusal(fn, raw, "numbers; use ^ or ~ on bools, or te.cast them first"))
    if fn in (Fn.ABS, Fn.RELU, Fn.CLIP) or fn in ROUNDING:
        return fn, BOOL, BOOL
    return fn, INT8, INT8


def _decided(fn: Fn, common: DType, raw: list[Any]) -> Const | None:
    """A comparison with a Python integer that the other side's type cannot hold has one answer."""
    low, high = integer_bounds(common)
    for place, value in enumerate(raw):
        if type(value) is int and not low <= value <= high:
            left_is_less = (value < low) == (place == 0)
            true = (Fn.NE, Fn.LT, Fn.LE) if left_is_less else (Fn.NE, Fn.GT, Fn.GE)
            return TRUE if fn in true else FALSE
    return None


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


def _refusal(fn: Fn, raw: list[Any], expected: str) -> str:
    found = ", ".join(v.dtype if isinstance(v, Expr) else type(v).__name__ for v in raw)
    return f"{fn.value} at {user_location()}: expected {expected}; found {found}"


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


def select_node(condition: Expr, a: Expr, b: Expr) -> Expr:
    """select of promoted operands; a constant condition or equal branches fold."""
    if condition is TRUE or a is b:
        return a
    return b if condition is FALSE else Apply(Fn.SELECT, (condition, a, b), a.dtype)


_FOLD: dict[Fn, Callable[..., Any]] = {
    Fn.ADD: lambda a, b: a + b, Fn.SUB: lambda a, b: a - b, Fn.MUL: lambda a, b: a * b, Fn.NEG: lambda a: -a,
    Fn.FLOORDIV: lambda a, b: a // b, Fn.MOD: lambda a, b: a % b, Fn.MINIMUM: min, Fn.MAXIMUM: max, Fn.ABS: abs,
    Fn.EQ: lambda a, b: a == b, Fn.NE: lambda a, b: a != b, Fn.LT: lambda a, b: a < b, Fn.LE: lambda a, b: a <= b,
    Fn.GT: lambda a, b: a > b, Fn.GE: lambda a, b: a >= b, Fn.CLIP: lambda x, low, high: min(max(x, low), high),
}  # fmt: skip


def _folded(fn: Fn, args: tuple[Expr, ...], dtype: DType) -> Expr:
    """The node, or something simpler that is equal for every value (floats are left alone: NaN, -0.0)."""
    if dtype.is_bool and fn in LOGIC:
        return _fold_logic(fn, args)
    if fn in ROUNDING and not args[0].dtype.is_float:
        return args[0]
    if not args[0].dtype.is_integer:
        return Apply(fn, args, dtype)
    last = args[-1]
    if fn in (Fn.FLOORDIV, Fn.MOD) and isinstance(last, Const) and last.value == 0:
        raise ZeroDivisorError(f"integer {fn.value} by the constant 0 at {user_location()}: `{args[0]}`")
    if fn in _FOLD and all(isinstance(a, Const) for a in args):
        value = _FOLD[fn](*(a.value for a in args))  # type: ignore[attr-defined]
        low, high = integer_bounds(dtype)
        if low <= value <= high:
            return Const(value, dtype)
    return _identity(fn, args, dtype)


# fn -> (value neutral on the left, value neutral on the right)
_NEUTRAL: dict[Fn, tuple[int | None, int | None]] = {
    Fn.ADD: (0, 0), Fn.SUB: (None, 0), Fn.MUL: (1, 1), Fn.FLOORDIV: (None, 1),
}  # fmt: skip


def _identity(fn: Fn, args: tuple[Expr, ...], dtype: DType) -> Expr:
    """x + 0, x * 1, x // 1, x * 0, x % 1 of integers."""
    left, right = _NEUTRAL.get(fn, (None, None))
    values = [a.value if isinstance(a, Const) else None for a in args]
    if right is not None and values[-1] == right:
        return args[0]
    if left is not None and values[0] == left:
        return args[1]
    if (fn is Fn.MUL and 0 in values) or (fn is Fn.MOD and values[-1] == 1):
        return Const(0, dtype)
    return Apply(fn, args, dtype)


def _fold_logic(fn: Fn, args: tuple[Expr, ...]) -> Expr:
    if fn is Fn.NOT:
        inner = args[0]
        if isinstance(inner, Const):
            return FALSE if inner is TRUE else TRUE
        return inner.args[0] if isinstance(inner, Apply) and inner.fn is Fn.NOT else Apply(fn, args, BOOL)
    neutral, absorbing = (TRUE, FALSE) if fn is Fn.AND else (FALSE, TRUE)
    a, b = args
    if a is absorbing or b is absorbing:
        return absorbing
    if a is apply(Fn.NOT, b):
        return absorbing
    if a is neutral or a is b:
        return b
    return a if b is neutral else Apply(fn, args, BOOL)


Expr._apply = staticmethod(apply)


def _dispatch(fn: Fn, operands: tuple[Any, ...]) -> Any:
    """`fn` on scalars, or element by element when an operand is a whole tensor."""
    for operand in operands:
        if isinstance(operand, Operators):
            return operand._apply(fn, *operands)
    return apply(fn, *operands)


def cast(x: Any, dtype: object) -> Any:
    """`x` converted to `dtype`; floats outside an integer type's range saturate, NaN gives 0."""
    return x._apply(Fn.CAST, x, dtype) if isinstance(x, Operators) else apply(Fn.CAST, x, dtype)


def select(cond: Any, a: Any, b: Any) -> Any:
    """`a` where `cond`, else `b`; only the branch taken is read and computed."""
    return _dispatch(Fn.SELECT, (cond, a, b))


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two; NaN if either is. The gradient at a tie is halved."""
    return _dispatch(Fn.MINIMUM, (a, b))


def maximum(a: Any, b: Any) -> Any:
    """The larger of two; NaN if either is. The gradient at a tie is halved."""
    return _dispatch(Fn.MAXIMUM, (a, b))


def clip(x: Any, low: Any, high: Any) -> Any:
    """`x` held within [low, high]; the gradient is 1 there, bounds included."""
    return _dispatch(Fn.CLIP, (x, low, high))


def relu(x: Any) -> Any:
    """max(x, 0), with gradient 0 at 0."""
    return _dispatch(Fn.RELU, (x,))


def pow(x: Any, y: Any) -> Any:
    """x to the power y; d/dx pow(x, 0) is 0 everywhere."""
    return _dispatch(Fn.POW, (x, y))


def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y)."""
    return _dispatch(Fn.ATAN2, (y, x))


def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow on the way."""
    return _dispatch(Fn.HYPOT, (x, y))


def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    return _dispatch(Fn.COPYSIGN, (x, y))


def logical_and(a: Any, b: Any) -> Any:
    """Both conditions."""
    return _dispatch(Fn.AND, (a, b))


def logical_or(a: Any, b: Any) -> Any:
    """Either condition."""
    return _dispatch(Fn.OR, (a, b))


def logical_not(a: Any) -> Any:
    """The opposite condition."""
    return _dispatch(Fn.NOT, (a,))


def abs(x: Any) -> Any:
    """The magnitude; its gradient at 0 is 0."""
    return _dispatch(Fn.ABS, (x,))


def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN stays NaN."""
    return _dispatch(Fn.SIGN, (x,))


def exp(x: Any) -> Any:
    """e to the power x."""
    return _dispatch(Fn.EXP, (x,))


def exp2(x: Any) -> Any:
    """2 to the power x."""
    return _dispatch(Fn.EXP2, (x,))


def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near 0."""
    return _dispatch(Fn.EXPM1, (x,))


def log(x: Any) -> Any:
    """The natural logarithm."""
    return _dispatch(Fn.LOG, (x,))


def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    return _dispatch(Fn.LOG1P, (x,))


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return _dispatch(Fn.LOG2, (x,))


def log10(x: Any) -> Any:
    """The logarithm to base 10."""
    return _dispatch(Fn.LOG10, (x,))


def sqrt(x: Any) -> Any:
    """The square root."""
    return _dispatch(Fn.SQRT, (x,))


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _dispatch(Fn.RSQRT, (x,))


def cbrt(x: Any) -> Any:
    """The cube root."""
    return _dispatch(Fn.CBRT, (x,))


def sin(x: Any) -> Any:
    """Sine."""
    return _dispatch(Fn.SIN, (x,))


def cos(x: Any) -> Any:
    """Cosine."""
    return _dispatch(Fn.COS, (x,))


def tan(x: Any) -> Any:
    """Tangent."""
    return _dispatch(Fn.TAN, (x,))


def asin(x: Any) -> Any:
    """Inverse sine."""
    return _dispatch(Fn.ASIN, (x,))


def acos(x: Any) -> Any:
    """Inverse cosine."""
    return _dispatch(Fn.ACOS, (x,))


def atan(x: Any) -> Any:
    """Inverse tangent."""
    return _dispatch(Fn.ATAN, (x,))


def sinh(x: Any) -> Any:
    """Hyperbolic sine."""
    return _dispatch(Fn.SINH, (x,))


def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
    return _dispatch(Fn.COSH, (x,))


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return _dispatch(Fn.TANH, (x,))


def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine."""
    return _dispatch(Fn.ASINH, (x,))


def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine."""
    return _dispatch(Fn.ACOSH, (x,))


def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return _dispatch(Fn.ATANH, (x,))


def erf(x: Any) -> Any:
    """The error function."""
    return _dispatch(Fn.ERF, (x,))


def erfc(x: Any) -> Any:
    """1 - erf(x), exact for large x."""
    return _dispatch(Fn.ERFC, (x,))


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _dispatch(Fn.SIGMOID, (x,))


def floor(x: Any) -> Any:
    """The largest integer not above x."""
    return _dispatch(Fn.FLOOR, (x,))


def ceil(x: Any) -> Any:
    """The smallest integer not below x."""
    return _dispatch(Fn.CEIL, (x,))


def round(x: Any) -> Any:
    """The nearest integer, halves to even."""
    return _dispatch(Fn.ROUND, (x,))


def trunc(x: Any) -> Any:
    """The integer part."""
    return _dispatch(Fn.TRUNC, (x,))


def isnan(x: Any) -> Any:
    """Whether x is NaN."""
    return _dispatch(Fn.ISNAN, (x,))


def isinf(x: Any) -> Any:
    """Whether x is infinite."""
    return _dispatch(Fn.ISINF, (x,))


def isfinite(x: Any) -> Any:
    """Whether x is neither infinite nor NaN."""
    return _dispatch(Fn.ISFINITE, (x,))
