"""The inversion of one read, and its expressions at a solution.

Names are given back here: the gathers of `inversion.invert` are over anonymous axes and loops, a stage needs axes of
its own, loops named after the forward axes they step through, and the value, the index and the conditions moved there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from autodiff.integers.conditions import has_opaque
from autodiff.integers.linear import Linear, Symbol, linear, symbol
from autodiff.inversion.domains import Gather, Inversion, TargetIndex, Variable
from autodiff.inversion.invert import invert
from autodiff.turning.affine_read import Reader, is_opaque
from autodiff.turning.affine_write import expression_of, truth_of
from autodiff.turning.bits import bitwise, has_bits
from autodiff.turning.changes import Rule, changed, digits, exclusive, rotation
from autodiff.turning.cotangent import Support
from autodiff.turning.radix import TargetDim, closed, in_linear_dims
from autodiff.turning.reached import Reached
from autodiff.turning.sent import Sent, Shape, extent_of
from autodiff.turning.tables import tabulated
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import simplify_extent
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import reads_of, rebuild_all, substitute_all, topological

__all__ = ["Answer", "Contribution", "answer_of", "body_of", "fresh_axes", "masked", "moved", "plain_answer"]


@dataclass(frozen=True)
class Contribution:
    """The adjoint that one read sends back: `kind` is gather, scatter, partial or zero; `reason` says why, `found`
    by which points an element is reached, and `reached` which elements are reached at all. `support` says where the
    tensor can be other than 0, if that is few of its elements, and `left` what could not be inverted.
    """

    tensor: Tensor | None
    kind: str
    reason: str
    found: Answer | None = None
    reached: Reached | None = None
    support: Support | None = None
    left: Answer | None = None


@dataclass(frozen=True)
class Answer:
    """The gathers of a read, and where element s of the target is found along each of the dimensions they are for.

    In `value` an index that was inverted is replaced by a stand-in: at every solution it equals the element, so that
    what else is read there (the forward value of a nonlinear stage) does not depend on the loops or on the part.
    """

    read: Sent
    found: Inversion
    shape: Shape
    target: tuple[Axis, ...]
    positions: tuple[Expr, ...]
    value: Expr
    stand_ins: dict[TargetIndex, Axis]
    extents: dict[Linear, Expr]

    def at(self, elements: Sequence[Expr]) -> list[Expr]:
        """The positions of one element."""
        return list(substitute_all(self.positions, dict(zip(self.target, elements, strict=True))))


def answer_of(read: Sent, shape: Shape, compact: bool, split: bool = True) -> Answer:
    """The answer over the dimensions of the target, split or joined where sizes are multiplied, if `split`.

    Where rows are left that cannot be inverted, the read is asked about over other axes (`turning.changes`); where they
    are made of bits, at once: as quotients and remainders these fall into many cases.
    """
    if any(map(has_bits, read.index)):
        read = _over_other_axes(read, shape, (exclusive, bitwise))
    best = plain_answer(read, shape, compact, split)
    for rules in CHANGES:
        if not best.found.opaque:
            break
        other = _over_other_axes(best.read, shape, rules)
        if other is not best.read:
            answer = plain_answer(other, shape, compact, split)
            best = answer if len(answer.found.opaque) < len(best.found.opaque) else best
    return best


CHANGES: tuple[tuple[Rule, ...], ...] = ((rotation, digits), (tabulated,))
"""Tried one group after the other: what a formula can say is not looked up."""
MOST_CHANGES = 8


def _over_other_axes(read: Sent, shape: Shape, rules: Sequence[Rule]) -> Sent:
    """The read after all changes that the rules know."""
    for _ in range(MOST_CHANGES):
        reader = Reader(read.axes, shape)
        change = next((c for rule in rules if (c := rule(read, shape, reader)) is not None), None)
        if change is None:
            return read
        read = changed(read, change)
    return read


def plain_answer(
    read: Sent, shape: Shape, compact: bool, split: bool = True, least: Mapping[Expr, int] = MappingProxyType({})
) -> Answer:
    """The answer over the axes that the read has, where some sizes are at `least` as large."""
    reader = Reader(read.axes, shape)
    reader.assume(least)
    variables = [Variable(a, _size(extent_of(a), reader), reader.form(a.begin)) for a in read.axes]
    target = fresh_axes(shape)
    dims = [TargetDim(reader.form(i), reader.form(n), s) for i, n, s in zip(read.index, shape, target, strict=True)]
    dims = in_linear_dims(dims, reader) if split else list(map(closed, dims))
    conditions = [reader.condition(c) for c in read.conditions]
    found = invert(
        variables, [d.row for d in dims], [d.extent for d in dims], conditions, known=reader.maxima, compact=compact
    )
    positions = tuple(d.position for d in dims)
    plain = len(dims) == len(shape) and all(p is s for p, s in zip(positions, target, strict=True))
    known = [j for j, row in enumerate(read.index) if isinstance(row, Apply) and plain and j not in found.opaque]
    stand_ins = {TargetIndex(j): Axis(f"s{j}", shape[j]) for j in known}
    (value,) = substitute_all((read.value,), {read.index[s.position]: axis for s, axis in stand_ins.items()})
    extents = {linear(v.extent): extent_of(a) for v, a in zip(variables, read.axes, strict=True)}
    return Answer(read, found, shape, target, positions, value, stand_ins, extents)


def _size(extent: Expr, reader: Reader) -> Linear:
    """The form of an extent, a parameter of its own where it has none."""
    form = reader.form(extent)
    return symbol(extent) if is_opaque(form) else form


def body_of(answer: Answer, g: Gather, elements: Sequence[Expr], known: Sequence[Expr] = ()) -> Expr:
    """The value of one gather at its axes, where what is `known` there holds as well."""
    loops, (value,), guard, data = moved(answer, g, elements, (answer.value,))
    guard = reduce(fn.logical_and, known, guard)
    value = masked(value, data)
    if loops:
        return Reduce(BUILTIN["sum"], (value,), loops, guard)
    return masked(value, [guard])


def masked(value: Expr, conditions: Sequence[Expr]) -> Expr:
    """The value where all conditions hold, else 0. One on data reads memory, so it is asked inside those before it."""
    for c in reversed(conditions):
        value = fn.select_node(c, value, Const(0.0, value.dtype))
    return value


def moved(
    answer: Answer, g: Gather, elements: Sequence[Expr], exprs: tuple[Expr, ...]
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
        if has_opaque(c) and reads_of((condition,)):  # what is asked of axes alone bounds loops and can be counted
            data.append(condition)
        else:
            guard = fn.logical_and(guard, condition)
    return tuple(loops), _readable(substitute_all(exprs, solution)), guard, data


def _readable(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The same expressions, x[t] for x[t + 1 - 1]: adjoints are there to be read."""

    def shorter(index: Expr) -> Expr:
        simple = simplify_extent(index)
        return simple if len(topological(simple)) < len(topological(index)) else index

    def rule(node: Expr) -> Expr:
        return Read(node.tensor, tuple(map(shorter, node.indices))) if isinstance(node, Read) else node

    return rebuild_all(exprs, rule)


def _loop_extent(answer: Answer, extent: Linear) -> Expr:
    """The width of a loop: that of a forward axis where it is one, and never below 0."""
    if extent in answer.extents:
        return answer.extents[extent]
    made = expression_of(extent, {})
    return made if isinstance(made, Const) else fn.maximum(made, 0)


def _loop_name(read: Sent, g: Gather, loop: Symbol) -> str:
    """The name of the forward axis that the loop is, or steps through."""
    moving = [(e != symbol(loop), len(e.coefficients), k) for k, e in enumerate(g.solution) if e[loop]]
    return read.axes[min(moving)[2]].name if moving else "t"


def fresh_axes(shape: Shape) -> tuple[Axis, ...]:
    names = "ijklmn"
    return tuple(Axis(names[d] if d < len(names) else f"i{d}", n) for d, n in enumerate(shape))
