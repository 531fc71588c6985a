"""EMIT: every scalar operation of the language as a Halide expression, with exactly the language's semantics.

A row takes operands of one dtype, already promoted, and that dtype's name as `dtype`; comparisons and tests give a
bool. What is promised about NaN, infinities and the sign of zero holds where Halide compiles strictly: under the target
feature `strict_float`, or inside one hl.strict_float(...) around the right-hand side of a definition. float16 and
bfloat16 are computed in float32 and rounded after each operation. Index arithmetic should not come here:
Halide's own operators on int32 keep its bounds inference informed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import halide as hl

from tedsl.backend.scalars import casts, float32_math, float64_math, float_math, int_math, wide_math
from tedsl.backend.scalars.types import (
    FLOATS,
    INFINITY_BITS,
    INTEGERS,
    Expr,
    at_most,
    const,
    copy_sign,
    from_bits,
    is_nan,
    magnitude,
    negate,
)

__all__ = ["DEEP", "EMIT", "Row", "constant_power"]

Row = Callable[..., Expr]  # (*operands, dtype=name) -> Expr
Plain = Callable[..., Expr]  # (*operands) -> Expr, the same on every dtype it serves
NARROW = frozenset({"float16", "bfloat16"})


def _plain(op: Plain) -> Row:
    """A rule that does not ask for the dtype."""
    return lambda *operands, dtype: op(*operands)


def _through_float32(rule: Row, is_test: bool = False, converted: bool = True) -> Row:
    """`rule`, with narrow floats computed in float32 and the result (a test has none) rounded back.

    `converted`: the rule may end in a conversion to float32.
    """

    def emit(*operands: Expr, dtype: str) -> Expr:
        if dtype not in NARROW:
            return rule(*operands, dtype=dtype)
        result = rule(*(casts.widen(x, dtype) for x in operands), dtype="float32")
        return result if is_test else casts.narrow(result, dtype, converted=converted)

    return emit


def _row(name: str, floats: Row | None = None, ints: Row | None = None, bools: Row | None = None) -> Row:
    """One operation: its rule on each kind of dtype, and an error where it has none."""

    def emit(*operands: Expr, dtype: str) -> Expr:
        rule = floats if dtype in FLOATS else ints if dtype in INTEGERS else bools
        if rule is None:
            raise TypeError(f"{name}: no such operation on {dtype}; cast the operands to a dtype that has it")
        return rule(*operands, dtype=dtype)

    return emit


def _arithmetic(name: str, op: Plain, bools: Plain | None = None) -> Row:
    """+ - *: rounded on floats, wrapping on integers, logic on bools."""

    def ints(a: Expr, b: Expr, *, dtype: str) -> Expr:
        return int_math.wrapping(op, a, b, dtype)

    return _row(name, _through_float32(_plain(op), converted=False), ints, _plain(bools) if bools else None)


def _function(name: str, single: Plain, double: Plain) -> Row:
    """A function of analysis: how float32 and how float64 computes it."""

    def floats(*operands: Expr, dtype: str) -> Expr:
        return (single if dtype == "float32" else double)(*operands)

    return _row(name, _through_float32(floats))


def _wide(name: str, function: Plain) -> Row:
    """A function written for float64 only: float32 rounds its result."""
    return _function(name, wide_math.rounded(function), function)


def _compare(name: str, op: Plain, ordered: Plain | None = None) -> Row:
    """A comparison, `ordered` the one for integers if not `op`; bools order as 0 and 1."""
    exact = ordered or op

    def bools(a: Expr, b: Expr, *, dtype: str) -> Expr:
        return exact(hl.cast(hl.UInt(8), a), hl.cast(hl.UInt(8), b))

    return _row(name, _through_float32(_plain(op), is_test=True), _plain(exact), bools)


def _rounding(name: str, op: Plain) -> Row:
    """To an integral float; integers are integral already."""
    return _row(name, _through_float32(_plain(op)), _same, _same)


def _classify(name: str, test: Row, otherwise: bool) -> Row:
    """A test on a float's bits, and its constant answer for integers and bools."""

    def constant(x: Expr, *, dtype: str) -> Expr:
        return const(otherwise, "bool")

    return _row(name, test, constant, constant)


def _logic(name: str, op: Plain) -> Row:
    return _row(name, bools=_plain(op))


def _bitwise(name: str, op: Plain) -> Row:
    """On the bits of integers, and on bools as logic."""
    return _row(name, ints=_plain(op), bools=_plain(op))


def _by_dtype(rule: Callable[..., Expr]) -> Row:
    """A rule of the arithmetic modules, which take the dtype last."""
    return lambda *operands, dtype: rule(*operands, dtype)


