"""The derivative of a scan: the reverse recurrence first, then every read outside it is a flow as usual.

The reverse recurrence carries, per state, the adjoint of each step; or, where all uses of that adjoint begin with the
same factor (1 - h * h of a tanh), the product, so that a matrix product inside the recurrence is of two numbers and
not of three.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from autodiff.rules.carrying import CommonPart, carried_of, moved_read, on_outputs, shared_of
from autodiff.rules.flows import Cotangents, Flow, site_flows
from autodiff.rules.inner_sums import sums_done
from autodiff.rules.slopes import Slopes
from autodiff.rules.sweep import ReadSite, sweep
from autodiff.turning.asking import askable, conditions_of
from autodiff.turning.cotangent import Cotangent, Sparse, Stored
from autodiff.turning.gather import gather_expression
from tedsl.analysis.canceling_steps import CanceledSteps
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.guards import guards_of
from tedsl.lang.lift import lift_reductions
from tedsl.lang.phases import cases_of
from tedsl.lang.tensor import Operation, Scan, ScanState, StepPart, Tensor
from tedsl.lang.traverse import asked_inside, reads_of, rebuild_all, replaced, substitute_all, topological

__all__ = ["guards_swept", "scan_flows", "seeds_of"]

NONE_CANCELED = CanceledSteps()


def scan_flows(
    op: Operation,
    adjoints: Cotangents,
    prefix: tuple[Axis, ...],
    wanted: frozenset[int],
    kept: Mapping[Expr, Expr] = MappingProxyType({}),
    slopes: Slopes = MappingProxyType({}),
    canceled: CanceledSteps = NONE_CANCELED,
) -> list[Flow]:
    """What a scan sends back to the tensors in `wanted`; `kept` says where nodes of its bodies are stored, `slopes`
    what is known of their reductions, `canceled` by which of them the derivative is 0.
    """
    assert isinstance(op, Scan)
    handles = _handles(op, prefix, _reached(op, adjoints))
    own = {id(op.states[k]): k for k in handles}
    sums = sums_done(op)
    found = _swept(op, handles, prefix, frozenset(own) | wanted, {**kept, **sums}, slopes, canceled)
    known = frozenset(sums.values())
    inner = [(own[id(s.read.tensor)], _on_outputs(op, s)) for s in found if id(s.read.tensor) in own]
    outer = [_on_outputs(op, s) for s in found if id(s.read.tensor) not in own]
    outer = _dividing_once(outer, [s.adjoint for _, s in inner])
    if not inner and all(isinstance(adjoints.get(k), Stored | Sparse) for k in handles):
        totals = {handles[k]: adjoints[k].tensor("") for k in handles}
    else:
        carried = carried_of(op, [s.adjoint for _, s in inner] + [s.adjoint for s in outer], handles, prefix, known)
        stored = {e: Read(handles[k], (*prefix, *op.axes)) for k, e in carried.items()}
        inner = [(k, _with_adjoint(s, replaced(s.adjoint, stored))) for k, s in inner]
        outer = [_with_adjoint(s, replaced(s.adjoint, stored)) for s in outer]
        sites = [s for _, s in inner] + outer
        shared = shared_of(op, [s.adjoint for s in sites], [s.condition for s in sites], handles, prefix, known)
        stored = {s.part: Read(t, s.place) for t, s in shared.items()}
        inner = [(k, _with_adjoint(s, replaced(s.adjoint, stored))) for k, s in inner]
        outer = [_with_adjoint(s, replaced(s.adjoint, stored)) for s in outer]
        totals = _reverse_scan(op, adjoints, prefix, handles, inner, carried, shared)
    done = [
        replace(flow, source=op.output(k), within=totals[handles[k]])
        for (k, _), flow in zip(inner, site_flows([s for _, s in inner], prefix, op.axes), strict=True)
    ]
    return done + site_flows([_with_adjoint(s, _renamed(s.adjoint, totals)) for s in outer], prefix, op.axes)


def _swept(
    op: Scan,
    handles: Mapping[int, Tensor],
    prefix: tuple[Axis, ...],
    wanted: frozenset[int],
    kept: Mapping[Expr, Expr],
    slopes: Slopes,
    canceled: CanceledSteps,
) -> list[ReadSite]:
    """What the bodies send back to each read; a phase of a packed scan has reads of its own, though equal ones."""
    if not op.parts:
        seeds = seeds_of((op.bodies[k], Read(h, (*prefix, *op.axes))) for k, h in handles.items())
        return sweep(
            seeds,
            TRUE,
            {**kept, **_steps_done(op, dict(enumerate(op.bodies)), op.axes)},
            wanted,
            slopes,
            canceled.nodes,
        )
    found: list[list[ReadSite]] = []
    parts = set(canceled.parts)  # that somebody asks for, if only those are swept
    for number, inside, bodies in reversed(cases_of(op)):
        here = tuple(Const(number, INT32) if a is op.steps[-1] else a for a in op.axes)
        own = {k: h for k, h in handles.items() if k in bodies and (not canceled.nodes or (k, number) in parts)}
        seeds = seeds_of((bodies[k], Read(h, (*prefix, *here))) for k, h in own.items())
        values = {**kept, **_steps_done(op, bodies, here)}
        sites = sweep(seeds, TRUE, values, wanted, slopes, canceled.nodes)
        read = (op.part_of(s.read) for s in sites)
        parts.update((p.output, p.phase) for p in read if p is not None)
        found.insert(0, [ReadSite(s.read, s.adjoint, asked_inside(inside, s.condition), s.axes) for s in sites])
    return [site for case in found for site in case]


def guards_swept(op: Scan) -> dict[Expr, Expr]:
    """Where the nodes of the bodies are used, as `scan_flows` walks them: of a packed scan phase by phase."""
    if not op.parts:
        return guards_of(op.bodies)
    cases = [(body, inside) for _, inside, bodies in cases_of(op) for body in bodies.values()]
    return guards_of([body for body, _ in cases], [inside for _, inside in cases])


def _dividing_once(sites: Sequence[ReadSite], others: Sequence[Expr]) -> list[ReadSite]:
    """What a quotient sends back, with one division: its divisor receives a multiple of what its dividend does.

    rewrites   -(g * y) / b   ->   -(g / b * y), where `others`, or a site, has g / b
    """
    adjoints = [s.adjoint for s in sites]
    known = {n.args: n for n in topological((*adjoints, *others)) if isinstance(n, Apply) and n.fn is Fn.DIV}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Apply) or node.fn is not Fn.DIV:
            return node
        above, under = node.args
        product = above.args[0] if isinstance(above, Apply) and above.fn is Fn.NEG else None
        if not isinstance(product, Apply) or product.fn is not Fn.MUL or (product.args[0], under) not in known:
            return node
        return -(known[product.args[0], under] * product.args[1])

    return [_with_adjoint(s, a) for s, a in zip(sites, rebuild_all(adjoints, rule), strict=True)]


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


def _steps_done(op: Scan, bodies: Mapping[int, Expr], place: tuple[Expr, ...]) -> dict[Expr, Expr]:
    """The bodies whose values are there as elements of the finished outputs, and of their branches those that are only
    asked for where they are chosen.
    """
    users = Counter(c for node in topological(bodies.values()) for c in dict.fromkeys(node.children))
    users.update(bodies.values())
    found: dict[Expr, Expr] = {}
    for k, body in bodies.items():
        done, stack = Read(op.output(k), place), [body]
        while stack:
            node = stack.pop()
            if isinstance(node, Apply):
                found[node] = done
                branches = node.args[1:] if node.fn is Fn.SELECT and node.args[1] is not node.args[2] else ()
                stack += [b for b in branches if users[b] == 1]
    return found


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


def _renamed(expr: Expr, tensors: Mapping[Tensor, Tensor]) -> Expr:
    return rebuild_all((expr,), lambda node: moved_read(node, tensors))[0]


def _reverse_scan(
    op: Scan,
    adjoints: Cotangents,
    prefix: tuple[Axis, ...],
    handles: Mapping[int, Tensor],
    inner: Sequence[tuple[int, ReadSite]],
    carried: Mapping[int, Expr],
    shared: Mapping[Tensor, CommonPart],
) -> dict[Tensor, Tensor]:
    """What the recurrence holds of every step: of each float state its adjoint, its own plus what later steps send
    back, and what the uses of these share: handle -> tensor.
    """
    axes = tuple(Axis(a.name, a.extent) for a in op.axes)
    outer = tuple(Axis(p.name, p.extent) for p in prefix)
    bodies = {k: _external(adjoints.get(k), prefix, axes, op.states[k]) for k in handles}
    for state, part in _recurrent_parts(op, inner, axes):
        bodies[state] = bodies[state] + part
    place: dict[Expr, Expr] = dict(zip(op.axes, axes, strict=True))
    around: dict[Expr, Expr] = dict(zip(prefix, outer, strict=True))
    at_this_step: dict[Expr, Expr] = {Read(handles[k], (*prefix, *axes)): body for k, body in bodies.items()}
    held = {handles[k]: replaced(substitute_all((carried[k],), place)[0], at_this_step) for k in handles}
    again = {r.tensor for r in reads_of(tuple(s.adjoint for _, s in inner))}
    at_this_step = {Read(h, (*prefix, *axes)): e for h, e in held.items()}
    afterwards: dict[Expr, Expr] = {Read(h, (*prefix, *axes)): e for h, e in held.items() if h not in again}
    for handle, common in shared.items():
        value, condition = substitute_all((common.value, common.condition), place)
        value = replaced(value, at_this_step if handle in again else afterwards)
        held[handle] = fn.select_node(askable(condition), value, Const(0.0, value.dtype))
    moved = dict(zip(held, substitute_all(tuple(held.values()), around), strict=True))
    recurrent = {h: e for h, e in moved.items() if h in again}
    names = {h: f"d{op.name_of(k)}" for k, h in handles.items()} | {h: h.op.name for h in shared}
    done = (
        _scanned(op, (*outer, *axes), tuple(len(outer) + d for d in op.dims), recurrent, handles, names)
        if recurrent
        else {}
    )
    for handle, body in moved.items():
        if handle not in recurrent:  # nothing earlier asks for it: a stage that every step is done in at once
            done[handle] = compute_tensors((*outer, *axes), (_renamed(body, done),), names[handle])[0]
    return done


def _scanned(
    op: Scan,
    axes: tuple[Axis, ...],
    dims: tuple[int, ...],
    bodies: Mapping[Tensor, Expr],
    handles: Mapping[int, Tensor],
    names: Mapping[Tensor, str],
) -> dict[Tensor, Tensor]:
    """The recurrence itself: handle -> tensor."""
    states = tuple(bodies)
    number = {h: k for k, h in handles.items()}
    named = tuple(names[h] for h in states)
    made = Scan(
        name=f"d{op.name}", where=op.where, axes=axes, states=states,
        bodies=lift_reductions(tuple(bodies.values()), axes, f"d{op.name}", states), dims=dims, reverse=not op.reverse,
        names=named, parts=_parts(op, [number.get(h) for h in states], named),
    )  # fmt: skip
    return dict(zip(states, made.outputs, strict=True))


def _parts(op: Scan, held: Sequence[int | None], names: Sequence[str]) -> tuple[StepPart, ...]:
    """Where a packed scan's adjoints lie, by the states whose they are; what they share may lie in every phase."""
    found: list[StepPart] = []
    for output, (state, name) in enumerate(zip(held, names, strict=True)):
        if state is None:
            phases = {p.phase: p for p in op.parts}.values()
            found += [StepPart(f"{name}_{p.phase}", output, p.phase, p.extents) for p in phases]
        else:
            found += [StepPart(f"d{p.name}", output, p.phase, p.extents) for p in op.parts if p.output == state]
    return tuple(found)


