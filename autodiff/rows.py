"""The derivatives of every element of a tensor by every element of others, as Jacobians have them.

By a single number they are one derivative along a direction, carried forward. Backward they would be a row for each
element of the result, of every stage between.
"""

from __future__ import annotations

from collections.abc import Sequence

from autodiff.custom import rule_of, stages_along
from autodiff.forward import jvp
from autodiff.reverse import differentiate
from autodiff.turning.cotangent import fresh_axes
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import Const, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Operation, Tensor

__all__ = ["rows_of"]


def rows_of(result: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """For each input the derivatives of `result` by it, of the shape of the result and then that of the input."""
    is_forward = bool(result.ndim) and not _has_backward_rules(result)
    found = {x: _along(result, x) for x in inputs if is_forward and all(number(n) == 1 for n in x.extents)}
    others = [x for x in inputs if x not in found]
    found |= dict(zip(others, differentiate(result, others) if others else (), strict=True))
    return tuple(found[x] for x in inputs)


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
