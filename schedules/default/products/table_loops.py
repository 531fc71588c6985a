"""Directives for the tables of a contraction: which loops copy them, in which vectors, how far past the end."""

from __future__ import annotations

from schedules.default.copies import PackedTable
from schedules.default.patterns.turning import SIDE, Turned
from schedules.default.products.panel_stages import Panels
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
from tedsl.lang.expr import Axis
from tedsl.lang.extents import number
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import free_axes

__all__ = ["schedule_table"]

ROWS_AT_ONCE = 8  # of a table in panels: whole rows of its source are read in order
LONG, LONG_OF_ONE = 16, 64  # rows from which on that pays: panels of several vectors, of one
MOST_OF_ONE_PANEL = 8  # vectors, unrolled


def schedule_table(p: Panels, table: Tensor, copy: PackedTable, at: str | None, *, rows_cut: bool) -> None:
    """A table at a loop of the result, or as a whole; `rows_cut`: a part of that of the rows for each block of them."""
    stage, say = table.op.name, p.rw.directives
    say.append(ComputeRoot(stage=stage) if at is None else ComputeAt(stage=stage, consumer=p.out.op.name, loop=at))
    if copy is (p.columns if p.found.window else p.row_copy) and not (at and rows_cut):
        say += [BoundExtent(stage=stage, axis=a.name, extent=n) for a, n in _overrun(p, copy)]
    if copy is p.columns and p.turned is not None:
        outer = _schedule_turned(p, p.turned)
    else:
        directives, outer = _loops(stage, copy, p.tile.vector)
        say += directives
    if at is None and copy.size >= p.machine.least.table_threads and copy.sizes[0] >= 2:
        say.append(Parallel(stage=stage, loop=outer[0]))


def _loops(stage: str, copy: PackedTable, vector: int) -> tuple[list[Directive], list[str]]:
    """The loops of a copy and the names of those around its vectors."""
    names = [a.name for a in copy.axes]
    width = copy.sizes[-1]
    if copy.lane is not None and copy.contiguous is not None and copy.contiguous is not copy.lane:
        # Gathered: vectors along the source, stored with a stride, take half as long again.
        return _vectors(stage, copy, vector, exact=width % vector == 0), [*names[:-1], "v_o"]
    if width >= vector:
        return _many_vectors(stage, copy, vector)
    if copy.lane is None:
        return [], names
    last = names[-1]
    made: list[Directive] = [BoundExtent(stage=stage, axis=last, extent=width), Vectorize(stage=stage, loop=last)]
    if len(names) >= 3 and copy.sizes[-2] >= LONG_OF_ONE and copy.sizes[0] > 1:
        return [*made, *_rows_at_once(stage, names, [last])], ["s_o", *names[:-2]]
    return made, names


def _many_vectors(stage: str, copy: PackedTable, vector: int) -> tuple[list[Directive], list[str]]:
    """A table at least as wide as a vector."""
    names, width = [a.name for a in copy.axes], copy.sizes[-1]
    one_panel = copy.lane is not None and number(copy.axes[0].extent) == 1 and width <= MOST_OF_ONE_PANEL * vector
    made = _vectors(stage, copy, vector, exact=width % vector == 0 and copy.lane is not None)
    if one_panel:  # only its last vector reaches past the end
        made = [
            BoundExtent(stage=stage, axis=names[-1], extent=width), *made, Unroll(stage=stage, loop="v_o"),
        ]  # fmt: skip
    if copy.lane is not None and len(names) >= 3 and copy.sizes[-2] >= LONG:
        return [*made, *_rows_at_once(stage, names, ["v_o", "v_v"])], ["s_o", *names[:-2]]
    return made, [*names[:-1], "v_o"]


def _vectors(stage: str, copy: PackedTable, vector: int, *, exact: bool) -> list[Directive]:
    return [
        Split(stage=stage, loop=copy.axes[-1].name, outer="v_o", inner="v_v", factor=vector, exact=exact),
        Vectorize(stage=stage, loop="v_v"),
    ]


def _rows_at_once(stage: str, names: list[str], inner: list[str]) -> list[Directive]:
    """Some rows at a time, panel after panel."""
    return [
        Split(stage=stage, loop=names[-2], outer="s_o", inner="s_i", factor=ROWS_AT_ONCE),
        Reorder(stage=stage, loops=("s_o", *names[:-2], "s_i", *inner)),
    ]


def _overrun(p: Panels, copy: PackedTable) -> list[tuple[Axis, int]]:
    """The axes of a table along which tiles reach past the end, and their extents.

    Halide computes no more of it than what counts. The sums past the end count for nothing, but denormal numbers that
    happen to be in the memory there made all of them eight times slower.
    """
    steps = [(p.found.lane, p.tile.lanes)] if p.found.window else p.tile.rows
    reaching = {a for a, n in steps if number(a.extent) is not None and p.found.sizes[a] % n}
    return [
        (axis, size)
        for axis, size, index in zip(copy.axes, copy.sizes, copy.index, strict=True)
        if number(axis.extent) == size and not reaching.isdisjoint(free_axes(index))
    ]


def _schedule_turned(p: Panels, blocks: Turned) -> list[str]:
    """Block after block; the names of the loops around them."""
    stage, copy = p.columns_table.op.name, p.columns
    assert copy.contiguous is not None
    outer = [*(a.name for a in copy.axes[:-1] if a is not copy.contiguous), "s_o"]
    is_whole = (number(copy.contiguous.extent) or 0) % SIDE == 0
    p.rw.directives += [
        Split(stage=stage, loop=copy.axes[-1].name, outer="v_o", inner="v_v", factor=SIDE, exact=True),
        Split(stage=stage, loop=copy.contiguous.name, outer="s_o", inner="s_i", factor=SIDE, exact=is_whole),
        Vectorize(stage=stage, loop="v_v"),
        Reorder(stage=stage, loops=(*outer, "v_o", "s_i", "v_v")),
    ]
    blocks.schedule(p.rw, stage, "v_o")
    return outer
