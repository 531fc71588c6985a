"""The derivative of a scatter: what went somewhere is gathered from there.

One row per kind: what each scattered value receives, under which condition, and what the initial tensor receives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autodiff.rules.flows import Cotangents, Flow, site_flows
from autodiff.rules.sweep import sweep
from autodiff.turning.cotangent import Stored, fresh_axes
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Expr, Read
from tedsl.lang.tensor import Operation, Scatter, Tensor

__all__ = ["scatter_flows"]


def scatter_flows(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    """What a scatter sends back to what its values read, and to its initial tensor."""
    assert isinstance(op, Scatter)
    held = Stored(adjoints[0].tensor(f"d{op.name}"))
    slope, condition = SLOPES[op.kind](op)
    at_values, _ = held.at(prefix, op.index)
    here = fn.logical_and(op.guard, condition(op.value, op.index, True))
    sites = sweep({op.value: slope(at_values, op.value, op.index)}, here, {}, wanted)
    flows = site_flows(sites, prefix, op.axes)
    if op.init is not None and id(op.init) in wanted:
        axes = fresh_axes(op.shape, "pqrstu")
        initial = Read(op.init, axes)
        at_init, _ = held.at(prefix, axes)
        value, here = slope(at_init, initial, axes), condition(initial, axes, False)
        flows.append(Flow(op.init, (*prefix, *axes), (*prefix, *axes), value, here))
    return flows


Slope = Callable[[Expr, Expr, tuple[Expr, ...]], Any]
Condition = Callable[[Expr, tuple[Expr, ...], bool], Any]


def _add(op: Scatter) -> tuple[Slope, Condition]:
    return lambda g, value, index: g, lambda value, index, scattered: TRUE


def _mul(op: Scatter) -> tuple[Slope, Condition]:
    """The product of the others: with one zero among them only that zero has a slope, with two none has."""
    is_zero = op.value == 0
    init_product = init_zeros = None
    if op.init is not None:
        axes = fresh_axes(op.shape)
        initial = Read(op.init, axes)
        init_product = _pointwise(f"{op.name}_nonzero_init", axes, fn.select(initial == 0, 1.0, initial))
        init_zeros = _pointwise(f"{op.name}_zero_init", axes, fn.convert(initial == 0, INT32))
    product = _scattered(op, "nonzero_product", fn.select(is_zero, 1.0, op.value), "mul", op.guard, init_product)
    zeros = _scattered(op, "zeros", fn.convert(is_zero, INT32), "add", op.guard, init_zeros)

    def slope(g: Expr, value: Expr, index: tuple[Expr, ...]) -> Any:
        others = Read(product, index)
        return g * fn.select(value == 0, others, others / value)

    def condition(value: Expr, index: tuple[Expr, ...], scattered: bool) -> Any:
        return Read(zeros, index) == fn.convert(value == 0, INT32)

    return slope, condition


def _extreme(op: Scatter) -> tuple[Slope, Condition]:
    """The first that equals the result: the initial value, then the values in axis order."""
    result = op.output()
    position: Expr = fn.const(0, INT32)
    for axis in op.axes:
        position = position * axis.extent + (axis - axis.begin)
    equals = op.value == Read(result, op.index)
    first = _scattered(op, "winner", position, "min", fn.logical_and(op.guard, equals), None)

    def condition(value: Expr, index: tuple[Expr, ...], scattered: bool) -> Any:
        here = value == Read(result, index)
        if not scattered:
            return here
        here = fn.logical_and(here, position == Read(first, index))
        return here if op.init is None else fn.logical_and(here, Read(op.init, index) != Read(result, index))

    return lambda g, value, index: g, condition


SLOPES: dict[str, Callable[[Scatter], tuple[Slope, Condition]]] = {
    "add": _add, "mul": _mul, "max": _extreme, "min": _extreme,
}  # fmt: skip


def _scattered(op: Scatter, suffix: str, value: Expr, kind: str, guard: Expr, init: Tensor | None) -> Tensor:
    """Another scatter along the same indices."""
    return Scatter(
        name=f"{op.name}_{suffix}", where=op.where, shape=op.shape, axes=op.axes, index=op.index, value=value,
        guard=guard, kind=kind, init=init,
    ).output()  # fmt: skip


def _pointwise(name: str, axes: tuple[Axis, ...], body: Expr) -> Tensor:
    return compute_tensors(axes, (body,), name)[0]
