"""In which dtype an operation is computed, and which dtype its result has; what it refuses."""

from __future__ import annotations

from typing import Any

from tedsl.lang.dtypes import (
    BOOL,
    FLOAT32,
    INDEX,
    INT8,
    DType,
    Kind,
    divide_type,
    float_type,
    integer_bounds,
    promote,
)  # fmt: skip
from tedsl.lang.errors import user_location
from tedsl.lang.expr import FALSE, TRUE, Const, Expr, Fn

__all__ = ["COMPARE", "FLOAT_BINARY", "FLOAT_UNARY", "LOGIC", "ROUNDING", "decided_by_type", "types_of"]

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


def types_of(fn: Fn, common: DType, raw: list[Any], kinds: list[Kind]) -> tuple[Fn, DType, DType]:
    """Operation, operand type and result type."""
    if fn in BITS or fn in SHIFTS:
        if common.is_bool and fn in BITS:
            return BITS[fn], BOOL, BOOL
        if not common.may_be_integer and not common.is_bool:
            raise TypeError(_refusal(fn, raw, "bool or integer operands"))
        kind = INT8 if common.is_bool else common
        return fn, kind, kind
    if fn in LOGIC:  # of numbers, whether they are not 0
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


def decided_by_type(fn: Fn, common: DType, raw: list[Any]) -> Const | None:
    """A comparison with a Python integer that the other side's type cannot hold has one answer."""
    low, high = integer_bounds(common)
    for place, value in enumerate(raw):
        if type(value) is int and not low <= value <= high:
            left_is_less = (value < low) == (place == 0)
            true = (Fn.NE, Fn.LT, Fn.LE) if left_is_less else (Fn.NE, Fn.GT, Fn.GE)
            return TRUE if fn in true else FALSE
    return None


def _refusal(fn: Fn, raw: list[Any], expected: str) -> str:
    found = ", ".join(v.dtype if isinstance(v, Expr) else type(v).__name__ for v in raw)
    return f"{fn.value} at {user_location()}: expected {expected}; found {found}"
