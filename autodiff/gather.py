"""The adjoint of one read as a tensor: what was sent to S[f(z)] is gathered from every z that reaches an element.

`autodiff.inversion` says which z these are; here its answer becomes stages. A gather over all elements is one compute.
Phases and pieces that live on fewer elements are computes of their own, small, and a last pointwise stage reads them
where they belong. Rows that cannot be inverted stay a scatter, over the loops of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from autodiff.affine_read import Reader
from autodiff.affine_write import expression_of, truth_of
from autodiff.conditions import NonNegative, Zero, has_opaque, mapped
from autodiff.domains import Gather, Inversion, Target, Variable
from autodiff.inversion import invert
from autodiff.linear import Linear, Symbol, linear, symbol
from autodiff.nests import nominal
from autodiff.radix import Dim, closed, in_linear_dims
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.errors import GradientError
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.operators import Fn
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import free_axes, reads_of, substitute_all, topological

__all__ = ["Contribution", "adjoint_of_read", "gather_expression"]

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Contribution:
    """The adjoint that one read sends back: `kind` is gather, scatter, partial or zero; `reason` says why."""

    tensor: Tensor | None
    kind: str
    reason: str


@dataclass(frozen=True)
class _Read:
    """dS[index(axes)] += value(axes) where conditions(axes)."""

    axes: tuple[Axis, ...]
    index: tuple[Expr, ...]
    value: Expr
    conditions: tuple[Expr, ...]


@dataclass(frozen=True)
class _Answer:
    """The gathers of a read, and where element s of the target is found along each of the dimensions they are for.

    In `value` an index that was inverted is replaced by a stand-in: at every solution it equals the element, so that
    what else is read there (the forward value of a nonlinear stage) does not depend on the loops or on the part.
    """

    read: _Read
    found: Inversion
    shape: Shape
    target: tuple[Axis, ...]
    positions: tuple[Expr, ...]
    value: Expr
    stand_ins: dict[Target, Axis]
    extents: dict[Linear, Expr]

    def at(self, elements: Sequence[Expr]) -> list[Expr]:
        """The positions of one element."""
        return list(substitute_all(self.positions, dict(zip(self.target, elements, strict=True))))


def _inverted(read: _Read, shape: Shape, compact: bool, split: bool = True) -> _Answer:
    """The answer over the dimensions of the target, split or joined where sizes are multiplied, if `split`."""
    reader = Reader(read.axes, shape)
    variables = [Variable(a, reader.form(_extent(a)), reader.form(a.begin)) for a in read.axes]
    target = _fresh_axes(shape)
    dims = [Dim(reader.form(i), reader.form(n), s) for i, n, s in zip(read.index, shape, target, strict=True)]
    dims = in_linear_dims(dims, reader) if split else list(map(closed, dims))
    conditions = [reader.condition(c) for c in read.conditions]
    found = invert(
        variables, [d.row for d in dims], [d.extent for d in dims], conditions, known=reader.maxima, compact=compact
    )
    positions = tuple(d.position for d in dims)
    plain = len(dims) == len(shape) and all(p is s for p, s in zip(positions, target, strict=True))
    known = [j for j, row in enumerate(read.index) if isinstance(row, Apply) and plain and j not in found.opaque]
    stand_ins = {Target(j): Axis(f"s{j}", shape[j]) for j in known}
    (value,) = substitute_all((read.value,), {read.index[s.position]: axis for s, axis in stand_ins.items()})
    extents = {linear(v.extent): _extent(a) for v, a in zip(variables, read.axes, strict=True)}
    return _Answer(read, found, shape, target, positions, value, stand_ins, extents)


def _extent(axis: Axis) -> Expr:
    assert axis.extent is not None, f"axis {axis.name!r} has no extent"
    return axis.extent


def adjoint_of_read(
    axes: Sequence[Axis],
    index: Sequence[Expr],
    value: Expr,
    shape: Sequence[Expr],
    *,
    conditions: Sequence[Expr] = (),
    name: str,
) -> Contribution:
    """The tensor of `shape` whose element s is the sum of value(z) over the z with index(z) = s and `conditions`."""
    read = _Read(tuple(axes), tuple(index), value, tuple(conditions))
    answer = _inverted(read, tuple(shape), compact=True)
    if answer.found.opaque:
        return _scattered(_inverted(read, tuple(shape), compact=False, split=False), name)
    if not answer.found.gathers:
        return Contribution(None, "zero", "no point of the domain reads an element")
    if _is_sparse(answer):
        answer = _inverted(_with_stored_value(read, f"{name}_values"), tuple(shape), compact=True)
    return Contribution(_combined(answer, name), "gather", _summary(answer.found))


def _is_sparse(answer: _Answer) -> bool:
    """Whether computing each value once, where it is sent from, is less work than computing one at each element."""
    if any(g.loops for g in answer.found.gathers):
        return False
    reader = Reader()
    elements = prod(nominal(reader.form(n)) for n in answer.shape)
    points = prod(nominal(reader.form(_extent(a))) for a in answer.read.axes)
    nodes = topological((answer.value,))
    cost = sum(isinstance(n, Apply) and n.dtype.is_float and n.fn not in (Fn.SELECT, Fn.CAST) for n in nodes)
    return cost * (elements - points) >= points > 0


def _with_stored_value(read: _Read, name: str) -> _Read:
    """The same read, its values a stage over the forward axes; conditions on data are in them."""
    fresh = tuple(Axis(a.name, a.extent) for a in read.axes)
    moved: dict[Expr, Expr] = {a: f + a.begin for a, f in zip(read.axes, fresh, strict=True)}
    (body,) = substitute_all((_masked(read.value, read.conditions),), moved)
    (values,) = compute_tensors(fresh, (body,), name)
    conditions = tuple(c for c in read.conditions if not reads_of((c,)))
    return _Read(read.axes, read.index, Read(values, tuple(a - a.begin for a in read.axes)), conditions)


def _summary(found: Inversion) -> str:
    widths = ["*".join(str(n) for _, n in g.loops) or "1" for g in found.gathers]
    return f"sums {widths[0]} per element" if len(widths) == 1 else f"{len(widths)} parts summing {', '.join(widths)}"


def gather_expression(
    axes: Sequence[Axis],
    index: Sequence[Expr],
    value: Expr,
    elements: Sequence[Axis],
    *,
    conditions: Sequence[Expr] = (),
) -> Expr | None:
    """The same sum as one expression at `elements`; None when it is zero, GradientError when it is no gather."""
    read = _Read(tuple(axes), tuple(index), value, tuple(conditions))
    answer = _inverted(read, tuple(_extent(a) for a in elements), compact=False)
    if answer.found.opaque:
        raise GradientError(f"row {answer.found.opaque[0]} of the index cannot be inverted: {answer.found.reason}")
    total: Expr | None = None
    for g in answer.found.gathers:
        part = _body(answer, g, answer.at(elements))
        total = part if total is None else total + part
    return total


def _body(answer: _Answer, g: Gather, elements: Sequence[Expr]) -> Expr:
    """The value of one gather at its axes."""
    loops, (value,), guard, data = _moved(answer, g, elements, (answer.value,))
    value = _masked(value, data)
    if loops:
        return Reduce(BUILTIN["sum"], (value,), loops, guard)
    return _masked(value, [guard])


def _masked(value: Expr, conditions: Sequence[Expr]) -> Expr:
    """The value where all conditions hold, else 0. One on data reads memory, so it is asked inside those before it."""
    for c in reversed(conditions):
        value = fn.select_node(c, value, Const(0.0, value.dtype))
    return value


def _moved(
    answer: _Answer, g: Gather, elements: Sequence[Expr], exprs: tuple[Expr, ...]
) -> tuple[tuple[Axis, ...], tuple[Expr, ...], Expr, list[Expr]]:
    """(reduce axes, `exprs` at the solution, the guard on indices, the conditions on data in order)."""
    read = answer.read
    names: dict[Symbol, Expr] = {a: e for (a, _), e in zip(g.axes, elements, strict=True)}
    loops = []
    for t, extent in g.loops:
        axis = Axis(_loop_name(read, g, t), _loop_extent(answer, extent), is_reduce=True)
        names[t] = axis
        loops.append(axis)
    solution: dict[Expr, Expr] = {a: expression_of(e, names) for a, e in zip(read.axes, g.solution, strict=True)}
    solution |= {answer.stand_ins[s]: expression_of(e, names) for s, e in g.place if s in answer.stand_ins}
    guard: Expr = TRUE
    data: list[Expr] = []
    for c in g.guards:
        condition = truth_of(c, names, lambda e: substitute_all((e,), solution)[0])
        if has_opaque(c):
            data.append(condition)
        else:
            guard = fn.logical_and(guard, condition)
    return tuple(loops), substitute_all(exprs, solution), guard, data


def _loop_extent(answer: _Answer, extent: Linear) -> Expr:
    """The width of a loop: that of a forward axis where it is one, and never below 0."""
    if extent in answer.extents:
        return answer.extents[extent]
    made = expression_of(extent, {})
    return made if isinstance(made, Const) else fn.maximum(made, 0)


def _loop_name(read: _Read, g: Gather, loop: Symbol) -> str:
    """The name of the forward axis that the loop is, or steps through."""
    moving = [(e != symbol(loop), len(e.coefficients), k) for k, e in enumerate(g.solution) if e[loop]]
    return read.axes[min(moving)[2]].name if moving else "t"


def _combined(answer: _Answer, name: str) -> Tensor:
    """One compute when a gather covers all elements; otherwise one per gather, and a pointwise last one."""
    gathers = answer.found.gathers
    axes = _fresh_axes(answer.shape)
    if len(gathers) == 1 and gathers[0].direct:
        return compute_tensors(axes, (_body(answer, gathers[0], answer.at(axes)),), name)[0]
    total: Expr | None = None
    for group in _disjoint_groups(gathers):
        chain: Expr = Const(0.0, answer.read.value.dtype)
        for g in reversed(group):
            member, value = _element(answer, g, axes, f"{name}_{gathers.index(g)}")
            chain = fn.select_node(member, value, chain)
        total = chain if total is None else total + chain
    assert total is not None
    return compute_tensors(axes, (total,), name)[0]


def _element(answer: _Answer, g: Gather, axes: tuple[Axis, ...], name: str) -> tuple[Expr, Expr]:
    """(whether the gather has something for the element `axes`, what): a read of its stage when there is a sum."""
    if g.direct:
        if not g.loops:
            _, (value,), guard, data = _moved(answer, g, answer.at(axes), (answer.value,))
            return guard, _masked(value, data)
        own = _fresh_axes(answer.shape)
        return TRUE, Read(compute_tensors(own, (_body(answer, g, answer.at(own)),), name)[0], axes)
    at: dict[Symbol, Expr] = {Target(j): e for j, e in enumerate(answer.at(axes))}
    member: Expr = TRUE
    for c in g.member:
        member = fn.logical_and(member, truth_of(c, at))
    place = tuple(expression_of(e, at) for e in g.index)
    if not g.loops and isinstance(answer.read.value, Read | Const):
        return member, _body(answer, g, place)
    own = _fresh_axes(tuple(expression_of(n, {}) for _, n in g.axes))
    (part,) = compute_tensors(own, (_body(answer, g, own),), name)
    return member, Read(part, place)


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
    as_target = {a: symbol(Target(a.position)) for a, _ in g.axes}
    conditions = list(g.member)
    if g.direct and not g.loops:
        conditions += [mapped(c, lambda e: e.substituted(as_target)) for c in g.guards]
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


def _fresh_axes(shape: Shape) -> tuple[Axis, ...]:
    names = "ijklmn"
    return tuple(Axis(names[d] if d < len(names) else f"i{d}", n) for d, n in enumerate(shape))


def _scattered(answer: _Answer, name: str) -> Contribution:
    """Rows that could be inverted are axes of the scatter, the others are indices at the solution."""
    read, found, shape = answer.read, answer.found, answer.shape
    kept = [j for j in range(len(shape)) if j not in found.opaque]
    reason = found.reason or ""
    if not kept or len(found.gathers) != 1:
        return Contribution(_plain_scatter(read, shape, name), "scatter", reason)
    (g,) = found.gathers
    elements = tuple(Axis(f"s{j}", shape[j], is_reduce=True) for j in kept)
    open_rows = tuple(read.index[j] for j in found.opaque)
    loops, (value, *rows), guard, data = _moved(answer, g, elements, (answer.value, *open_rows))
    guard = _nested([guard, *data])
    placed = dict(zip(kept, elements, strict=True)) | dict(zip(found.opaque, rows, strict=True))
    index = tuple(placed[j] for j in range(len(shape)))
    value, guard, loops = _summed_first(value, guard, loops, elements, rows, f"{name}_sums")
    tensor = scatter(shape, (*loops, *elements), index, value, where=guard, name=name)
    return Contribution(tensor, "partial", reason)


def _nested(conditions: Sequence[Expr]) -> Expr:
    """The conjunction in which a condition is asked only where those before it hold, as it may read memory."""
    both: Expr = TRUE
    for c in conditions:
        both = fn.select_node(both, c, FALSE) if reads_of((c,)) else fn.logical_and(both, c)
    return both


def _plain_scatter(read: _Read, shape: Shape, name: str) -> Tensor:
    loops = tuple(Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in read.axes)
    guard = _nested(read.conditions)
    moved = substitute_all((read.value, guard, *read.index), dict(zip(read.axes, loops, strict=True)))
    return scatter(shape, loops, moved[2:], moved[0], where=moved[1], name=name)


def _summed_first(
    value: Expr, guard: Expr, loops: tuple[Axis, ...], elements: tuple[Axis, ...], rows: Sequence[Expr], name: str
) -> tuple[Expr, Expr, tuple[Axis, ...]]:
    """Loops that no open row depends on are summed before the scatter, which then writes each element once."""
    needed = set(free_axes((*rows, guard)))
    inner = tuple(a for a in loops if a not in needed)
    if not inner:
        return value, guard, loops
    outer = tuple(a for a in loops if a in needed)
    own = (*outer, *elements)
    fresh = tuple(Axis(a.name, a.extent) for a in own)
    moved, condition = substitute_all((value, guard), dict(zip(own, fresh, strict=True)))
    body = Reduce(BUILTIN["sum"], (moved,), inner, condition)
    (sums,) = compute_tensors(fresh, (body,), name)
    return Read(sums, own), guard, outer
