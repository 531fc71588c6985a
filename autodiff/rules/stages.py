"""The derivative of each kind of stage: what every read of its definition sends back.

One rule per kind. A rule takes the adjoints of the stage's outputs and yields `Flow`s: for each read site the axes it
runs over, the index it reads, and the value that returns there. Turning a flow into a tensor is `turning.gather`'s
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autodiff.custom import check_no_rules
from autodiff.rules.cases import Branch, cases_of
from autodiff.rules.flows import Cotangents, Flow, merged, site_flows
from autodiff.rules.folds import as_scan, keeping_values
from autodiff.rules.inner_folds import slopes_of
from autodiff.rules.natives import native_flows
from autodiff.rules.recurrences import guards_swept, scan_flows, seeds_of
from autodiff.rules.scatters import scatter_flows
from autodiff.rules.sharing import share_values
from autodiff.rules.slopes import flat_position
from autodiff.rules.sweep import sweep
from autodiff.turning.asking import askable
from autodiff.turning.cotangent import LastStep
from autodiff.turning.reached import has_poles, is_steady
from tedsl.analysis.canceling_steps import canceling_within
from tedsl.lang import functions as fn
from tedsl.lang.errors import GradientError
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.native import Native
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, Scatter, Tensor

__all__ = ["flows_of", "winner_of"]


def flows_of(
    op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int],
    readers: Iterable[Operation] | None = None,
) -> list[Flow]:  # fmt: skip
    """What `op` sends back to the tensors with ids in `wanted`, given the adjoints of its outputs (by number).

    `readers`: all that may read it, where these are known.
    """
    if isinstance(op, Scan) and readers is not None:
        check_no_rules(op)
        return scan_flows(
            op, adjoints, prefix, wanted, slopes=slopes_of(op, guards_swept(op)), canceled=canceling_within(op, readers)
        )
    return RULES[type(op)](op, adjoints, prefix, wanted)


def _compute(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    assert isinstance(op, Compute)
    reduction = op.reduction
    if reduction is not None:
        return REDUCTIONS[reduction.reducer.kind](op, reduction, adjoints, prefix, wanted)
    found: dict[tuple[Axis, ...], list[tuple[Branch, list[Flow]]]] = {}
    for case in cases_of(op):
        found.setdefault(case.axes, []).append((case, _case(op, case, adjoints, prefix, wanted)))
    made: list[Flow] = []
    for alike in found.values():
        bodies = [b for case, _ in alike for b in case.bodies]
        flows = merged(f for _, own in alike for f in own)
        made += share_values(flows, guards_of(bodies), f"d{op.name}_partials")
    return made


def _case(
    op: Compute, case: Branch, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    """What some elements of a pointwise stage send back."""
    bodies = case.bodies
    received = {k: adjoint.at(prefix, case.index) for k, adjoint in adjoints.items()}
    condition: Expr = TRUE
    if len(received) == 1:
        ((k, (value, condition)),) = received.items()
        received = {k: (value, TRUE)}
    reached = _any(adjoint.reached(case.index) for adjoint in adjoints.values())
    if not all(is_steady(bodies[k]) for k in received):
        condition = fn.logical_and(condition, reached)
    seeds = seeds_of((bodies[k], _where(c, value)) for k, (value, c) in received.items())
    # The results are there: a rule that wants y reads it instead of computing it again.
    stored = {bodies[k]: Read(op.output(k), case.index) for k in received if isinstance(bodies[k], Apply)}
    return site_flows(sweep(seeds, condition, stored, wanted), prefix, case.axes, reached)


def _any(conditions: Iterable[Expr]) -> Expr:
    found: Expr = FALSE
    for c in conditions:
        found = fn.logical_or(found, c)
    return found


def _where(condition: Expr, value: Expr) -> Expr:
    return fn.select_node(askable(condition), value, Const(0.0, value.dtype))


def _sum(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    value, condition = adjoints[0].at(prefix, op.axes)
    reached = adjoints[0].reached(op.axes)
    condition = fn.logical_and(condition, reduction.where)
    if has_poles(reduction.values[0]):
        condition = fn.logical_and(condition, reached)
    sites = sweep({reduction.values[0]: value}, condition, {}, wanted)
    return site_flows(sites, prefix, (*op.axes, *reduction.axes), reached)


def _extreme(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    """The first winner in axis order takes it all; its position is a stage of its own, computed once."""
    winner = winner_of(op, reduction)
    here = fn.logical_and(flat_position(reduction.axes) == Read(winner, op.axes), reduction.where)
    value, condition = adjoints[0].at(prefix, op.axes)
    sites = sweep({reduction.values[0]: value}, fn.logical_and(condition, here), {}, wanted)
    return site_flows(sites, prefix, (*op.axes, *reduction.axes), None)


def winner_of(op: Compute, reduction: Reduce) -> Tensor:
    """The position of the element that a max or min reduction chose."""
    chosen = Reduce(BUILTIN[f"arg{reduction.reducer.kind}"], reduction.values, reduction.axes, reduction.where)
    return Compute(name=f"{op.name}_winner", where=op.where, axes=op.axes, bodies=(chosen,)).output()


def _fold(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    scan, kept = keeping_values(as_scan(op, reduction))
    last = simplify_extent(scan.shape_of(0)[-1] - 1)
    at_last = {k: LastStep(adjoint, scan.dims[0], last) for k, adjoint in adjoints.items()}
    return scan_flows(scan, at_last, prefix, wanted, kept)


def _nothing(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    return []


REDUCTIONS: dict[str, Callable[..., list[Flow]]] = {
    "sum": _sum, "max": _extreme, "min": _extreme, "prod": _fold, "custom": _fold,
    "any": _nothing, "all": _nothing, "argmax": _nothing, "argmin": _nothing,
}  # fmt: skip


def _scan(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    assert isinstance(op, Scan)
    check_no_rules(op)
    return scan_flows(op, adjoints, prefix, wanted, slopes=slopes_of(op, guards_swept(op)))


def _extern(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    assert isinstance(op, Extern)
    if isinstance(op.function, Native):
        return native_flows(op, adjoints, prefix)
    if any(id(t) in wanted for t in op.inputs):
        raise GradientError(
            f"extern {op.name!r} defined at {op.where}: the derivative of a Python function is not known; "
            f"give it by override={{tensor: fn}}"
        )
    return []


RULES: dict[type[Operation], Callable[..., list[Flow]]] = {
    Compute: _compute,
    Scan: _scan,
    Scatter: scatter_flows,
    Extern: _extern,
}