def _external(adjoint: Cotangent | None, prefix: tuple[Axis, ...], axes: tuple[Axis, ...], state: Tensor) -> Expr:
    if adjoint is None:
        return Const(0.0, state.dtype)
    value, condition = adjoint.at(prefix, axes)
    return fn.select_node(askable(condition), value, Const(0.0, value.dtype))


def _recurrent_parts(
    op: Scan, inner: Sequence[tuple[int, ReadSite]], axes: tuple[Axis, ...]
) -> Iterator[tuple[int, Expr]]:
    """By state what its reads send back. What several send from the same places but for numbers is summed up once."""
    scaled = [_scaled(site.adjoint) for _, site in inner]
    keys = [
        (core, site.read.indices, site.condition, site.axes) for (core, _), (_, site) in zip(scaled, inner, strict=True)
    ]
    often, found = Counter(keys), dict[object, Expr]()
    for key, (core, factors), (state, site) in zip(keys, scaled, inner, strict=True):
        if often[key] == 1:
            yield state, _recurrent_part(op, site, axes, state)
            continue
        if key not in found:
            found[key] = _recurrent_part(op, _with_adjoint(site, core), axes, state)
        part = found[key]
        for factor in factors:
            part = part * factor
        yield state, part


def _scaled(e: Expr) -> tuple[Expr, tuple[Const, ...]]:
    """An expression as another one times numbers, the first of them first."""
    factors: list[Const] = []
    while isinstance(e, Apply) and e.fn is Fn.MUL:
        number = next((a for a in e.args if isinstance(a, Const) and math.isfinite(a.value)), None)
        if number is None or e.args[0] is e.args[1]:
            break
        factors.insert(0, number)
        e = e.args[1] if e.args[0] is number else e.args[0]
    return e, tuple(factors)


def _recurrent_part(op: Scan, site: ReadSite, axes: tuple[Axis, ...], state: int) -> Expr:
    part = gather_expression(
        (*op.axes, *site.axes), site.read.indices, site.adjoint, axes, conditions=conditions_of(site.condition),
        scan=op, name=f"d{op.name_of(state)}",
    )  # fmt: skip
    return Const(0.0, op.states[state].dtype) if part is None else part
