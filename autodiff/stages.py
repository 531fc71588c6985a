"""The derivative of each kind of stage: what every read of its definition sends back.

One rule per kind. A rule takes the adjoints of the stage's outputs and yields `Flow`s: for each read site the axes it
runs over, the index it reads, and the value that returns there. Turning a flow into a tensor is `autodiff.gather`'s
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from autodiff.asking import askable, conditions_of
from autodiff.cotangent import Cotangent, LastStep, Stored
from autodiff.flows import Cotangents, Flow, share_values, site_flows
from autodiff.folds import as_scan
from autodiff.gather import gather_expression
from autodiff.scatters import scatter_flows
from autodiff.sweep import ReadSite, sweep
from tedsl.lang import functions as fn
from tedsl.lang.errors import GradientError
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.lift import lift_reductions
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Compute, Extern, Operation, Scan, ScanState, Scatter, Tensor
from tedsl.lang.traverse import reads_of, rebuild_all

__all__ = ["flat_position", "flows_of", "on_outputs", "winner_of"]


def flows_of(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    """What `op` sends back to the tensors with ids in `wanted`, given the adjoints of its outputs (by number)."""
    return RULES[type(op)](op, adjoints, prefix, wanted)


def _compute(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    assert isinstance(op, Compute)
    reduction = op.reduction
    if reduction is not None:
        return REDUCTIONS[reduction.reducer.kind](op, reduction, adjoints, prefix, wanted)
    received = {k: adjoint.at(prefix, op.axes) for k, adjoint in adjoints.items()}
    condition: Expr = TRUE
    if len(received) == 1:
        ((k, (value, condition)),) = received.items()
        received = {k: (value, TRUE)}
    seeds = _seeds((op.bodies[k], _where(c, value)) for k, (value, c) in received.items())
    # The results are there: a rule that wants y reads it instead of computing it again.
    stored = {op.bodies[k]: Read(op.output(k), op.axes) for k in received if isinstance(op.bodies[k], Apply)}
    flows = site_flows(sweep(seeds, condition, stored, wanted), prefix, op.axes)
    return share_values(flows, f"d{op.name}_partials")


def _where(condition: Expr, value: Expr) -> Expr:
    return fn.select_node(askable(condition), value, Const(0.0, value.dtype))


def _sum(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    value, condition = adjoints[0].at(prefix, op.axes)
    condition = fn.logical_and(condition, reduction.where)
    sites = sweep({reduction.values[0]: value}, condition, {}, wanted)
    return site_flows(sites, prefix, (*op.axes, *reduction.axes))


def _extreme(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    """The first winner in axis order takes it all; its position is a stage of its own, computed once."""
    winner = winner_of(op, reduction)
    here = fn.logical_and(flat_position(reduction.axes) == Read(winner, op.axes), reduction.where)
    value, condition = adjoints[0].at(prefix, op.axes)
    sites = sweep({reduction.values[0]: value}, fn.logical_and(condition, here), {}, wanted)
    return site_flows(sites, prefix, (*op.axes, *reduction.axes))


def winner_of(op: Compute, reduction: Reduce) -> Tensor:
    """The position of the element that a max or min reduction chose."""
    chosen = Reduce(BUILTIN[f"arg{reduction.reducer.kind}"], reduction.values, reduction.axes, reduction.where)
    return Compute(name=f"{op.name}_winner", where=op.where, axes=op.axes, bodies=(chosen,)).output()


def flat_position(axes: tuple[Axis, ...]) -> Expr:
    """The row-major position within a reduction's box, as argmax counts it."""
    position: Expr = fn.const(0, "int32")
    for axis in axes:
        position = position * axis.extent + (axis - axis.begin)
    return position


def _fold(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    scan = as_scan(op, reduction)
    last = simplify_extent(scan.shape_of(0)[-1] - 1)
    at_last = {k: LastStep(adjoint, scan.dim, last) for k, adjoint in adjoints.items()}
    return _scan(scan, at_last, prefix, wanted)


def _nothing(
    op: Compute, reduction: Reduce, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]
) -> list[Flow]:
    return []


REDUCTIONS: dict[str, Callable[..., list[Flow]]] = {
    "sum": _sum, "max": _extreme, "min": _extreme, "prod": _fold, "custom": _fold,
    "any": _nothing, "all": _nothing, "argmax": _nothing, "argmin": _nothing,
}  # fmt: skip


