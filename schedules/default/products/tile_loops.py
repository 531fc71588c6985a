"""The loops of the copy of finished tiles, which carries the loops over tiles, blocks and tasks.

From outside in: the batch and the tasks (`outer`), columns, blocks of rows (`middle`), tiles of rows, and the elements
of a tile. What is outside becomes one parallel loop.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import field

from schedules.default.costs import element_cost, is_pointwise
from schedules.default.products.contraction import register_lanes
from schedules.default.products.panel_stages import Panels
from schedules.default.rewriting import fused
from schedules.default.shares import share_of
from schedules.directives import (
    BoundExtent,
    ComputeRoot,
    Directive,
    Fuse,
    Parallel,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from schedules.loops import nest_of, transformed
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Axis, Read
from tedsl.lang.extents import number
from tedsl.lang.traverse import reads_of

__all__ = ["TileLoops", "tile_loops"]

MOST_BESIDE = 4  # columns of a result that are stored by vectors over rows
MOST_ROWS = 128  # of a block
TASKS = 16  # for each core, at least, where several are put together
SHORT = 1 << 18  # multiplications of a task to which others are added
LARGE = 5 << 24  # multiplications, from which on columns are cut for twice as many tasks


@dataclass
class TileLoops:
    """Directives, and the loops at which the other stages are computed."""

    directives: list[Directive] = field(default_factory=list)
    tile_loop: str = ""
    columns_at: str | None = None
    rows_at: str | None = None
    rows_cut: bool = False  # into blocks, for each of which a part of their table is made
    repeats_rows: bool = False  # what is computed at `rows_at` is computed for each block of columns anew


def tile_loops(p: Panels) -> TileLoops:
    """The loops for the result of a contraction."""
    return _Order(p).made()


class _Order:
    """The names of the loops by what they go over, while they are cut; a list goes from outside in."""

    def __init__(self, p: Panels) -> None:
        self.p, self.found = p, p.found
        self.loops = TileLoops()
        self.stage = p.out.op.name
        names, lane = p.names, p.names[p.found.lane]
        self.lane = lane
        self.batch = [names[a] for a in p.found.batch]
        self.outer = list(self.batch)
        self.columns = [*(names[a] for a in p.found.column_axes if a is not p.found.lane), f"{lane}_o"]
        self.middle: list[str] = []
        self.row_tiles: list[str] = []
        self.inner_rows: list[str] = []
        self.column_tasks = ""  # blocks of columns, where each is a task
        least = p.machine.least
        elements = p.found.points(p.found.op.axes)
        shares = elements * p.found.terms / least.product_threads + (elements + _packing(p)) / least.nest_threads
        self.threads = p.machine.cores > 1 and shares >= 1
        self.wanted = 4 * p.machine.cores if self.threads else 1  # tasks

    def made(self) -> TileLoops:
        self._say(ComputeRoot(stage=self.stage))
        self._split(self.lane, self.p.tile.lanes, "_o", "_i")
        self._cut_rows()
        self._cut_tasks()
        order = [*self.outer, *self.columns, *self.middle, *self.row_tiles]
        self._lay_out_tile(order)
        task = self._fuse_tasks()
        inside = order[len(self.outer) :]
        self.loops.tile_loop = inside[-1] if inside else task
        return self.loops

    def _say(self, *directives: Directive) -> None:
        self.loops.directives += directives

    def _split(self, loop: str, factor: int, outer: str, inner: str) -> None:
        self._say(Split(stage=self.stage, loop=loop, outer=f"{loop}{outer}", inner=f"{loop}{inner}", factor=factor))

    def _cut_rows(self) -> None:
        """Rows into those of a tile and the tiles."""
        for axis, height in self.p.tile.rows:
            name = self.p.names[axis]
            if height != number(axis.extent):
                self._split(name, height, "_o", "_i")
                self.row_tiles.insert(0, f"{name}_o")
                self.inner_rows.insert(0, f"{name}_i")
            else:
                self.inner_rows.insert(0, name)

    def _cut_tasks(self) -> None:
        """What goes outside, as tasks, and what is left in blocks."""
        found, names = self.found, self.p.names
        tile_axes = {a for a, _ in self.p.tile.rows}
        other_rows = [a for a in found.row_axes if a not in tile_axes]
        if found.window:
            self.middle = [*self._window_blocks(), *(names[a] for a in other_rows)]
        elif found.batch and found.points(found.batch) >= self.wanted // 2:
            self.middle = [names[a] for a in other_rows]
        elif other_rows:
            self._cut_outer_rows(other_rows)
        else:
            self._cut_matrix()

    def _window_blocks(self) -> list[str]:
        """Rows of pixels by blocks whose table stays in the second cache; what blocks share is copied for each."""
        p, found = self.p, self.found
        if not found.batch:
            return []
        last, name = found.batch[-1], p.names[found.batch[-1]]
        row = p.columns.size * found.op.bodies[0].dtype.itemsize // found.points(found.batch)
        step = max(1, min(found.sizes[last], p.machine.l2 // 4 // max(1, row)))
        while step > 1 and found.points(found.batch[:-1]) * -(-found.sizes[last] // step) < self.wanted:
            step = -(-step // 2)
        step = min(p.machine.choose("window_rows", step, found.op.name), found.sizes[last])
        self._split(name, step, "_c", "_b")
        self.outer[-1] = f"{name}_c"
        return [f"{name}_b"]

    def _cut_outer_rows(self, other_rows: list[Axis]) -> None:
        """Rows that are no tile: the early ones outside, the last one by blocks."""
        *early, block = other_rows
        found, name = self.found, self.p.names[block]
        self.outer += [self.p.names[a] for a in early]
        pieces = self._pieces(found.sizes[block], found.points(found.batch) * found.points(early))
        if pieces == 1:
            self.middle = [name]
            return
        self._split(name, -(-found.sizes[block] // pieces), "_c", "_b")
        self.outer.append(f"{name}_c")
        self.middle = [f"{name}_b"]

    def _pieces(self, rows: int, tasks: int) -> int:
        """Into how many blocks of rows: enough tasks, and a block's table in half of the second cache."""
        p = self.p
        pieces = 1
        size = self.found.op.bodies[0].dtype.itemsize
        table = (p.row_copy.size if p.row_copy is not None else 0) * size / max(1, tasks)
        while pieces < rows and (tasks * pieces < self.wanted or table / pieces > p.machine.l2 // 2):
            pieces *= 2
        return min(pieces, rows)

    def _cut_matrix(self) -> None:
        """A plain matrix product: blocks of rows in the cache, tasks along the longer side."""
        p, found = self.p, self.found
        axis, height = p.tile.rows[0]
        long, wide = found.sizes[axis], found.sizes[found.lane]
        size = found.op.bodies[0].dtype.itemsize
        tiles, panels = -(-long // height), -(-wide // p.tile.lanes)
        most = p.machine.choose("rows", MOST_ROWS, found.op.name)
        rows = max(1, min(most, p.machine.l2 // 2 // (found.terms * size)) // height)
        by_columns = self.wanted > 1 and panels >= 4 and wide * 2 > long
        if self.wanted > 1 and not by_columns:
            rows = min(rows, max(1, -(-tiles // 4)))
        if self.row_tiles and rows < tiles:
            blocked = self.row_tiles[0]
            self._split(blocked, rows, "c", "b")
            self.row_tiles[0] = f"{blocked}b"
            self.loops.rows_cut = True
            self.outer.append(f"{blocked}c")
        if by_columns:
            many = found.is_uneven or found.terms * long * wide > LARGE
            blocks = p.machine.choose("column_blocks", 4 if many else 2, found.op.name)
            self._cut_columns(-(-panels // blocks))

    def _cut_columns(self, step: int) -> None:
        """Panels of columns into tasks, around everything."""
        name = self.columns[-1]
        self._split(name, step, "c", "b")
        self.columns[-1] = f"{name}b"
        self.outer.insert(0, f"{name}c")
        self.column_tasks = f"{name}c"

    def _lay_out_tile(self, order: list[str]) -> None:
        """The elements of a tile inside the other loops: along the last axis of the result, in vectors."""
        p, found, lane = self.p, self.found, self.lane
        last, rows = found.op.axes[-1], self.inner_rows
        tile, vector = [*rows, f"{lane}_i"], ""
        if last is found.lane or found.window or (number(last.extent) or MOST_BESIDE + 1) <= MOST_BESIDE:
            tile, vector = self._as_one_piece(), f"{lane}_v"
        else:
            vector = next((n for n in rows if n in (p.names[last], f"{p.names[last]}_i")), "")
            if vector:
                tile = [f"{lane}_i", *(n for n in rows if n != vector), vector]
        self._say(Reorder(stage=self.stage, loops=(*order, *tile)))
        count = _inner_extent(p, vector) if vector else 1
        lanes = register_lanes(found, p.machine)
        if count > 1 and not (count > lanes and count % lanes == 1):  # one cannot be stored masked
            if vector == p.names[last]:
                self._say(BoundExtent(stage=self.stage, axis=vector, extent=found.sizes[last]))
            self._say(Vectorize(stage=self.stage, loop=vector))

    def _as_one_piece(self) -> list[str]:
        """The loops of a tile without a rest: the sums go from their registers to where they belong."""
        p, lane, stage, rows = self.p, self.lane, self.stage, self.inner_rows
        wide, vector = f"{lane}_w", f"{lane}_v"
        self._say(Split(stage=stage, loop=f"{lane}_i", outer=wide, inner=vector, factor=p.tile.vector, exact=True))
        whole = {p.names[a]: height for a, height in p.tile.rows if height == number(a.extent)}
        self._say(*(BoundExtent(stage=stage, axis=n, extent=whole[n]) for n in rows if n in whole))
        self._say(*(Unroll(stage=stage, loop=n) for n in (*rows, wide)))
        if self.found.op.axes[-1] is not self.found.lane:  # numbers of a pixel side by side: stored together
            return [wide, *rows, vector]
        return [*rows, wide, vector]

    def _fuse_tasks(self) -> str:
        """The outer loops as one, or blocks of columns alone; "" where there are none."""
        if not self.outer:
            return ""
        fusing, (task,) = fused(self.stage, self.outer[:1] if self.column_tasks else list(self.outer), "task")
        self._say(*fusing)
        if self.threads or (self.p.machine.cores > 1 and any(number(a.extent) is None for a in self.found.op.axes)):
            task = self._shared_out(task)
        inside = bool(self.column_tasks) or (bool(self.batch) and len(self.batch) == len(self.outer))
        self.loops.columns_at = task if inside else None
        self.loops.rows_at = self.outer[-1] if self.column_tasks and len(self.outer) > 1 else task
        self.loops.repeats_rows = bool(self.column_tasks)
        return task

    def _shared_out(self, task: str) -> str:
        """The tasks in parallel; short ones so many at a time that it is worth waking a thread for them."""
        found = self.found
        count = found.points(found.batch) if len(self.batch) == len(self.outer) else 1
        work = found.points(found.op.axes) * found.terms // max(1, count)
        most = -(-count // (TASKS * self.p.machine.cores))
        together = min(most, SHORT // max(1, work))
        said = (d for d in self.loops.directives if isinstance(d, (Split, Fuse, Reorder)) and d.definition == "body")
        nest = functools.reduce(transformed, said, nest_of(self.stage, self.p.out.op, "body"))
        least = self.p.machine.least.product_threads // 2 // max(1, found.terms)
        share = share_of(nest, task, TASKS * self.p.machine.cores, least)
        if not share and not self.threads:
            return task
        if not share and together < 2:
            self._say(Parallel(stage=self.stage, loop=task))
            return task
        shared, one = f"{task}s", f"{task}_one"
        factor = 1 if share else together
        self._say(Split(stage=self.stage, loop=task, outer=shared, inner=one, factor=factor, length=share))
        self._say(Parallel(stage=self.stage, loop=shared))
        return one


def _packing(p: Panels) -> int:
    """Operations for the elements of tables, of which those of pointwise stages are computed there."""
    copies = [p.columns, *([p.row_copy] if p.row_copy is not None else [])]
    return sum(copy.size * _cost_with_stages(reads_of((copy.body,))) for copy in copies)


def _cost_with_stages(reads: Iterable[Read]) -> int:
    """Of bringing an element, and of the pointwise stages that it may be computed of there."""
    total, pending = 1, [r.tensor.op for r in reads]
    for op in pending:
        if is_pointwise(op):
            total += element_cost(op)
            pending += [t.op for t in op.inputs if t.op not in pending]
    return total


def _inner_extent(p: Panels, loop: str) -> int:
    if loop.endswith("_v"):
        return p.tile.vector
    return next((n for a, n in p.tile.rows if loop in (p.names[a], f"{p.names[a]}_i")), 1)
