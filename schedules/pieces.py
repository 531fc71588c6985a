"""Pieces of a stage: boxes of its loops, and what its elements are in each, with all that a box decides decided.

A concatenation reads another tensor in each of its parts. As one loop it loads from all of them at every element, at
places brought into bounds, and chooses; in pieces each loop reads its own tensor as it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import field
from itertools import pairwise, product

from schedules.conditions import extremes, tidy
from tedsl.analysis.affine import with_plain_indices
from tedsl.analysis.facts import Facts, naturals
from tedsl.analysis.places import are_places
from tedsl.analysis.points import is_data_free
from tedsl.analysis.size_ranges import ranges_of_sizes
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.intervals import Known, may_wrap, range_of, with_sizes, wraps_early
from tedsl.lang.operators import NEGATED
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import reads_of, rebuild_all, substitute_all, topological

__all__ = ["Piece", "boxes", "decided", "in_order", "pieces_of", "written_out"]

MOST_NODES = 400  # of a stage with what is inlined into it, written out
LONG = 1 << 29  # elements along an axis
TURNS = (0, 1, -1, 2)  # how often a place may have gone round a length that is not known


@dataclass(frozen=True)
class Piece:
    """A box of a stage's loops, each from 0 on: the places of its elements, and their values, under a condition."""

    loops: tuple[Axis, ...]
    places: tuple[Expr, ...]
    bodies: tuple[Expr, ...]
    condition: Expr = TRUE


def pieces_of(axes: Sequence[Axis], bodies: Sequence[Expr], cuts: Mapping[Axis, Sequence[Expr]]) -> list[Piece]:
    """The pieces of a stage cut at these positions of its loops, in order, without those that are known to be empty."""
    made = []
    for box in product(*(boxes(a, cuts.get(a, ())) for a in axes)):
        if any(number(b.extent) == 0 for b in box):
            continue
        loops = tuple(b if b is a else Axis(b.name, b.extent) for a, b in zip(axes, box, strict=True))
        places = tuple(loop if loop is b else loop + b.begin for loop, b in zip(loops, box, strict=True))
        moved: dict[Expr, Expr] = dict(zip(axes, places, strict=True))
        there = decided(bodies, moved, loops)
        made.append(Piece(loops, places, rebuild_all(there, with_plain_indices)))
    return made


def boxes(axis: Axis, at: Sequence[Expr]) -> list[Axis]:
    """An axis cut at positions, which are in order."""
    if not at:
        return [axis]
    assert axis.extent is not None
    ends = [axis.begin, *at, simplify_extent(axis.begin + axis.extent)]
    return [Axis(axis.name, simplify_extent(b - a), begin=simplify_extent(a)) for a, b in pairwise(ends)]


def in_order(axis: Axis, at: Sequence[Expr]) -> bool:
    """Whether positions lie within an axis, each behind the one before or on it, whatever the sizes are."""
    assert axis.extent is not None
    facts = Facts((), ranges_of_sizes([axis.extent]))
    forms = [facts.form(e) for e in (axis.begin, *at, simplify_extent(axis.begin + axis.extent))]
    return all(facts.proves(b - a) for a, b in pairwise(forms))


def decided(roots: Sequence[Expr], moved: Mapping[Expr, Expr], axes: Sequence[Axis]) -> tuple[Expr, ...]:
    """Expressions with axes `moved`, and the comparisons, quotients, remainders and minima decided that `axes` decide.

    What is not chosen is not looked at.
    """
    held = (*(a.extent for a in axes), *(e for read in reads_of(roots) for e in read.tensor.extents))
    facts = Facts(axes, ranges_of_sizes(held))
    rule, place = _Rule(facts, may_wrap), _Rule(facts, _early)
    new: dict[Expr, Expr] = dict(moved)
    stack = list(roots)
    while stack:
        node = stack[-1]
        operands: Sequence[Expr] = () if node in new else _asked(node, new)
        missing = [a for a in operands if a not in new]
        stack += missing
        if missing:
            continue
        stack.pop()
        if node not in new and len(operands) < len(node.children):
            new[node] = new[operands[-1]]  # the one that is chosen
        elif node not in new:
            made = rule.node(node.with_children(tuple(new[a] for a in operands)) if operands else node)
            if isinstance(made, Read):
                made = Read(made.tensor, rebuild_all(made.indices, place.node))
            new[node] = made
    return tuple(new[root] for root in roots)


def _asked(node: Expr, new: Mapping[Expr, Expr]) -> Sequence[Expr]:
    """The operands that a node needs, as far as its condition is known: that first."""
    if not isinstance(node, Apply) or node.fn is not Fn.SELECT:
        return node.children
    condition = new.get(node.args[0])
    if condition is None:
        return node.args[:1]
    return (node.args[0], node.args[1 if condition.value else 2]) if isinstance(condition, Const) else node.args


