"""What stays a scatter: rows of an index that cannot be inverted, over the loops of the rows that can.

    grid[c, z[i, j], i // 32] receives h[c, i, j]   ->   at [c, z[i, j], i // 32], for each c, i, j

A row such as `i // 32` is left as it is where every point has a place of its own anyway, which all c share: what is
found by it are the same points in another order, in which neither `z` nor `h` lies in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence

from autodiff.inversion.domains import ON_DATA
from autodiff.turning.answers import Answer, Contribution, moved
from autodiff.turning.sent import Sent, Shape
from tedsl.analysis.affine import affine_of
from tedsl.lang.compute import compute_tensors
from tedsl.lang.expr import Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.scatter import scatter
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import asked_in_turn, free_axes, reads_of, substitute_all

__all__ = ["scattered"]

SHORT = range(3, 33)  # elements that are a vector or a few


def scattered(answer: Answer, name: str) -> Contribution:
    """Rows that could be inverted are axes of the scatter, the others are indices at the solution."""
    read, found, shape = answer.read, answer.found, answer.shape
    kept = [j for j in range(len(shape)) if j not in found.opaque]
    reason = found.reason or ""
    if not reads_of([read.index[j] for j in found.opaque]):
        reason = reason.replace(ON_DATA, "the index is not linear in its axes")
    if not kept or len(found.gathers) != 1 or _gains_nothing(read, kept, found.opaque):
        return Contribution(_plain_scatter(read, shape, name), "scatter", reason, left=answer)
    (g,) = found.gathers
    known = {j: row for j in kept if isinstance(row := read.index[j], Const)}  # which no loop need look for
    elements = tuple(known[j] if j in known else Axis(f"s{j}", shape[j], is_reduce=True) for j in kept)
    open_rows = tuple(read.index[j] for j in found.opaque)
    loops, (value, *rows), guard, data = moved(answer, g, elements, (answer.value, *open_rows))
    guard = asked_in_turn([guard, *data])
    placed = dict(zip(kept, elements, strict=True)) | dict(zip(found.opaque, rows, strict=True))
    index = tuple(placed[j] for j in range(len(shape)))
    axes = tuple(e for e in elements if isinstance(e, Axis))
    value, guard, loops = _summed_first(value, guard, loops, axes, rows, f"{name}_sums")
    tensor = scatter(shape, (*loops, *axes), index, value, where=guard, name=name)
    return Contribution(tensor, "partial", reason, left=answer)


def _gains_nothing(read: Sent, kept: Sequence[int], opaque: Sequence[int]) -> bool:
    """Whether inversion only changes the order of points, each of which sends a short row of elements to one place."""
    own = set(free_axes([read.index[j] for j in opaque]))
    shared = [a for a in read.axes if a not in own]
    rows = {read.index[j] for j in kept}
    if not rows.issuperset(shared) or not any((number(a.extent) or 0) in SHORT for a in shared):
        return False
    return any(not own.isdisjoint(free_axes(row)) for row in rows if not _is_moved(row))


def _is_moved(row: Expr) -> bool:
    """Whether a row is an axis, in either direction and from any element on."""
    form = affine_of(row)
    if form is None or len(form.terms) != 1:
        return False
    ((monomial, by),) = form.terms.items()
    return abs(by) == 1 and len(monomial) == 1 and isinstance(monomial[0], Axis)


def _plain_scatter(read: Sent, shape: Shape, name: str) -> Tensor:
    loops = tuple(Axis(a.name, a.extent, begin=a.begin, is_reduce=True) for a in read.axes)
    guard = asked_in_turn(read.conditions)
    moved = substitute_all((read.value, guard, *read.index), dict(zip(read.axes, loops, strict=True)))
    return scatter(shape, loops, moved[2:], moved[0], where=moved[1], name=name)


def _summed_first(
    value: Expr, guard: Expr, loops: tuple[Axis, ...], elements: tuple[Axis, ...], rows: Sequence[Expr], name: str
) -> tuple[Expr, Expr, tuple[Axis, ...]]:
    """Loops that no open row depends on are summed before the scatter, which then writes each element once."""
    needed = set(free_axes((*rows, guard)))
    inner = tuple(a for a in loops if a not in needed)
    if not inner:
        return value, guard, loops
    outer = tuple(a for a in loops if a in needed)
    own = (*outer, *elements)
    fresh = tuple(Axis(a.name, a.extent) for a in own)
    moved, condition = substitute_all((value, guard), dict(zip(own, fresh, strict=True)))
    body = Reduce(BUILTIN["sum"], (moved,), inner, condition)
    (sums,) = compute_tensors(fresh, (body,), name)
    return Read(sums, own), guard, outer
