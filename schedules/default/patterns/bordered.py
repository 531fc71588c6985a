"""Images of many channels with their border around them, which windows over them read without a condition.

A window over rows of pixels, whose channels lie side by side, asks at each pixel whether it lies inside:

    bordered[i, j, c] = select(0 <= i - 1 < n, x[i - 1, j - 1, c], 0)    for all i, j that a window reaches

holds every pixel once, so that each tap is a vector of channels and nothing else. See `window_tiles` for the loops.
Where the window lies along the row itself (a filter over time, one for each channel), a copy pays from some dozens of
taps on: a vector of each tap is a vector of the row then, from end to end. `padding` has the short ones.
A condition of the sum itself goes into the factor that has its loops; the other one has to be finite then, or has the
condition too where it is read outside without it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from schedules.default.copies import PackedTable, copy_of, guarded, stays_inside
from schedules.default.neighbors import last_of
from schedules.default.patterns.padding import MOST_TERMS, moves_over_pixels
from schedules.default.rewriting import Rewriting
from schedules.machine import Machine
from tedsl.analysis.affine import affine_of
from tedsl.analysis.points import is_data_free
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute
from tedsl.lang.traverse import free_axes, reads_of, replaced, topological

__all__ = ["FOLDS", "bordered_windows"]

REUSE = 3  # terms for each element of the copy, at least
FOLDS = (Fn.MINIMUM, Fn.MAXIMUM, Fn.CLIP, Fn.MOD, Fn.ABS)


def bordered_windows(rw: Rewriting, op: Compute, machine: Machine, *, plain: bool) -> Compute:
    """A window over rows of channels, with copies that have borders in place of what it reads under conditions.

    `plain`: without what holds for finite numbers only.
    """
    reduce = op.reduction
    if reduce is None or len(op.bodies) != 1 or reduce.reducer.kind not in COMBINE or not _fills_vectors(op, machine):
        return op
    value, finite = (reduce.values[0], None) if reduce.where is TRUE else _conditioned(reduce)
    if value is None or (plain and finite is not None):
        return op
    lane, is_along = op.axes[-1], _is_long_filter(reduce, value)
    parts = _factors(value, lane, is_along=is_along)
    spread = [f for f in _multiplied(value) if f is not finite and isinstance(f, Read) and _is_spread(f, lane)]
    copies = {part: _copied(op, part) for part in parts}
    copies |= {read: copy for read in spread if read not in copies and (copy := _copied(op, read)) is not None}
    if is_along and any(copy is None or not _is_row(copy.index[-1], lane) for copy in copies.values()):
        return op
    if finite is not None:
        copies[finite] = _copied(op, finite)
    if not copies or None in copies.values():
        return op
    reads: dict[Expr, Expr] = {}
    for part, copy in copies.items():
        assert copy is not None
        is_row = any(lane in set(free_axes(read.indices[-1])) for read in reads_of((part,)))
        kind = "finite" if part is finite else "bordered" if is_row else "tabulated"
        table = rw.compute(f"{op.name}_{kind}", copy.axes, copy.body)
        if part is finite:
            rw.finite.append(table)
        rw.kinds[table.op.name] = kind
        rw.planned.add(table.op.name)  # with who reads it: see `border_strips`
        reads[part] = Read(table, copy.index)
    body = Reduce(reduce.reducer, (replaced(value, reads),), reduce.axes, TRUE, reduce.index)
    return replace(op, bodies=(body,), _outputs={})


def _fills_vectors(op: Compute, machine: Machine) -> bool:
    """Whether a row of channels, single numbers or double ones, fills a vector, and all sizes are known."""
    assert op.reduction is not None
    if len(op.axes) < 2 or op.looks_up or any(not number(a.extent) for a in (*op.axes, *op.reduction.axes)):
        return False
    size, extent = op.bodies[0].dtype.itemsize, number(op.axes[-1].extent) or 0
    return size in (4, 8) and extent * size >= machine.vector_bytes


def _conditioned(reduce: Reduce) -> tuple[Expr | None, Expr | None]:
    """The term with the condition of a sum in it, and the factor that has to be finite then."""
    value, where = reduce.values[0], reduce.where
    if reduce.reducer.kind != "sum" or not value.dtype.is_float:
        return None, None
    if isinstance(value, Read):
        return guarded(value, [where]), None
    asked = set(free_axes(where))
    if isinstance(value, Apply) and value.fn is Fn.MUL:
        for own, other in (value.args, value.args[::-1]):
            if not (isinstance(own, Read) and isinstance(other, Read) and asked.issubset(free_axes(own))):
                continue
            if stays_inside(other):
                return guarded(own, [where]) * other, other
            if asked.issubset(free_axes(other)):
                return guarded(own, [where]) * guarded(other, [where]), None
    return None, None


def _is_long_filter(reduce: Reduce, value: Expr) -> bool:
    """Whether it is a sum of products, of more taps than are written out, which are no pixels of a row of numbers."""
    terms = math.prod(number(a.extent) or 0 for a in reduce.axes)
    if any(map(moves_over_pixels, reads_of((value,)))):
        return False
    return reduce.reducer.kind == "sum" and isinstance(value, Apply) and value.fn is Fn.MUL and terms > MOST_TERMS


def _is_row(index: Expr, lane: Axis) -> bool:
    """Whether elements that follow each other along `lane` lie side by side."""
    form = affine_of(index)
    return form is not None and form.terms.get((lane,), 0) == 1


def _factors(root: Expr, lane: Axis, *, is_along: bool) -> list[Expr]:
    """The parts of a term that read a row of channels under a condition on its place."""
    found: list[Expr] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if _is_bordered(node, lane, is_along=is_along):
            found.append(node)
        elif isinstance(node, Apply):
            pending += node.args
    return found


def _is_bordered(node: Expr, lane: Axis, *, is_along: bool) -> bool:
    """Whether an expression is one read along `lane`, at places that conditions, or what folds them, depend on.

    `is_along`: they may depend on the place along `lane` itself.
    """
    if not (isinstance(node, Read) or (isinstance(node, Apply) and node.fn is Fn.SELECT)):
        return False
    reads = reads_of((node,))
    if len(reads) != 1 or not reads[0].indices or not is_data_free(reads[0].indices):
        return False
    *others, last = reads[0].indices
    if not is_along and last is not lane and not _is_repeated(last, lane):
        if isinstance(node, Read) or lane not in set(free_axes(last)) or not _is_spread(reads[0], lane):
            return False
    elif lane not in set(free_axes(last)):
        return False
    if isinstance(node, Read) and not is_along and last is not lane:
        return True
    if isinstance(node, Read):
        places = (*others, last) if is_along else others
        return any(isinstance(n, Apply) and n.fn in FOLDS and n.dtype is INT32 for n in topological(places))
    condition, value, rest = node.args
    return (
        isinstance(rest, Const)
        and (is_along or lane not in set(free_axes(condition)))
        and (value is reads[0] or _is_bordered(value, lane, is_along=is_along))
    )


def _is_repeated(index: Expr, lane: Axis) -> bool:
    """Whether a few elements side by side along `lane` are the same one."""
    return (
        isinstance(index, Apply)
        and index.fn is Fn.FLOORDIV
        and index.args[0] is lane
        and isinstance(index.args[1], Const)
    )


def _multiplied(value: Expr) -> list[Expr]:
    """The factors of a term."""
    if isinstance(value, Apply) and value.fn is Fn.MUL:
        return [f for arg in value.args for f in _multiplied(arg)]
    return [value]


def _is_spread(read: Read, lane: Axis) -> bool:
    """Whether elements side by side along `lane` are a few numbers or rows apart: those between are of other terms."""
    forms = [affine_of(index) for index in read.indices if lane in set(free_axes(index))]
    if len(forms) != 1 or forms[0] is None or not forms[0].is_linear or not is_data_free(read.indices):
        return False
    own = forms[0].terms.get((lane,), 0)
    return own > 1 and sum(abs(f) == 1 for f in forms[0].terms.values()) == 1


def _copied(op: Compute, part: Expr) -> PackedTable | None:
    """The copy of a part of a term; None where it is as large as what is read of it."""
    assert op.reduction is not None
    sizes = {a: number(a.extent) or 0 for a in (*op.axes, *op.reduction.axes)}
    copy = copy_of(part, sizes, {}, None, ())
    copy = None if copy is None else _with_last(copy, op.axes[-1])
    repeats = any(_is_repeated(read.indices[-1], op.axes[-1]) for read in reads_of((part,)) if read.indices)
    reuse = 0 if repeats else REUSE  # else it is looked up for each term
    return None if copy is None or copy.size * reuse > math.prod(sizes.values()) else copy


def _with_last(copy: PackedTable, lane: Axis) -> PackedTable:
    """The copy with the dimension that is `lane` innermost, if one is."""
    place = next((k for k, index in enumerate(copy.index) if index is lane), None)
    if place is None:
        return copy
    return replace(
        copy, axes=last_of(copy.axes, place), sizes=last_of(copy.sizes, place), index=last_of(copy.index, place)
    )
