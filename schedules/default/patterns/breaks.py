"""Where along its axes a stage changes what it reads, and at which of these places its loops are cut.

Concatenations, stacks, rolls, wide borders and choices by index are pieces that each read one tensor as it lies. Places
are found by what conditions and indices are, not by how they are written: a comparison changes where its sides meet, a
quotient or a remainder where what is divided reaches a multiple, a minimum where its operands meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set as AbstractSet

from schedules.machine import Machine
from schedules.pieces import Piece, boxes, decided, in_order, pieces_of, written_out
from schedules.sizes import typical
from tedsl.analysis.affine import form_of
from tedsl.analysis.facts import Facts
from tedsl.analysis.points import is_data_free
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Fn, Read, Var
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.intervals import range_of
from tedsl.lang.polynomials import Affine
from tedsl.lang.tensor import Compute, Operation
from tedsl.lang.traverse import free_axes, reads_of, topological

__all__ = ["MOST_NODES", "changes_along", "changes_of", "crossed_along", "cuts_of", "line_along"]

MOST_PIECES = 32
MOST_NODES = 1600  # of all pieces
MOST_OF_ONE = 320  # of a stage
LOOKUP = 32  # nodes that a read at a place that is data counts for
FEW_OPERATIONS, FEW = 4, 10
MOST_TURNS = 16  # multiples that a place reaches along an axis
ROUNDS = 3  # a remainder within a remainder
FEW_ROWS = 16  # for which a short loop of their own costs nothing
LONG_ROW = 64  # elements that are read together, beside which it costs nothing to find out where
LONG = 256  # elements of a loop beside which another one costs little
SHARE = 16  # a part of an axis that is no border
BEYOND = 4  # second caches, or part of the third one, that a stage fills whose short runs are written in order
RUN = 1 << 14  # bytes


def cuts_of(
    op: Compute, inlined: AbstractSet[Operation], machine: Machine, whole: AbstractSet[Axis] = frozenset()
) -> dict[Axis, list[Expr]]:
    """The positions at which the loops of a pointwise stage are cut; none where pieces would not pay.

    `whole`: loops that are not cut.
    """
    extents = [typical(a.extent) for a in op.axes]
    if any(number(a.extent) == 0 for a in op.axes) or math.prod(extents) < machine.least.pieces:
        return {}
    bodies = written_out(op, inlined)
    nodes = topological(bodies or ())
    if bodies is None or len(nodes) > MOST_OF_ONE or not any(map(_switches, nodes)):
        return {}
    widest = max(4, *(b.dtype.itemsize for b in op.bodies))
    is_beyond = all(number(a.extent) for a in op.axes) and math.prod(extents) * widest > max(
        BEYOND * machine.l2, machine.l3 // BEYOND
    )
    found: dict[Axis, list[Expr]] = {}
    for place, axis in enumerate(op.axes):
        if axis in whole:
            continue
        outside, inside = math.prod(extents[:place]), math.prod(extents[place + 1 :])
        if inside >= LONG_ROW and _moves_rows(bodies, axis, op.axes[-1]):
            continue  # where a row is read is one number for all of it
        loop = _Loop(outside, inside, machine.vector_bytes // widest, _is_copy(bodies))
        at = _breaks(bodies, axis, op.axes) if loop.worth(axis, changes_of(bodies, axis, op.axes, 1)) else []
        if is_beyond and outside > FEW_ROWS and extents[place] * inside * widest < RUN * (len(at) + 1):
            continue  # each piece would walk through all pages of the result
        at = loop.worth(axis, at)
        if at and in_order(axis, at):
            found[axis] = at
    if not found or math.prod(len(at) + 1 for at in found.values()) > MOST_PIECES:
        return {}
    written = sum(map(_written, pieces_of(op.axes, bodies, found)))
    # What is written out is compiled for longer than it ever runs where it is more than the vectors of the stage.
    is_run_often = _is_copy(bodies) or written * (machine.vector_bytes // widest) <= math.prod(extents)
    return found if written <= MOST_NODES and is_run_often else {}


def _moves_rows(roots: Sequence[Expr], axis: Axis, last: Axis) -> bool:
    """Whether an axis decides by quotients and remainders where whole rows are read, and nothing else."""
    switching = [n for n in topological(_deciding(roots)) if _switches(n) and axis in set(free_axes(n))]
    is_quotient = all(isinstance(n, Apply) and n.fn in (Fn.FLOORDIV, Fn.MOD) for n in switching)
    return is_quotient and not any(last in set(free_axes(n)) for n in switching)


def _written(piece: Piece) -> int:
    """How much code a piece is: a vector of numbers at places that are data is put together one by one."""
    looked_up = sum(bool(reads_of(r.indices)) for r in reads_of(piece.bodies))
    return len(topological(piece.bodies)) + LOOKUP * looked_up


def changes_along(op: Compute, axes: Sequence[Axis]) -> bool:
    """Whether a pointwise stage that does little changes what it reads along one of these axes."""
    if len(topological(op.bodies)) > MOST_OF_ONE or not _is_copy(op.bodies):
        return False
    return any(changes_of(op.bodies, axis, op.axes, 1) for axis in axes)


@dataclass(frozen=True)
class _Loop:
    """What there is of a loop: iterations around it, elements inside, lanes of a vector; whether a body is a copy."""

    outside: int
    inside: int
    lanes: int
    is_copy: bool

    def worth(self, axis: Axis, at: Sequence[Expr]) -> list[Expr]:
        """The positions between which loops are long; all of them where loops are begun seldom, and do little."""
        if self.is_copy and self.outside <= FEW_ROWS:
            return list(at)
        assert axis.extent is not None
        kept: list[Expr] = []
        end = simplify_extent(axis.begin + axis.extent)
        for position in at:
            sides = (position - (kept[-1] if kept else axis.begin), end - position)
            if all(self._is_long(typical(simplify_extent(n)), typical(axis.extent)) for n in sides):
                kept.append(position)
        return kept

    def _is_long(self, width: int, extent: int) -> bool:
        elements = width * self.inside
        return elements >= self.lanes and (width * SHARE >= extent or (self.is_copy and elements >= LONG))


def _is_copy(bodies: Sequence[Expr]) -> bool:
    """Whether little is done with what is read."""
    count, stack, seen = 0, list(bodies), set(bodies)
    while stack:
        node = stack.pop()
        if isinstance(node, Apply):
            chooses = node.fn is Fn.SELECT
            count += not chooses
            fresh = set(node.args[1:] if chooses else node.args) - seen
            seen |= fresh
            stack += fresh
    return count <= FEW_OPERATIONS


def _breaks(roots: Sequence[Expr], axis: Axis, axes: Sequence[Axis]) -> list[Expr]:
    """The positions at which what is read changes along an axis, in order, without those that decide nothing."""
    assert axis.extent is not None
    ends = [axis.begin, *changes_of(roots, axis, axes), simplify_extent(axis.begin + axis.extent)]
    place = 1 if len(ends) <= FEW else len(ends)  # between many tensors each of them decides something
    while place < len(ends) - 1:
        both = Axis(axis.name, simplify_extent(ends[place + 1] - ends[place - 1]), begin=ends[place - 1])
        if _crossed(roots, axis, both, axes):
            place += 1
        else:
            del ends[place]
    return ends[1:-1]


def _crossed(roots: Sequence[Expr], axis: Axis, box: Axis, axes: Sequence[Axis]) -> list[Expr]:
    """The positions at which something changes within a part of an axis."""
    others = [box if a is axis else a for a in axes]
    return changes_of(decided(roots, {axis: box}, others), box, others, 1)


def changes_of(roots: Sequence[Expr], axis: Axis, axes: Sequence[Axis], rounds: int = ROUNDS) -> list[Expr]:
    """The positions at which any condition or index changes its form along an axis, in order."""
    assert axis.extent is not None
    facts = Facts(axes)
    begin, end = facts.form(axis.begin), facts.form(simplify_extent(axis.begin + axis.extent))
    at: list[Affine] = []
    for form in _crossings(roots, axis, facts):
        position = _reached(form, axis)
        if position is None or any((position - p).is_constant and not (position - p).constant for p in at):
            continue
        if not all(_is_within(distance, facts) for distance in (position - begin, end - position)):
            continue
        place = next((k for k, p in enumerate(at) if _is_natural(p - position, facts)), len(at))
        if place == 0 or _is_natural(position - at[place - 1], facts):
            at.insert(place, position)
    found: list[Expr] = [simplify_extent(p.to_expr()) for p in at]
    if not found or rounds == 1 or len(found) >= MOST_PIECES:
        return found
    further: list[Expr] = []
    for begin_of, box in zip((None, *found), boxes(axis, found), strict=True):
        others = [box if a is axis else a for a in axes]
        own = decided(roots, {axis: box}, others)
        further += [] if begin_of is None else [begin_of]
        further += changes_of(own, box, others, rounds - 1)
    return further


def crossed_along(roots: Sequence[Expr], axis: Axis, axes: Sequence[Axis]) -> list[Affine]:
    """The positions at which any condition or index may change its form along an axis, which they may not lie on."""
    reached = (_reached(form, axis) for form in _crossings(roots, axis, Facts(axes)))
    return [position for position in reached if position is not None]


def _is_within(distance: Affine, facts: Facts) -> bool:
    """Whether a position is known not to lie beyond an end, nor always on it."""
    return distance.constant > 0 if distance.is_constant else facts.proves(distance)


def _is_natural(form: Affine, facts: Facts) -> bool:
    return form.constant >= 0 if form.is_constant else facts.proves(form)


def _reached(form: Affine, axis: Axis) -> Affine | None:
    """The first position of an axis at which a form, which grows or falls along it, is on the other side of zero."""
    line = line_along(form, axis)
    if line is None or not all(map(_can_be_said, topological(line.rest.atoms))):
        return None
    # The least i with steps * i >= -rest, or with steps * i > rest.
    steps, offset = (line.factor, -line.rest) if line.factor > 0 else (-line.factor, line.rest + 1)
    if steps == 1:
        return offset * line.each
    up = offset + (steps - 1)
    turns = form_of(simplify_extent(up.to_expr() // steps), lambda node: True, lambda node: True)
    return None if turns is None else turns * line.each


@dataclass(frozen=True)
class _Line:
    """A form that is `factor * (i // each) + rest` along an axis i."""

    factor: int
    each: int
    rest: Affine


def line_along(form: Affine, axis: Axis) -> _Line | None:
    """What a form is along an axis that it holds once: as it is, or as the pixel of a number of a row."""
    own = [m for m in form.terms if any(axis is n for n in topological(m))]
    if len(own) != 1 or len(own[0]) != 1:
        return None
    (place,) = own[0]
    each = 1 if place is axis else _pixels_of(place, axis)
    return None if each is None else _Line(form.terms[own[0]], each, form.without(place))


def _pixels_of(node: Expr, axis: Axis) -> int | None:
    """How many iterations of an axis have the same quotient, where a node is one."""
    if not isinstance(node, Apply) or node.fn is not Fn.FLOORDIV or node.args[0] is not axis:
        return None
    each = number(node.args[1])
    return each if each is not None and each > 0 else None


def _can_be_said(node: Expr) -> bool:
    """Whether a position may be made of it: sizes, numbers, and what `cut_at` reads."""
    return isinstance(node, (Const, Var)) or (isinstance(node, Apply) and node.fn in _SAID and node.dtype is INT32)


def _crossings(roots: Sequence[Expr], axis: Axis, facts: Facts) -> Iterator[Affine]:
    """The forms where an expression changes at which they are zero, of choices between reads and of indices."""
    for node in topological(_deciding(roots)):
        if _switches(node) and is_data_free((node,)) and axis in set(free_axes(node)):
            assert isinstance(node, Apply)
            yield from _CROSSINGS[node.fn](node, facts)


def _deciding(roots: Sequence[Expr]) -> list[Expr]:
    """The conditions of choices in which something is read, and the indices of what is read."""
    found: dict[Expr, None] = {}
    for node in topological(roots):
        if isinstance(node, Read):
            found.update(dict.fromkeys(node.indices))
        elif isinstance(node, Apply) and node.fn is Fn.SELECT and reads_of(node.args[1:]):
            found[node.args[0]] = None
    return list(found)


def _switches(node: Expr) -> bool:
    """Whether a node may change its form along an axis."""
    return isinstance(node, Apply) and node.fn in _CROSSINGS and node.args[0].dtype is INT32


def _compared(node: Apply, facts: Facts) -> Iterable[Affine]:
    form = facts.form(node.args[0]) - facts.form(node.args[1])
    if node.fn in (Fn.EQ, Fn.NE):
        return form, form - 1
    return (form,) if node.fn in (Fn.LT, Fn.GE) else (form - 1,)


def _divided(node: Apply, facts: Facts) -> Iterable[Affine]:
    place, by = facts.form(node.args[0]), facts.form(node.args[1])
    if not isinstance(node.args[1], Const):
        return [place - by * turns for turns in (0, 1, 2)]
    step = int(node.args[1].value)
    if step < 1:
        return ()
    low, high = (end // step for end in range_of(node.args[0], facts.known))
    return [place - step * turns for turns in range(low + 1, high + 1)] if high - low <= MOST_TURNS else ()


def _met(node: Apply, facts: Facts) -> Iterable[Affine]:
    first, *others = map(facts.form, node.args)
    return [first - other for other in others] or [first]


_SAID = (Fn.ADD, Fn.SUB, Fn.MUL, Fn.FLOORDIV, Fn.MOD, Fn.MAXIMUM, Fn.MINIMUM)
_CROSSINGS = {
    **dict.fromkeys((Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE), _compared),
    Fn.FLOORDIV: _divided, Fn.MOD: _divided,
    **dict.fromkeys((Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.ABS), _met),
}  # fmt: skip
