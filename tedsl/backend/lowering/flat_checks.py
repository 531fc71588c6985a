"""Checks of indices that lie in short rows, as one loop through memory.

    idx[i, j] for i < 20000, j < 9   ->   idx[f // 9, f % 9] for f < 180000

Of contiguous arrays Halide knows one row of all elements, and reads this one at f. By rows the lanes of a vector would
lie across them, each a load of its own.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import replace

from tedsl.analysis.checks import ReadCheck
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import Axis, Const, Expr, Read
from tedsl.lang.extents import number, same_extent
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import free_axes, reads_of, substitute_all

__all__ = ["along_rows"]

SHORT = 64  # elements of a row


def along_rows(check: ReadCheck, given: Container[Tensor]) -> ReadCheck:
    """The check over one loop where what it reads of contiguous arrays lies in short rows; else as it is."""
    exprs = check.index, check.guard, check.lower, check.upper
    reads = reads_of(exprs)
    axes = _walked(max(reads, key=lambda r: len(r.indices), default=None), given)
    if axes is None or set(free_axes(exprs)) != set(axes) or any(r.tensor not in given for r in reads):
        return check
    place: Expr = Axis("row", Const(math.prod(number(a.extent) or 0 for a in axes), INT32))
    places: dict[Expr, Expr] = {}
    for axis in axes[:0:-1]:
        places[axis], place = place % axis.extent, place // axis.extent
    places[axes[0]] = place
    index, guard, lower, upper = substitute_all(exprs, places)
    return replace(check, site=replace(check.site, index=index, guard=guard), lower=lower, upper=upper)


def _walked(read: Read | None, given: Container[Tensor]) -> list[Axis] | None:
    """The loops of an access that walks through all of an array in short rows, the last one along these."""
    if read is None or read.tensor not in given or len(read.indices) < 2:
        return None
    axes = [a for a in read.indices if isinstance(a, Axis) and number(a.begin) == 0 and number(a.extent)]
    whole = len(set(axes)) == len(read.indices) and all(
        a.extent is not None and same_extent(a.extent, e) for a, e in zip(axes, read.tensor.extents, strict=True)
    )
    return axes if whole and (number(axes[-1].extent) or 0) < SHORT else None
