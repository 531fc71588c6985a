"""Tiles of a scan's steps: places that are computed together, inside the loops over the terms of their sums.

What all rows of a tile read alike is read once. The last tile along an axis begins where as many places are left, and
computes some of them again: so vectors are whole, and what they sum stays in registers.
"""

from __future__ import annotations

from collections.abc import Mapping

import halide as hl

from tedsl.backend.lowering.stages import Context
from tedsl.backend.scalars.types import Expr as Halide
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const
from tedsl.lang.extents import number

__all__ = ["StepTile", "tile_of", "tiles_along"]


@dataclass(frozen=True, eq=False)
class StepTile:
    """Where it begins along an axis, how many places it has, and the loop over these."""

    start: Halide
    count: int
    loop: hl.RVar

    @property
    def place(self) -> Halide:
        """Of the loop."""
        return self.start + self.loop


def tiles_along(ctx: Context, axis: Axis, counts: Mapping[Axis, int]) -> Halide:
    """How many iterations the loop over an axis has, of whole tiles where it has any."""
    assert axis.extent is not None
    extent, count = axis.extent, counts.get(axis, 1)
    return ctx.extent(extent if count == 1 else Const(-(-(number(extent) or 0) // count), INT32))


def tile_of(axis: Axis, count: int, outer: hl.RVar, inner: hl.RVar) -> StepTile:
    """The tile of an iteration; there are as many places."""
    start, extent = hl.Expr(outer) * count, number(axis.extent)
    assert extent is not None
    return StepTile(hl.min(start, extent - count) if extent % count else start, count, inner)