@dataclass(frozen=True)
class _Rule:
    """What a node over decided operands is, by what is known of the axes.

    `wraps`: whether an expression counts as one that may leave its dtype. Of an index that wraps for large sizes only
    it does not matter what it is then: the array could not be held.
    """

    facts: Facts
    wraps: Callable[[Expr, Known], bool]
    known: dict[Expr, Expr] = field(default_factory=dict)

    def node(self, given: Expr) -> Expr:
        """A node as far as it is decided, which several reads may ask for."""
        if given not in self.known:
            self.known[given] = self._decided(given)
        return self.known[given]

    def _decided(self, given: Expr) -> Expr:
        node = tidy(given)
        if not isinstance(node, Apply):
            return node
        if node.fn is Fn.NOT and isinstance(node.args[0], Const):
            return FALSE if node.args[0].value else TRUE
        rule = _RULES.get(node.fn)
        return node if rule is None or node.args[0].dtype is not INT32 else rule(self, node)

    def is_natural(self, form: Affine) -> bool:
        """Whether a form is never below zero."""
        ends = extremes(form)  # exact, and quick
        return ends[0] >= 0 if ends is not None else self.facts.proves(form)

    def divided(self, node: Apply) -> Expr:
        """A quotient that is the same everywhere, or a remainder of which the quotient is."""
        place, by = node.args
        turns = self._turns(place, by)
        if turns is None:
            return node
        if node.fn is Fn.FLOORDIV:
            return Const(turns, INT32)
        rest = self.facts.form(place) - self.facts.form(by) * turns
        return rest.to_expr()

    def _turns(self, place: Expr, by: Expr) -> int | None:
        """How often a divisor goes into a place, everywhere."""
        if isinstance(by, Const):
            if by.value < 1 or may_wrap(place, self.facts.known):
                return None
            low, high = (end // int(by.value) for end in range_of(place, self.facts.known))
            return low if low == high else None
        if (
            self.wraps(place, self.facts.known)
            or self.wraps(by, self.facts.known)
            or not self.is_natural(self.facts.form(by) - 1)
        ):
            return None
        form, length = self.facts.form(place), self.facts.form(by)
        for turns in TURNS:
            rest = form - length * turns
            if self.is_natural(rest) and self.is_natural(length - rest - 1):
                return turns
        return None

    def extreme(self, node: Apply) -> Expr:
        """The smaller or the larger one of two, where that is the same one everywhere."""
        if any(self.wraps(a, self.facts.known) for a in node.args):
            return node
        a, b = node.args
        difference = self.facts.form(a) - self.facts.form(b)
        for form, first in ((difference, Fn.MAXIMUM), (-difference, Fn.MINIMUM)):
            if self.is_natural(form):
                return a if node.fn is first else b
        return node

    def clipped(self, node: Apply) -> Expr:
        """A place that is never clipped, or always to one end."""
        place, low, high = node.args
        if any(self.wraps(a, self.facts.known) for a in node.args):
            return node
        form, least, most = map(self.facts.form, node.args)
        if self.is_natural(form - least):
            return place if self.is_natural(most - form) else high if self.is_natural(form - most) else node
        return low if self.is_natural(least - form) and self.is_natural(most - least) else node

    def absolute(self, node: Apply) -> Expr:
        (value,) = node.args
        if self.wraps(value, self.facts.known):
            return node
        form = self.facts.form(value)
        return value if self.is_natural(form) else (-form).to_expr() if self.is_natural(-form) else node

    def compared(self, node: Apply) -> Expr:
        """A comparison that sizes decide, whatever they are; what numbers decide is decided already.

        Where only a length of more than half a billion would wrap, it says what it says of all shorter ones.
        """
        left, right = map(self.facts.form, node.args)
        if extremes(left - right) is not None or not is_data_free((node,)):
            return node
        sides = rebuild_all(node.args, _Rule(self.facts, _wraps_if_long).node)
        if any(_wraps_if_long(side, self.facts.known) for side in sides):
            return node
        form = self.facts.form(sides[0]) - self.facts.form(sides[1])
        for fn, value in ((node.fn, TRUE), (NEGATED[node.fn], FALSE)):
            if any(all(map(self.is_natural, rows)) for rows in naturals(fn, form)):
                return value
        return node


def _wraps_if_long(expr: Expr, known: Known) -> bool:
    return may_wrap(expr, with_sizes(expr, (0, LONG)))


def _early(index: Expr, known: Known) -> bool:
    return wraps_early(index)


_RULES = {
    **dict.fromkeys(NEGATED, _Rule.compared),
    Fn.FLOORDIV: _Rule.divided, Fn.MOD: _Rule.divided, Fn.MINIMUM: _Rule.extreme, Fn.MAXIMUM: _Rule.extreme,
    Fn.CLIP: _Rule.clipped, Fn.ABS: _Rule.absolute,
}  # fmt: skip


def written_out(op: Compute, inlined: AbstractSet[Operation]) -> tuple[Expr, ...] | None:
    """The bodies of a stage with those of the inlined stages that choose; None where these are too much."""
    made: dict[Operation, tuple[Expr, ...]] = {}

    def rule(node: Expr) -> Expr:
        inner = node.tensor.op if isinstance(node, Read) else None
        if inner not in made:
            return node
        assert isinstance(node, Read)
        assert isinstance(inner, Compute)
        return substitute_all((made[inner][node.tensor.index],), dict(zip(inner.axes, node.indices, strict=True)))[0]

    for stage in (*_below(op, inlined), op):
        if stage is not op and not (_chooses(stage) or any(r.tensor.op in made for r in stage.reads)):
            continue
        bodies = rebuild_all(stage.bodies, rule)
        if len(topological(bodies)) > MOST_NODES:
            return None
        made[stage] = bodies
    return made[op]


def _below(op: Operation, inlined: AbstractSet[Operation]) -> list[Compute]:
    """The inlined stages that a stage is made of, each before those that read it."""
    done: dict[Operation, None] = {}
    stack: list[Operation] = [op]
    while stack:
        missing = [t.op for t in stack[-1].inputs if t.op in inlined and t.op not in done]
        if missing:
            stack += missing
        else:
            done[stack.pop()] = None
    return [x for x in done if x is not op and isinstance(x, Compute)]


def _chooses(op: Compute) -> bool:
    """Whether pieces of a stage could be simpler than the stage."""
    return not are_places(op) and any(
        isinstance(n, Apply) and (n.fn is Fn.SELECT or (n.dtype is INT32 and n.fn in _RULES)) for n in op.nodes
    )
