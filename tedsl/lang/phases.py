"""A packed scan taken apart: what each of its parts is, over its own axes and by the names that it was written with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import is_
from types import MappingProxyType

from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import same_extent, simplify_extent
from tedsl.lang.folding import folded, select_node
from tedsl.lang.intervals import may_wrap, range_of, verdict
from tedsl.lang.operators import NEGATED
from tedsl.lang.tensor import Compute, Operation, Scan, StepPart, Tensor
from tedsl.lang.traverse import rebuild_all, substitute_all

__all__ = ["Phase", "Unpacked", "cases_of", "part_shown", "phases_of", "read_through", "unpacked"]


@dataclass(frozen=True, eq=False)
class Phase:
    """A phase of a packed scan: its number, axes for its parts, and by output the body of each part over these."""

    number: int
    axes: tuple[Axis, ...]
    bodies: dict[int, Expr]


@dataclass(frozen=True, eq=False)
class Unpacked:
    """A part of a packed scan: a handle under its name, the axes of the steps and its own, and its body over these."""

    part: StepPart
    tensor: Tensor
    axes: tuple[Axis, ...]
    body: Expr


Case = tuple[int, Expr, dict[int, Expr]]
_PHASES, _CASES = "_phases", "_cases"  # where an operation has its own


def phases_of(op: Scan) -> tuple[Phase, ...]:
    """The phases of a packed scan in the order of a step."""
    known: tuple[Phase, ...] | None = vars(op).get(_PHASES)
    if known is None:
        found: dict[int, list[StepPart]] = {}
        for part in op.parts:
            found.setdefault(part.phase, []).append(part)
        known = vars(op)[_PHASES] = tuple(_phase(op, found[k]) for k in sorted(found, reverse=op.reverse))
    return known


def _phase(op: Scan, parts: Sequence[StepPart]) -> Phase:
    """The bodies as they are in the phase of some parts, at the only place of the axes that these do not have."""
    first = parts[0]
    box = _box(op, first)
    around = op.axes[op.dims[-1] + 1 : len(op.axes) - len(box)]
    axes = tuple(Axis(a.name, extent) for a, extent in zip(box, first.extents, strict=True))
    known: dict[Expr, Expr] = {op.steps[-1]: Const(first.phase, INT32)}
    known.update((a, Const(0, INT32)) for a in around)
    known.update(zip(box, axes, strict=True))
    bodies = decided_all([op.bodies[p.output] for p in parts], known)
    return Phase(first.phase, axes, {p.output: b for p, b in zip(parts, bodies, strict=True)})


def cases_of(op: Scan) -> tuple[Case, ...]:
    """Of each phase its number, the condition for it over the scan's axes, and the bodies of its parts under that."""
    known: tuple[Case, ...] | None = vars(op).get(_CASES)
    if known is None:
        known = vars(op)[_CASES] = tuple(_cases(op))
    return known


def _cases(op: Scan) -> Iterator[Case]:
    for phase in phases_of(op):
        own = [a.extent for a in phase.axes if a.extent is not None]
        extents = [*[Const(1, INT32)] * (len(op.axes) - len(own) - op.dims[-1] - 1), *own]
        inside: Expr = Expr._apply(Fn.EQ, op.steps[-1], Const(phase.number, INT32))
        known: dict[Expr, Expr] = {op.steps[-1]: Const(phase.number, INT32)}
        for axis, extent in zip(op.axes[op.dims[-1] + 1 :], extents, strict=True):
            if axis.extent is not None and not same_extent(axis.extent, extent):
                within: Expr = Expr._apply(Fn.LT, axis, extent)
                inside, known[within] = folded(Fn.AND, (inside, within), inside.dtype), TRUE
        outputs = list(phase.bodies)
        bodies = decided_all([op.bodies[k] for k in outputs], known)
        yield phase.number, inside, dict(zip(outputs, bodies, strict=True))


def _box(op: Scan, part: StepPart) -> tuple[Axis, ...]:
    """The axes at the end of those of a scan that a part has."""
    return op.axes[len(op.axes) - len(part.extents) :]


def unpacked(op: Scan) -> list[Unpacked]:
    """The parts of a packed scan in the order of a step, reading one another by their handles."""
    own = set(op.states)

    def renamed(node: Expr) -> Expr:
        return op.as_written(node) if isinstance(node, Read) and node.tensor in own else node

    made = []
    for phase in phases_of(op):
        for part in (p for p in op.parts if p.phase == phase.number):
            axes = (*op.axes[: op.dims[-1]], *phase.axes)
            (body,) = rebuild_all((phase.bodies[part.output],), renamed)
            made.append(Unpacked(part, op.handles[part], axes, body))
    return made


