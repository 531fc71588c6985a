"""Halide's expressions in numbers, as far as they are known.

Halide's integers: a quotient leaves a remainder that is never negative, by 0 both are 0, and on what leaves int32 no
program may rely. What depends on something unknown is unknown (None), unless it is the same in any case:
`False && x`, `select(c, 3, 3)`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tedsl.backend.halide_text.expressions import Expression, HalideCall, HalideName, Let, Text

__all__ = ["Calls", "Lookup", "Value", "value_of"]

Value: TypeAlias = int | bool | None
Lookup: TypeAlias = Callable[[str], Value]  # of names
Calls: TypeAlias = Callable[[HalideCall], Value]  # of functions that are not known here

LOWEST, HIGHEST = -(2**31), 2**31 - 1
EXACT_TYPES = frozenset({"int32", "int64"})  # as which a number in int32 is the same number


def value_of(root: Expression, names: Lookup, calls: Calls) -> Value:
    """The value of an expression, None where it is not known."""
    if isinstance(root, int):
        return _in_range(root)
    if isinstance(root, HalideName):
        return names(root.text)
    if isinstance(root, Let):
        bound = value_of(root.value, names, calls)
        return value_of(root.body, lambda name: bound if name == root.name else names(name), calls)
    if isinstance(root, Text):
        return None
    return _value_of_call(root, names, calls)


def _value_of_call(call: HalideCall, names: Lookup, calls: Calls) -> Value:
    if call.name == "cast":
        kind, operand = call.operands
        if isinstance(operand, HalideCall) and kind == Text("uint1"):  # the type of a condition that a function returns
            return calls(operand)
        return value_of(operand, names, calls) if isinstance(kind, Text) and kind.text in EXACT_TYPES else None
    if call.name in _BY_CASES:
        return _BY_CASES[call.name](*(value_of(e, names, calls) for e in call.operands))
    rule = _RULES.get(call.name)
    if rule is None:
        return calls(call)
    operands = [value_of(e, names, calls) for e in call.operands]
    if any(v is None for v in operands):
        return None
    return _in_range(rule(*operands))


def _in_range(value: int | bool) -> Value:
    return value if LOWEST <= value <= HIGHEST else None


def _quotient(a: int, b: int) -> int:
    return 0 if b == 0 else (a - _remainder(a, b)) // b


def _remainder(a: int, b: int) -> int:
    return 0 if b == 0 else a % abs(b)


def _and(a: Value, b: Value) -> Value:
    return False if a is False or b is False else None if a is None or b is None else True


def _or(a: Value, b: Value) -> Value:
    return True if a is True or b is True else None if a is None or b is None else False


def _select(condition: Value, a: Value, b: Value) -> Value:
    if condition is None:
        return a if a == b else None
    return a if condition else b


_BY_CASES: Mapping[str, Callable[..., Value]] = {"&&": _and, "||": _or, "select": _select}
_RULES: Mapping[str, Callable[..., int | bool]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "%": _remainder, "min": min, "max": max,
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "!": operator.not_, "int32": int, "int64": int, "likely": lambda x: x, "likely_if_innermost": lambda x: x,
    "promise_clamped": lambda x, *_: x, "unsafe_promise_clamped": lambda x, *_: x,
}  # fmt: skip
