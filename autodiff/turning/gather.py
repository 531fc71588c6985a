"""The adjoint of one read as a tensor: what was sent to S[f(z)] is gathered from every z that reaches an element.

`inversion.invert` says which z these are; here its answer becomes stages. A gather over all elements is one compute.
Phases and pieces that live on fewer elements are computes of their own, small, and a last pointwise stage reads them
where they belong. Rows that cannot be inverted stay a scatter, over the loops of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
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
from autodiff.turning.usual_sizes import CaseOfSizes, by_sizes
from tedsl.analysis.affine import affine_of
from tedsl.analysis.facts import naturals
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.intervals import range_of
from tedsl.lang.operators import Fn
from tedsl.lang.polynomials import Affine
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Scan, Tensor
from tedsl.lang.traverse import conjuncts, reads_of, substitute_all, topological

__all__ = ["adjoint_of_read", "gather_expression"]

ORDERS = (Fn.LT, Fn.LE, Fn.GT, Fn.GE)


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
    cases = by_sizes(answer)
    if cases is not None:
        usual, *others = cases
        how = "; ".join(
            [_summary(usual.answer.found), *(f"{_summary(c.answer.found)} where {c.condition}" for c in others)]
        )
        return Contribution(_chosen(cases, answer, name), "gather", how, answer, known, support)
    how = _summary(answer.found) + (", over other axes" if changed else "")
    gathered = _combined(answer, name)
    if is_nothing(gathered):
        return Contribution(None, "zero", "what comes back is 0 at every element")
    return Contribution(gathered, "gather", how, answer, known, support)


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


def _chosen(cases: Sequence[CaseOfSizes], answer: Answer, name: str) -> Tensor:
    """What the cases of an answer say for the sizes that there are, the usual ones first."""
    axes = fresh_axes(cases[0].answer.shape)
    total: Expr | None = None
    for k, case in reversed(list(enumerate(cases))):
        part = f"{name}_short_{k}" if k else name
        value = _total(case.answer, axes, part, (case.condition,), narrow=cases[-1].answer is not answer)
        total = value if total is None else fn.select_node(case.condition, value, total)
    assert total is not None
    return compute_tensors(axes, (total,), name)[0]


def _combined(answer: Answer, name: str) -> Tensor:
    """One compute when a gather covers all elements; otherwise one per gather, and a pointwise last one."""
    axes = fresh_axes(answer.shape)
    (gather, *others) = answer.found.gathers
    if not others and gather.direct:
        return compute_tensors(axes, (body_of(answer, gather, answer.at(axes)),), name)[0]
    return compute_tensors(axes, (_total(answer, axes, name),), name)[0]


def _total(
    answer: Answer, axes: tuple[Axis, ...], name: str, known: Sequence[Expr] = (), *, narrow: bool = False
) -> Expr:
    """All gathers at one element; sums of them are stages of their own, which ask for what is `known` there.

    `narrow`: those of an end are as wide as conditions leave them; else they are written out where they are read.
    """
    gathers = joined_phases(answer.found.gathers, len(answer.positions))
    total: Expr | None = None
    for group in _disjoint_groups(gathers):
        chain: Expr = Const(0.0, answer.read.value.dtype)
        for g in reversed(group):
            member, value = _element(answer, g, axes, f"{name}_{gathers.index(g)}", known, narrow=narrow)
            chain = fn.select_node(member, value, chain)
        total = chain if total is None else total + chain
    assert total is not None
    return total


def _element(
    answer: Answer, g: Gather, axes: tuple[Axis, ...], name: str, known: Sequence[Expr] = (), *, narrow: bool = False
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
    body = body_of(answer, g, own, [*known, *_unseen(answer, own)])
    if few := _few(body, own) if narrow else {}:
        short: dict[Expr, Axis] = {a: Axis(a.name, Const(n, INT32)) for a, n in few.items()}
        inside = [short[a] < extent_of(a) for a in own if a in few]
        member = reduce(fn.logical_and, (e < few[a] for e, a in zip(place, own, strict=True) if a in few), member)
        (body,) = substitute_all((body,), short)
        assert isinstance(body, Reduce)
        body = Reduce(body.reducer, body.values, body.axes, reduce(fn.logical_and, inside, body.where), body.index)
        own = tuple(short.get(a, a) for a in own)
    (part,) = compute_tensors(own, (body,), name)
    return member, Read(part, place)


def _few(body: Expr, axes: Sequence[Axis]) -> dict[Axis, int]:
    """Of loops whose length is not known, behind how many iterations conditions of a sum leave no term."""
    found: dict[Axis, int] = {}
    for part in conjuncts(body.where) if isinstance(body, Reduce) else ():
        for form in _forms_of(part):
            for axis in axes:
                if form.terms.get((axis,), 0) == -1 and number(axis.extent) is None and form.constant >= 0:
                    rest = form.without(axis)
                    if all(c < 0 and all(range_of(a)[0] >= 0 for a in m) for m, c in rest.terms.items()):
                        found[axis] = min(found.get(axis, form.constant + 1), form.constant + 1)
    return found


def _forms_of(condition: Expr) -> Sequence[Affine]:
    """What is at least 0 where a comparison of loops holds."""
    if not isinstance(condition, Apply) or condition.fn not in ORDERS:
        return ()
    left, right = map(affine_of, condition.args)
    return () if left is None or right is None else naturals(condition.fn, left - right)[0]


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
