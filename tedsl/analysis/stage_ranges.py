"""What the elements of a program's stages range over: intervals that are carried from stage to stage.

A read of a tensor may be anything that its dtype holds, for whoever looks at one stage alone: any tensor of a program
may be fed. Once it is known what is, a stage that is computed has the interval of its definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tedsl.lang.dtypes import DType, integer_bounds
from tedsl.lang.expr import SIZE_MAX, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.float_intervals import ALL, float_sum
from tedsl.lang.intervals import Known, hull, range_of
from tedsl.lang.native import Native
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Scatter, Tensor
from tedsl.lang.traverse import topological

__all__ = ["StageRanges"]

Ends = tuple[Any, Any]  # integers, or floats, which NaN is beside
ROUNDS = 2  # in which the states of a scan are looked at again, from what is known of them


class StageRanges:
    """The intervals of the tensors of a program; those that are `given` may hold anything."""

    def __init__(self, given: Collection[Tensor]) -> None:
        self._given = frozenset(given)
        self._found: dict[Tensor, Ends] = {}

    def of(self, tensor: Tensor) -> Ends:
        """The least and the greatest element."""
        stack, opened = [tensor], set[Operation]()
        while stack:
            op = stack[-1].op
            if stack[-1] in self._found:
                stack.pop()
            elif stack[-1] in self._given or op in opened or not _is_followed(op):
                self._settle(op, stack.pop())
            else:
                opened.add(op)
                stack += [t for t in op.inputs if t not in self._found]
        return self._found[tensor]

    def known(self, exprs: Iterable[Expr]) -> Known:
        """Intervals to begin with: those of all that is read and reduced in expressions."""
        return self._within(exprs, {})

    def _settle(self, op: Operation, tensor: Tensor) -> None:
        """The interval of a tensor, those of what it is made of being known."""
        followed = tensor not in self._given and _is_followed(op)
        self._found[tensor] = self._ends_of(op)[tensor.index] if followed else everything(tensor.dtype)

    def _ends_of(self, op: Operation) -> Sequence[Ends]:
        if isinstance(op, Compute):
            known = self._within(op.bodies, {})
            return [range_of(body, known) for body in op.bodies]
        if isinstance(op, Scan):
            return self._of_scan(op)
        if isinstance(op, Scatter):
            return [self._of_scatter(op)]
        assert isinstance(op, Extern)
        return self._of_native(op)

    def _within(self, exprs: Iterable[Expr], known: Known) -> Known:
        for node in topological(exprs):
            if node in known:
                continue
            if isinstance(node, Read):
                known[node] = self.of(node.tensor)
            elif isinstance(node, Reduce):
                known[node] = _of_reduction(node, known)
        return known

    def _of_scan(self, op: Scan) -> Sequence[Ends]:
        """What holds of all steps if it holds of those before."""
        anything = [everything(b.dtype) for b in op.bodies]
        if op.parts:  # which leave elements undefined
            return anything
        places = {state: k for k, state in enumerate(op.states)}
        reads = {n: places[n.tensor] for n in op.nodes if isinstance(n, Read) and n.tensor in places}

        def step(before: Sequence[Ends]) -> list[Ends]:
            known = self._within(op.bodies, {read: before[k] for read, k in reads.items()})
            return [range_of(body, known) for body in op.bodies]

        known = self._within(op.bodies, {read: anything[k] for read, k in reads.items()})
        begin = [
            hull(*(range_of(b, known) for b in firsts)) if firsts else all_of
            for firsts, all_of in zip((_begun(body, reads) for body in op.bodies), anything, strict=True)
        ]
        found = _kept(begin, step, anything)
        for _ in range(ROUNDS):
            found = step(found)
        return found

    def _of_scatter(self, op: Scatter) -> Ends:
        kind = {"add": "sum", "mul": "prod"}.get(op.kind, op.kind)
        known = self._within((op.value,), {})
        values = range_of(op.value, known)
        if op.init is None:
            begin = _constant(BUILTIN[kind].identity_of(op.value.dtype))
        else:
            begin = self.of(op.init)
        count = (0, 1) if op.unique else (0, _count(op.axes, known)[1])
        return _repeated(kind, begin, values, count, op.value.dtype)

    def _of_native(self, op: Extern) -> Sequence[Ends]:
        native, first = op.function, op.args[0]
        assert isinstance(native, Native)
        if native.routine == "order":
            length = range_of(first.extents[native.axis])[1]
            return [self.of(first), (0, max(length - 1, 0))]
        if native.routine == "places":
            return [(0, range_of(op.args[1].extents[-1])[1])]
        if native.routine == "runs":
            return [self.of(op.args[1]), (0, range_of(first.extents[native.axis])[1])]
        return [everything(d) for d in op.dtypes]


def everything(dtype: DType) -> Ends:
    """All that a dtype holds."""
    return ALL if dtype.is_float else integer_bounds(dtype)


def _is_followed(op: Operation) -> bool:
    return isinstance(op, (Compute, Scan, Scatter)) or (isinstance(op, Extern) and isinstance(op.function, Native))


def _of_reduction(node: Reduce, known: Known) -> Ends:
    kind, count = node.reducer.kind, _count(node.axes, known)
    if node.where is not TRUE:
        count = 0, count[1]
    if kind in ("argmax", "argmin"):
        last, greatest = max(count[1] - 1, 0), integer_bounds(node.dtype)[1]
        return (0, last) if last <= greatest else everything(node.dtype)
    if node.reducer.kind == "custom":
        return _of_custom(node, known)
    value = node.values[node.index]
    begin = _constant(node.reducer.identity_of(value.dtype, node.index))
    return _repeated("sum" if kind == "sums" else kind, begin, range_of(value, known), count, value.dtype)


def _of_custom(node: Reduce, known: Known) -> Ends:
    """What holds of the identity and of each value, if combining two keeps it."""
    reducer = node.reducer
    anything = [everything(v.dtype) for v in node.values]
    begin = [hull(_constant(i), range_of(v, known)) for i, v in zip(reducer.identity, node.values, strict=True)]

    def step(before: Sequence[Ends]) -> list[Ends]:
        inside: Known = {
            f: ends for side in (reducer.left, reducer.right) for f, ends in zip(side, before, strict=True)
        }
        return [range_of(r, inside) for r in reducer.results]

    return _kept(begin, step, anything)[node.index]


def _kept(begin: list[Ends], step: Callable[[list[Ends]], list[Ends]], anything: list[Ends]) -> list[Ends]:
    """Intervals that hold the first ones and that a step stays in; anything for those that it leaves."""
    found = begin
    while True:
        after = step(found)
        made = [
            ends if ends[0] <= then[0] and then[1] <= ends[1] else all_of
            for ends, then, all_of in zip(found, after, anything, strict=True)
        ]
        if made == found:
            return found
        found = made


def _begun(body: Expr, states: Collection[Expr]) -> list[Expr]:
    """What a state may be that hangs on no state: candidates for its interval."""
    moved: set[Expr] = set()
    for node in topological(body):
        if node in states or any(c in moved for c in node.children):
            moved.add(node)
    found, pending = [], [body]
    while pending:
        node = pending.pop()
        if node not in moved:
            found.append(node)
        elif isinstance(node, Apply) and node.fn in _CHOOSING:
            pending += node.args[1:] if node.fn is Fn.SELECT else node.args
    return found


_CHOOSING = frozenset({Fn.SELECT, Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP})


def _count(axes: Sequence[Axis], known: Known) -> tuple[int, int]:
    """How many points loops have, the fewest and the most."""
    ends = [(0, SIZE_MAX) if a.extent is None else range_of(a.extent, known) for a in axes]
    return math.prod(max(low, 0) for low, _ in ends), math.prod(max(high, 0) for _, high in ends)


def _constant(value: Const) -> Ends:
    return range_of(value)


def _repeated(kind: str, begin: Ends, values: Ends, count: tuple[int, int], dtype: DType) -> Ends:
    """What values that are combined so often with one to begin with, the identity or another, come to."""
    all_of = everything(dtype)
    if dtype.is_bool:
        return all_of
    if kind in ("max", "min"):
        if count[0] and _is_identity(kind, begin, all_of):
            return values
        low, high = hull(begin, values)
        return (begin[0], high) if kind == "max" else (low, begin[1])
    if kind != "sum":
        return all_of
    if dtype.is_float:
        return float_sum(begin, values, count[1], dtype)
    low, high = (end(n * v for n in count) for end, v in ((min, values[0]), (max, values[1])))
    low, high = begin[0] + low, begin[1] + high
    return (low, high) if all_of[0] <= low and high <= all_of[1] else all_of


def _is_identity(kind: str, begin: Ends, all_of: Ends) -> bool:
    end = all_of[0 if kind == "max" else 1]
    return begin == (end, end)
