"""What the reverse recurrence of a scan holds of each step.

The adjoint of a step, to begin with. Where all its uses begin with the same factor, the product; and what several of
its uses compute from it alike, beside it: the branch that was taken of an early exercise is found out once for each
step, not once for each read of an earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from autodiff.rules.sharing import common_parts, cost
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number, same_extent
from tedsl.lang.guards import guards_of
from tedsl.lang.phases import cases_of
from tedsl.lang.tensor import Scan, ScanState, Tensor
from tedsl.lang.traverse import conjuncts, free_axes, reads_of, rebuild_all, replaced_all, topological

__all__ = ["CommonPart", "carried_of", "moved_read", "on_outputs", "shared_of"]

MOST_SHARED = 4
"""Tensors that a reverse recurrence fills beside the adjoints: each is written and read at every step."""


def on_outputs(op: Scan, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions of a scan's body that read its finished outputs instead of its states."""
    outputs = {state: op.output(k) for k, state in enumerate(op.states)}
    return rebuild_all(exprs, lambda node: moved_read(node, outputs))


def moved_read(node: Expr, tensors: Mapping[Tensor, Tensor]) -> Expr:
    return Read(tensors[node.tensor], node.indices) if isinstance(node, Read) and node.tensor in tensors else node


def carried_of(
    op: Scan, roots: Sequence[Expr], handles: Mapping[int, Tensor], prefix: tuple[Axis, ...], known: Set[Expr]
) -> dict[int, Expr]:
    """Per state what its reverse recurrence holds: the adjoint of a step, times all that its every use begins with.

    `known`: reads that are in bounds at every step.
    """
    users: dict[Expr, list[Expr]] = {}
    for used in topological(roots):
        for child in dict.fromkeys(used.children):
            users.setdefault(child, []).append(used)
    ends = set(roots)
    reach = dict(zip(*_on_finished(op, op.bodies), strict=True))
    carried = {}
    for k, handle in handles.items():
        node: Expr = Read(handle, (*prefix, *op.axes))
        while node not in ends and len(users.get(node, ())) == 1:
            (user,) = users[node]
            if not _is_known_everywhere(op, user, node, prefix, reach, handles, known):
                break
            node = user
        carried[k] = node
    return carried


def _on_finished(op: Scan, bodies: tuple[Expr, ...]) -> tuple[list[Expr], list[Expr]]:
    """The reads of the bodies, and the condition under which each is in bounds for sure."""
    guards = guards_of(bodies)
    reads = reads_of(bodies)
    moved = on_outputs(op, tuple(reads) + tuple(guards[r] for r in reads))
    return list(moved[: len(reads)]), list(moved[len(reads) :])


