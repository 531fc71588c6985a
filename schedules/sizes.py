"""Extents that need not be numbers: arithmetic with them, and what is taken for one where a number is needed.

What a pattern builds follows the extent itself, so that it is right for every size; how far it cuts, and whether it
pays, is decided for a size that is typical of what the loop does.
"""

from __future__ import annotations

from collections.abc import Mapping

from tedsl.analysis.affine import affine_of
from tedsl.analysis.checks import read_checks
from tedsl.analysis.sizes import evaluate_extent, vars_of
from tedsl.lang.dtypes import INT32
from tedsl.lang.errors import ZeroDivisorError
from tedsl.lang.expr import Axis, Const, Expr
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.functions import as_expr
from tedsl.lang.tensor import Compute

__all__ = ["blocks_of", "can_be_cut", "extent_of", "rounded_up", "typical", "typical_sizes"]

PLENTY, PIXELS, IMAGES = 1024, 64, 4  # taken for a size, for the pixels along a side, and for what there is a batch of


def extent_of(axis: Axis) -> Expr:
    """The extent of an axis that has one, as all of a computed stage have."""
    assert axis.extent is not None
    return axis.extent


def typical(extent: Expr | None, size: int = PLENTY) -> int:
    """An extent, or what it is where its variables are `size`."""
    known = number(extent)
    if known is not None or extent is None:
        return known or 0
    try:
        return max(1, evaluate_extent(extent, dict.fromkeys(vars_of(extent), size)))
    except ZeroDivisorError:
        return size


def typical_sizes(op: Compute) -> Mapping[Axis, int]:
    """A number for every axis of a reduction: its extent, or what is typical of pixels, of a batch, of the rest."""
    assert op.reduction is not None
    pixels, images = _roles(op)
    found = {}
    for axis in (*op.axes, *op.reduction.axes):
        size = PIXELS if axis in pixels else IMAGES if axis in images else PLENTY
        found[axis] = typical(axis.extent, size)
    return found


def _roles(op: Compute) -> tuple[set[Axis], set[Axis]]:
    """The axes that share an index with another one, as under a window; those that number images."""
    pixels: set[Axis] = set()
    images: set[Axis] = set()
    for read in op.reads:
        for k, index in enumerate(read.indices):
            form = affine_of(index) if index.dtype is INT32 else None
            if form is not None and len(form.axes) > 1:
                pixels.update(form.axes)
            elif form is not None and k == 0 and len(read.indices) > 2:
                images.update(form.axes)
    return pixels, images


def can_be_cut(op: Compute) -> bool:
    """Whether the loops of a reduction may be cut whatever their extents turn out to be.

    Where an access is checked by the kernel, a part of a loop that is empty for every right size would be refused.
    """
    assert op.reduction is not None
    known = all(number(a.extent) is not None for a in (*op.axes, *op.reduction.axes))
    return known or all(check.status != "run" for check in read_checks(op))


def blocks_of(extent: Expr, step: int) -> Expr:
    """How many blocks of `step` cover an extent."""
    known = number(extent)
    if known is not None:
        return Const(-(-known // step), INT32)
    return simplify_extent(as_expr((extent + (step - 1)) // step))


def rounded_up(extent: Expr, step: int) -> Expr:
    """The least multiple of `step` that is at least an extent."""
    return simplify_extent(as_expr(blocks_of(extent, step) * step))
