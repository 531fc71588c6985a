"""Stages on which a result does not depend, though it reads them: the maximum that softmax subtracts.

Let every element of a stage grow by a number of its own, e. What is computed from it then

| moves | as in | by |
|---|---|---|
| not at all | what does not read it | |
| by a sum | `x[i, j] - m[i]` | `amount * e[i]` |
| by a factor | `exp(x[i, j] - m[i])`, sums of those over j | `exp(amount * e[i])` |

or in a way that is not looked into. Where no result moves, the derivative by the stage is 0 everywhere: exactly, where
what comes of adding it up is what rounding left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any

from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, substitute, topological

__all__ = ["EXTREMES", "Move", "UnknownError", "canceling", "moved"]

EXTREMES = ("max", "min")
_NONE: Mapping[Expr, Any] = MappingProxyType({})
LN2 = math.log(2.0)


@dataclass(frozen=True, eq=False)
class Move:
    """By how much a value grows with the element `at` these indices of the stage: by a sum, or by a factor."""

    amount: float
    at: tuple[Expr, ...]
    is_factor: bool = False

    def like(self, other: Move) -> bool:
        """Whether the other grows with the same element, and in the same manner."""
        same = len(self.at) == len(other.at) and all(a is b for a, b in zip(self.at, other.at, strict=True))
        return same and self.is_factor is other.is_factor

    def same(self, other: Move | None) -> bool:
        return other is not None and self.like(other) and math.isclose(self.amount, other.amount)

    def times(self, amount: float) -> Move | None:
        return Move(self.amount * amount, self.at, self.is_factor) if amount else None


class UnknownError(Exception):
    """A value moves in a way that is not looked into."""


def canceling(
    order: Sequence[Operation], outputs: Iterable[Tensor], reads: Callable[[Operation], Iterable[Tensor]],
    is_opaque: Callable[[Operation], bool],
) -> list[Tensor]:  # fmt: skip
    """The extremes, and what is made of them alone, on which none of the outputs depends.

    `order`: the stages below the outputs, inputs first. `reads`: what the derivative of a stage flows to; of an opaque
    one it is what somebody said, and not that of its definition.
    """
    results, found, extremes = frozenset(outputs), list[Tensor](), set[Tensor]()
    readers: dict[Tensor, list[int]] = {}
    for place, op in enumerate(order):
        for tensor in {*op.inputs, *reads(op)}:
            readers.setdefault(tensor, []).append(place)
    for op in order:
        if not isinstance(op, Compute) or len(op.bodies) > 1 or is_opaque(op) or op.output() in results:
            continue
        reduce, tensor = op.reduction, op.output()
        is_extreme = reduce is not None and reduce.reducer.kind in EXTREMES
        if is_extreme or (op.inputs and extremes.issuperset(op.inputs)):
            extremes.add(tensor)
            if tensor.dtype.is_float and _cancels(tensor, order, readers, results, is_opaque):
                found.append(tensor)
    return found


def _cancels(
    tensor: Tensor, order: Sequence[Operation], readers: Mapping[Tensor, Sequence[int]], results: Iterable[Tensor],
    is_opaque: Callable[[Operation], bool],
) -> bool:  # fmt: skip
    """Whether no result moves with the elements of a tensor: all that moves is looked at, inputs first."""
    axes = tuple(Axis(f"d{k}", extent) for k, extent in enumerate(tensor.extents))
    moves: dict[Tensor, Move | None] = {tensor: Move(1.0, tuple(map(_settled, axes)))}
    loops = {tensor: axes}
    waiting = list(readers.get(tensor, ()))
    try:
        while waiting:
            place = heappop(waiting)
            op = order[place]
            if op.output() in moves:
                continue
            if not isinstance(op, Compute) or is_opaque(op):
                return False
            for result, body in zip(op.outputs, op.bodies, strict=True):
                moves[result], loops[result] = moved(body, partial(_of_read, moves=moves, loops=loops)), op.axes
                for reader in readers.get(result, ()) if moves[result] else ():
                    heappush(waiting, reader)
    except UnknownError:
        return False
    return not any(moves.get(t) for t in results)


def _settled(index: Expr) -> Expr:
    """An index, that of a loop of one iteration as the number that it is."""
    is_single = isinstance(index, Axis) and number(index.extent) == 1 and number(index.begin) == 0
    return Const(0, index.dtype) if is_single else index


def moved(body: Expr, of_read: Callable[[Read], Move | None], given: Mapping[Expr, Move] = _NONE) -> Move | None:
    """How the value of a stage moves, given how that of what it reads does, and of some of its nodes."""
    known: dict[Expr, Move | None] = {}
    for node in topological(body):
        children = [known[c] for c in node.children]
        if node in given:
            known[node] = given[node]
        elif isinstance(node, Read):
            if any(children):
                raise UnknownError
            known[node] = of_read(node)
        elif not any(children):
            known[node] = None
        elif isinstance(node, Reduce):
            known[node] = _of_reduction(node, children)
        elif isinstance(node, Apply) and node.fn in RULES:
            known[node] = RULES[node.fn](node, children)
        else:
            raise UnknownError
    return known[body]


def _of_read(node: Read, moves: Mapping[Tensor, Move | None], loops: Mapping[Tensor, tuple[Axis, ...]]) -> Move | None:
    move = moves.get(node.tensor)
    if move is None:
        return None
    here: dict[Expr, Expr] = dict(zip(loops[node.tensor], node.indices, strict=True))
    return Move(move.amount, tuple(_settled(substitute(i, here)) for i in move.at), move.is_factor)


def _of_reduction(node: Reduce, children: Sequence[Move | None]) -> Move | None:
    *values, where = children
    kind, move = node.reducer.kind, values[0]
    if where is not None or len(values) > 1 or move is None or not set(node.axes).isdisjoint(free_axes(move.at)):
        raise UnknownError
    if kind in ("argmax", "argmin"):
        return None
    if kind in EXTREMES or (kind == "sum" and move.is_factor):
        return move
    raise UnknownError


# ------------------------------------------------------------------------------------------------- of single operations

Moves = Sequence["Move | None"]
Rule = Callable[[Apply, Moves], "Move | None"]


def _together(moves: Iterable[Move]) -> Iterator[Move]:
    """Those of one element and one manner; anything else is not looked into."""
    first: Move | None = None
    for move in moves:
        first = first or move
        if not first.like(move):
            raise UnknownError
        yield move


def _sum(node: Apply, moves: Moves) -> Move | None:
    """Of what moves by sums the amounts add up; what moves by one factor does so together."""
    a, b = moves
    if (a is not None and a.is_factor) or (b is not None and b.is_factor):
        return _alike(node, moves)
    sign = -1.0 if node.fn is Fn.SUB else 1.0
    parts = [m for m in (a, b if b is None else b.times(sign)) if m is not None]
    return _added(parts)


def _added(parts: Sequence[Move]) -> Move | None:
    known = list(_together(parts))
    amount = sum(m.amount for m in known)
    if not known or math.isclose(amount, 0.0, abs_tol=1e-9 * max(abs(m.amount) for m in known)):
        return None
    return Move(amount, known[0].at, known[0].is_factor)


def _product(node: Apply, moves: Moves) -> Move | None:
    """Factors multiply, so that their amounts add up; a number multiplies what moves by a sum."""
    a, b = moves
    sign = -1.0 if node.fn is Fn.DIV else 1.0
    parts = [m for m in (a, b if b is None else b.times(sign)) if m is not None]
    if all(m.is_factor for m in parts):
        return _added(parts)
    by = node.args[1] if a is not None else node.args[0]
    if len(parts) > 1 or not isinstance(by, Const) or (a is None and node.fn is Fn.DIV) or not by.value:
        raise UnknownError
    value = float(by.value)
    return parts[0].times(1.0 / value if node.fn is Fn.DIV else value)


def _alike(node: Apply, moves: Moves) -> Move | None:
    """What moves as all of its operands do; 0 grows by any factor, and infinity by any sum."""
    values = node.args[1:] if node.fn is Fn.SELECT else node.args
    known = [m for m in moves[-len(values) :] if m is not None]
    first = known[0] if known else None
    for value, move in zip(values, moves[-len(values) :], strict=True):
        if first is None or (move is None and _stays(value, first)):
            continue
        if not first.same(move):
            raise UnknownError
    return first


def _stays(value: Expr, move: Move) -> bool:
    """Whether a value is what it is after such a move, too."""
    if not isinstance(value, Const):
        return False
    return value.value == 0 if move.is_factor else math.isinf(value.value)


def _chosen(node: Apply, moves: Moves) -> Move | None:
    if moves[0] is not None:
        raise UnknownError
    return _alike(node, moves)


def _compared(node: Apply, moves: Moves) -> None:
    """Which of two is larger does not change where both move together."""
    _alike(node, moves)


def _asked(_: Apply, __: Moves) -> None:
    """Whether a number is finite, or which sign a factor leaves it, does not change."""


def _sign(_: Apply, moves: Moves) -> None:
    if moves[0] is not None and not moves[0].is_factor:
        raise UnknownError


def _same(_: Apply, moves: Moves) -> Move | None:
    return moves[0]


def _cast(node: Apply, moves: Moves) -> Move | None:
    if not node.dtype.is_float:
        raise UnknownError
    return moves[0]


def _negative(node: Apply, moves: Moves) -> Move | None:
    (move,) = moves
    return move if move is None or move.is_factor else move.times(-1.0)


def _scaled(node: Apply, moves: Moves) -> Move | None:
    """What a factor goes through: |x|, and x where it is above 0."""
    _sign(node, moves)
    return moves[0]


def _of(is_factor: bool, rule: Callable[[Move], Move | None]) -> Rule:
    """A function of one operand that is known of what moves in this manner."""

    def checked(_: Apply, moves: Moves) -> Move | None:
        (move,) = moves
        if move is None or move.is_factor is not is_factor:
            raise UnknownError
        return rule(move)

    return checked


def _exponential(unit: float) -> Rule:
    return _of(False, lambda move: Move(move.amount * unit, move.at, True))


def _logarithm(unit: float) -> Rule:
    return _of(True, lambda move: Move(move.amount / unit, move.at))


def _power(power: float) -> Rule:
    return _of(True, lambda move: move.times(power))


def _to_a_number(node: Apply, moves: Moves) -> Move | None:
    base, by = node.args
    if moves[1] is not None or moves[0] is None or not isinstance(by, Const) or not moves[0].is_factor:
        raise UnknownError
    return moves[0].times(float(by.value))


RULES: dict[Fn, Rule] = {
    **dict.fromkeys((Fn.ADD, Fn.SUB), _sum),
    **dict.fromkeys((Fn.MUL, Fn.DIV), _product),
    **dict.fromkeys((Fn.MAXIMUM, Fn.MINIMUM), _alike),
    **dict.fromkeys((Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.EQ, Fn.NE), _compared),
    **dict.fromkeys((Fn.ISNAN, Fn.ISINF, Fn.ISFINITE), _asked),
    **dict.fromkeys((Fn.ABS, Fn.RELU), _scaled),
    Fn.SIGN: _sign, Fn.SELECT: _chosen, Fn.CAST: _cast, Fn.NEG: _negative, Fn.POW: _to_a_number,
    Fn.EXP: _exponential(1.0), Fn.EXP2: _exponential(LN2), Fn.LOG: _logarithm(1.0), Fn.LOG2: _logarithm(LN2),
    Fn.LOG10: _logarithm(math.log(10.0)), Fn.SQRT: _power(0.5), Fn.RSQRT: _power(-0.5), Fn.CBRT: _power(1.0 / 3.0),
}  # fmt: skip
