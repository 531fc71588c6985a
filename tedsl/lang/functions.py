"""The functions of scalars and tensors; one short function for each, so that each has a signature and a docstring.

Every function here takes scalars (expressions, 0-rank tensors, Python and NumPy numbers) and gives an expression; given
a whole tensor it works element by element (see `tedsl.lang.broadcast`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from operator import index
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tedsl.lang.annotations import of_one, of_pair
from tedsl.lang.dtypes import BOOL, DType, as_dtype, integer_bounds
from tedsl.lang.errors import user_location
from tedsl.lang.folding import select_node as select_node
from tedsl.lang.foreign import has_elements
from tedsl.lang.keywords import own_arguments
from tedsl.lang.nodes import apply as apply, as_expr as as_expr, const, convert as convert, operand as operand
from tedsl.lang.operators import Fn, Operators

if TYPE_CHECKING:
    from tedsl.lang.expr import Expr
    from tedsl.lang.tensor import Tensor

__all__ = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cast", "cbrt", "ceil", "clip", "const",
    "copysign", "cos", "cosh", "erf", "erfc", "exp", "exp2", "expm1", "floor", "hypot", "isfinite", "isinf", "isnan",
    "log", "log1p", "log2", "log10", "logical_and", "logical_not", "logical_or", "maximum", "minimum", "pow", "relu",
    "round", "rsqrt", "select", "sigmoid", "sign", "sin", "sinh", "sqrt", "stop_gradient", "tan", "tanh", "trunc",
]  # fmt: skip


def _dispatch(fn: Fn, operands: tuple[Any, ...]) -> Any:
    """`fn` on scalars, or element by element when an operand is a whole tensor."""
    for value in operands:
        if isinstance(value, Operators):
            return value._apply(fn, *operands)
    taken = without_arrays(operands, _FACE.get(fn, fn.value), _NUMPYS.get(fn))
    return apply(fn, *operands) if taken is operands else _dispatch(fn, taken)


_FACE = {Fn.AND: "logical_and", Fn.OR: "logical_or", Fn.NOT: "logical_not"}
_NUMPYS = {Fn.SELECT: "where"}


# What arrays become in a function that is traced, which may have captured some (`tedsl.lang.constants.captured`).
CAPTURED: ContextVar[Callable[[Any, str], Any] | None] = ContextVar("tedsl_captured", default=None)


def without_arrays(operands: tuple[Any, ...], name: str, numpys: str | None = None) -> tuple[Any, ...]:
    """The operands of `te.exp(array)`: the functions of the language take tensors, and none of these is one.

    Refused, but for arrays that a traced function has captured: those become constants.
    """
    found = [value for value in operands if _is_array(value)]
    if not found:
        return operands
    made = CAPTURED.get()
    if made is not None and all(map(has_elements, found)):
        return tuple(made(value, f"te.{name}") if _is_array(value) else value for value in operands)
    value = found[0]
    if isinstance(value, (list, tuple)) and name == Fn.SELECT.value:
        raise TypeError(
            f"te.{name} at {user_location()}: expected one condition, found {type(value).__name__}; "
            "np.select([c1, c2], [a, b], d) is te.select(c1, a, te.select(c2, b, d))"
        )
    given = ("array" if len(operands) == 1 else "...") + (", dtype" if name == "cast" else "")
    same = numpys or name
    instead = f", or np.{same}({given})" if hasattr(np, same) else ""
    shape = "" if isinstance(value, (list, tuple)) else f" of shape {tuple(value.shape)}"
    raise TypeError(
        f"te.{name} at {user_location()}: expected tensors or their elements, found {type(value).__name__}"
        f"{shape}; te.constant(array) makes it a tensor; for arrays: te.jit(te.{name})({given}){instead}"
    )


def _is_array(value: Any) -> bool:
    if isinstance(value, Operators):
        return False
    return isinstance(value, (list, tuple)) or (not callable(value) and bool(getattr(value, "ndim", False)))


@overload
def cast(x: Expr | float, dtype: object) -> Expr: ...
@overload
def cast(x: Tensor, dtype: object) -> Tensor: ...
@own_arguments()
def cast(x: Any, dtype: object) -> Any:
    """`x` converted to `dtype`; floats outside an integer type's range saturate, NaN gives 0."""
    if not isinstance(x, Operators):
        (x,) = without_arrays((x,), "cast", "astype")
    if not isinstance(x, Operators):
        return apply(Fn.CAST, x, dtype)
    return x._apply(Fn.CAST, x, dtype)


@overload
def select(cond: Expr | bool, a: Expr | float, b: Expr | float) -> Expr: ...
@overload
def select(cond: Tensor, a: Any, b: Any) -> Tensor: ...
@overload
def select(cond: Any, a: Tensor, b: Any) -> Tensor: ...
@overload
def select(cond: Any, a: Any, b: Tensor) -> Tensor: ...
@own_arguments(hint="several conditions are nested: te.select(c1, a, te.select(c2, b, default))")
def select(cond: Any, a: Any, b: Any) -> Any:
    """`a` where `cond`, else `b`; only the branch taken is read and computed."""
    return _dispatch(Fn.SELECT, (cond, a, b))


