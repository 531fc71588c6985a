"""The derivative of a scan: the reverse recurrence first, then every read outside it is a flow as usual.

The reverse recurrence carries, per state, the adjoint of each step; or, where all uses of that adjoint begin with the
same factor (1 - h * h of a tanh), the product, so that a matrix product inside the recurrence is of two numbers and
not of three.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from autodiff.rules.flows import Cotangents, Flow, site_flows
from autodiff.rules.slopes import Slopes
from autodiff.rules.sweep import ReadSite, sweep
from autodiff.turning.asking import askable, conditions_of
from autodiff.turning.cotangent import Cotangent, Sparse, Stored
from autodiff.turning.gather import gather_expression
from tedsl.lang import functions as fn
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.guards import guards_of
from tedsl.lang.lift import lift_reductions
from tedsl.lang.tensor import Operation, Scan, ScanState, Tensor
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, replaced, substitute_all, topological

__all__ = ["on_outputs", "scan_flows", "seeds_of"]


def scan_flows(
    op: Operation,
    adjoints: Cotangents,
    prefix: tuple[Axis, ...],
    wanted: frozenset[int],
    kept: Mapping[Expr, Expr] = MappingProxyType({}),
    slopes: Slopes = MappingProxyType({}),
) -> list[Flow]:
    """What a scan sends back to the tensors in `wanted`; `kept` says where nodes of its bodies are stored, `slopes`
    what is known of their reductions.
    """
    assert isinstance(op, Scan)
    handles = _handles(op, prefix, _reached(op, adjoints))
    own = {id(op.states[k]): k for k in handles}
    seeds = seeds_of((op.bodies[k], Read(h, (*prefix, *op.axes))) for k, h in handles.items())
    found = sweep(seeds, TRUE, {**kept, **_steps_done(op)}, frozenset(own) | wanted, slopes)
    inner = [(own[id(s.read.tensor)], _on_outputs(op, s)) for s in found if id(s.read.tensor) in own]
    outer = [_on_outputs(op, s) for s in found if id(s.read.tensor) not in own]
    if not inner and all(isinstance(adjoints.get(k), Stored | Sparse) for k in handles):
        totals = {handles[k]: adjoints[k].tensor("") for k in handles}
    else:
        carried = _carried(op, [s for _, s in inner] + outer, handles, prefix)
        stored = {e: Read(handles[k], (*prefix, *op.axes)) for k, e in carried.items()}
        inner = [(k, _with_adjoint(s, replaced(s.adjoint, stored))) for k, s in inner]
        outer = [_with_adjoint(s, replaced(s.adjoint, stored)) for s in outer]
        totals = _reverse_scan(op, adjoints, prefix, handles, inner, carried)
    done = [
        replace(flow, source=op.output(k), within=totals[handles[k]])
        for (k, _), flow in zip(inner, site_flows([s for _, s in inner], prefix, op.axes), strict=True)
    ]
    return done + site_flows([_with_adjoint(s, _renamed(s.adjoint, totals)) for s in outer], prefix, op.axes)


def _reached(op: Scan, adjoints: Cotangents) -> list[int]:
    """The float states with an adjoint: those given one, and those they read, directly or through others."""
    number = {id(s): k for k, s in enumerate(op.states)}
    reached: dict[int, None] = {}
    queue = [k for k in adjoints if op.states[k].dtype.is_float]
    while queue:
        k = queue.pop()
        if k not in reached:
            reached[k] = None
            own = (number.get(id(r.tensor)) for r in reads_of((op.bodies[k],)) if r.dtype.is_float)
            queue += [j for j in own if j is not None]
    return sorted(reached)


def _handles(op: Scan, prefix: tuple[Axis, ...], states: Iterable[int]) -> dict[int, Tensor]:
    """The states of the reverse recurrence, by the number of the state whose adjoint they are."""
    shape = tuple(a.extent for a in (*prefix, *op.axes) if a.extent is not None)
    return {
        k: ScanState(name=f"d{op.name_of(k)}", where=op.where, shape=shape, dtype=op.states[k].dtype).output()
        for k in states
    }


def _steps_done(op: Scan) -> dict[Expr, Expr]:
    """The bodies whose values are there as elements of the finished outputs."""
    return {body: Read(op.output(k), op.axes) for k, body in enumerate(op.bodies) if isinstance(body, Apply)}


def seeds_of(pairs: Iterable[tuple[Expr, Expr]]) -> dict[Expr, Expr]:
    """Roots and their adjoints; two outputs with one body add up."""
    seeds: dict[Expr, Expr] = {}
    for body, adjoint in pairs:
        seeds[body] = seeds[body] + adjoint if body in seeds else adjoint
    return seeds


def _with_adjoint(site: ReadSite, adjoint: Expr) -> ReadSite:
    return ReadSite(site.read, adjoint, site.condition, site.axes)


def _on_outputs(op: Scan, site: ReadSite) -> ReadSite:
    """The site with reads of the scan's states replaced by reads of its finished outputs."""
    adjoint, condition, *indices = on_outputs(op, (site.adjoint, site.condition, *site.read.indices))
    return ReadSite(Read(site.read.tensor, tuple(indices)), adjoint, condition, site.axes)


