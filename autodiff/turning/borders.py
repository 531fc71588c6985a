"""Windows that reach beyond a border: the read is taken in two, `P[u] = S[c(u)]` and a read of P at `u = i + k - 1`.

What is sent to P is a sum as without a border. What is beyond goes from there to S, one dimension after the other, and
costs no more than the border has elements. All at once each corner and each edge would be a sum of its own over all
terms: 27 of them in three dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import prod

import numpy as np

from autodiff.inversion.domains import Inversion
from autodiff.inversion.lattice_loops import nominal
from autodiff.turning.answers import Answer, Contribution, fresh_axes
from autodiff.turning.sent import Sent, Shape
from tedsl.analysis.affine import affine_of
from tedsl.analysis.points import is_data_free, values_at
from tedsl.analysis.sizes import vars_of
from tedsl.lang import functions as fn
from tedsl.lang.compute import compute_tensors
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Axis, Const, Expr, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.polynomials import Affine
from tedsl.lang.reducers import BUILTIN
from tedsl.lang.tensor import Tensor
from tedsl.lang.traverse import free_axes, replaced, topological

__all__ = ["by_borders"]

MANY_TERMS = 16  # of an element, from which on a pass over all of them more costs little
MOST_RUNS = 8  # of a border: one is the interior
WIDEST = 1 << 16  # places that are looked at

Turn = Callable[[Sent, Shape, str], Contribution]


@dataclass(frozen=True)
class _Run:
    """Places `begin + t`, t < count, that are elements `first + step * t`."""

    begin: int
    count: int
    first: int
    step: int  # 1, -1, or 0 where they are all one element


@dataclass(frozen=True)
class _Border:
    """An index that is a function of one combination of axes: `plane`, which runs from `low` through `width` values."""

    plane: Affine
    low: int
    width: int
    runs: tuple[_Run, ...]


def by_borders(read: Sent, shape: Shape, answer: Answer, name: str, turn: Turn) -> Tensor | None:
    """The adjoint by way of the windows without their borders; None where that is no less work."""
    if len(answer.found.gathers) < 2:
        return None
    asked = set(topological((read.value, *read.conditions)))
    borders = {
        d: b for d, (e, n) in enumerate(zip(read.index, shape, strict=True)) if (b := _border_of(e, n)) is not None
    }
    if not borders or any(read.index[d] in asked for d in borders) or not _is_long(answer.found, len(borders)):
        return None
    index, wide = list(read.index), list(shape)
    for d, border in borders.items():
        index[d], wide[d] = (border.plane - border.low).to_expr(), Const(border.width, INT32)
    made = turn(replace(read, index=tuple(index)), tuple(wide), f"{name}_wide")
    if made.tensor is None or made.kind != "gather":
        return None
    found = made.tensor
    for d, border in borders.items():
        wide[d] = shape[d]
        last = d == max(borders)
        found = _folded(found, d, border.runs, tuple(wide), name if last else f"{name}_folded{d}")
    return found


def _is_long(found: Inversion, windows: int) -> bool:
    """Whether an element has many terms, and sums over more than its windows do: what is beyond is then dear."""
    longest = max(found.gathers, key=lambda g: prod(nominal(n) for _, n in g.loops))
    return len(longest.loops) > windows and prod(nominal(n) for _, n in longest.loops) >= MANY_TERMS


def _folded(wide: Tensor, d: int, runs: Sequence[_Run], shape: Shape, name: str) -> Tensor:
    """The sum of all runs of one dimension, each where its elements are."""
    axes = fresh_axes(shape)
    at, extent = axes[d], number(shape[d])
    total: Expr | None = None
    for k, run in enumerate(runs):
        if run.step == 0 and run.count > 1:
            value = _summed(wide, d, run, axes, f"{name}_{k}")
        else:
            place = at * run.step + (run.begin - run.first * run.step) if run.step else Const(run.begin, INT32)
            value = Read(wide, (*axes[:d], place, *axes[d + 1 :]))
        low, high = sorted((run.first, run.first + run.step * (run.count - 1)))
        inside: Expr = TRUE if low == 0 else at >= low
        inside = inside if high + 1 == extent else fn.logical_and(inside, at <= high)
        inside = inside if low < high else at == low
        part = value if inside is TRUE else fn.select_node(inside, value, Const(0.0, value.dtype))
        total = part if total is None else total + part
    assert total is not None
    return compute_tensors(axes, (total,), name)[0]


def _summed(wide: Tensor, d: int, run: _Run, axes: Sequence[Axis], name: str) -> Expr:
    """All places of a run that are one element, added up."""
    own = tuple(Axis(a.name, a.extent) for j, a in enumerate(axes) if j != d)
    loop = Axis("t", Const(run.count, INT32), is_reduce=True)
    value = Read(wide, (*own[:d], loop + run.begin, *own[d:]))
    (made,) = compute_tensors(own, (Reduce(BUILTIN["sum"], (value,), (loop,), TRUE),), name)
    return Read(made, tuple(a for j, a in enumerate(axes) if j != d))


def _border_of(index: Expr, extent: Expr) -> _Border | None:
    """How an index is made of one combination of several axes, where it is not that itself."""
    nodes = _combinations(index)
    if not nodes or index in nodes:
        return None
    first = next(iter(nodes.values()))
    plane = first - first.constant
    signs = {n: next((s for s in (1, -1) if (f - plane * s).is_constant), 0) for n, f in nodes.items()}
    ends = _ends(plane)
    if len(plane.axes) < 2 or ends is None or ends[1] - ends[0] >= WIDEST or not all(signs.values()):
        return None
    place = Axis("u", Const(ends[1] - ends[0] + 1, INT32))
    here: dict[Expr, Expr] = {n: place * s + (s * ends[0] + (nodes[n] - plane * s).constant) for n, s in signs.items()}
    runs = _runs(replaced(index, here), place, number(extent))
    return None if runs is None else _Border(plane, ends[0], ends[1] - ends[0] + 1, runs)


def _combinations(index: Expr) -> dict[Expr, Affine]:
    """The largest parts of an index that are sums of axes by numbers; empty where there is something else of axes."""
    nodes: dict[Expr, Affine] = {}
    seen: set[Expr] = set()
    stack = [index]
    while stack:
        node = stack.pop()
        if node in seen or not free_axes(node):
            continue
        seen.add(node)
        form = affine_of(node) if node.dtype is INT32 and not isinstance(node, Read) else None
        if form is not None and all(len(m) == 1 and isinstance(m[0], Axis) for m in form.terms):
            nodes[node] = form
        elif isinstance(node, (Axis, Read)):
            return {}
        else:
            stack += node.children
    return nodes


def _ends(plane: Affine) -> tuple[int, int] | None:
    """The least and the greatest value of a combination of axes; None where an extent is no number."""
    low = high = 0
    for axis in plane.axes:
        begin, extent, factor = number(axis.begin), number(axis.extent), plane.terms[(axis,)]
        if begin is None or not extent:
            return None
        near, far = factor * begin, factor * (begin + extent - 1)
        low, high = low + min(near, far), high + max(near, far)
    return low, high


def _runs(index: Expr, place: Axis, extent: int | None) -> tuple[_Run, ...] | None:
    """The runs of an index along the places; None where these are many, or where that is not known."""
    if extent is None or not is_data_free((index,)) or vars_of(index):
        return None
    count = number(place.extent) or 0
    (values,) = values_at([index], {place: np.arange(count, dtype=np.int32)})
    elements = [int(v) for v in np.broadcast_to(values, (count,))]
    if min(elements) < 0 or max(elements) >= extent:
        return None
    runs = list(islice(_straight(elements), MOST_RUNS + 1))
    if len(runs) > MOST_RUNS or not any(r.step for r in runs):
        return None
    return tuple(_apart(runs))


def _straight(elements: Sequence[int]) -> Iterator[_Run]:
    """A row of numbers as runs that go on by one step of -1, 0 or 1, as long as they are: two may share an end."""
    begin, last = 0, len(elements) - 1
    while begin <= last:
        end, step = begin, 0
        if end < last and abs(elements[end + 1] - elements[end]) <= 1:
            step = elements[end + 1] - elements[end]
            while end < last and elements[end + 1] - elements[end] == step:
                end += 1
        yield _Run(begin, end - begin + 1, elements[begin], step)
        is_shared = begin < end < last and abs(elements[end + 1] - elements[end]) <= 1
        begin = end if is_shared else end + 1


def _apart(runs: Sequence[_Run]) -> Iterator[_Run]:
    """The same runs without places that a longer one has, the longest first."""
    taken: set[int] = set()
    for run in sorted(runs, key=lambda r: -r.count):
        begin, end = run.begin, run.begin + run.count
        begin, end = begin + (begin in taken), end - (end - 1 in taken)
        if begin < end:
            taken |= {begin, end - 1}
            yield replace(run, begin=begin, count=end - begin, first=run.first + (begin - run.begin) * run.step)
