"""The derivatives of every element of a tensor by every element of others, as Jacobians have them.

By a single number they are one derivative along a direction, carried forward. Backward they would be a row for each
element of the result, of every stage between. So they are through scans for few elements by which many are derived: a
step then holds a number for each of the first, where backward each step would hold one for each of the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autodiff.custom import rule_of, stages_along
from autodiff.forward import jvp
from autodiff.reverse import differentiate
from autodiff.turning.cotangent import fresh_axes
from tedsl.lang import functions as fn
from tedsl.lang.batching import batched
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Operation, Placeholder, Scan, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["rows_of"]


def rows_of(result: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """For each input the derivatives of `result` by it, of the shape of the result and then that of the input."""
    is_forward = bool(result.ndim) and not _has_backward_rules(result)
    found = {x: _along(result, x) for x in inputs if is_forward and all(number(n) == 1 for n in x.extents)}
    if is_forward and _is_through_scans(result) and _is_wider(result, inputs):
        found |= {x: _along_each(result, x) for x in inputs if x not in found}
    others = [x for x in inputs if x not in found]
    found |= dict(zip(others, differentiate(result, others) if others else (), strict=True))
    return tuple(found[x] for x in inputs)


def _is_through_scans(result: Tensor) -> bool:
    return any(isinstance(op, Scan) for op in stages_of([result]))


def _is_wider(result: Tensor, inputs: Sequence[Tensor]) -> bool:
    """Whether a result has at least as many elements as there are to derive by."""
    sizes = [[number(n) for n in t.extents] for t in (result, *inputs)]
    if any(n is None for size in sizes for n in size):
        return False
    count, *given = (math.prod(n or 0 for n in size) for size in sizes)
    return 0 < sum(given) <= count


def _along_each(result: Tensor, x: Tensor) -> Tensor:
    """The derivatives along each element, batched, those of an element last."""
    extents = [number(n) or 0 for n in x.extents]
    count = Const(math.prod(extents), INT32)
    direction = Placeholder(name=f"{x.name}_direction", shape=x.extents, dtype=x.dtype).output()
    moved = jvp(result, x, direction)
    which, *place = fresh_axes((count, *x.extents))
    one = fn.select_node(_flat(place, extents) == which, Const(1.0, x.dtype), Const(0.0, x.dtype))
    (each,) = compute_tensors((which, *place), (one,), direction.name)
    (made,) = batched([moved], {direction: each}, count)
    axes = fresh_axes((*result.extents, *x.extents))
    index = (_flat(axes[result.ndim :], extents), *axes[: result.ndim])
    return compute_tensors(axes, (fn.convert(Read(made, index), x.dtype),), f"d{x.name}_{result.name}")[0]


def _flat(place: Sequence[Axis], extents: Sequence[int]) -> Expr:
    """The number of an element in the order of memory."""
    total: Expr = Const(0, INT32)
    for axis, extent in zip(place, extents, strict=True):
        total = total * extent + axis
    return total


def _has_backward_rules(result: Tensor) -> bool:
    """Whether an author said how something sends back what is sent to it: forward would not ask."""

    def dependencies(op: Operation) -> list[Tensor]:
        rules = [rule for t in op.outputs if (rule := rule_of(t)) is not None]
        return [*op.inputs, *(t for rule in rules for t in rule.deps)]

    stages = stages_along([result], dependencies)
    return any((rule := rule_of(t)) is not None and rule.vjp is not None for op in stages for t in op.outputs)


def _along(result: Tensor, x: Tensor) -> Tensor:
    (one,) = compute_tensors(fresh_axes(x.extents), (Const(1.0, x.dtype),), f"{x.name}_direction")
    moved, axes = jvp(result, x, one), fresh_axes((*result.extents, *x.extents))
    body = fn.convert(Read(moved, axes[: result.ndim]), x.dtype)
    return compute_tensors(axes, (body,), f"d{x.name}_{result.name}")[0]
