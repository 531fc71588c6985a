"""Scatters: several into one tensor at once, vectors along an axis whose points never meet, blocks in parallel.

out[c, f(i)] += g(c, i); out[c, h(i)] += k(c, i)       what two reads of a tensor send back
table[b, f(i), c] += g(c, i), table[b, h(i), c] += k(c, i)     for every i of block b, all c in one vector
out[c, s] = sum over b of table[b, s, c]                       (see `points`)

out[i, f(i, j)] += g(i, j)                              ->     rows[i, f(i, j)] += g(i, j), a row of which is begun,
out[i, s] = rows[i, s]                                         added to and written while it is in the cache
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from schedules.default.costs import MOST_TAPS
from schedules.default.patterns.rows import Rows, flat, numbered, shared_along, whole
from schedules.default.points.chains import is_known, joined
from schedules.default.points.tables import combined, in_blocks, is_wide
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.directives import (
    BoundExtent,
    ComputeAt,
    ComputeRoot,
    Definition,
    Directive,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from schedules.loops import Level, nest_of
from schedules.machine import Machine
from tedsl.analysis.checks import checked_as
from tedsl.analysis.iteration import free_dimensions
from tedsl.analysis.places import mark_places
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Read
from tedsl.lang.extents import number
from tedsl.lang.intervals import range_of
from tedsl.lang.reducers import COMBINE
from tedsl.lang.scatter import SCATTER_KINDS
from tedsl.lang.tensor import Compute, Operation, Scatter, Tensor
from tedsl.lang.traverse import free_axes, substitute_all, topological

__all__ = ["plan_scatter"]

BLOCKS = 8
TASKS = 16  # pieces of a loop for threads: one element of it may be little work
PIECE = 256  # points whose indices and values are computed at a time
POINTS = 64  # the same where they have rows of values
MOST_WRITTEN = 800  # nodes of all iterations of a short loop: beside so many the loop costs nothing
MOST_LANES = 32  # of a row of values: a point's row is written out, which costs compiling time and registers


def plan_scatter(rw: Rewriting, original: Operation, ops: Sequence[Operation], machine: Machine) -> bool:
    """Rewrite scatters, each of which adds to the one before it; False where the plain loops do."""
    chain = [op for op in ops if isinstance(op, Scatter)]
    op = chain[-1]
    points = math.prod(number(a.extent) or 0 for a in op.axes)
    if len(chain) == 1 and (points < machine.least.scatter or not is_known(op)):
        return False
    table = _Table(rw, joined(chain) if len(chain) > 1 else op, chain, machine, points * len(chain))
    rw.new[original.outputs[0]] = table.result()
    return True


class _Table:
    """The stages that a scatter becomes, and the loops of the scatter among them."""

    def __init__(self, rw: Rewriting, op: Scatter, chain: Sequence[Scatter], machine: Machine, points: int) -> None:
        self.rw, self.op, self.chain, self.machine = rw, op, chain, machine
        self.free = free_dimensions(op)
        self.width = max(1, machine.vector_bytes // max(4, op.value.dtype.itemsize))
        self.points = points
        self.moved = self._moved()
        self.blocks = self._blocks()
        self.terms: Compute | None = None
        self.run: Axis | None = None  # the axis along which the terms are vectors
        self.rows: Rows | None = None
        self.own = 0  # so many outermost dimensions have rows of their own, which are made one after another

    def _moved(self) -> int | None:
        """The dimension to be put last, where its points never meet and those of the last one may.

        A long one stays where it is: its points share nothing but indices, and can go to several threads.
        """
        if len(self.op.shape) - 1 in self.free or self.points < self.machine.least.scatter_moved * self.size:
            return None
        sizes = {d: number(a.extent) or 0 for d, a in self.free.items()}
        lanes = range(self.machine.least.scatter_lanes, MOST_LANES + 1)
        return max((d for d, n in sizes.items() if n in lanes), key=lambda d: sizes[d], default=None)

    @property
    def size(self) -> int:
        return math.prod(number(e) or 0 for e in self.op.shape)

    def _blocks(self) -> int:
        """Into how many blocks the points go, each with a table of its own."""
        op, size, points = self.op, self.size, self.points
        first = self._ordered()[:1]
        if self.machine.cores < 2 or points < self.machine.least.scatter_threads or not first or not is_wide(op):
            return 1
        if self.moved is None and any(n >= TASKS for n in self._apart()):
            return 1  # points of different elements of such an axis never meet
        many = (number(first[0].extent) or 0) >= self.machine.least.scatter_blocks
        return BLOCKS if many and not op.unique and size * self.machine.least.scatter_reuse <= points else 1

    def _apart(self) -> list[int]:
        """The extents of the free axes, but of the one that makes vectors."""
        return [number(a.extent) or 0 for d, a in self.free.items() if d != len(self.op.shape) - 1]

    def _ordered(self) -> list[Axis]:
        own = set(self.free.values())
        return [a for a in self.op.axes if a not in own]

    def result(self) -> Tensor:
        """The tensor that stands for the scatter."""
        rw, op = self.rw, self.op
        if self.blocks == 1 and self.moved is None:
            self.own = self._own_rows()
            made = replace(op, name=rw.name(f"{op.name}_rows" if self.own else op.name), _outputs={})
            made = made if self.own and _is_plain(op) else self._with_terms(made)
            rw.add(made)
            if self.own:
                return self._row_by_row(made)
            self._schedule(made)
            return made.output()
        made = self._private()
        made = self._with_terms(made) if self.moved is None else self._with_rows(made)
        rw.add(made)
        self._schedule(made)
        held = made.output() if self.blocks == 1 else self._total(made.output())
        if self.moved is None and op.init is None:
            return held
        return self._placed(held)

    def _own_rows(self) -> int:
        """Outermost dimensions whose points never meet, in the rows of which they do; 0 where rows are no use.

        A row is a few vectors at least, and stays in the cache between its beginning and its end.
        """
        sizes = [number(e) or 0 for e in self.op.shape]
        free = next((d for d in range(len(sizes)) if d not in self.free), 0)
        least = self.machine.least.scatter_own
        for own in range(free, 0, -1):
            row = math.prod(sizes[own:]) * self.op.value.dtype.itemsize
            if row >= least * self.machine.vector_bytes:
                fits = row <= self.machine.l2 // 2 and math.prod(sizes[:own]) >= TASKS
                return own if fits else 0
        return 0

    def _row_by_row(self, made: Scatter) -> Tensor:
        """The rows written as they are done."""
        op, own = self.op, self.own
        axes = tuple(Axis(f"d{d}", e) for d, e in enumerate(op.shape))
        result = self.rw.compute(op.name, axes, Read(made.output(), axes))
        names = loop_names(result.op)
        loops = [names[a] for a in axes]
        say: list[Directive] = [ComputeRoot(stage=result.op.name)]
        last, extent = loops[-1], number(axes[-1].extent) or 0
        if (lanes := self._lanes(extent)) > 1:
            alike = any(t.shape == result.shape for t in op.inputs)  # in whose memory the result may lie
            tail = "shift" if extent % lanes and not alike and not self.machine.has_masks else ""
            outer, vector = f"{last}_o", f"{last}_v"
            say += [
                Split(stage=result.op.name, loop=last, outer=outer, inner=vector, factor=lanes, tail=tail),
                Vectorize(stage=result.op.name, loop=vector),
            ]
        fusing, (row,) = fused(result.op.name, loops[:own], "f")
        say += fusing
        if self.threads:
            cut, (task, *within) = _tasks(result.op, "body", row, math.prod(number(a.extent) or 0 for a in axes[:own]))
            say += [*cut, Parallel(stage=result.op.name, loop=task)]
            row = within[0] if within else task
        self.rw.directives += [*say, ComputeAt(stage=made.name, consumer=result.op.name, loop=row)]
        self.rw.planned.add(result.op.name)
        self._schedule(made)
        return result

    def _private(self) -> Scatter:
        """table[block, .., c]: a table for each block, the axis of vectors last, over whole vectors."""
        op, name = self.op, self.rw.name(f"{self.op.name}_table")
        made = replace(op, name=name, init=None, unique=False, _outputs={})
        if self.moved is not None:
            old = self.free[self.moved]
            count = number(old.extent) or 0
            lane = Axis(old.name, Const(whole(count, self.width), INT32), is_reduce=True)
            place: Expr = fn.minimum(lane, count - 1) if whole(count, self.width) > count else lane
            *rows, value, where = substitute_all((*op.index, op.value, op.guard), {old: place})
            del rows[self.moved]
            shape = [e for d, e in enumerate(op.shape) if d != self.moved]
            made = replace(
                made, index=(*rows, lane), shape=(*shape, Const(whole(count, self.width), INT32)),
                axes=tuple(lane if a is old else a for a in op.axes), value=value, guard=where, _outputs={},
            )  # fmt: skip
        return in_blocks(made, self._ordered()[0], self.blocks) if self.blocks > 1 else made

    def _with_terms(self, made: Scatter) -> Scatter:
        """Where no axis makes vectors: indices and values in vectors, a piece of the longest axis at a time."""
        if len(made.shape) - 1 in free_dimensions(made):
            return made
        own = set(free_dimensions(made).values())
        run = max((a for a in made.axes if a not in own), key=lambda a: number(a.extent) or 0, default=None)
        if run is None or (number(run.extent) or 0) < self.machine.least.scatter_piece:
            return made
        rows = [r for r in made.index if not isinstance(r, Axis)]
        limits = [e for r, e in zip(made.index, made.shape, strict=True) if not isinstance(r, Axis)]
        places = [fn.cast(_held_inside(r, e), INT32) for r, e in zip(rows, limits, strict=True)]
        value = [made.value] if not isinstance(made.value, Const) else []
        bodies = (*places, *value, *([made.guard] if made.guard is not TRUE else []))
        order = [*(a for a in made.axes if a is not run), run]
        fresh = tuple(Axis(a.name, a.extent) for a in order)
        begins = [number(a.begin) or 0 for a in order]
        bodies = substitute_all(bodies, {a: f + b if b else f for a, f, b in zip(order, fresh, begins, strict=True)})
        terms = Compute(name=self.rw.name(f"{self.op.name}_terms"), where=made.where, axes=fresh, bodies=bodies)
        mark_places(terms)
        self.rw.add(terms)
        at: tuple[Expr, ...] = tuple(a - b if b else a for a, b in zip(order, begins, strict=True))
        found = [Read(t, at) for t in terms.outputs]
        rest = iter(found)
        index = tuple(r if isinstance(r, Axis) else next(rest) for r in made.index)
        self.terms, self.run = terms, run
        found_value = next(rest) if value else made.value
        return replace(made, index=index, value=found_value, guard=next(rest, TRUE), _outputs={})

    def _with_rows(self, made: Scatter) -> Scatter:
        """Rows at places that are one number each; points outside write to a row of their own, past the last one."""
        lane = next(a for a in made.axes if a is made.index[-1])
        first = 1 if self.blocks > 1 else 0
        points = [a for a in made.axes if a is not lane]
        tap = points[-1] if len(self.chain) > 1 else None
        run = _run_of([a for a in points if a is not tap], self.machine.least.scatter_rows)
        extents = [number(e) or 0 for e in made.shape[first:-1]]
        size = math.prod(extents)
        (place,) = shared_along(
            self.rw, [fn.select_node(made.guard, flat(made.index[first:-1], extents), Const(size, INT32))], lane
        )
        if run is None or size * (number(made.shape[-1]) or 1) >= 1 << 31 or lane in set(free_axes(place)):
            return made
        self.rows = Rows(self.rw, self.op.name, lane, points, run, self.width, short=tap)
        (value,), (place,) = self.rows.of([made.value], [place])
        self.run = run
        return replace(
            made, index=(*made.index[:first], place, lane), value=value, guard=TRUE,
            shape=(*made.shape[:first], Const(size + 1, INT32), made.shape[-1]), _outputs={},
        )  # fmt: skip

    def _total(self, table: Tensor) -> Tensor:
        """The tables of all blocks combined, in order."""
        name = self.op.name if self.moved is None and self.op.init is None else f"{self.op.name}_total"
        return self.rw.add(combined(table, self.rw.name(name), self.op.kind)).outputs[0]

    def _placed(self, held: Tensor) -> Tensor:
        """The elements at their places, combined with what was there."""
        op = self.op
        axes = tuple(Axis(f"d{d}", e) for d, e in enumerate(op.shape))
        place: list[Expr] = list(axes)
        if self.moved is not None:
            lane = place.pop(self.moved)
            extents = [number(e) or 0 for d, e in enumerate(op.shape) if d != self.moved]
            place = [*([numbered(place, extents)] if self.rows is not None else place), lane]
        value: Expr = Read(held, tuple(place))
        if op.init is not None:
            value = COMBINE[SCATTER_KINDS[op.kind]](fn.convert(Read(op.init, axes), value.dtype), value)
        return self.rw.compute(op.name, axes, value)

    # ---------------------------------------------------------------------------------------------------- the loops

    def _schedule(self, made: Scatter) -> None:
        checked_as(made, self.chain)
        say: list[Directive] = [] if self.own else [ComputeRoot(stage=made.name)]
        say += self._filled(made)
        say += self._points(made)
        self.rw.directives += say
        self.rw.planned.add(made.name)

    def _filled(self, made: Scatter) -> list[Directive]:
        """Vectors that write the identity, or what is added to."""
        levels = nest_of(made.name, made, "init").levels
        say: list[Directive] = []
        if len(levels) == (1 if self.blocks > 1 else 0):
            return say  # one element, of each block
        last = levels[-1]
        lanes = self._lanes(number(last.extent) or 0)
        if self.moved is not None:
            say.append(BoundExtent(stage=made.name, axis=last.name, extent=number(last.extent) or 1))
        if lanes > 1:
            say += [
                Split(stage=made.name, definition="init", loop=last.name, outer="v_o", inner="v_v", factor=lanes),
                Vectorize(stage=made.name, definition="init", loop="v_v"),
            ]
        if self.blocks > 1:
            say.append(Parallel(stage=made.name, definition="init", loop=levels[0].name))
        elif self.threads and not self.own and len(levels) > 1:
            cut, (task, *_) = _tasks(made, "init", levels[0].name, number(levels[0].extent) or 0)
            say += [*cut, Parallel(stage=made.name, definition="init", loop=task)]
        return say

    @property
    def threads(self) -> bool:
        """Whether points go to several."""
        return self.machine.cores > 1 and self.points >= self.machine.least.scatter_threads

    def _lanes(self, extent: int) -> int:
        lanes = self.width
        while lanes > extent > 0:
            lanes //= 2
        return max(1, lanes)

    def _points(self, made: Scatter) -> list[Directive]:
        """Blocks outside, then the points in order, what several scatters do at one of them, the vector inside."""
        nest = nest_of(made.name, made, "body")
        names = {a: v.name for v in nest.levels for a in v.origin}
        free = free_dimensions(made)
        block = names[free[0]] if self.blocks > 1 else None
        lane = free.get(len(made.shape) - 1)
        if lane is not None and names[lane] == block:
            lane = None  # a table of one element
        outer = [names[a] for d, a in free.items() if a is not lane and names[a] != block]
        apart = {names[a] for a in free.values()}
        ordered = [v.name for v in nest.levels if v.name not in apart]
        say: list[Directive] = []
        inner: list[str] = []
        if lane is not None and (lanes := self._lanes(number(lane.extent) or 0)) > 1:
            name = names[lane]
            say.append(Split(stage=made.name, loop=name, outer=f"{name}_o", inner=f"{name}_v", factor=lanes))
            say.append(Vectorize(stage=made.name, loop=f"{name}_v"))
            inner = [f"{name}_o", f"{name}_v"]
        elif lane is not None:
            outer.append(names[lane])
        if self.run is not None:
            name = names[self.run]
            piece = PIECE if self.rows is None else POINTS
            say.append(Split(stage=made.name, loop=name, outer=f"{name}_o", inner=f"{name}_i", factor=piece))
            say += self._terms_at(made, f"{name}_o")
            place = ordered.index(name)
            ordered[place : place + 1] = [f"{name}_o", f"{name}_i"]
        shared = self.threads and not self.own
        if block is None and outer and shared:  # points of different elements of a free axis never meet
            sizes = {v.name: v.known or 0 for v in nest.levels}
            longest = max(outer, key=lambda n: sizes[n])
            outer.remove(longest)
            cut, (block, *within) = _tasks(made, "body", longest, sizes[longest])
            say += cut
            outer = [*within, *outer]
        if block is None and not outer and made.unique and shared and ordered:  # no point meets another one
            block = ordered.pop(0)
        short = nest.levels[-1]  # taps, or the sides of a linear interpolation
        is_short = short.name in ordered and 2 <= (short.constant or 0) <= MOST_TAPS
        if is_short and len(inner) > 1:  # what taps have in common is computed once for each vector
            ordered.remove(short.name)
            inner.insert(1, short.name)
        loops = [*([block] if block else []), *outer, *ordered, *inner]
        if len(loops) > 1:
            say.append(Reorder(stage=made.name, loops=tuple(loops)))
        if is_short and (len(self.chain) > 1 or _is_little(made, short)):
            say.append(Unroll(stage=made.name, loop=short.name))
        if block is not None:
            say.append(Parallel(stage=made.name, loop=block))
        return say

    def _terms_at(self, made: Scatter, loop: str) -> list[Directive]:
        if self.rows is not None:
            return self.rows.directives(made, loop)
        assert self.terms is not None
        name, last = self.terms.name, nest_of(self.terms.name, self.terms, "body").levels[-1].name
        self.rw.planned.add(name)
        return [
            ComputeAt(stage=name, consumer=made.name, loop=loop),
            Split(stage=name, loop=last, outer=f"{last}_o", inner=f"{last}_v", factor=self.width),
            Vectorize(stage=name, loop=f"{last}_v"),
        ]


def _held_inside(index: Expr, extent: Expr) -> Expr:
    low, high = range_of(index)
    inside = isinstance(extent, Const) and low >= 0 and high < extent.value
    return index if inside else fn.minimum(fn.maximum(index, 0), extent - 1)


def _is_plain(op: Scatter) -> bool:
    """Whether indices and values are read as they are."""
    read = [n for n in topological((*op.index, op.value, op.guard)) if isinstance(n, Apply)]
    return not read and all(isinstance(i, Axis) for r in op.reads for i in r.indices)


def _tasks(made: Operation, definition: Definition, loop: str, extent: int) -> tuple[list[Directive], list[str]]:
    """A loop, or the loop over its pieces and that within one."""
    if extent <= TASKS:
        return [], [loop]
    outer, inner, step = f"{loop}_t", f"{loop}_s", -(-extent // TASKS)
    return [Split(stage=made.name, definition=definition, loop=loop, outer=outer, inner=inner, factor=step)], [
        outer,
        inner,
    ]


def _is_little(made: Scatter, loop: Level) -> bool:
    """Whether what hangs on a loop, written out for each of its iterations, is not much."""
    hanging: set[object] = set(loop.origin)
    for node in topological((*made.index, made.value, made.guard)):
        if not hanging.isdisjoint(node.children):
            hanging.add(node)
    return len(hanging) * (loop.constant or 0) <= MOST_WRITTEN


def _run_of(points: Sequence[Axis], least: int) -> Axis | None:
    """The innermost long axis; what is inside of it is done for a whole piece of it at a time, and must be little."""
    inside = 1
    for axis in reversed(points):
        extent = number(axis.extent) or 0
        if extent >= least:
            return axis
        inside *= extent
        if inside > MOST_TAPS:
            return None
    return None
