"""Stages that only move elements, written out where they are read.

| before | after |
|---|---|
| `t[j, k] = b[k, j]`, `sum over k of a[i, k] t[j, k]` | `sum over k of a[i, k] b[k, j]` |
| `p[i] = select(i > 0, x[i - 1], 0)`, `sum over q of p[i + q]` | `sum over q of select(i + q > 0, x[i + q - 1], 0)` |

A pattern asks how loops stand in the indices of its reads; a stage in between would hide that. It is
left where an index would become a quotient of several loops together, as of an array that is seen in another shape,
where it leaves elements out, which are better brought together before they are read, and where it is not proven that
a read is inside it: the array behind it may have more elements, or it may have a border.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from schedules.conditions import tidied
from schedules.default.canonical.indices import QUOTIENTS, exact
from schedules.default.costs import element_cost, is_once, is_pointwise
from tedsl.analysis.checks import read_checks
from tedsl.analysis.terms import rounded
from tedsl.lang.expr import Apply, Const, Expr, Fn, Read, Reduce
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, substitute, substitute_all, topological

__all__ = ["is_view", "over_cheap", "over_product", "through_views"]

MOVES = frozenset({Fn.ADD, Fn.SUB, Fn.NEG, Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP})
MOST = 60  # operations for the place of an element and the conditions under which it is one, or of what is written out
CHEAP = 8  # of a value that is computed again rather than looked for across the vectors


def through_views(op: Compute, may_pass: Callable[[Operation], bool]) -> Compute:
    """The stage over what the views among its inputs are views of; `may_pass`: those that nobody has planned."""
    while True:
        views = {t.op for t in op.inputs if is_view(t.op) and may_pass(t.op) and _is_inside(op, t.op)}
        made = next(
            (m for view in sorted(views, key=lambda v: v.number) if (m := _without(op, view)) is not None), None
        )
        if made is None:
            return op
        op = made


def over_product(op: Compute, may_pass: Callable[[Operation], bool]) -> Compute | None:
    """A sum over a stage of products, as of `(a[:, :, None] * b[:, None, :]).sum(0)`, with the product as its term.

    None for any other stage. The product is rounded before it is added, as where it is stored.
    """
    reduce = op.reduction
    if reduce is None or reduce.reducer.kind != "sum":
        return None
    found = _product_at(reduce.values[0], op, may_pass)
    if found is None:
        return None
    value = rounded(tidied((found,))[0])
    made = replace(op, bodies=(Reduce(reduce.reducer, (value,), reduce.axes, reduce.where, reduce.index),), _outputs={})
    return through_views(made, may_pass)


def over_cheap(op: Compute, may_pass: Callable[[Operation], bool], readers: Mapping[str, int]) -> Compute:
    """A reduction over stages of a few operations an element, or read once and by nobody else, written out.

    Each rounds as where it is stored. `readers`: how many stages have.
    """

    def cheap(read: Read) -> Compute | None:
        stage = read.tensor.op
        if not isinstance(stage, Compute) or not is_pointwise(stage) or len(stage.bodies) > 1 or not may_pass(stage):
            return None
        is_own = readers.get(stage.name) == 1 and is_once(op, read)
        return stage if (is_own or element_cost(stage) <= CHEAP) and _is_inside(op, stage) else None

    while element_cost(op) <= MOST:
        found = [(read, stage) for read in op.reads if (stage := cheap(read)) is not None]
        if not found:
            break
        written: dict[Expr, Expr] = {read: rounded(stage.written_at(read)) for read, stage in found}
        op = replace(op, bodies=tidied(substitute_all(op.bodies, written)), _outputs={})
    return op


def _product_at(read: Expr, reader: Compute, may_pass: Callable[[Operation], bool]) -> Expr | None:
    """What a stage of products of data computes where it is read, its factors that are such stages written out, too."""
    if not isinstance(read, Read):
        return None
    stage = read.tensor.op
    if not isinstance(stage, Compute) or len(stage.bodies) > 1 or not may_pass(stage) or not _is_inside(reader, stage):
        return None
    body = stage.bodies[0]
    if not isinstance(body, Apply) or body.fn is not Fn.MUL or not all(reads_of((factor,)) for factor in body.args):
        return None
    made = [_product_at(factor, stage, may_pass) for factor in body.args]
    factors = [factor if product is None else product for factor, product in zip(body.args, made, strict=True)]
    return substitute(Apply(Fn.MUL, tuple(factors), body.dtype), dict(zip(stage.axes, read.indices, strict=True)))


def is_view(op: Operation) -> bool:
    """Whether an element is one of another tensor, or a number, at places that are known."""
    if not isinstance(op, Compute) or len(op.bodies) > 1 or op.reduction is not None or element_cost(op) > MOST:
        return False
    reads = reads_of(op.bodies)
    return len(reads) == 1 and _is_dense(reads[0].indices) and _only_moves(op.bodies[0])


def _is_dense(indices: Sequence[Expr]) -> bool:
    """Whether neighbours in a view are neighbours in what it is a view of: no index is read, multiplied or divided."""
    inner = topological(indices)
    return not any(isinstance(n, Read) or (isinstance(n, Apply) and n.fn not in MOVES) for n in inner)


def _is_inside(op: Compute, view: Operation) -> bool:
    """Whether every read of the view is known to be within its bounds."""
    try:
        return all(c.status != "run" for c in read_checks(op) if c.tensor.op is view)
    except IndexError:
        return False  # who builds it is told


def _only_moves(value: Expr) -> bool:
    """Whether a value is a read, chosen under conditions."""
    while isinstance(value, Apply) and value.fn is Fn.SELECT and isinstance(value.args[2], Const):
        if reads_of((value.args[0],)):
            return False
        value = value.args[1]
    return isinstance(value, Read)


def _without(op: Compute, view: Operation) -> Compute | None:
    """The stage with a view written out, if no index of it becomes a quotient."""
    assert isinstance(view, Compute)

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor.op is not view:
            return node
        return view.written_at(node)

    bodies = tidied(rebuild_all(rebuild_all(op.bodies, rule), exact))
    if _flattened(bodies) > _flattened(op.bodies):
        return None
    return replace(op, bodies=bodies, _outputs={})


def _flattened(roots: tuple[Expr, ...]) -> int:
    """How many quotients there are of several loops together, as where an array is seen in another shape."""
    quotients = (n for n in topological(roots) if isinstance(n, Apply) and n.fn in QUOTIENTS)
    return sum(len(free_axes(n)) > 1 for n in quotients)
