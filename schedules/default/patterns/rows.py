"""Elements along a short axis as rows: one vector at each point, for all that a point's elements share one number.

What all elements of a row have in common, such as the place of a read and its weights, is computed for a piece of the
points at once, as vectors along those (the terms). What is read along the points is turned, so that a row lies in one
piece. A tensor read at computed places is copied with the rows in one piece, and a place becomes one number:

    image[c, y(i), x(i)] * w(i)   ->   table[place[i], c] * weight[i],   a vector over c for each i
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from schedules.default.rewriting import Rewriting, loop_names
from schedules.directives import BoundExtent, ComputeAt, ComputeRoot, Directive, Reorder, Split, Unroll, Vectorize
from tedsl.analysis.checks import checked_as
from tedsl.analysis.places import mark_places
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Apply, Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, replaced_all, substitute_all, topological

__all__ = ["Rows", "flat", "has_rows", "looks_up", "numbered", "shared_along", "unfolded", "whole"]


def whole(count: int, width: int) -> int:
    """Lanes of whole vectors, short ones where that is enough."""
    while width > 4 and count <= width // 2:
        width //= 2
    return -(-count // width) * width


def flat(places: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The number of an element of a box, places outside brought to its sides."""
    inside = [fn.minimum(fn.maximum(p, 0), n - 1) for p, n in zip(places, extents, strict=True)]
    return numbered([fn.cast(p, INT32) for p in inside], extents)


