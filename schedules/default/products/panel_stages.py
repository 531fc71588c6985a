"""The stages of one contraction: tables of its columns and rows, a tile of sums, and the copy of that to its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schedules.default.copies import PackedTable, copy_of
from schedules.default.patterns.turning import SIDE, Turned, can_turn, turned
from schedules.default.products.contraction import Contraction, Tile, lanes_for, register_lanes, tile_for
from schedules.default.products.triangles import within_tiles
from schedules.default.rewriting import Rewriting, loop_names
from schedules.machine import Machine
from schedules.sizes import extent_of, rounded_up
from tedsl.analysis.affine import affine_of
from tedsl.analysis.checks import checked_in_part
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.functions import clip, minimum
from tedsl.lang.tensor import Compute, Tensor
from tedsl.lang.traverse import replaced, substitute, substitute_all

__all__ = ["Panels", "panels_of"]

FEW_PANELS, FEW_TERMS = 4, 512  # of columns, for which rows are read too few times to be worth a copy


@dataclass(frozen=True, eq=False)
class Panels:
    """What was made of a contraction."""

    rw: Rewriting
    machine: Machine
    found: Contraction
    tile: Tile
    names: Mapping[Axis, str]  # of the loops
    columns: PackedTable
    turned: Turned | None  # blocks of the columns' source, where that lies across their lanes
    columns_table: Tensor
    row_copy: PackedTable | None  # None where rows are read where they are
    rows_table: Tensor | None
    sums: Tensor
    out: Tensor

    @property
    def finite(self) -> list[Tensor]:
        """The tables whose numbers have to be finite."""
        tables = (self.rows_table, self.found.finite_rows), (self.columns_table, self.found.finite_columns)
        return [table for table, asked in tables if asked and table is not None]


def panels_of(
    rw: Rewriting, found: Contraction, asked: Compute, name: str, machine: Machine, *, whole: bool
) -> Panels:  # fmt: skip
    """The stages under `name`; the accesses of `asked` are those of the tables, which may hold elements that no term
    needs.

    Where readers may need a part of the result only, not the `whole`, its tiles begin where that part begins, and the
    last one reaches past the end though tiles divide the extent.
    """
    before, names = len(rw.stages), loop_names(found.op)
    lanes = register_lanes(found, machine)
    tile, padded, columns = _tiled(found, machine, lanes, whole=whole)
    blocks = _turned_columns(rw, found, columns, name, machine)
    if blocks is None and (fewer := lanes_for(found, machine)) < lanes:  # blocks are turned in whole registers
        tile, padded, columns = _tiled(found, machine, fewer, whole=whole)
    columns_table = rw.compute(
        f"{name}_columns", columns.axes, columns.body if blocks is None else _out_of_blocks(columns, blocks)
    )
    row_copy = _row_copy(found, tile, padded, whole=whole)
    rows_table = None if row_copy is None else rw.compute(f"{name}_rows", row_copy.axes, row_copy.body)
    if row_copy is None or rows_table is None:
        rows = _rows_in_place(found, tile, whole=whole)
    else:
        rows = Read(rows_table, row_copy.index)
    where = within_tiles(found, padded) if whole else TRUE
    sums = _sums(rw, found, name, padded, found.term(rows, Read(columns_table, columns.index)), where)
    out = rw.compute(name, found.op.axes, Read(sums, (*(a for a in found.op.axes if a is not found.lane), found.lane)))
    for stage in rw.stages[before:]:
        checked_in_part(stage, asked)
    return Panels(rw, machine, found, tile, names, columns, blocks, columns_table, row_copy, rows_table, sums, out)


def _tiled(
    found: Contraction, machine: Machine, lanes: int, *, whole: bool
) -> tuple[Tile, dict[Axis, int], PackedTable]:  # fmt: skip
    """A tile of vectors of so many lanes, what it takes of each loop, and the table of its columns."""
    tile = tile_for(found, machine, lanes)
    padded = {found.lane: tile.lanes, **dict(tile.rows)}
    panel = None if found.window else (found.lane, tile.lanes)
    strides = {found.lane: found.stride}
    last = found.lane if found.window else None
    columns = copy_of(found.columns, found.sizes, padded, panel, found.sums, whole=whole, strides=strides, last=last)
    assert columns is not None
    return tile, padded, columns


def _turned_columns(
    rw: Rewriting, found: Contraction, copy: PackedTable, name: str, machine: Machine
) -> Turned | None:  # fmt: skip
    """The stages that turn the source of the columns, where it lies across their lanes."""
    lane, along = copy.lane, copy.contiguous
    if lane is None or along is None or along is lane or not can_turn(machine, found.op.bodies[0].dtype.itemsize):
        return None
    width, steps = number(lane.extent), number(along.extent)
    if width is None or steps is None or width % SIDE or steps < SIDE or copy.size < machine.least.turned:
        return None
    if not _in_squares(found, next(i for a, i in zip(copy.axes, copy.index, strict=True) if a is along), steps):
        return None
    others = [a for a in copy.axes if a is not lane and a is not along]

    def value(outer: Sequence[Axis], row: Expr, place: Expr) -> Expr:
        *before, lanes, blocks = outer
        mapping: dict[Expr, Expr] = dict(zip(others, before, strict=True))
        return substitute(copy.body, {**mapping, lane: lanes * SIDE + row, along: _begin(blocks, steps) + place})

    counts = (Axis("lanes", Const(width // SIDE, INT32)), Axis("blocks", Const(-(-steps // SIDE), INT32)))
    return turned(rw, f"{name}_columns", (*others, *counts), value)


def _begin(block: Expr, steps: int) -> Expr:
    """The first place of a block; the last one begins earlier where blocks do not divide the steps."""
    return block * SIDE if steps % SIDE == 0 else minimum(block * SIDE, steps - SIDE)


def _in_squares(found: Contraction, index: Expr, extent: int) -> bool:
    """Whether what a block of the sum needs of a dimension begins and ends with a square, or is all of it."""
    if extent % SIDE:
        return any(index is a and found.sizes[a] == extent for a in found.sums)
    form = affine_of(index)
    if form is None:
        return False
    steps = {a: form.terms.get((a,), 0) for a in form.axes}
    around = set(found.batch)
    inside = 1 + sum(abs(n) * (found.sizes[a] - 1) for a, n in steps.items() if a not in around)
    return inside % SIDE == 0 and all(n % SIDE == 0 for a, n in steps.items() if a in around)


def _out_of_blocks(copy: PackedTable, blocks: Turned) -> Expr:
    """An element of the columns, out of the blocks that were turned."""
    lane, along = copy.lane, copy.contiguous
    assert lane is not None
    assert along is not None
    others = [a for a in copy.axes if a is not lane and a is not along]
    steps = number(along.extent) or 0
    place = along % SIDE if steps % SIDE == 0 else clip(along - _begin(along // SIDE, steps), 0, SIDE - 1)
    return blocks.at((*others, lane // SIDE, along // SIDE), lane % SIDE, place)


def _row_copy(found: Contraction, tile: Tile, padded: Mapping[Axis, int], *, whole: bool) -> PackedTable | None:
    """The table of the rows; None where they are read in place, along the innermost loop of the sum."""
    rows = found.rows
    if not found.window:
        in_place = not found.finite_rows  # what is looked at has to be a table
        if in_place and isinstance(rows, Read) and rows.indices and _is_along(rows.indices[-1], found.sums[-1]):
            return None
        if len(tile.rows) == 1 and isinstance(rows, Read) and rows.indices[-1] is tile.rows[0][0]:
            if in_place and found.sizes[found.lane] / tile.lanes <= FEW_PANELS and found.terms <= FEW_TERMS:
                return None
            panel = copy_of(rows, found.sizes, padded, tile.rows[0], found.sums, whole=whole)
            if panel is not None:
                return panel
    return copy_of(rows, found.sizes, padded, None, found.sums, whole=whole)


def _is_along(index: Expr, loop: Axis) -> bool:
    """Whether an index is a loop, from some place on that does not hang on the other loops of a tile."""
    form = None if index is loop else affine_of(index)
    return index is loop or (form is not None and form.is_linear and form.terms.get((loop,), 0) == 1)


def _rows_in_place(found: Contraction, tile: Tile, *, whole: bool) -> Expr:
    """The rows, the last of which stands for those past the end."""
    overrun: dict[Expr, Expr] = {
        a: minimum(a, extent_of(a) - 1)
        for a, n in tile.rows
        if (n > 1 and not whole) or rounded_up(extent_of(a), n) is not a.extent
    }
    return replaced(found.rows, overrun) if overrun else found.rows


def _sums(
    rw: Rewriting, found: Contraction, name: str, padded: Mapping[Axis, int], term: Expr, where: Expr
) -> Tensor:  # fmt: skip
    """Whole tiles of sums, whose lanes are neighbours in memory, wherever they are in the result."""
    reduce, names = found.op.reduction, loop_names(found.op)
    assert reduce is not None
    fresh: dict[Expr, Axis] = {
        a: Axis(names[a], rounded_up(extent_of(a), padded.get(a, 1))) for a in found.op.axes
    }  # fmt: skip
    loops: dict[Expr, Axis] = {a: Axis(names[a], a.extent, is_reduce=True) for a in found.sums}
    value, where = substitute_all((term, where), {**fresh, **loops})
    body = Reduce(reduce.reducer, (value,), tuple(loops.values()), where, 0)
    order = [*(fresh[a] for a in found.op.axes if a is not found.lane), fresh[found.lane]]
    return rw.compute(f"{name}_sums", order, body)
