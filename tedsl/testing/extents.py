"""Extents as `check_op` is told of them: a name, a number, or what is made of these, such as `2*h` and `(n-k)//2+1`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

__all__ = ["is_name", "names_of", "value_of"]

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


def is_name(extent: str | int) -> bool:
    """Whether an extent is a single name."""
    return isinstance(extent, str) and extent.isidentifier()


def names_of(extent: str | int) -> list[str]:
    """The names in an extent; ValueError where it is none."""
    return [] if isinstance(extent, int) else [n.id for n in ast.walk(_parsed(extent)) if isinstance(n, ast.Name)]


def value_of(extent: str | int, known: Mapping[str, int]) -> int:
    """An extent where its names are numbers."""
    if isinstance(extent, int):
        return extent
    value = _value(_parsed(extent), known)
    if value < 0:
        given = ", ".join(f"{name} = {known[name]}" for name in dict.fromkeys(names_of(extent)))
        raise ValueError(f'check_op: the extent {extent} is {value} at {given}; bound its names, sizes={{"n": (3, 9)}}')
    return value


@lru_cache
def _parsed(text: str) -> ast.expr:
    told = (
        f"te.testing.array: an extent is a name, a number, or made of these by + - * // % without spaces, as 2*h; "
        f"found {text!r}"
    )
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise ValueError(told) from None
    for node in ast.walk(tree):
        is_number = isinstance(node, ast.Constant) and type(node.value) is int
        is_operation = isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS
        if not (is_number or is_operation or isinstance(node, (ast.Name, ast.operator, ast.expr_context))):
            raise ValueError(told)
    return tree


def _value(node: ast.expr, known: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_value(node.left, known), _value(node.right, known))
    assert isinstance(node, ast.Constant)
    return int(node.value)  # type: ignore[arg-type]