def _scan(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
    """The reverse recurrence gives the adjoint of every step; each read outside it is then a flow as usual."""
    assert isinstance(op, Scan)
    floats = [k for k, s in enumerate(op.states) if s.dtype.is_float]
    totals = _reverse_scan(op, adjoints, prefix, floats)
    seeds = _seeds((op.bodies[k], Read(totals[k], (*prefix, *op.axes))) for k in floats)
    sites = [_on_outputs(op, site) for site in sweep(seeds, TRUE, _steps_done(op), wanted)]
    return site_flows(sites, prefix, op.axes)


def _steps_done(op: Scan) -> dict[Expr, Expr]:
    """The bodies whose values are there as elements of the finished outputs."""
    return {body: Read(op.output(k), op.axes) for k, body in enumerate(op.bodies) if isinstance(body, Apply)}


def _seeds(pairs: Iterable[tuple[Expr, Expr]]) -> dict[Expr, Expr]:
    """Roots and their adjoints; two outputs with one body add up."""
    seeds: dict[Expr, Expr] = {}
    for body, adjoint in pairs:
        seeds[body] = seeds[body] + adjoint if body in seeds else adjoint
    return seeds


def _on_outputs(op: Scan, site: ReadSite) -> ReadSite:
    """The site with reads of the scan's states replaced by reads of its finished outputs."""
    adjoint, condition, *indices = on_outputs(op, (site.adjoint, site.condition, *site.read.indices))
    return ReadSite(Read(site.read.tensor, tuple(indices)), adjoint, condition, site.axes)


def on_outputs(op: Scan, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions of a scan's body that read its finished outputs instead of its states."""
    outputs = {id(state): op.output(k) for k, state in enumerate(op.states)}

    def rule(node: Expr) -> Expr:
        if isinstance(node, Read) and id(node.tensor) in outputs:
            return Read(outputs[id(node.tensor)], node.indices)
        return node

    return rebuild_all(exprs, rule)


def _reverse_scan(op: Scan, adjoints: Cotangents, prefix: tuple[Axis, ...], floats: list[int]) -> dict[int, Tensor]:
    """The adjoint of every step of every float state: its own plus what later steps send back."""
    axes = tuple(Axis(a.name, a.extent) for a in op.axes)
    outer = tuple(Axis(p.name, p.extent) for p in prefix)
    shape = tuple(a.extent for a in (*outer, *axes) if a.extent is not None)
    handles = {
        k: ScanState(name=f"d{op.name_of(k)}", where=op.where, shape=shape, dtype=op.states[k].dtype).output()
        for k in floats
    }
    seeds = _seeds((op.bodies[k], Read(handles[k], (*outer, *op.axes))) for k in floats)
    own = {id(op.states[k]): k for k in floats}
    bodies = {k: _external(adjoints.get(k), outer, axes, op.states[k]) for k in floats}
    for site in sweep(seeds, TRUE, _steps_done(op), frozenset(own)):
        state = own[id(site.read.tensor)]
        part = _recurrent_part(op, _on_outputs(op, site), axes, state)
        bodies[state] = bodies[state] + part
    if all(_reads_no_handle(bodies[k], handles) for k in floats) and all(
        isinstance(adjoints.get(k), Stored) for k in floats
    ):
        return {k: adjoints[k].tensor("") for k in floats}
    expressions = lift_reductions(tuple(bodies.values()), (*outer, *axes), f"d{op.name}", tuple(handles.values()))
    made = Scan(
        name=f"d{op.name}", where=op.where, axes=(*outer, *axes), states=tuple(handles[k] for k in floats),
        bodies=expressions, dim=len(outer) + op.dim, reverse=not op.reverse,
        names=tuple(f"d{op.name_of(k)}" for k in floats),
    )  # fmt: skip
    return dict(zip(floats, made.outputs, strict=True))


def _external(adjoint: Cotangent | None, prefix: tuple[Axis, ...], axes: tuple[Axis, ...], state: Tensor) -> Expr:
    if adjoint is None:
        return Const(0.0, state.dtype)
    value, condition = adjoint.at(prefix, axes)
    return _where(condition, value)


def _recurrent_part(op: Scan, site: ReadSite, axes: tuple[Axis, ...], state: int) -> Expr:
    try:
        part = gather_expression(
            (*op.axes, *site.axes), site.read.indices, site.adjoint, axes, conditions=conditions_of(site.condition)
        )
    except GradientError as error:
        raise GradientError(
            f"scan {op.name!r} defined at {op.where}: the read `{site.read}` of an earlier step cannot be inverted "
            f"({error}); "
            "use override= to give its derivative"
        ) from error
    return Const(0.0, op.states[state].dtype) if part is None else part


def _reads_no_handle(body: Expr, handles: Mapping[int, Tensor]) -> bool:
    own = {id(h) for h in handles.values()}
    return not any(id(r.tensor) in own for r in reads_of((body,)))


def _extern(op: Operation, adjoints: Cotangents, prefix: tuple[Axis, ...], wanted: frozenset[int]) -> list[Flow]:
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