def numbered(places: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The number of an element of a box."""
    found = places[0]
    for place, extent in zip(places[1:], extents[1:], strict=True):
        found = found * extent + place
    return found


def unfolded(place: Expr, extents: Sequence[int]) -> list[Expr]:
    """The places in a box of its element of that number."""
    found: list[Expr] = []
    step = math.prod(extents)
    for k, extent in enumerate(extents):
        step //= extent
        at = place // step if step > 1 else place
        found.append(at % extent if k else at)
    return found


def looks_up(read: Read, row: Expr) -> int | None:
    """The dimension indexed by `row`, where a tensor is read at one computed place for all elements of a row."""
    along = [d for d, index in enumerate(read.indices) if index is row]
    others = [index for index in read.indices if index is not row]
    own = set(free_axes(row))
    return along[0] if len(along) == 1 and reads_of(others) and own.isdisjoint(free_axes(others)) else None


def has_rows(read: Read, lane: Axis) -> bool:
    """Whether what is looked up lies in rows as it is, each as long as a row of the result."""
    extents = read.tensor.extents
    return len(extents) == 2 and read.indices[-1] is lane and number(extents[-1]) == number(lane.extent)


def shared_along(rw: Rewriting, roots: Sequence[Expr], lane: Axis) -> tuple[Expr, ...]:
    """The roots with reads of stages that are the same for all elements of a row as what those stages compute."""
    stages = set(rw.stages)

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Read) or lane not in set(free_axes(node.indices)):
            return node
        op = node.tensor.op
        if not isinstance(op, Compute) or op.reduction is not None or op not in stages:
            return node
        body = op.written_at(node)
        return node if lane in set(free_axes(body)) else body

    return rebuild_all(roots, rule)


@dataclass(eq=False)
class Rows:
    """Expressions of a stage over rows along `lane`, and the stages made for them.

    `points` are the stage's other axes, `run` the one of them along which the terms are vectors.
    """

    rw: Rewriting
    name: str
    lane: Axis
    points: Sequence[Axis]
    run: Axis
    width: int
    along: Expr | None = None  # how a row is indexed in tensors that are read at computed places, to be copied
    short: Axis | None = None  # one of the points' axes, which is written out
    terms: Compute | None = None
    turned: list[Compute] = field(default_factory=list)
    packed: dict[tuple[Tensor, int], Tensor] = field(default_factory=dict)
    _found: dict[Expr, Expr] = field(default_factory=dict)  # what is replaced
    _short: list[int] = field(default_factory=list)  # the positions of `short` among the axes of the terms

    def of(self, roots: Sequence[Expr], places: Sequence[Expr] = ()) -> tuple[list[Expr], list[Expr]]:
        """The roots over rows, and `places`, which all elements of a row have in common, as terms."""
        roots = shared_along(self.rw, roots, self.lane)
        varies = self._varying(roots)
        looked: dict[Read, tuple[Tensor, Expr]] = {}
        for node in varies:
            if isinstance(node, Read):
                along = looks_up(node, self.along) if self.along is not None else None
                if along is not None:
                    looked[node] = self._packed(node, along)
                elif self._is_turned(node, varies):
                    self._found[node] = self._turn(node)
        reached = self._reached(roots, varies, looked)
        shared = [n for n in reached if n not in varies and not _is_plain(n)]
        shared += [r for r in roots if r not in varies and not _is_plain(r)]
        wanted = dict.fromkeys([*places, *(place for _, place in looked.values()), *shared])
        self._tabulate(list(wanted))
        for node, (table, place) in looked.items():
            self._found[node] = Read(table, (self._found[place], self.lane))
        return list(replaced_all(roots, self._found)), [self._found[p] for p in places]

    def _varying(self, roots: Sequence[Expr]) -> dict[Expr, None]:
        found: dict[Expr, None] = {self.lane: None}
        for node in topological(roots):
            if any(c in found for c in node.children):
                found[node] = None
        return found

    def _reached(self, roots: Sequence[Expr], varies: Mapping[Expr, None], looked: Mapping[Read, object]) -> list[Expr]:
        """The operands of what varies, but for the indices of reads that are replaced as a whole."""
        seen: dict[Expr, None] = {}
        stack = [r for r in roots if r in varies]
        while stack:
            node = stack.pop()
            if node in seen or node in self._found or node in looked:
                continue
            seen[node] = None
            if node in varies:
                stack.extend(node.children)
        return list(seen)

    def _is_turned(self, read: Read, varies: Mapping[Expr, None]) -> bool:
        """Whether a read lies along the run, or across it."""
        if read.indices[-1] in varies or reads_of(read.indices) or self.run not in set(free_axes(read.indices)):
            return False
        return all(set(free_axes(i)) == {self.lane} for i in read.indices if i in varies)

    def _turn(self, read: Read) -> Expr:
        used = set(free_axes(read.indices))
        axes = [*(a for a in self.points if a in used and a is not self.run), self.run, self.lane]
        made = self._stage("turned", axes, [read])
        self.turned.append(made)
        return Read(made.outputs[0], _from_zero(axes))

    def _packed(self, read: Read, along: int) -> tuple[Tensor, Expr]:
        """The copy of what a read looks up, and the number of the place."""
        tensor = read.tensor
        extents = [number(e) or 0 for d, e in enumerate(tensor.extents) if d != along]
        if has_rows(read, self.lane):
            return tensor, flat(read.indices[:1], extents)
        key = tensor, along
        if key not in self.packed:
            count, lanes = number(tensor.extents[along]) or 1, number(self.lane.extent) or 1
            row, lane = Axis("row", Const(math.prod(extents), INT32)), Axis("lane", Const(lanes, INT32))
            at = unfolded(row, extents)
            at.insert(along, fn.minimum(lane, count - 1) if lanes > count else lane)
            self.packed[key] = self.rw.compute(f"{self.name}_table", (row, lane), Read(tensor, tuple(at)))
        return self.packed[key], flat([i for d, i in enumerate(read.indices) if d != along], extents)

    def _tabulate(self, wanted: list[Expr]) -> None:
        used = set(free_axes(wanted))
        axes = [*(a for a in self.points if a in used and a is not self.run), self.run]
        if wanted:
            self.terms = self._stage("terms", axes, wanted)
            mark_places(self.terms)
            self._short = [k for k, a in enumerate(axes) if a is self.short]
            at = _from_zero(axes)
            self._found.update((n, Read(self.terms.output(k), at)) for k, n in enumerate(wanted))

    def _stage(self, what: str, axes: Sequence[Axis], bodies: Sequence[Expr]) -> Compute:
        fresh = tuple(Axis(a.name, a.extent) for a in axes)
        begins = [number(a.begin) or 0 for a in axes]
        moved: dict[Expr, Expr] = {a: f + b if b else f for a, f, b in zip(axes, fresh, begins, strict=True)}
        made = Compute(
            name=self.rw.name(f"{self.name}_{what}"), axes=fresh, bodies=substitute_all(bodies, moved), where=""
        )
        checked_as(made, ())  # by the stage that uses it
        self.rw.add(made)
        return made

    # ------------------------------------------------------------------------------------------------- directives

    def directives(self, consumer: Operation, loop: str) -> list[Directive]:
        """Terms and turned reads at a loop of the stage that uses them, tables before everything."""
        say: list[Directive] = []
        for tensor in self.packed.values():
            say += self._packing(tensor.op)
        for op in self.turned:
            say += self._piece(op, consumer, loop, loop_names(op)[op.axes[-2]], [loop_names(op)[op.axes[-1]]])
        if self.terms is not None:
            names = [loop_names(self.terms)[a] for a in self.terms.axes]
            say += self._piece(self.terms, consumer, loop, names[-1], [names[k] for k in self._short])
        return say

    def _piece(self, op: Compute, consumer: Operation, loop: str, run: str, short: Sequence[str]) -> list[Directive]:
        """Vectors along the run, what is short written out inside."""
        self.rw.planned.add(op.name)
        sizes = {n: number(a.extent) or 1 for a, n in loop_names(op).items()}
        rest = [n for n in sizes if n != run and n not in short]
        return [
            ComputeAt(stage=op.name, consumer=consumer.name, loop=loop),
            *(BoundExtent(stage=op.name, axis=n, extent=sizes[n]) for n in short),
            Split(stage=op.name, loop=run, outer=f"{run}_o", inner=f"{run}_v", factor=self.width),
            Vectorize(stage=op.name, loop=f"{run}_v"),
            *(Unroll(stage=op.name, loop=n) for n in short),
            Reorder(stage=op.name, loops=(*rest, f"{run}_o", *short, f"{run}_v")),
        ]

    def _packing(self, op: Operation) -> list[Directive]:
        self.rw.planned.add(op.name)
        lanes = number(self.lane.extent) or 1
        vector = min(lanes, self.width)
        return [
            ComputeRoot(stage=op.name),
            BoundExtent(stage=op.name, axis="lane", extent=lanes),
            Split(stage=op.name, loop="lane", outer="lane_o", inner="lane_v", factor=vector, exact=True),
            Vectorize(stage=op.name, loop="lane_v"),
        ]


def _from_zero(axes: Sequence[Axis]) -> tuple[Expr, ...]:
    begins = [number(a.begin) or 0 for a in axes]
    return tuple(a - b if b else a for a, b in zip(axes, begins, strict=True))


def _is_plain(node: Expr) -> bool:
    """Whether a value is made of loops alone, by arithmetic that every point can do for itself."""
    return all(
        not isinstance(n, Read) and (not isinstance(n, Apply) or n.dtype is INT32 or n.dtype.is_bool)
        for n in topological(node)
    )
