"""The adjoint of one read as a tensor: what was sent to S[f(z)] is gathered from every z that reaches an element.

`inversion.invert` says which z these are; here its answer becomes stages. A gather over all elements is one compute.
Phases and pieces that live on fewer elements are computes of their own, small, and a last pointwise stage reads them
where they belong. Rows that cannot be inverted stay a scatter, over the loops of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from autodiff.integers.conditions import NonNegative, Zero, substituted
from autodiff.integers.linear import Linear, Symbol, symbol
from autodiff.inversion.alike_phases import joined_phases
from autodiff.inversion.diagonals import on_diagonal
from autodiff.inversion.domains import Gather, Inversion, TargetIndex
from autodiff.inversion.lattice_loops import nominal
from autodiff.turning.affine_read import Reader
from autodiff.turning.affine_write import expression_of, truth_of
from autodiff.turning.answers import Answer, Contribution, answer_of, body_of, fresh_axes, masked, moved
from autodiff.turning.asking import conditions_of
from autodiff.turning.borders import by_borders
from autodiff.turning.cotangent import Support
from autodiff.turning.destinations import Destinations, destinations_of, in_bounds
from autodiff.turning.known import IN_RUNS, split_of
from autodiff.turning.nothing import is_nothing
from autodiff.turning.open_rows import scattered
from autodiff.turning.reached import Reached, at_solution
from autodiff.turning.sent import Sent, extent_of
from autodiff.turning.usual_sizes import usually
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.operators import Fn
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.traverse import reads_of, substitute_all, topological

__all__ = ["adjoint_of_read", "gather_expression"]


def adjoint_of_read(
    axes: Sequence[Axis],
    index: Sequence[Expr],
    value: Expr,
    shape: Sequence[Expr],
    *,
    conditions: Sequence[Expr] = (),
    name: str,
    reached: Expr | None = None,
    prefix: int = 0,
) -> Contribution:
    """The tensor of `shape` whose element s is the sum of value(z) over the z with index(z) = s and `conditions`.

    Where `reached` does not hold value(z) is 0, and what that and the conditions say of the elements is asked for; the
    first `prefix` dimensions are those of the head.
    """
    read = Sent(tuple(axes), tuple(index), value, tuple(conditions))
    answer = answer_of(read, tuple(shape), compact=True)
    if answer.found.opaque:
        split = split_of(read.index, tuple(shape), answer.found.opaque)
        known_by = (
            None
            if split is None
            else split.turned(
                lambda index, extents, part: adjoint_of_read(
                    axes, index, value, extents, conditions=conditions, name=part
                ),
                name,
            )
        )
        if known_by is not None:
            return known_by
        made = scattered(answer_of(read, tuple(shape), compact=False, split=False), name)
        return replace(made, reason=IN_RUNS) if split is not None and split.facts.sorted else made
    if not answer.found.gathers:
        return Contribution(None, "zero", "no point of the domain reads an element")
    if not prefix:
        folded = by_borders(
            read, tuple(shape), answer, name,
            lambda part, extents, title: adjoint_of_read(
                part.axes, part.index, part.value, extents, conditions=part.conditions, name=title
            ),
        )  # fmt: skip
        if folded is not None:
            return Contribution(folded, "gather", f"{_summary(answer.found)}, borders after the rest", answer)
    known = None if reached is None else _reached(answer, reached, prefix)
    changed = answer.read is not read
    if _is_sparse(answer):
        answer = answer_of(_with_stored_value(read, f"{name}_values"), tuple(shape), compact=True)
    support = _support(answer, name) if prefix else None
    usual = usually(answer)
    if usual is not None:
        how = f"{_summary(usual[1].found)}; {_summary(answer.found)} where not {usual[0]}"
        return Contribution(_by_sizes(*usual, answer, name), "gather", how, answer, known, support)
    how = _summary(answer.found) + (", over other axes" if changed else "")
    made = _combined(answer, name)
    if is_nothing(made):
        return Contribution(None, "zero", "what comes back is 0 at every element")
    return Contribution(made, "gather", how, answer, known, support)


def _support(answer: Answer, name: str) -> Support | None:
    """Axes, and over them which elements are other than 0 and what they are, where equations leave but a diagonal."""
    (gather, *others) = answer.found.gathers
    small = on_diagonal(gather)
    if others or not any(isinstance(c, Zero) for c in small.member):
        return None
    axes = fresh_axes(answer.shape)
    return (axes, *_element(answer, small, axes, f"{name}_diagonal"))


def _reached(answer: Answer, besides: Expr, prefix: int) -> Reached | None:
    """Where the adjoint can be other than 0, if one gather is all of it."""
    (gather, *others) = answer.found.gathers
    if others or not gather.direct or not reads_of((*answer.read.conditions, besides)):
        return None
    elements = fresh_axes(answer.shape)
    loops, (known,), guard, data = moved(answer, gather, answer.at(elements), (besides,))
    return at_solution(elements, [*conditions_of(guard), *data, *conditions_of(known)], loops, prefix)


def _is_sparse(answer: Answer) -> bool:
    """Whether computing each value once, where it is sent from, is less work than computing one at each element."""
    if any(g.loops for g in answer.found.gathers):
        return False
    reader = Reader()
    elements = prod(nominal(reader.form(n)) for n in answer.shape)
    points = prod(nominal(reader.form(extent_of(a))) for a in answer.read.axes)
    nodes = topological((answer.value,))
    cost = sum(isinstance(n, Apply) and n.dtype.is_float and n.fn not in (Fn.SELECT, Fn.CAST) for n in nodes)
    return cost * (elements - points) >= points > 0


def _with_stored_value(read: Sent, name: str) -> Sent:
    """The same read, its values a stage over the forward axes; conditions on data are in them."""
    fresh = tuple(Axis(a.name, a.extent) for a in read.axes)
    moved: dict[Expr, Expr] = {a: f + a.begin for a, f in zip(read.axes, fresh, strict=True)}
    (body,) = substitute_all((masked(read.value, read.conditions),), moved)
    (values,) = compute_tensors(fresh, (body,), name)
    conditions = tuple(c for c in read.conditions if not reads_of((c,)))
    return Sent(read.axes, read.index, Read(values, tuple(a - a.begin for a in read.axes)), conditions)


def _summary(found: Inversion) -> str:
    *others, last = ["*".join(str(n) for _, n in g.loops) or "1" for g in found.gathers]
    if not others:
        return f"sums {last} per element"
    return f"{len(found.gathers)} parts, which sum {', '.join(others)} and {last} per element"


def gather_expression(
    axes: Sequence[Axis],
    index: Sequence[Expr],
    value: Expr,
    elements: Sequence[Axis],
    *,
    conditions: Sequence[Expr] = (),
    scan: Scan,
    name: str,
) -> Expr | None:
    """The same sum as one expression at `elements`, of a read of a scan's state; None when it is zero.

    An expression cannot scatter. Of a row that is no gather the points are put in order of their elements, if that is
    the same in all steps; else every point is asked whether it is the element's.
    """
    read = Sent(tuple(axes), tuple(index), in_bounds(value, scan), tuple(conditions))
    shape = tuple(extent_of(a) for a in elements)
    answer = answer_of(read, shape, compact=False)
    opaque = set(answer.found.opaque)
    if opaque:
        order = destinations_of(read, elements, opaque, scan, name)
        if order is not None:
            return _in_order(order, elements)
        own = [read.index[j] == elements[j] for j in sorted(opaque)]
        answer = answer_of(replace(read, value=masked(value, own)), shape, compact=False, split=False)
        opaque = set(answer.found.opaque)
    total: Expr | None = None
    for g in answer.found.gathers:
        inverted = [e for j, e in enumerate(answer.at(elements)) if j not in opaque]
        part = body_of(answer, g, inverted)
        total = part if total is None else total + part
    return total


def _in_order(order: Destinations, elements: Sequence[Axis]) -> Expr | None:
    """What the points of each element send, which follow one another."""
    left = [elements[d] for d in order.kept]
    answer = answer_of(order.rest, tuple(map(extent_of, left)), compact=False, split=False)
    total: Expr | None = None
    for g in answer.found.gathers:
        loops, (value,), guard, data = moved(answer, g, answer.at(left), (answer.value,))
        where = fn.logical_and(guard, order.condition)
        part = Reduce(BUILTIN["sum"], (masked(value, data),), (order.loop, *loops), where)
        total = part if total is None else total + part
    return total


def _by_sizes(large: Expr, usual: Answer, answer: Answer, name: str) -> Tensor:
    """What the usual answer says where sizes are large enough for it, else what holds for all of them."""
    axes = fresh_axes(answer.shape)
    there = _total(usual, axes, name, (large,))
    elsewhere = _total(answer, axes, f"{name}_short", (fn.logical_not(large),))
    return compute_tensors(axes, (fn.select_node(large, there, elsewhere),), name)[0]


def _combined(answer: Answer, name: str) -> Tensor:
    """One compute when a gather covers all elements; otherwise one per gather, and a pointwise last one."""
    axes = fresh_axes(answer.shape)
    (gather, *others) = answer.found.gathers
    if not others and gather.direct:
        return compute_tensors(axes, (body_of(answer, gather, answer.at(axes)),), name)[0]
    return compute_tensors(axes, (_total(answer, axes, name),), name)[0]


def _total(answer: Answer, axes: tuple[Axis, ...], name: str, known: Sequence[Expr] = ()) -> Expr:
    """All gathers at one element; sums of them are stages of their own, which ask for what is `known` there."""
    gathers = joined_phases(answer.found.gathers, len(answer.positions))
    total: Expr | None = None
    for group in _disjoint_groups(gathers):
        chain: Expr = Const(0.0, answer.read.value.dtype)
        for g in reversed(group):
            member, value = _element(answer, g, axes, f"{name}_{gathers.index(g)}", known)
            chain = fn.select_node(member, value, chain)
        total = chain if total is None else total + chain
    assert total is not None
    return total


def _element(
    answer: Answer, g: Gather, axes: tuple[Axis, ...], name: str, known: Sequence[Expr] = ()
) -> tuple[Expr, Expr]:
    """(whether the gather has something for the element `axes`, what): a read of its stage when there is a sum."""
    if g.direct:
        if not g.loops:
            _, (value,), guard, data = moved(answer, g, answer.at(axes), (answer.value,))
            return guard, masked(value, data)
        own = fresh_axes(answer.shape)
        return TRUE, Read(compute_tensors(own, (body_of(answer, g, answer.at(own), known),), name)[0], axes)
    at: dict[Symbol, Expr] = {TargetIndex(j): e for j, e in enumerate(answer.at(axes))}
    member: Expr = TRUE
    for c in g.member:
        member = fn.logical_and(member, truth_of(c, at))
    place = tuple(expression_of(e, at) for e in g.index)
    if not g.loops and isinstance(answer.read.value, Read | Const):
        return member, body_of(answer, g, place)
    own = fresh_axes(tuple(expression_of(n, {}) for _, n in g.axes))
    (part,) = compute_tensors(own, (body_of(answer, g, own, [*known, *_unseen(answer, own)]),), name)
    return member, Read(part, place)


def _unseen(answer: Answer, own: Sequence[Axis]) -> list[Expr]:
    """Of sizes that a part has no loop over, that there are elements: it is computed though nothing may read it."""
    extents = dict.fromkeys(map(extent_of, answer.read.axes))
    return [n >= 1 for n in extents if not isinstance(n, Const) and all(n is not extent_of(a) for a in own)]


def _disjoint_groups(gathers: Sequence[Gather]) -> list[list[Gather]]:
    """Gathers of which at most one has any element, as phases are, together: a chain of selects instead of a sum."""
    groups: list[tuple[list[Gather], list[list[Linear]]]] = []
    for g in gathers:
        needed = _needed(g)
        home = next((k for k in groups if all(_exclusive(needed, other) for other in k[1])), None)
        if home is None:
            groups.append(([g], [needed]))
        else:
            home[0].append(g)
            home[1].append(needed)
    return [group for group, _ in groups]


def _needed(g: Gather) -> list[Linear]:
    """Forms that are at least 0 for each element of the gather."""
    as_target = {a: symbol(TargetIndex(a.position)) for a, _ in g.axes}
    conditions = list(g.member)
    if g.direct and not g.loops:
        conditions += [substituted(c, as_target) for c in g.guards]
    found: list[Linear] = []
    for c in conditions:
        if isinstance(c, NonNegative):
            found.append(c.form)
        elif isinstance(c, Zero):
            found += [c.form, -c.form]
    return found


def _exclusive(a: Sequence[Linear], b: Sequence[Linear]) -> bool:
    """Whether two of the forms cannot both be at least 0."""
    sums = (e + f for e in a for f in b)
    return any(e.is_constant and e.constant < 0 for e in sums)