def _floats(rule: Callable[..., Expr]) -> Row:
    return _through_float32(_by_dtype(rule))


def _same(x: Expr, *, dtype: str) -> Expr:
    return x


def _exclusive_or(a: Expr, b: Expr, *, dtype: str) -> Expr:
    return a ^ b if dtype in INTEGERS else a != b


def _invert(x: Expr, *, dtype: str) -> Expr:
    return ~x if dtype in INTEGERS else hl.logical_not(x)


def _float_abs(x: Expr, *, dtype: str) -> Expr:
    return from_bits(magnitude(x, dtype), dtype)


def _is_infinite(x: Expr, *, dtype: str) -> Expr:
    return magnitude(x, dtype) == const(INFINITY_BITS[dtype], f"uint{FLOATS[dtype]}")


def _is_finite(x: Expr, *, dtype: str) -> Expr:
    return magnitude(x, dtype) < const(INFINITY_BITS[dtype], f"uint{FLOATS[dtype]}")


def _one_over(x: Expr, *, dtype: str) -> Expr:
    return const(1.0, dtype) / x


def _square(x: Expr) -> Expr:
    return x * x


def _int_square(x: Expr, dtype: str) -> Expr:
    return int_math.wrapping(operator.mul, x, x, dtype)


def _int_clip(x: Expr, low: Expr, high: Expr) -> Expr:
    return hl.min(hl.max(x, low), high)


def _int_relu(x: Expr, dtype: str) -> Expr:
    return hl.max(x, const(0, dtype))


def _select(condition: Expr, a: Expr, b: Expr, *, dtype: str = "") -> Expr:
    return hl.select(condition, a, b)


def _cast(x: Expr, source: str, target: str, *, dtype: str = "") -> Expr:
    return casts.cast(x, source, target)


AND, OR = operator.and_, operator.or_

EMIT: dict[str, Row] = {
    "add": _arithmetic("add", operator.add, OR),
    "sub": _arithmetic("sub", operator.sub),
    "mul": _arithmetic("mul", operator.mul, AND),
    "div": _row("div", _through_float32(_plain(operator.truediv))),
    "floordiv": _row("floordiv", _floats(float_math.floor_divide), _by_dtype(int_math.floor_divide)),
    "mod": _row("mod", _floats(float_math.floor_mod), _by_dtype(int_math.floor_mod)),
    "pow": _row("pow", _function("pow", wide_math.power, hl.pow), _by_dtype(int_math.power)),
    "neg": _row("neg", _by_dtype(negate), _by_dtype(int_math.negative)),
    "abs": _row("abs", _float_abs, _by_dtype(int_math.absolute), _same),
    "sign": _row("sign", _floats(float_math.sign), _by_dtype(int_math.sign)),
    "square": _row("square", _through_float32(_plain(_square)), _by_dtype(_int_square), _same),
    "reciprocal": _row("reciprocal", _through_float32(_one_over), _by_dtype(int_math.reciprocal)),
    "copysign": _row("copysign", _by_dtype(copy_sign)),
    "minimum": _row("minimum", _floats(float_math.minimum), _plain(hl.min), _plain(AND)),
    "maximum": _row("maximum", _floats(float_math.maximum), _plain(hl.max), _plain(OR)),
    "clip": _row("clip", _floats(float_math.clip), _plain(_int_clip), _plain(lambda x, low, high: (x | low) & high)),
    "relu": _row("relu", _floats(float_math.relu), _by_dtype(_int_relu), _same),
    # comparisons, logic, bits
    "eq": _compare("eq", operator.eq),
    "ne": _compare("ne", operator.ne),
    "lt": _compare("lt", operator.lt),
    "le": _compare("le", at_most, operator.le),
    "gt": _compare("gt", operator.gt),
    "ge": _compare("ge", lambda a, b: at_most(b, a), operator.ge),
    "and": _logic("and", AND),
    "or": _logic("or", OR),
    "not": _logic("not", hl.logical_not),
    "bitand": _bitwise("bitand", AND),
    "bitor": _bitwise("bitor", OR),
    "bitxor": _row("bitxor", ints=_exclusive_or, bools=_exclusive_or),
    "invert": _row("invert", ints=_invert, bools=_invert),
    "lshift": _row("lshift", ints=_by_dtype(int_math.shift_left)),
    "rshift": _row("rshift", ints=_by_dtype(int_math.shift_right)),
    "select": _select,
    "cast": _cast,
    "term": _row("term", _same, _same, _same),
    "rounded": _row("rounded", _same, _same, _same),
    "stop_gradient": _row("stop_gradient", _same, _same, _same),
    # rounding, tests
    "floor": _rounding("floor", hl.floor),
    "ceil": _rounding("ceil", hl.ceil),
    "round": _rounding("round", hl.round),
    "trunc": _rounding("trunc", hl.trunc),
    "isnan": _classify("isnan", _by_dtype(is_nan), False),
    "isinf": _classify("isinf", _is_infinite, False),
    "isfinite": _classify("isfinite", _is_finite, True),
    # exponentials and logarithms
    "exp": _function("exp", float32_math.exp, float64_math.exp),
    "exp2": _function("exp2", float32_math.exp2, float64_math.exp2),
    "expm1": _function("expm1", float32_math.expm1, float64_math.expm1),
    "log": _function("log", float32_math.log, float64_math.log),
    "log1p": _function("log1p", float32_math.log1p, float64_math.log1p),
    "log2": _function("log2", float32_math.log2, float64_math.log2),
    "log10": _wide("log10", float64_math.log10),
    "sigmoid": _function("sigmoid", float32_math.sigmoid, float64_math.sigmoid),
    # roots
    "sqrt": _row("sqrt", _through_float32(_plain(hl.sqrt))),
    "rsqrt": _row("rsqrt", _floats(float_math.rsqrt)),
    "cbrt": _wide("cbrt", float64_math.cbrt),
    "hypot": _row("hypot", _floats(float_math.hypot)),
    # angles
    "sin": _function("sin", float32_math.sin, hl.sin),
    "cos": _function("cos", float32_math.cos, hl.cos),
    "tan": _function("tan", wide_math.tan, hl.tan),
    "asin": _wide("asin", float64_math.asin),
    "acos": _wide("acos", float64_math.acos),
    "atan": _wide("atan", float64_math.atan),
    "atan2": _function("atan2", wide_math.atan2, hl.atan2),
    "sinh": _wide("sinh", float64_math.sinh),
    "cosh": _wide("cosh", float64_math.cosh),
    "tanh": _function("tanh", float32_math.tanh, float64_math.tanh),
    "asinh": _wide("asinh", float64_math.asinh),
    "acosh": _wide("acosh", float64_math.acosh),
    "atanh": _wide("atanh", float64_math.atanh),
    "erf": _function("erf", float32_math.erf, float64_math.erf),
    "erfc": _wide("erfc", float64_math.erfc),
}

