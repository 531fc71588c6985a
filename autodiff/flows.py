"""A flow: what one read site of a stage sends back to the tensor it read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autodiff.cotangent import Cotangent
from autodiff.sweep import ReadSite
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read
from tedsl.lang.lift import conjuncts
from tedsl.lang.operators import Fn
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import reads_of, substitute_all, topological

__all__ = ["Cotangents", "Flow", "share_values", "site_flows"]

# The adjoints of a stage's outputs, by output number; outputs without one are absent.
Cotangents = Mapping[int, Cotangent]


@dataclass(frozen=True)
class Flow:
    """d`source`[index(axes)] += value(axes), for all points of `axes` at which `condition` holds."""

    source: Tensor
    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    value: Expr
    condition: Expr

    @property
    def conditions(self) -> tuple[Expr, ...]:
        return tuple(conjuncts(self.condition))


def site_flows(sites: Iterable[ReadSite], prefix: tuple[Axis, ...], axes: tuple[Axis, ...]) -> list[Flow]:
    """The flows of read sites found over `axes`."""
    return [
        Flow(s.read.tensor, (*prefix, *axes, *s.axes), (*prefix, *s.read.indices), s.adjoint, s.condition) for s in sites
    ]


def share_values(flows: list[Flow], name: str) -> list[Flow]:
    """The flows of one pointwise body, their values computed together where apart they would repeat much of the body.

    rewrites   n flows, each computing its own partial derivative   ->   one loop nest with n outputs, read by n flows
    """
    if len(flows) < 2 or any(f.axes != flows[0].axes for f in flows):
        return flows
    together = _cost(e for f in flows for e in (f.value, f.condition))
    apart = sum(_cost((f.value, f.condition)) for f in flows)
    if apart <= 2 * together + 2 * len(flows):
        return flows
    axes = flows[0].axes
    fresh = tuple(Axis(a.name, a.extent) for a in axes)
    values = tuple(fn.select_node(f.condition, f.value, Const(0.0, f.value.dtype)) for f in flows)
    moved = substitute_all(values, {a: b + a.begin for a, b in zip(axes, fresh, strict=True)})
    shared = compute_tensors(fresh, moved, name)
    position = tuple(a - a.begin for a in axes)
    return [
        Flow(f.source, axes, f.index, Read(tensor, position), _data_free(f.conditions))
        for f, tensor in zip(flows, shared, strict=True)
    ]


def _cost(roots: Iterable[Expr]) -> int:
    """Operations on floats, those that no hardware instruction does counted several times."""
    nodes = [n for n in topological(tuple(roots)) if isinstance(n, Apply) and n.dtype.is_float]
    return sum(_COSTS.get(n.fn, 8) for n in nodes)


_COSTS = dict.fromkeys(
    (Fn.ADD, Fn.SUB, Fn.MUL, Fn.NEG, Fn.ABS, Fn.SELECT, Fn.MINIMUM, Fn.MAXIMUM, Fn.RELU, Fn.CAST, Fn.SIGN, Fn.FLOOR, Fn.CLIP), 1
)


def _data_free(conditions: Iterable[Expr]) -> Expr:
    """The conditions on axes alone: they still narrow the loops of the gather; the others are in the value already."""
    kept: Expr = TRUE
    for condition in conditions:
        if not reads_of((condition,)):
            kept = fn.logical_and(kept, condition)
    return kept
