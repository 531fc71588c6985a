"""A packed scan taken apart: what each of its parts is, over its own axes and by the names that it was written with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import is_

from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.folding import folded, select_node
from tedsl.lang.intervals import may_wrap, range_of, verdict
from tedsl.lang.operators import NEGATED
from tedsl.lang.tensor import Compute, Operation, Part, Scan, Tensor
from tedsl.lang.traverse import rebuild_all, substitute_all, topological

__all__ = ["Unpacked", "decided_all", "in_order", "in_phase", "part_shown", "unpacked"]


@dataclass(frozen=True, eq=False)
class Unpacked:
    """A part of a packed scan: a handle under its name, the axes of the steps and its own, and its body over these."""

    part: Part
    tensor: Tensor
    axes: tuple[Axis, ...]
    body: Expr


def in_order(op: Scan) -> list[Part]:
    """The parts as a step computes them."""
    return sorted(op.parts, key=lambda part: part.phase, reverse=op.reverse)


def unpacked(op: Scan) -> list[Unpacked]:
    """The parts of a packed scan in the order of a step, reading one another by their handles."""
    own = set(op.states)

    def renamed(node: Expr) -> Expr:
        return op.as_written(node) if isinstance(node, Read) and node.tensor in own else node

    made = []
    for part in in_order(op):
        axes = _own_axes(op, part)
        box = op.axes[len(op.axes) - len(axes) :] if axes else ()
        place: dict[Expr, Expr] = dict(zip(box, axes, strict=True))
        body = in_phase(op, part, (op.bodies[part.output],))
        body = decided_all(substitute_all(body, place))
        made.append(Unpacked(part, op.handles[part], (*op.axes[: op.dims[-1]], *axes), *rebuild_all(body, renamed)))
    return made


def part_shown(op: Operation) -> tuple[Scan, Part] | None:
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


def _own_axes(op: Scan, part: Part) -> tuple[Axis, ...]:
    box = op.axes[len(op.axes) - len(part.extents) :] if part.extents else ()
    return tuple(Axis(a.name, extent) for a, extent in zip(box, part.extents, strict=True))


def in_phase(op: Scan, part: Part, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Expressions as they are in the phase of a part, at its only place of the axes that it does not have."""
    known: dict[Expr, Expr] = {op.steps[-1]: Const(part.phase, INT32)}
    known.update((a, Const(0, INT32)) for a in op.axes[op.dims[-1] + 1 : len(op.axes) - len(part.extents)])
    return decided_all(rebuild_all(exprs, lambda node: known.get(node, node)))


def decided_all(exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    """Expressions without the comparisons that the ranges of their axes decide, and what was chosen by them."""
    roots = tuple(exprs)
    new: dict[Expr, Expr] = {}
    for node in topological(roots):
        children = tuple([new[c] for c in node.children])
        same = all(map(is_, children, node.children))
        new[node] = _decided(node if same else node.with_children(children))
        if isinstance(node, Apply) and node.fn is Fn.ADD:  # what turned out to be zero was nothing but that
            left = [n for n, o in zip(children, node.children, strict=True) if n is o or not _is_zero(n)]
            new[node] = new[node] if len(left) == 2 else left[0] if left else children[0]
    return tuple([new[r] for r in roots])


def _is_zero(node: Expr) -> bool:
    return isinstance(node, Const) and node.dtype.is_float and node.value == 0


def _decided(node: Expr) -> Expr:
    if isinstance(node, Reduce):
        nothing = node.where is FALSE and not node.reducer.is_custom
        return node.reducer.identity_of(node.dtype) if nothing and node.reducer.kind == "sum" else node
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
    if any(may_wrap(a, {}) for a in node.args):
        return node
    found = verdict(node.fn, range_of(simplify_extent(node.args[0] - node.args[1]), {}))
    return node if found is None else TRUE if found else FALSE
