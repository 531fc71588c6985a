"""Expressions as a reader wants them: `j + 1 - 4` is `j - 3`, a sum that Python began with 0 has no 0, nor a product 1.

For listings only: nothing is computed by what is said here.
"""

from __future__ import annotations

from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Const, Expr, Fn
from tedsl.lang.traverse import rebuild_all
from tedsl.lang.weak import is_number, number_of

__all__ = ["shorter", "tidied"]

_SIGN = {Fn.ADD: 1, Fn.SUB: -1}


def tidied(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The roots without terms of 0 and factors of 1, and with one number in a sum of integers."""
    return rebuild_all(roots, shorter)


def shorter(node: Expr) -> Expr:
    """The node itself without a term of 0 or a factor of 1, and with one number at its end."""
    if not isinstance(node, Apply) or node.fn not in (*_SIGN, Fn.MUL):
        return node
    left, right = node.args
    if node.fn is Fn.MUL:
        other = right if _is(1, left) else left if _is(1, right) else node
        return other if other.dtype is node.dtype else node
    if node.fn is Fn.ADD and _is(0, left) and right.dtype is node.dtype:
        return right
    if _is(0, right) and left.dtype is node.dtype:
        return left
    first, second = _number(node), _number(left)
    if first is None or second is None or node.dtype is not INT32:
        return node
    assert isinstance(left, Apply)
    total, rest = first + second, left.args[0]
    return shorter(rest + total if total > 0 else rest - -total if total else rest)


def _number(node: Expr) -> int | None:
    """What an integer adds to its first operand."""
    if not isinstance(node, Apply) or node.fn not in _SIGN or node.dtype is not INT32:
        return None
    last = node.args[1]
    return _SIGN[node.fn] * int(last.value) if isinstance(last, Const) and last.dtype is INT32 else None


def _is(value: int, node: Expr) -> bool:
    return is_number(node) and number_of(node).value == value