def on_outputs(op: Scan, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions of a scan's body that read its finished outputs instead of its states."""
    outputs = {state: op.output(k) for k, state in enumerate(op.states)}
    return rebuild_all(exprs, lambda node: _moved_read(node, outputs))


def _renamed(expr: Expr, tensors: Mapping[Tensor, Tensor]) -> Expr:
    return rebuild_all((expr,), lambda node: _moved_read(node, tensors))[0]


def _moved_read(node: Expr, tensors: Mapping[Tensor, Tensor]) -> Expr:
    return Read(tensors[node.tensor], node.indices) if isinstance(node, Read) and node.tensor in tensors else node


def _carried(
    op: Scan, sites: Sequence[ReadSite], handles: Mapping[int, Tensor], prefix: tuple[Axis, ...]
) -> dict[int, Expr]:
    """Per state what its reverse recurrence holds: the adjoint of a step, times all that its every use begins with."""
    roots = tuple(s.adjoint for s in sites)
    users: dict[Expr, list[Expr]] = {}
    for used in topological(roots):
        for child in dict.fromkeys(used.children):
            users.setdefault(child, []).append(used)
    ends = set(roots)
    reach = dict(zip(*_on_finished(op), strict=True))
    carried = {}
    for k, handle in handles.items():
        node: Expr = Read(handle, (*prefix, *op.axes))
        while node not in ends and len(users.get(node, ())) == 1:
            (user,) = users[node]
            if not _is_known_everywhere(op, user, node, prefix, reach, handles):
                break
            node = user
        carried[k] = node
    return carried


def _on_finished(op: Scan) -> tuple[list[Expr], list[Expr]]:
    """The reads of the bodies, and the condition under which each is in bounds for sure."""
    guards = guards_of(op.bodies)
    reads = op.reads
    moved = on_outputs(op, tuple(reads) + tuple(guards[r] for r in reads))
    return list(moved[: len(reads)]), list(moved[len(reads) :])


def _is_known_everywhere(
    op: Scan,
    user: Expr,
    node: Expr,
    prefix: tuple[Axis, ...],
    reach: Mapping[Expr, Expr],
    handles: Mapping[int, Tensor],
) -> bool:
    """Whether `user` can be computed at each step from what is there then."""
    axes = (*prefix, *op.axes)
    if not isinstance(user, Apply) or user.dtype is not node.dtype or not set(free_axes(user)) <= set(axes):
        return False
    nodes = topological(user)
    if any(isinstance(n, Reduce) for n in nodes):
        return False
    guards = guards_of(user)
    at_this_step = {*(Read(h, axes) for h in handles.values()), *(Read(t, op.axes) for t in op.outputs)}
    for r in nodes:
        if isinstance(r, Read) and r not in at_this_step:
            allowed = reach.get(r)
            if allowed is None or not (allowed is TRUE or allowed is guards[r]):
                return False
    return True


def _reverse_scan(
    op: Scan,
    adjoints: Cotangents,
    prefix: tuple[Axis, ...],
    handles: Mapping[int, Tensor],
    inner: Sequence[tuple[int, ReadSite]],
    carried: Mapping[int, Expr],
) -> dict[Tensor, Tensor]:
    """The adjoint of every step of every float state, its own plus what later steps send back: handle -> tensor."""
    axes = tuple(Axis(a.name, a.extent) for a in op.axes)
    outer = tuple(Axis(p.name, p.extent) for p in prefix)
    bodies = {k: _external(adjoints.get(k), prefix, axes, op.states[k]) for k in handles}
    for state, site in inner:
        bodies[state] = bodies[state] + _recurrent_part(op, site, axes, state)
    place: dict[Expr, Expr] = dict(zip(op.axes, axes, strict=True))
    around: dict[Expr, Expr] = dict(zip(prefix, outer, strict=True))
    at_this_step: dict[Expr, Expr] = {Read(handles[k], (*prefix, *axes)): body for k, body in bodies.items()}
    held = [replaced(substitute_all((carried[k],), place)[0], at_this_step) for k in handles]
    moved = substitute_all(tuple(held), around)
    expressions = lift_reductions(moved, (*outer, *axes), f"d{op.name}", tuple(handles.values()))
    made = Scan(
        name=f"d{op.name}", where=op.where, axes=(*outer, *axes), states=tuple(handles.values()),
        bodies=expressions, dim=len(outer) + op.dim, reverse=not op.reverse,
        names=tuple(f"d{op.name_of(k)}" for k in handles),
    )  # fmt: skip
    return dict(zip(handles.values(), made.outputs, strict=True))


def _external(adjoint: Cotangent | None, prefix: tuple[Axis, ...], axes: tuple[Axis, ...], state: Tensor) -> Expr:
    if adjoint is None:
        return Const(0.0, state.dtype)
    value, condition = adjoint.at(prefix, axes)
    return fn.select_node(askable(condition), value, Const(0.0, value.dtype))


def _recurrent_part(op: Scan, site: ReadSite, axes: tuple[Axis, ...], state: int) -> Expr:
    part = gather_expression(
        (*op.axes, *site.axes), site.read.indices, site.adjoint, axes, conditions=conditions_of(site.condition)
    )
    return Const(0.0, op.states[state].dtype) if part is None else part