# The same for operands that are nested deep, where others are what processors have an instruction for.
DEEP: dict[str, Row] = {
    fn: _row(fn, _floats(functools.partial(rule, is_nan=is_nan)), EMIT[fn], EMIT[fn])
    for fn, rule in (("minimum", float_math.minimum), ("maximum", float_math.maximum), ("clip", float_math.clip))
}

SIMPLE_POWERS = frozenset({*(float(n) for n in range(-4, 5)), *(n + 0.5 for n in range(-3, 3))})
SHORT_POWERS = frozenset({-1.0, 0.0, 1.0, 1.5, 2.0})  # of few roundings


def constant_power(x: Expr, exponent: float, dtype: str) -> Expr:
    """x to a power known at build: products or a root where they are as accurate as the general power."""
    if dtype in INTEGERS and exponent >= 0:
        return _repeated(x, int(exponent), lambda a, b: int_math.wrapping(operator.mul, a, b, dtype), const(1, dtype))
    if dtype not in FLOATS or exponent not in SIMPLE_POWERS:
        return EMIT["pow"](x, const(exponent, dtype), dtype=dtype)

    def power(base: Expr, exponent: float = exponent, *, dtype: str) -> Expr:
        one = const(1.0, dtype)
        if abs(exponent) == 0.5:
            root = float_math.root_power(base, dtype)
            return root if exponent > 0 else one / root
        if dtype == "float32" and exponent not in SHORT_POWERS:
            return hl.cast(hl.Float(32), power(hl.cast(hl.Float(64), base), exponent, dtype="float64"))
        whole = int(abs(exponent))
        if abs(exponent) != whole:  # by the size without a sign, as -0.0 + 0.0 is 0.0
            product = power(hl.abs(base) + const(0.0, dtype), whole if exponent > 0 else -whole, dtype=dtype)
            root = float_math.root_power(base, dtype)
            return product * root if exponent > 0 else product / root
        # The reciprocal first: the product could overflow where the result is a small number.
        return _repeated(base if exponent >= 0 else one / base, whole, operator.mul, one)

    return _through_float32(power)(x, dtype=dtype)


def _repeated(x: Expr, exponent: int, times: Plain, one: Expr) -> Expr:
    """x^exponent by squaring."""
    result = None
    while exponent:
        if exponent & 1:
            result = x if result is None else times(result, x)
        exponent >>= 1
        x = times(x, x) if exponent else x
    return one if result is None else result
