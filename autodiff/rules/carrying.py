"""What the reverse recurrence of a scan holds of each step.

The adjoint of a step, to begin with. Where all its uses begin with the same factor, the product; and what several of
its uses compute from it alike, beside it: the branch that was taken of an early exercise is found out once for each
step, not once for each read of an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autodiff.rules.sharing import common_parts, cost
from tedsl.lang import functions as fn
from tedsl.lang.expr import TRUE, Apply, Axis, Expr, Read, Reduce
from tedsl.lang.guards import guards_of
from tedsl.lang.tensor import Scan, ScanState, Tensor
from tedsl.lang.traverse import conjuncts, free_axes, rebuild_all, replaced_all, topological

__all__ = ["carried_of", "moved_read", "on_outputs", "shared_of"]

MOST_SHARED = 4
"""Tensors that a reverse recurrence fills beside the adjoints: each is written and read at every step."""


def on_outputs(op: Scan, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions of a scan's body that read its finished outputs instead of its states."""
    outputs = {state: op.output(k) for k, state in enumerate(op.states)}
    return rebuild_all(exprs, lambda node: moved_read(node, outputs))


def moved_read(node: Expr, tensors: Mapping[Tensor, Tensor]) -> Expr:
    return Read(tensors[node.tensor], node.indices) if isinstance(node, Read) and node.tensor in tensors else node


def carried_of(
    op: Scan, roots: Sequence[Expr], handles: Mapping[int, Tensor], prefix: tuple[Axis, ...]
) -> dict[int, Expr]:
    """Per state what its reverse recurrence holds: the adjoint of a step, times all that its every use begins with."""
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


def shared_of(
    op: Scan,
    roots: Sequence[Expr],
    conditions: Sequence[Expr],
    handles: Mapping[int, Tensor],
    prefix: tuple[Axis, ...],
) -> dict[Tensor, tuple[Expr, Expr]]:
    """States of their own for what several uses compute of a step's adjoint: what it is, and where it is wanted.

    Each root is used where its condition holds.
    """
    axes = (*prefix, *op.axes)
    own: set[Expr] = {Read(h, axes) for h in handles.values()}
    reach = dict(zip(*_on_finished(op), strict=True))
    found: dict[Tensor, tuple[Expr, Expr]] = {}
    shape = tuple(a.extent for a in axes if a.extent is not None)
    while len(found) < MOST_SHARED:
        parts = [p for p in common_parts(roots) if any(n in own for n in topological((p,)))]
        used = guards_of(roots, conditions)
        known = [(p, c) for p in parts if (c := _known_where(op, p, used[p], axes, own, reach)) is not None]
        if not known:
            break
        part, condition = max(known, key=lambda pair: cost(topological((pair[0],))))
        name = f"d{op.name}_shared{len(found) or ''}"
        state = ScanState(name=name, where=op.where, shape=shape, dtype=part.dtype).output()
        found[state] = part, condition
        # What is left to share is seen anew: parts of this one may have no other use.
        roots = replaced_all(roots, {part: Read(state, axes)})
    return found


def _known_where(
    op: Scan, part: Expr, used: Expr, axes: tuple[Axis, ...], own: set[Expr], reach: Mapping[Expr, Expr]
) -> Expr | None:
    """Where a part can be computed from what is there at each step; None if it may be used elsewhere too."""
    nodes = topological((part,))
    if any(isinstance(n, Reduce) for n in nodes) or not set(free_axes(part)) <= set(axes):
        return None
    guards = guards_of(part)
    at_this_step = own | {Read(t, op.axes) for t in op.outputs}
    always = set(conjuncts(used))
    needed: dict[Expr, None] = {}
    for r in nodes:
        if not isinstance(r, Read) or r in at_this_step:
            continue
        allowed = reach.get(r)
        if allowed is None:
            return None
        if allowed is not guards[r]:
            needed |= dict.fromkeys(conjuncts(allowed))
    if not all(c in always for c in needed):
        return None
    condition: Expr = TRUE
    for c in needed:
        condition = fn.logical_and(condition, c)
    return condition
