"""Derivatives of the library's routines: what is sorted goes back to where it was."""

from __future__ import annotations

from collections.abc import Mapping

from autodiff.rules.flows import Cotangents, Flow
from autodiff.turning.answers import fresh_axes
from tedsl.lang.expr import Axis, Expr, Read
from tedsl.lang.native import Native
from tedsl.lang.tensor import Compute, Extern, Tensor

__all__ = ["native_flows", "native_tangents"]


def native_flows(op: Extern, adjoints: Cotangents, prefix: tuple[Axis, ...]) -> list[Flow]:
    """What a routine sends back to its argument; what gives places and counts alone sends nothing."""
    source = op.args[0]
    if 0 not in adjoints or not source.dtype.is_float:
        return []
    axes = fresh_axes(op.shapes[0])
    value, condition = adjoints[0].at(prefix, axes)
    return [Flow(source, (*prefix, *axes), (*prefix, *_origin(op, axes)), value, condition)]


def native_tangents(op: Extern, dots: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """The tangent of a routine's first output."""
    dot = dots.get(op.args[0])
    if dot is None or not op.dtypes[0].is_float:
        return {}
    axes = fresh_axes(op.shapes[0])
    made = Compute(name=f"{op.name}_dot", where=op.where, axes=axes, bodies=(Read(dot, _origin(op, axes)),))
    return {op.output(0): made.output()}


def _origin(op: Extern, axes: tuple[Axis, ...]) -> tuple[Expr, ...]:
    """Where a sorted element was."""
    assert isinstance(op.function, Native)
    along = op.function.axis
    return (*axes[:along], Read(op.output(1), axes), *axes[along + 1 :])