@of_one
def stop_gradient(x: Any) -> Any:
    """x itself, a constant to derivatives: none flows back through it, and its derivative along a direction is 0."""
    if isinstance(x, Operators) and not x.dtype.is_float:  # type: ignore[attr-defined]
        return x
    return _dispatch(Fn.STOP, (x,))


@of_pair
def minimum(a: Any, b: Any) -> Any:
    """The smaller of two; NaN if either is. The gradient at a tie is halved."""
    return _dispatch(Fn.MINIMUM, (a, b))


@of_pair
def maximum(a: Any, b: Any) -> Any:
    """The larger of two; NaN if either is. The gradient at a tie is halved."""
    return _dispatch(Fn.MAXIMUM, (a, b))


@overload
def clip(x: Expr | float, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Expr: ...
@overload
def clip(x: Tensor, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Tensor: ...
@own_arguments()
def clip(x: Any, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """`x` held within [low, high], None for no bound; the gradient is 1 there, bounds included.

    `min` and `max` are NumPy's names for the bounds.
    """
    low, high = (low if min is None else min), (high if max is None else max)
    _check_bounds(x, low, high)
    if low is None or high is None:
        least, most = _ends(x)
        low, high = (least if low is None else low), (most if high is None else high)
    return _dispatch(Fn.CLIP, (x, low, high))


def _check_bounds(x: Any, low: Any, high: Any) -> None:
    """ValueError for a number as a bound that no value of an integer dtype is beyond, nor can hold."""
    if isinstance(x, Operators) and x.dtype.is_integer:  # type: ignore[attr-defined]
        least, most = integer_bounds(x.dtype)  # type: ignore[attr-defined]
        beyond = [n for n in (low,) if isinstance(n, int) and n < least]
        beyond += [n for n in (high,) if isinstance(n, int) and n > most]
        if beyond:
            raise ValueError(
                f"te.clip at {user_location()}: {beyond[0]} is out of range for {x.dtype} (from {least} to {most}), "  # type: ignore[attr-defined]
                "and no bound: leave it out, with None in its place"
            )


def _ends(x: Any) -> tuple[Any, Any]:
    """The least and the largest value of the dtype of `x`; of a number of Python's, of the one that it has alone."""
    if isinstance(x, Operators):
        dtype: DType = x.dtype  # type: ignore[attr-defined]
    else:
        dtype = as_dtype(np.asarray(x).dtype) if np.ndim(x) else const(x).dtype
    if dtype is BOOL:
        return False, True
    return integer_bounds(dtype) if dtype.is_integer else (-math.inf, math.inf)


@of_one
def relu(x: Any) -> Any:
    """max(x, 0), with gradient 0 at 0."""
    return _dispatch(Fn.RELU, (x,))


@overload
def pow(x: Expr | float, y: Expr | float) -> Expr: ...
@overload
def pow(x: Tensor, y: Any) -> Tensor: ...
@overload
def pow(x: Any, y: Tensor) -> Tensor: ...
@own_arguments()
def pow(x: Any, y: Any) -> Any:
    """x to the power y; d/dx pow(x, 0) is 0 everywhere."""
    return _dispatch(Fn.POW, (x, y))


@overload
def atan2(y: Expr | float, x: Expr | float) -> Expr: ...
@overload
def atan2(y: Tensor, x: Any) -> Tensor: ...
@overload
def atan2(y: Any, x: Tensor) -> Tensor: ...
@own_arguments()
def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y)."""
    return _dispatch(Fn.ATAN2, (y, x))


@overload
def hypot(x: Expr | float, y: Expr | float) -> Expr: ...
@overload
def hypot(x: Tensor, y: Any) -> Tensor: ...
@overload
def hypot(x: Any, y: Tensor) -> Tensor: ...
@own_arguments()
def hypot(x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow on the way."""
    return _dispatch(Fn.HYPOT, (x, y))


@overload
def copysign(x: Expr | float, y: Expr | float) -> Expr: ...
@overload
def copysign(x: Tensor, y: Any) -> Tensor: ...
@overload
def copysign(x: Any, y: Tensor) -> Tensor: ...
@own_arguments()
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of x with the sign of y."""
    return _dispatch(Fn.COPYSIGN, (x, y))


@of_pair
def logical_and(a: Any, b: Any) -> Any:
    """Both conditions."""
    return _dispatch(Fn.AND, (a, b))


@of_pair
def logical_or(a: Any, b: Any) -> Any:
    """Either condition."""
    return _dispatch(Fn.OR, (a, b))


@overload
def logical_not(a: Expr | float) -> Expr: ...
@overload
def logical_not(a: Tensor) -> Tensor: ...
@own_arguments()
def logical_not(a: Any) -> Any:
    """The opposite condition."""
    return _dispatch(Fn.NOT, (a,))


@of_one
def abs(x: Any) -> Any:
    """The magnitude; its gradient at 0 is 0."""
    return _dispatch(Fn.ABS, (x,))


@of_one
def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN stays NaN."""
    return _dispatch(Fn.SIGN, (x,))


@of_one
def exp(x: Any) -> Any:
    """e to the power x."""
    return _dispatch(Fn.EXP, (x,))


@of_one
def exp2(x: Any) -> Any:
    """2 to the power x."""
    return _dispatch(Fn.EXP2, (x,))


@of_one
def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near 0."""
    return _dispatch(Fn.EXPM1, (x,))


@of_one
def log(x: Any) -> Any:
    """The natural logarithm."""
    return _dispatch(Fn.LOG, (x,))


@of_one
def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    return _dispatch(Fn.LOG1P, (x,))


@of_one
def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return _dispatch(Fn.LOG2, (x,))


@of_one
def log10(x: Any) -> Any:
    """The logarithm to base 10."""
    return _dispatch(Fn.LOG10, (x,))


@of_one
def sqrt(x: Any) -> Any:
    """The square root."""
    return _dispatch(Fn.SQRT, (x,))


@of_one
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _dispatch(Fn.RSQRT, (x,))


@of_one
def cbrt(x: Any) -> Any:
    """The cube root."""
    return _dispatch(Fn.CBRT, (x,))


@of_one
def sin(x: Any) -> Any:
    """Sine."""
    return _dispatch(Fn.SIN, (x,))


@of_one
def cos(x: Any) -> Any:
    """Cosine."""
    return _dispatch(Fn.COS, (x,))


@of_one
def tan(x: Any) -> Any:
    """Tangent."""
    return _dispatch(Fn.TAN, (x,))


@of_one
def asin(x: Any) -> Any:
    """Inverse sine."""
    return _dispatch(Fn.ASIN, (x,))


@of_one
def acos(x: Any) -> Any:
    """Inverse cosine."""
    return _dispatch(Fn.ACOS, (x,))


@of_one
def atan(x: Any) -> Any:
    """Inverse tangent."""
    return _dispatch(Fn.ATAN, (x,))


@of_one
def sinh(x: Any) -> Any:
    """Hyperbolic sine."""
    return _dispatch(Fn.SINH, (x,))


@of_one
def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
    return _dispatch(Fn.COSH, (x,))


@of_one
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return _dispatch(Fn.TANH, (x,))


@of_one
def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine."""
    return _dispatch(Fn.ASINH, (x,))


@of_one
def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine."""
    return _dispatch(Fn.ACOSH, (x,))


@of_one
def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return _dispatch(Fn.ATANH, (x,))


@of_one
def erf(x: Any) -> Any:
    """The error function."""
    return _dispatch(Fn.ERF, (x,))


@of_one
def erfc(x: Any) -> Any:
    """1 - erf(x), exact for large x."""
    return _dispatch(Fn.ERFC, (x,))


@of_one
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _dispatch(Fn.SIGMOID, (x,))


@of_one
def floor(x: Any) -> Any:
    """The largest integer not above x."""
    return _dispatch(Fn.FLOOR, (x,))


@of_one
def ceil(x: Any) -> Any:
    """The smallest integer not below x."""
    return _dispatch(Fn.CEIL, (x,))


@overload
def round(x: Expr | float, decimals: int = 0) -> Expr: ...
@overload
def round(x: Tensor, decimals: int = 0) -> Tensor: ...
@own_arguments()
def round(x: Any, decimals: int = 0) -> Any:
    """The nearest integer, halves to even; with `decimals` the nearest multiple of 10^-decimals, as NumPy has it."""
    if not (places := index(decimals)):
        return _dispatch(Fn.ROUND, (x,))
    if isinstance(x, Operators) and not x.dtype.is_float:  # type: ignore[attr-defined]
        if places > 0:
            return x
        raise TypeError(f"te.round at {user_location()}: decimals={places} is for floats, found {x.dtype}")  # type: ignore[attr-defined]
    scale = 10.0 ** abs(places)
    up, down = (Fn.MUL, Fn.DIV) if places > 0 else (Fn.DIV, Fn.MUL)
    return _dispatch(down, (_dispatch(Fn.ROUND, (_dispatch(up, (x, scale)),)), scale))


@of_one
def trunc(x: Any) -> Any:
    """The integer part."""
    return _dispatch(Fn.TRUNC, (x,))


@of_one
def isnan(x: Any) -> Any:
    """Whether x is NaN."""
    return _dispatch(Fn.ISNAN, (x,))


@of_one
def isinf(x: Any) -> Any:
    """Whether x is infinite."""
    return _dispatch(Fn.ISINF, (x,))


@of_one
def isfinite(x: Any) -> Any:
    """Whether x is neither infinite nor NaN."""
    return _dispatch(Fn.ISFINITE, (x,))