def part_shown(op: Operation) -> tuple[Scan, StepPart] | None:
    """The part of a packed scan that a stage is, under its own name and nothing else."""
    if not isinstance(op, Compute) or len(op.bodies) != 1 or not isinstance(op.bodies[0], Read):
        return None
    (read,) = op.bodies
    assert isinstance(read, Read)
    scan = read.tensor.op
    part = scan.part_of(read) if isinstance(scan, Scan) and read.tensor.op is scan else None
    if part is None or part.name != op.name or not isinstance(scan, Scan):
        return None
    places = set(scan.as_written(read).indices)
    return (scan, part) if places == set(op.axes) and len(places) == len(op.axes) else None


def read_through(read: Read, parts: Mapping[Tensor, Compute]) -> Read:
    """The read of the scan that a read of its part is."""
    op = parts.get(read.tensor)
    if op is None:
        return read
    place: dict[Expr, Expr] = dict(zip(op.axes, read.indices, strict=True))
    (found,) = substitute_all(op.bodies, place)
    assert isinstance(found, Read)
    return found


def decided_all(exprs: Iterable[Expr], known: Mapping[Expr, Expr] = MappingProxyType({})) -> tuple[Expr, ...]:
    """Expressions with nodes replaced by what is known of them, without the comparisons that the ranges of their axes
    decide, and what was chosen by them. Only what is chosen is looked at: of one phase all others cost no more than
    their conditions.
    """
    roots = tuple(exprs)
    new: dict[Expr, Expr] = dict(known)
    stack = list(roots[::-1])
    while stack:
        node = stack[-1]
        asked = _asked_first(node)
        answer = None if asked is None else new.get(asked)
        needed: tuple[Expr, ...] = node.children
        if asked is not None and answer is None:
            needed = (asked,)
        elif isinstance(node, Apply) and (answer is TRUE or answer is FALSE):
            needed = (node.args[1] if answer is TRUE else node.args[2],)
        elif answer is FALSE:
            needed = ()
        missing = () if node in new else [c for c in needed if c not in new]
        if missing:
            stack.extend(missing[::-1])
            continue
        stack.pop()
        if node in new:
            continue
        if isinstance(node, Apply) and len(needed) == 1 and node.fn is Fn.SELECT:
            new[node] = new[needed[0]]
        elif isinstance(node, Reduce) and answer is FALSE:
            new[node] = node.reducer.identity_of(node.dtype)
        else:
            new[node] = _rebuilt(node, new)
    return tuple([new[r] for r in roots])


def _asked_first(node: Expr) -> Expr | None:
    """What says which operands of a node matter."""
    if isinstance(node, Apply):
        return node.args[0] if node.fn is Fn.SELECT else None
    if isinstance(node, Reduce) and not node.reducer.is_custom and node.reducer.kind == "sum":
        return node.where
    return None


def _rebuilt(node: Expr, new: Mapping[Expr, Expr]) -> Expr:
    children = tuple([new[c] for c in node.children])
    same = all(map(is_, children, node.children))
    if isinstance(node, Apply) and node.fn is Fn.ADD:  # what turned out to be zero was nothing but that
        left = [n for n, o in zip(children, node.children, strict=True) if n is o or not _is_zero(n)]
        if len(left) < 2:
            return left[0] if left else children[0]
    return _decided(node if same else node.with_children(children))


def _is_zero(node: Expr) -> bool:
    return isinstance(node, Const) and node.dtype.is_float and node.value == 0


def _decided(node: Expr) -> Expr:
    if not isinstance(node, Apply):
        return node
    if node.fn is Fn.SELECT:
        return select_node(*node.args)
    if node.fn in (Fn.AND, Fn.OR, Fn.NOT) and node.dtype.is_bool:
        return folded(node.fn, node.args, node.dtype)
    if node.fn in NEGATED and all(a.dtype is INT32 for a in node.args):
        return _compared(node)
    return node


def _compared(node: Apply) -> Expr:
    if all(isinstance(a, Const) for a in node.args):
        return folded(node.fn, node.args, node.dtype)
    if any(may_wrap(a, {}) for a in node.args):
        return node
    found = verdict(node.fn, range_of(simplify_extent(node.args[0] - node.args[1]), {}))
    return node if found is None else TRUE if found else FALSE