def _is_known_everywhere(
    op: Scan,
    user: Expr,
    node: Expr,
    prefix: tuple[Axis, ...],
    reach: Mapping[Expr, Expr],
    handles: Mapping[int, Tensor],
    known: Set[Expr],
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
        if isinstance(r, Read) and r not in at_this_step and r not in known:
            allowed = reach.get(r)
            if allowed is None or not (allowed is TRUE or allowed is guards[r]):
                return False
    return True


@dataclass(frozen=True, eq=False)
class CommonPart:
    """What several uses compute of a step's adjoint: the part as they have it, where they find it, what it is over the
    axes of the scan, and the condition under which it is known.
    """

    part: Expr
    place: tuple[Expr, ...]
    value: Expr
    condition: Expr


def shared_of(
    op: Scan,
    roots: Sequence[Expr],
    conditions: Sequence[Expr],
    handles: Mapping[int, Tensor],
    prefix: tuple[Axis, ...],
    known: Set[Expr],
) -> dict[Tensor, CommonPart]:
    """States of their own for what several uses compute of a step's adjoint.

    Each root is used where its condition holds; `known` are reads that are in bounds at every step.
    """
    cases, axes = _cases(op, handles, prefix), (*prefix, *op.axes)

    def known_in(roots: Sequence[Expr]) -> list[CommonPart]:
        used = guards_of(roots, conditions)
        parts = (_known_in_one(part, used[part], cases, axes, known) for part in common_parts(roots))
        return [shared for shared in parts if shared is not None]

    # The part that saves most may be made of others that have more uses without it: the better of two orders is taken.
    (_, found), *_ = sorted(
        (_shared_by(gain, op, roots, axes, known_in) for gain in (_gain, _size)), key=lambda o: o[0]
    )
    return found


def _shared_by(
    gain: Callable[[Expr, Mapping[Expr, int]], float],
    op: Scan,
    roots: Sequence[Expr],
    axes: Sequence[Axis],
    known_in: Callable[[Sequence[Expr]], list[CommonPart]],
) -> tuple[float, dict[Tensor, CommonPart]]:
    """What is left to do where the part of the most gain is stored first, and the parts by their states."""
    found: dict[Tensor, CommonPart] = {}
    shape = tuple(a.extent for a in axes if a.extent is not None)
    while len(found) < MOST_SHARED and (known := known_in(roots)):
        shared = _best(known, gain, Counter(node for root in roots for node in topological(root)))
        name = f"d{op.name}_shared{len(found) or ''}"
        state = ScanState(name=name, where=op.where, shape=shape, dtype=shared.part.dtype).output()
        found[state] = shared
        # What is left to share is seen anew: parts of this one may have no other use.
        roots = replaced_all(roots, {shared.part: Read(state, shared.place)})
    return sum(cost(topological((e,))) for e in (*roots, *(s.part for s in found.values()))), found


def _best(
    known: Sequence[CommonPart], gain: Callable[[Expr, Mapping[Expr, int]], float], uses: Mapping[Expr, int]
) -> CommonPart:
    return max(known, key=lambda s: gain(s.part, uses))


def _gain(part: Expr, uses: Mapping[Expr, int]) -> float:
    """Operations that are saved where a part is stored once; `uses` counts the roots that hold it."""
    return _size(part, uses) * (uses[part] - 1)


def _size(part: Expr, uses: Mapping[Expr, int]) -> float:
    return cost(topological((part,)))


@dataclass(frozen=True, eq=False)
class _Case:
    """What is there at a step, of a packed scan in one of its phases.

    `own`: the adjoints, by the reads of them in this case those over the axes of the scan. `done`: what the scan has
    computed. `reach`: where the reads of its bodies are in bounds, as far as `inside` does not say it.
    """

    place: tuple[Expr, ...]
    own: dict[Expr, Expr]
    done: frozenset[Tensor]
    reach: dict[Expr, Expr]
    inside: Expr


def _cases(op: Scan, handles: Mapping[int, Tensor], prefix: tuple[Axis, ...]) -> list[_Case]:
    if not op.parts:
        return [_case(op, op.bodies, TRUE, op.axes, handles, prefix)]
    cases = []
    for phase, inside, bodies in cases_of(op):
        here = tuple(Const(phase, INT32) if a is op.steps[-1] else a for a in op.axes)
        own = {k: h for k, h in handles.items() if k in bodies}
        cases.append(_case(op, tuple(bodies.values()), inside, here, own, prefix))
    return cases


def _case(
    op: Scan, bodies: tuple[Expr, ...], inside: Expr, here: tuple[Expr, ...], handles: Mapping[int, Tensor],
    prefix: tuple[Axis, ...],
) -> _Case:  # fmt: skip
    place = (*prefix, *here)
    own: dict[Expr, Expr] = {Read(h, place): Read(h, (*prefix, *op.axes)) for h in handles.values()}
    return _Case(place, own, frozenset(op.outputs), dict(zip(*_on_finished(op, bodies), strict=True)), inside)


def _known_in_one(
    part: Expr, used: Expr, cases: Sequence[_Case], axes: tuple[Axis, ...], known: Set[Expr]
) -> CommonPart | None:
    """A part that is made of the adjoints of one case alone; None if it may be used where it is not known."""
    nodes = set(topological((part,)))
    mine = [case for case in cases if not nodes.isdisjoint(case.own)]
    if len(mine) != 1 or any(isinstance(n, Reduce) for n in nodes) or not set(free_axes(part)) <= set(axes):
        return None
    (case,) = mine
    condition = _known_where(part, used, case, known)
    # A condition may hang on the axes of a sum within the step: it then says nothing of the step as a whole.
    if condition is None or not set(free_axes(condition)) <= set(axes):
        return None
    (value,) = replaced_all((part,), case.own)
    return CommonPart(part, case.place, value, condition)


def _is_within(read: Read) -> bool:
    """Whether a read is of a place that there is, for all values of the axes that are its indices."""
    return all(
        (isinstance(i, Axis) and i.extent is not None and same_extent(i.extent, end))
        or (isinstance(i, Const) and 0 <= i.value < (number(end) or 0))
        for i, end in zip(read.indices, read.tensor.extents, strict=True)
    )


def _known_where(part: Expr, used: Expr, case: _Case, known: Set[Expr]) -> Expr | None:
    """Where a part can be computed from what is there at each step; None if it may be used elsewhere too."""
    guards = guards_of(part)
    always = set(conjuncts(used))
    needed = dict.fromkeys(() if case.inside is TRUE else conjuncts(case.inside))
    for r in topological((part,)):
        if not isinstance(r, Read) or r in case.own or r in known:
            continue
        if (r.tensor in case.done or not isinstance(r.tensor.op, ScanState)) and _is_within(r):
            continue
        allowed = case.reach.get(r)
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
