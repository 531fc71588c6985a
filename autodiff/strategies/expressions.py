"""Random expressions of a dtype, by its operators and functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autodiff.strategies.builder import FLOATS, Builder, Value, literal
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import as_dtype
from tedsl.lang.expr import Axis

__all__ = ["Expressions"]

ROUNDING = {
    "float16": 2.0**11,
    "bfloat16": 2.0**8,
    "float32": 2.0**24,
    "float64": 2.0**53,
}  # a half vanishes beside them
# Where a comparison or a rounding follows, a result must be the same in every evaluator: one rounding each.
EXACT_UNARY = ("neg", "abs", "relu", "sqrt")
STEP_UNARY = ("sign", "floor", "ceil", "round", "trunc")
SMOOTH_UNARY = ("exp", "tanh", "sin", "cos", "sigmoid", "erf", "log1p", "expm1", "atan")


class Expressions(Builder):
    """A builder that draws expressions."""

    def leaf(self, axes: Sequence[tuple[Axis, int]], dtype: str, exact: bool) -> Value:
        """A value of `dtype`, read from a tensor if there is a fitting one."""
        options = [m for m in self.made if m.tensor.dtype == dtype and (m.exact or not exact)]
        if options and not self.chance(6):
            found = self.read(self.pick(options), axes)
            if found is not None:
                return found
        if axes and dtype not in ("bool",) and self.chance(3):
            return Value(fn.cast(self.pick(axes)[0], dtype))
        if len(self.inputs) < 4:
            found = self.read(self.input(self.shape(3), dtype), axes)
            if found is not None:
                return found
        return Value(literal(self.number(0, 5), as_dtype(dtype)))

    def value(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int, exact: bool) -> Value:
        """An expression of `dtype`; with `exact` every evaluator gives the same bits."""
        if depth <= 0:
            return self.leaf(axes, dtype, exact)
        if dtype == "bool":
            return self.condition(axes, depth)
        kind = self.pick(["leaf", "binary", "binary", "unary", "select", "order", "cast"])
        if kind == "leaf":
            return self.leaf(axes, dtype, exact)
        if kind == "cast":
            return self.converted(axes, dtype, depth, exact)
        if kind == "select":
            c = self.condition(axes, depth - 1)
            a, b = (self.value(axes, dtype, depth - 1, exact) for _ in range(2))
            return joined(fn.select(c.expr, a.expr, b.expr), a, b)
        if kind == "order":
            a, b = (self.value(axes, dtype, depth - 1, exact) for _ in range(2))
            return joined(self.pick([fn.minimum, fn.maximum])(a.expr, b.expr), a, b)
        if kind == "unary":
            return self.unary(axes, dtype, depth, exact)
        return self.binary(axes, dtype, depth)

    def unary(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int, exact: bool) -> Value:
        is_float = dtype in FLOATS
        a = self.value(axes, dtype, depth - 1, True)
        if self.smooth:
            return Value(getattr(fn, self.pick(("tanh", "sin", "sigmoid")))(a.expr), False)
        if is_float and not exact and self.chance(2):
            return Value(getattr(fn, self.pick(SMOOTH_UNARY))(a.expr), False)
        name = self.pick([*EXACT_UNARY, *STEP_UNARY] if is_float else ["neg", "abs", "sign", "relu"])
        if name == "neg":
            return Value(-a.expr)
        return Value(getattr(fn, name)(a.expr))

    def binary(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int) -> Value:
        a, b = (self.value(axes, dtype, depth - 1, True).expr for _ in range(2))
        if self.smooth:
            return Value(self.pick([a + b, a - b, a * b]))
        if dtype in FLOATS:
            operator: Callable[[], Any] = self.pick([lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b])
            return Value(operator())
        divisor = self.pick([2, 3, 5, 7])
        guarded = fn.select(b == 0, literal(1, as_dtype(dtype)), b)
        options: list[Callable[[], Any]] = [
            lambda: a + b, lambda: a - b, lambda: a * b, lambda: a & b, lambda: a | b, lambda: a ^ b, lambda: ~a,
            lambda: a // divisor, lambda: a % divisor, lambda: a // guarded, lambda: a % guarded,
            lambda: a << 1, lambda: a >> 2,
        ]  # fmt: skip
        return Value(self.pick(options)())

    def converted(self, axes: Sequence[tuple[Axis, int]], dtype: str, depth: int, exact: bool) -> Value:
        if self.smooth:
            return self.leaf(axes, dtype, exact)
        source = self.pick(self.everything)
        a = self.value(axes, source, depth - 1, True)
        return Value(fn.cast(a.expr, dtype))

    def condition(self, axes: Sequence[tuple[Axis, int]], depth: int) -> Value:
        """A bool that every evaluator decides alike."""
        if axes and (self.smooth or self.chance(2)):
            axis, _ = self.pick(axes)
            above = lambda: axis > self.number(0, 4)  # noqa: E731 - drawn only if picked
            rule: Callable[[], Any] = self.pick([lambda: axis % 2 == 0, above, lambda: axis != 1])
            return Value(rule())
        kind = self.pick(["compare", "compare", "both", "not", "leaf"]) if depth > 0 else "leaf"
        if kind == "leaf" or self.smooth:
            return self.leaf(axes, "bool", True)
        if kind == "not":
            return Value(~self.condition(axes, depth - 1).expr)
        if kind == "both":
            a, b = (self.condition(axes, depth - 1).expr for _ in range(2))
            return Value(self.pick([a & b, a | b, a ^ b]))
        dtype = self.pick(self.everything[1:])
        a, b = (self.value(axes, dtype, depth - 1, True).expr for _ in range(2))
        if dtype in FLOATS and self.chance(3):  # a rounded sum is compared as it was rounded
            a = a + fn.const(self.pick([-1, 1]) * ROUNDING[dtype], dtype)
        compare: list[Callable[[], Any]] = [
            lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= b, lambda: a == b, lambda: a != b,
        ]  # fmt: skip
        return Value(self.pick(compare)())


def joined(expr: Any, *parts: Value) -> Value:
    return Value(expr, all(p.exact for p in parts), tuple(s for p in parts for s in p.scales))
