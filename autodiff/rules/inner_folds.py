"""The slopes of products and of reducers of one's own that stand inside the body of a scan, over its earlier steps.

In reverse every step is done, so such a reduction is one over finished tensors: a stage for its terms, its prefixes and
suffixes as scans (`rules.folds`), and the derivative by each term a stage that the reverse recurrence multiplies
with. The cost is linear in the terms; the storage too, which is what a step's other quantities do not need.
"""

from __future__ import annotations

from collections.abc import Mapping

from autodiff.rules.carrying import on_outputs
from autodiff.rules.folds import as_scan, keeping_values
from autodiff.rules.recurrences import scan_flows
from autodiff.rules.totals import written_out
from autodiff.turning.asking import askable
from autodiff.turning.cotangent import LastStep, One
from autodiff.turning.gather import adjoint_of_read
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.tensor import Compute, Scan, Tensor
from tedsl.lang.traverse import free_axes, substitute_all

__all__ = ["slopes_of"]


def slopes_of(op: Scan, guards: Mapping[Expr, Expr]) -> dict[Reduce, tuple[Expr | None, ...]]:
    """For each such reduction among nodes of the bodies, of which `guards` says where they are used, its derivative by
    each of its values; None where that is zero.
    """
    found: dict[Reduce, tuple[Expr | None, ...]] = {}
    folds: dict[Reduce, _Fold] = {}
    for node, guard in guards.items():
        if isinstance(node, Reduce) and node.dtype.is_float and node.reducer.kind in ("prod", "custom"):
            first = Reduce(node.reducer, node.values, node.axes, node.where)
            if first not in folds:
                folds[first] = _Fold(op, node, guard)
            found[node] = folds[first].slopes(node.index)
    return found


class _Fold:
    """One reduction over finished steps, as a stage of its own over the axes that it depends on."""

    def __init__(self, op: Scan, node: Reduce, guard: Expr) -> None:
        bound_here = set(node.axes)
        self.outer = tuple(a for a in free_axes((*node.children, guard)) if a not in bound_here)
        self.inner = node.axes
        own = tuple(Axis(a.name, a.extent) for a in self.outer)
        bound = tuple(Axis(a.name, a.extent) for a in self.inner)
        *values, where = on_outputs(op, (*node.values, fn.logical_and(guard, node.where)))
        moved: dict[Expr, Expr] = {
            a: f + a.begin for a, f in zip((*self.outer, *self.inner), (*own, *bound), strict=True)
        }
        *values, condition = substitute_all((*values, askable(where)), moved)
        terms = tuple(fn.select_node(condition, v, Const(_zero(v), v.dtype)) for v in values)
        self.terms = compute_tensors((*own, *bound), terms, f"{op.name}_terms")
        steps = tuple(Axis(a.name, a.extent, is_reduce=True) for a in self.inner)
        (asked,) = substitute_all((condition,), dict(zip(bound, steps, strict=True)))
        reads = tuple(Read(t, (*own, *steps)) for t in self.terms)
        bodies = tuple(Reduce(node.reducer, reads, steps, asked, k) for k in range(len(reads)))
        self.stage = Compute(name=f"{op.name}_fold", where=op.where, axes=own, bodies=bodies)
        self.scan, self.kept = keeping_values(as_scan(self.stage, bodies[0]))

    def slopes(self, component: int) -> tuple[Expr | None, ...]:
        """The derivative of one result by each value, at the axes of the scan's body."""
        last = simplify_extent(self.scan.shape_of(0)[-1] - 1)
        one: Mapping[int, LastStep] = {
            component: LastStep(One(self.scan.bodies[component].dtype), self.scan.dims[0], last)
        }
        wanted = frozenset(id(t) for t in self.terms if t.dtype.is_float)
        parts: dict[Tensor, list[Tensor]] = {}
        for flow in scan_flows(self.scan, one, (), wanted, self.kept):
            if flow.within is None:
                name = f"{self.stage.name}_slope"
                turned = adjoint_of_read(
                    flow.axes, flow.index, flow.value, flow.source.extents, conditions=flow.conditions, name=name
                )
                if turned.tensor is not None:
                    parts.setdefault(flow.source, []).append(turned.tensor)
        place = tuple(a - a.begin for a in (*self.outer, *self.inner))
        return tuple(
            Read(written_out(parts[t], f"{self.stage.name}_slope"), place) if t in parts else None for t in self.terms
        )


def _zero(value: Expr) -> float | int | bool:
    return 0.0 if value.dtype.is_float else False if value.dtype.is_bool else 0
