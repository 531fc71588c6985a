"""A contraction as packed panels, a tile of sums in registers, and a copy of that tile to its place.

columns[jo, k, lane]    what a vector of columns needs, step after step, side by side
rows[..]                a table without guards, where the rows are not read well from where they are
tile[i, j]              the sums, over whole tiles: the panels reach past the end, so that no inner loop has a rest
out[i, j] = tile[i, j]  which leaves out what lies past the end
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedules.default.patterns.turning import SIDE, Turned, can_turn, turned
from schedules.default.products.contraction import Contraction, Tile, contraction_of, guarded, tile_for
from schedules.default.products.copies import PackedTable, copy_of
from schedules.default.rewriting import Rewriting, fused, loop_names
from schedules.default.sizes import blocks_of, rounded_up, typical_sizes
from schedules.directives import (
    BoundExtent,
    ComputeAt,
    ComputeRoot,
    Directive,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from schedules.machine import Machine
from tedsl.analysis.affine import affine_of
from tedsl.analysis.checks import checked_in_part
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.functions import minimum
from tedsl.lang.tensor import Compute, Operation, Tensor
from tedsl.lang.traverse import free_axes, replaced, substitute

__all__ = ["plan_contraction"]

MOST_FOR_EACH = 1 << 20  # bytes of partial sums for each iteration of a loop whose length is not known


def plan_contraction(rw: Rewriting, original: Operation, op: Compute, machine: Machine, *, plain: bool) -> bool:
    """Rewrite `op` and schedule what comes of it; False where it is no contraction."""
    found = contraction_of(op, machine.least)
    if found is None or (plain and found.guarded):
        return False
    blocks = _sum_blocks(found, machine)
    if blocks is None:
        if found.guarded:
            rw.finite.append(_Panels(rw, found, op, op.name, machine).unguarded)
        else:
            _Panels(rw, found, op, op.name, machine)
        rw.new[original.outputs[0]] = rw.stages[-1].outputs[0]
        return True
    _plan_blocked(rw, original, found, blocks, machine)
    return True


def _sum_blocks(found: Contraction, machine: Machine) -> tuple[tuple[Axis, int], ...] | None:
    """How the sum is cut so that a block's operands stay in the cache: (axis, iterations of a block) from outside in.

    None where one pass is as good: few terms, or a large result.
    """
    size = found.op.bodies[0].dtype.itemsize
    columns, rows = found.points(found.column_axes), found.points(found.row_axes)
    terms, tiles = found.terms, rows * columns / 400
    large_panel = min(columns, 64) * terms * size > machine.l2 // 4
    if found.window or found.batch or terms < machine.least.product_terms:
        return None
    if not (large_panel or tiles < 8) or rows * columns > terms * 64:
        return None
    budget = machine.l2 // 2
    cuts: list[tuple[Axis, int]] = []
    left = terms
    blocks = 1
    for k, axis in enumerate(found.sums):
        full = found.sizes[axis]
        per = left // full * (columns + _rows_per_term(found)) * size
        if per * full <= budget and blocks >= 4:
            break
        step = _step(full, int(budget // per), -(-4 // blocks))
        if number(axis.extent) is None:
            if blocks >= 4 or rows * columns * size > MOST_FOR_EACH:
                break
            step = 1
        if step == 1 and k + 1 == len(found.sums):
            break  # of a block, something must be left to sum
        cuts.append((axis, step))
        blocks *= -(-full // step)
        left = left // full * step
        if left * (columns + _rows_per_term(found)) * size <= budget and blocks >= 4:
            break
    return tuple(cuts) if blocks >= 2 and blocks * rows * columns * size <= 64 << 20 else None


def _step(full: int, most: int, blocks: int) -> int:
    """How long a block is, at most so long and at least so many of them; a divisor where one is near."""
    wanted = max(1, min(most, full // blocks))
    exact = max(n for n in range(1, wanted + 1) if full % n == 0)
    return exact if 2 * exact >= wanted else -(-full // -(-full // wanted))


def _rows_per_term(found: Contraction) -> float:
    """Elements of the rows for each step of the sum."""
    table = copy_of(found.rows, found.sizes, {}, None, found.sums)
    return found.points(found.row_axes) if table is None else table.size / found.terms


def _plan_blocked(
    rw: Rewriting, original: Operation, found: Contraction, cuts: Sequence[tuple[Axis, int]], machine: Machine
) -> None:
    """partial[block, ..] over the terms of a block, then the sum over the blocks in order."""
    op, reduce = found.op, found.op.reduction
    assert reduce is not None
    outer, inner, mapping, conditions = _cut(cuts)
    rest = [a for a in found.sums if a not in mapping]
    rows, columns = (guarded(substitute(f, mapping), conditions) for f in (found.rows, found.columns))
    order = [*(a for a in op.axes if a is not found.lane), found.lane]
    sums = tuple(a for a in (*inner, *rest))
    body = Reduce(reduce.reducer, (rows * columns,), sums, TRUE, 0)
    partial = Compute(name=f"{op.name}_partial", axes=(*outer, *order), bodies=(body,), where=op.where)
    again = replace(
        found, op=partial, rows=rows, columns=columns, batch=tuple(outer), sums=sums, sizes=typical_sizes(partial)
    )
    panels = _Panels(rw, again, op, partial.name, machine)
    if found.guarded:
        rw.finite.append(panels.unguarded)
    held = rw.stages[-1].outputs[0]
    fresh = {a: Axis(loop_names(op)[a], a.extent) for a in order}
    blocks = tuple(Axis(f"{a.name}_block", a.extent, is_reduce=True) for a in outer)
    total = rw.compute(
        f"{op.name}_total",
        [fresh[a] for a in order],
        Reduce(reduce.reducer, (Read(held, (*blocks, *(fresh[a] for a in order))),), blocks, TRUE, 0),
    )
    copied = rw.compute(op.name, op.axes, Read(total, tuple(order)))
    rw.new[original.outputs[0]] = copied
    _schedule_total(rw, total.op, copied.op, machine)


def _cut(cuts: Sequence[tuple[Axis, int]]) -> tuple[list[Axis], list[Axis], dict[Expr, Expr], list[Expr]]:
    """Loops over blocks and within them, what those of the sum are, and what leaves out the rest of a last block."""
    outer: list[Axis] = []
    inner: list[Axis] = []
    mapping: dict[Expr, Expr] = {}
    conditions: list[Expr] = []
    for axis, step in cuts:
        count = blocks_of(_extent(axis), step)
        block = Axis(f"{axis.name}_b", count)
        outer.append(block)
        if step == 1:
            mapping[axis] = block
            continue
        within = Axis(axis.name, Const(step, INT32), is_reduce=True)
        inner.append(within)
        at: Expr = within if number(count) == 1 else block * step + within
        extent = number(axis.extent)
        if extent is not None and extent % step:
            conditions.append(at < extent)
            at = minimum(at, extent - 1)
        mapping[axis] = at
    return outer, inner, mapping, conditions


def _schedule_total(rw: Rewriting, total: Operation, copied: Operation, machine: Machine) -> None:
    assert isinstance(total, Compute)
    assert isinstance(copied, Compute)
    rw.directives.append(ComputeRoot(stage=total.name))
    names = loop_names(total)
    lane = names[total.axes[-1]]
    lanes = machine.vector_bytes // total.bodies[0].dtype.itemsize
    inner = [names[a] for a in total.axes]
    for definition in ("init", "body"):
        rw.directives += [
            Split(
                stage=total.name, definition=definition, loop=lane, outer=f"{lane}_o", inner=f"{lane}_v", factor=lanes
            ),
            Vectorize(stage=total.name, definition=definition, loop=f"{lane}_v"),
        ]
    assert total.reduction is not None
    sums = [names[a] for a in total.reduction.axes]
    rw.directives.append(Reorder(stage=total.name, loops=(*inner[:-1], f"{lane}_o", *sums, f"{lane}_v")))
    rw.planned.add(total.name)


@dataclass
class _Panels:
    """The stages of one contraction and their directives."""

    rw: Rewriting
    found: Contraction
    asked: Compute  # whose accesses are those of the tables, which may hold elements that no term needs
    name: str
    machine: Machine

    def __post_init__(self) -> None:
        found, rw = self.found, self.rw
        before = len(rw.stages)
        self.tile: Tile = tile_for(found, self.machine)
        self.names = loop_names(found.op)
        self.padded = {found.lane: self.tile.lanes, **dict(self.tile.rows)}
        panel = None if found.window else (found.lane, self.tile.lanes)
        columns = copy_of(found.columns, found.sizes, self.padded, panel, found.sums)
        assert columns is not None
        self.columns = columns
        self.turned = self._turned()
        body = columns.body if self.turned is None else self._out_of_blocks(self.turned)
        self.columns_table = rw.compute(f"{self.name}_columns", columns.axes, body)
        self.row_copy = self._row_copy()
        self.rows_table: Tensor | None = None
        if self.row_copy is None:
            overrun: dict[Expr, Expr] = {
                a: minimum(a, _extent(a) - 1) for a, n in self.tile.rows if rounded_up(_extent(a), n) is not a.extent
            }
            rows = replaced(found.rows, overrun) if overrun else found.rows
        else:
            self.rows_table = rw.compute(f"{self.name}_rows", self.row_copy.axes, self.row_copy.body)
            rows = Read(self.rows_table, self.row_copy.index)
        self.sums = self._sums(rows, Read(self.columns_table, columns.index))
        self.out = rw.compute(
            self.name, found.op.axes, Read(self.sums, (*(a for a in found.op.axes if a is not found.lane), found.lane))
        )
        for stage in rw.stages[before:]:
            checked_in_part(stage, self.asked)
        self._schedule()

    def _turned(self) -> Turned | None:
        """The stages that turn the source of the columns, where it lies across their lanes."""
        copy, itemsize = self.columns, self.found.op.bodies[0].dtype.itemsize
        lane, along = copy.lane, copy.contiguous
        if lane is None or along is None or along is lane or not can_turn(self.machine, itemsize):
            return None
        width, steps = number(lane.extent), number(along.extent)
        if width is None or steps is None or width % SIDE or steps % SIDE or copy.size < self.machine.least.turned:
            return None
        if not self._in_squares(next(i for a, i in zip(copy.axes, copy.index, strict=True) if a is along)):
            return None
        others = [a for a in copy.axes if a is not lane and a is not along]

        def value(outer: Sequence[Axis], row: Expr, place: Expr) -> Expr:
            *before, lanes, blocks = outer
            mapping: dict[Expr, Expr] = dict(zip(others, before, strict=True))
            return substitute(copy.body, {**mapping, lane: lanes * SIDE + row, along: blocks * SIDE + place})

        counts = (Axis("lanes", Const(width // SIDE, INT32)), Axis("blocks", Const(steps // SIDE, INT32)))
        return turned(self.rw, f"{self.name}_columns", (*others, *counts), value)

    def _in_squares(self, index: Expr) -> bool:
        """Whether what a block of the sum needs of a dimension begins and ends with a square."""
        form = affine_of(index)
        if form is None:
            return False
        steps = {a: form.terms.get((a,), 0) for a in form.axes}
        around = set(self.found.batch)
        inside = 1 + sum(abs(n) * (self.found.sizes[a] - 1) for a, n in steps.items() if a not in around)
        return inside % SIDE == 0 and all(n % SIDE == 0 for a, n in steps.items() if a in around)

    def _out_of_blocks(self, blocks: Turned) -> Expr:
        """An element of the columns, out of the blocks that were turned."""
        copy = self.columns
        lane, along = copy.lane, copy.contiguous
        assert lane is not None
        assert along is not None
        others = [a for a in copy.axes if a is not lane and a is not along]
        return blocks.at((*others, lane // SIDE, along // SIDE), lane % SIDE, along % SIDE)

    @property
    def unguarded(self) -> Tensor:
        """The table of the factor that no condition went into."""
        if not self.found.window:
            return self.columns_table
        assert self.rows_table is not None
        return self.rows_table

    def _row_copy(self) -> PackedTable | None:
        """The table of the rows; None where they are read in place, along the innermost loop of the sum."""
        found, rows = self.found, self.found.rows
        if found.window:
            return copy_of(rows, found.sizes, self.padded, None, found.sums)
        if isinstance(rows, Read) and rows.indices and rows.indices[-1] is found.sums[-1]:
            return None
        if len(self.tile.rows) == 1:
            axis, height = self.tile.rows[0]
            panels = found.sizes[found.lane] / self.tile.lanes
            if isinstance(rows, Read) and rows.indices[-1] is axis and panels <= 4 and found.terms <= 512:
                return None  # each element is used too few times to be worth a copy
            if isinstance(rows, Read) and rows.indices[-1] is axis:
                panel = copy_of(rows, found.sizes, self.padded, (axis, height), found.sums)
                if panel is not None:
                    return panel
        return copy_of(rows, found.sizes, self.padded, None, found.sums)

    def _sums(self, rows: Expr, columns: Expr) -> Tensor:
        found = self.found
        reduce = found.op.reduction
        assert reduce is not None
        fresh: dict[Expr, Axis] = {
            a: Axis(self.names[a], rounded_up(_extent(a), self.padded.get(a, 1))) for a in found.op.axes
        }
        loops: dict[Expr, Axis] = {a: Axis(self.names[a], a.extent, is_reduce=True) for a in found.sums}
        value = substitute(rows * columns, {**fresh, **loops})
        body = Reduce(reduce.reducer, (value,), tuple(loops.values()), TRUE, 0)
        # Lanes are neighbours in memory, wherever they are in the result.
        order = [*(fresh[a] for a in found.op.axes if a is not found.lane), fresh[found.lane]]
        return self.rw.compute(f"{self.name}_sums", order, body)

    # ------------------------------------------------------------------------------------------------- directives

    def _say(self, *directives: Directive) -> None:
        self.rw.directives += directives

    def _schedule(self) -> None:
        found = self.found
        loops = _Loops(self)
        loops.plan()
        self._say(*loops.directives)
        self.rows_cut = loops.rows_cut
        self._schedule_sums(loops.tile_loop)
        # What is checked is looked at before anything else is computed, as a whole.
        self._schedule_columns(None if found.guarded and not found.window else loops.columns_at)
        if self.rows_table is not None:
            assert self.row_copy is not None
            shared = found.batch and not set(found.batch).intersection(free_axes(found.rows))
            again = self.row_copy.lane is not None and loops.repeats_rows
            self._schedule_rows(None if shared or again or found.window else loops.rows_at)
        self.rw.planned.update(stage.name for stage in self.rw.stages[-4 if self.rows_table is not None else -3 :])

    def _schedule_sums(self, at: str) -> None:
        found, stage = self.found, self.sums.op.name
        lane, vector = self.names[found.lane], self.tile.vector
        self._say(ComputeAt(stage=stage, consumer=self.out.op.name, loop=at))
        self._say(BoundExtent(stage=stage, axis=lane, extent=self.tile.lanes))
        rows = [self.names[a] for a, _ in self.tile.rows]
        for axis, height in self.tile.rows:
            self._say(BoundExtent(stage=stage, axis=self.names[axis], extent=height))
        inner = (*reversed(rows), f"{lane}_w", f"{lane}_v")
        op = self.sums.op
        assert isinstance(op, Compute)
        assert op.reduction is not None
        names = loop_names(op)
        outer = [names[a] for a in op.axes if names[a] not in (lane, *rows)]
        sums = [names[a] for a in op.reduction.axes]
        for definition in ("init", "body"):
            self._say(
                Split(
                    stage=stage, definition=definition, loop=lane, outer=f"{lane}_w", inner=f"{lane}_v", factor=vector,
                    exact=True,
                ),
                Vectorize(stage=stage, definition=definition, loop=f"{lane}_v"),
                Unroll(stage=stage, definition=definition, loop=f"{lane}_w"),
                *(Unroll(stage=stage, definition=definition, loop=r) for r in rows),
                Reorder(
                    stage=stage, definition=definition, loops=(*outer, *(sums if definition == "body" else ()), *inner)
                ),
            )  # fmt: skip
        last = found.sums[-1]
        unroll = self.machine.choose("unroll", 4, found.op.name)
        name, many = sums[-1], number(last.extent) or 0
        streamed = self.row_copy is None or self.row_copy.lane is not None
        if unroll > 1 and many % unroll == 0 and many >= 32 and streamed:
            self._say(
                Split(stage=stage, loop=name, outer=f"{name}_o", inner=f"{name}_u", factor=unroll, exact=True),
                Unroll(stage=stage, loop=f"{name}_u"),
            )

    def _schedule_columns(self, at: str | None) -> None:
        self._schedule_copy(self.columns_table, self.columns, at)

    def _schedule_rows(self, at: str | None) -> None:
        assert self.rows_table is not None
        assert self.row_copy is not None
        self._schedule_copy(self.rows_table, self.row_copy, at)

    def _schedule_copy(self, table: Tensor, copy: PackedTable, at: str | None) -> None:
        stage, vector = table.op.name, self.tile.vector
        names = [a.name for a in copy.axes]
        self._say(
            ComputeRoot(stage=stage) if at is None else ComputeAt(stage=stage, consumer=self.out.op.name, loop=at)
        )
        if copy is (self.columns if self.found.window else self.row_copy) and not (at and self.rows_cut):
            self._say(*(BoundExtent(stage=stage, axis=a.name, extent=n) for a, n in self._overrun(copy)))
        last, width = copy.axes[-1], copy.sizes[-1]
        if copy is self.columns and self.turned is not None:
            names = self._schedule_turned(self.turned)
        elif copy.lane is not None and copy.contiguous is not None and copy.contiguous is not copy.lane:
            # Gathered: vectors along the source, stored with a stride, take half as long again.
            self._say(
                Split(stage=stage, loop=last.name, outer="v_o", inner="v_v", factor=vector, exact=width % vector == 0)
            )
            self._say(Vectorize(stage=stage, loop="v_v"))
            names[-1] = "v_o"
        elif width >= vector:
            exact = width % vector == 0 and copy.lane is not None
            one_panel = copy.lane is not None and number(copy.axes[0].extent) == 1 and width <= 8 * vector
            if one_panel:
                self._say(BoundExtent(stage=stage, axis=last.name, extent=width))
            self._say(Split(stage=stage, loop=last.name, outer="v_o", inner="v_v", factor=vector, exact=exact))
            self._say(Vectorize(stage=stage, loop="v_v"))
            names[-1] = "v_o"
            if one_panel:
                self._say(Unroll(stage=stage, loop="v_o"))  # one panel: only its last vector reaches past the end
            if copy.lane is not None and len(names) >= 3 and copy.sizes[-2] >= 16:
                # Eight rows at a time, panel after panel: whole rows are read in order.
                step = copy.axes[-2].name
                self._say(Split(stage=stage, loop=step, outer="s_o", inner="s_i", factor=8))
                self._say(Reorder(stage=stage, loops=("s_o", *names[:-2], "s_i", "v_o", "v_v")))
                names = ["s_o", *names[:-2]]
        elif copy.lane is not None:
            self._say(BoundExtent(stage=stage, axis=last.name, extent=width))
            self._say(Vectorize(stage=stage, loop=last.name))
            if len(names) >= 3 and copy.sizes[-2] >= 64 and copy.sizes[0] > 1:
                step = copy.axes[-2].name
                self._say(Split(stage=stage, loop=step, outer="s_o", inner="s_i", factor=8))
                self._say(Reorder(stage=stage, loops=("s_o", *names[:-2], "s_i", last.name)))
                names = ["s_o", *names[:-2]]
        if at is None and copy.size >= self.machine.least.table_threads and copy.sizes[0] >= 2:
            self._say(Parallel(stage=stage, loop=names[0]))

    def _overrun(self, copy: PackedTable) -> list[tuple[Axis, int]]:
        """The axes of a table along which tiles reach past the end, and their extents.

        Halide computes no more of it than what counts. The sums past the end count for nothing, but denormal numbers
        that happen to be in the memory there made all of them eight times slower.
        """
        steps = [(self.found.lane, self.tile.lanes)] if self.found.window else self.tile.rows
        reaching = {a for a, n in steps if number(a.extent) is not None and self.found.sizes[a] % n}
        return [
            (axis, size)
            for axis, size, index in zip(copy.axes, copy.sizes, copy.index, strict=True)
            if number(axis.extent) == size and not reaching.isdisjoint(free_axes(index))
        ]

    def _schedule_turned(self, blocks: Turned) -> list[str]:
        """Block after block; the names of the loops around them."""
        stage, copy = self.columns_table.op.name, self.columns
        assert copy.contiguous is not None
        step = copy.contiguous.name
        outer = [*(a.name for a in copy.axes[:-1] if a is not copy.contiguous), "s_o"]
        self._say(
            Split(stage=stage, loop=copy.axes[-1].name, outer="v_o", inner="v_v", factor=SIDE, exact=True),
            Split(stage=stage, loop=step, outer="s_o", inner="s_i", factor=SIDE, exact=True),
            Vectorize(stage=stage, loop="v_v"),
            Reorder(stage=stage, loops=(*outer, "v_o", "s_i", "v_v")),
        )
        blocks.schedule(self.rw, stage, "v_o")
        return outer


def _extent(axis: Axis) -> Expr:
    assert axis.extent is not None
    return axis.extent


class _Loops:
    """The loops of the copy of finished tiles, which carries the loops over tiles, blocks and tasks."""

    def __init__(self, panels: _Panels) -> None:
        self.p = panels
        self.stage = panels.out.op.name
        self.directives: list[Directive] = []
        self.tile_loop = ""
        self.task = ""
        self.columns_at: str | None = None
        self.rows_at: str | None = None
        self.rows_cut = False  # into blocks, for each of which a part of their table is made
        self.repeats_rows = False  # what is computed at `rows_at` is computed for each block of columns anew

    def plan(self) -> None:
        p, found, say = self.p, self.p.found, self.directives
        names, machine = p.names, p.machine
        lane = names[found.lane]
        say.append(ComputeRoot(stage=self.stage))
        say.append(Split(stage=self.stage, loop=lane, outer=f"{lane}_o", inner=f"{lane}_i", factor=p.tile.lanes))
        tile_axes = {a for a, _ in p.tile.rows}
        inner_rows: list[str] = []
        row_tiles: list[str] = []
        for axis, height in p.tile.rows:
            name = names[axis]
            if height != number(axis.extent):
                say.append(Split(stage=self.stage, loop=name, outer=f"{name}_o", inner=f"{name}_i", factor=height))
                row_tiles.insert(0, f"{name}_o")
                inner_rows.insert(0, f"{name}_i")
            else:
                inner_rows.insert(0, name)
        other_rows = [a for a in found.row_axes if a not in tile_axes]
        other_columns = [names[a] for a in found.column_axes if a is not found.lane]
        batch = [names[a] for a in found.batch]
        work = found.points(found.op.axes) * found.terms
        threads = machine.cores > 1 and work >= machine.least.product_threads
        outer = list(batch)
        tasks = found.points(found.batch)
        wanted = 4 * machine.cores if threads else 1
        middle: list[str] = []
        columns = [*other_columns, f"{lane}_o"]
        split_columns = ""
        if found.window:
            middle = [*self._window_blocks(outer, wanted), *(names[a] for a in other_rows)]
        elif tasks >= wanted // 2 and found.batch:
            middle = [names[a] for a in other_rows]
        elif other_rows:
            *early, block = other_rows
            outer += [names[a] for a in early]
            tasks *= found.points(early)
            pieces = self._pieces(found.sizes[block], tasks, wanted)
            if pieces > 1:
                step = -(-found.sizes[block] // pieces)
                name = names[block]
                say.append(Split(stage=self.stage, loop=name, outer=f"{name}_c", inner=f"{name}_b", factor=step))
                outer.append(f"{name}_c")
                middle = [f"{name}_b"]
            else:
                middle = [names[block]]
        else:
            split_columns = self._blocks(row_tiles, columns, outer, middle, wanted)
        order = [*outer, *columns, *middle, *row_tiles]
        self._finish(order, inner_rows, lane, outer, threads, batch, split_columns)
        inside = order[len(outer) :]
        self.tile_loop = inside[-1] if inside else self.task

    def _window_blocks(self, outer: list[str], wanted: int) -> list[str]:
        """Rows of pixels by blocks whose table stays in the second cache; what blocks share is copied for each."""
        p, found = self.p, self.p.found
        if not found.batch:
            return []
        last, name = found.batch[-1], p.names[found.batch[-1]]
        row = p.columns.size * found.op.bodies[0].dtype.itemsize // found.points(found.batch)
        step = max(1, min(found.sizes[last], p.machine.l2 // 4 // max(1, row)))
        while step > 1 and found.points(found.batch[:-1]) * -(-found.sizes[last] // step) < wanted:
            step = -(-step // 2)
        step = min(p.machine.choose("window_rows", step, found.op.name), found.sizes[last])
        self.directives.append(Split(stage=self.stage, loop=name, outer=f"{name}_c", inner=f"{name}_b", factor=step))
        outer[-1] = f"{name}_c"
        return [f"{name}_b"]

    def _pieces(self, rows: int, tasks: int, wanted: int) -> int:
        """Into how many blocks of rows: enough tasks, and a block's table in half of the second cache."""
        p = self.p
        pieces = 1
        size = p.found.op.bodies[0].dtype.itemsize
        table = (p.row_copy.size if p.row_copy is not None else 0) * size / max(1, tasks)
        while pieces < rows and (tasks * pieces < wanted or table / pieces > p.machine.l2 // 2):
            pieces *= 2
        return min(pieces, rows)

    def _blocks(
        self, row_tiles: list[str], columns: list[str], outer: list[str], middle: list[str], wanted: int
    ) -> str:
        """A plain matrix product: blocks of rows in the cache, tasks along the longer side."""
        p, found = self.p, self.p.found
        axis, height = p.tile.rows[0]
        long, wide = found.sizes[axis], found.sizes[found.lane]
        size = found.op.bodies[0].dtype.itemsize
        tiles, panels = -(-long // height), -(-wide // p.tile.lanes)
        most = p.machine.choose("rows", 128, found.op.name)
        rows = max(1, min(most, p.machine.l2 // 2 // (found.terms * size)) // height)
        by_columns = wanted > 1 and panels >= 4 and wide * 2 > long
        if wanted > 1 and not by_columns:
            rows = min(rows, max(1, -(-tiles // 4)))
        if not row_tiles:
            return ""
        blocked = row_tiles[0]
        if rows < tiles:
            self.directives.append(
                Split(stage=self.stage, loop=blocked, outer=f"{blocked}c", inner=f"{blocked}b", factor=rows)
            )
            row_tiles[0] = f"{blocked}b"
            self.rows_cut = True
            outer.append(f"{blocked}c")
        if not by_columns:
            return ""
        name = columns[-1]
        blocks = p.machine.choose("column_blocks", 4 if found.terms * long * wide > 5 << 24 else 2, found.op.name)
        step = -(-panels // blocks)
        self.directives.append(Split(stage=self.stage, loop=name, outer=f"{name}c", inner=f"{name}b", factor=step))
        columns[-1] = f"{name}b"
        outer.insert(0, f"{name}c")
        return f"{name}c"

    def _finish(
        self, order: list[str], inner_rows: list[str], lane: str, outer: list[str], threads: bool, batch: list[str],
        split_columns: str,
    ) -> None:  # fmt: skip
        p, say = self.p, self.directives
        tile = [*inner_rows, f"{lane}_i"]
        last = p.found.op.axes[-1]
        if last is p.found.lane:
            say.append(
                Split(
                    stage=self.stage,
                    loop=f"{lane}_i",
                    outer=f"{lane}_w",
                    inner=f"{lane}_v",
                    factor=p.tile.vector,
                    exact=True,
                )
            )
            tile = [*inner_rows, f"{lane}_w", f"{lane}_v"]
            vector = f"{lane}_v"
            # As one piece: the sums go from their registers to where they belong.
            whole = {p.names[a]: height for a, height in p.tile.rows if height == number(a.extent)}
            say += [BoundExtent(stage=self.stage, axis=n, extent=whole[n]) for n in inner_rows if n in whole]
            say += [Unroll(stage=self.stage, loop=n) for n in (*inner_rows, f"{lane}_w")]
        else:
            vector = next((n for n in inner_rows if n in (p.names[last], f"{p.names[last]}_i")), "")
            if vector:
                tile = [f"{lane}_i", *(n for n in inner_rows if n != vector), vector]
        say.append(Reorder(stage=self.stage, loops=(*order, *tile)))
        count = _inner_extent(p, vector) if vector else 1
        if count > 1 and not (count > p.tile.vector and count % p.tile.vector == 1):  # one cannot be stored masked
            if vector == p.names[last]:
                say.append(BoundExtent(stage=self.stage, axis=vector, extent=p.found.sizes[last]))
            say.append(Vectorize(stage=self.stage, loop=vector))
        if not outer:
            self.columns_at = None
            return
        tasks = outer[:1] if split_columns else list(outer)
        fusing, (task,) = fused(self.stage, tasks, "task")
        say += fusing
        if threads:
            say.append(Parallel(stage=self.stage, loop=task))
        self.task = task
        inside = bool(split_columns) or (bool(batch) and len(batch) == len(outer))
        self.columns_at = task if inside else None
        self.rows_at = outer[-1] if split_columns and len(outer) > 1 else task
        self.repeats_rows = bool(split_columns)


def _inner_extent(p: _Panels, loop: str) -> int:
    if loop.endswith("_v"):
        return p.tile.vector
    return next((n for a, n in p.tile.rows if loop in (p.names[a], f"{p.names[a]}_i")), 1)
