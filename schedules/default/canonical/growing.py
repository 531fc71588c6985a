"""Reductions over a range that grows with a loop of the result, as a recurrence along that loop.

| before | after |
|---|---|
| `y[j] = sum over k of e[k], where k <= j` | `y[t] = y[t - 1] + e[t]`, a scan |
| `y[j] = max over k of e[k], where k >= j + 2` | `s[t] = max(s[t + 1], e[t])`, `y[j]` is `s[j + 2]`, or nothing |
| `y[i, j] = sum over k, l of e[k, l], where k <= i, l <= j` | a scan along k, whose terms are a scan along l |

The terms are the same, and only one of them is added for each element: n instead of n^2 / 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce as folded

from schedules.conditions import tidied
from schedules.default.canonical.stages import over, summed
from schedules.thresholds import Thresholds
from tedsl.analysis.affine import affine_of
from tedsl.lang import functions as fn
from tedsl.lang.dataclass import dataclass
from tedsl.lang.dtypes import INT32
from tedsl.lang.expr import TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number, simplify_extent
from tedsl.lang.functions import logical_and, logical_not, select_node
from tedsl.lang.operators import MIRRORED
from tedsl.lang.reducers import COMBINE
from tedsl.lang.tensor import Compute, Scan, ScanState
from tedsl.lang.traverse import asked_inside, asked_parts, free_axes, substitute

__all__ = ["Growing", "growing"]


@dataclass(frozen=True, eq=False)
class Growing:
    """A recurrence, the stage of its terms where they are reductions themselves, and the result as a reader of it.

    Where the recurrence is the result, nobody reads it.
    """

    scan: Scan
    terms: Compute | None
    body: Expr | None


@dataclass(frozen=True)
class _Range:
    """What a condition says of a loop: `loop <= end + away` if it `rises`, `loop >= end + away` else."""

    condition: Expr
    loop: Axis
    end: Axis
    rises: bool
    away: int

    @property
    def steps(self) -> tuple[int, int]:
        """The iterations that any element needs: the first, and the one behind the last."""
        begin, ends = number(self.loop.begin) or 0, number(self.end.extent) or 0
        behind = begin + (number(self.loop.extent) or 0)
        return (begin, min(behind, ends + self.away)) if self.rises else (max(begin, self.away), behind)


def growing(op: Compute, least: Thresholds) -> Growing | None:
    """A reduction over the beginning, or the end, of what it reads as a recurrence; None where it is none."""
    if op.reduction is None or len(op.bodies) > 1 or op.reduction.reducer.kind not in COMBINE:
        return None
    reduce = _with_conditions(op.reduction)
    if reduce.dtype.itemsize < 4 and reduce.reducer.kind in ("sum", "prod"):
        return None
    for found in _ranges(op, reduce):
        others = [c for c in asked_parts(reduce.where) if c is not found.condition]
        begin, behind = found.steps
        if found.end in set(free_axes((*reduce.values, *others))):
            continue
        if min(behind - begin, number(found.end.extent) or 0) >= max(2, least.growing):
            return _along(op, reduce, found, folded(asked_inside, [TRUE, *others]))
    return None


def _with_conditions(reduce: Reduce) -> Reduce:
    """The reduction of what is chosen under a condition, else the result over nothing, where that holds."""
    (value,), where = reduce.values, reduce.where
    nothing = reduce.reducer.identity_of(value.dtype)

    def is_nothing(value: Expr) -> bool:
        return isinstance(value, Const) and value.value == nothing.value

    while isinstance(value, Apply) and value.fn is Fn.SELECT and any(map(is_nothing, value.args[1:])):
        condition, chosen, rest = value.args
        swapped = is_nothing(chosen)
        where = asked_inside(where, tidied((logical_not(condition) if swapped else condition,))[0])
        value = rest if swapped else chosen
    return summed(reduce, value, reduce.axes, where)


def _ranges(op: Compute, reduce: Reduce) -> Iterator[_Range]:
    """The conditions that compare a loop of the reduction with one of the result."""
    ends = {a for a in op.axes if number(a.extent) is not None}
    loops = {a for a in reduce.axes if number(a.extent) is not None and number(a.begin) is not None}
    for condition in asked_parts(reduce.where):
        if not isinstance(condition, Apply) or condition.fn not in (Fn.LT, Fn.LE, Fn.GT, Fn.GE):
            continue
        sides = [affine_of(a) for a in condition.args]
        form = None if sides[0] is None or sides[1] is None else sides[0] - sides[1]
        if form is None or len(form.terms) != 2:
            continue
        for loop in loops.intersection(form.axes):
            for end in ends.intersection(form.axes):
                sign = form.terms.get((loop,))
                if sign not in (1, -1) or form.terms.get((end,)) != -sign:
                    continue
                compared = condition.fn if sign == 1 else MIRRORED[condition.fn]
                away = -form.constant * sign  # loop - end `compared` away
                strict = {Fn.LT: -1, Fn.GT: 1}.get(compared, 0)
                yield _Range(condition, loop, end, compared in (Fn.LT, Fn.LE), away + strict)


def _along(op: Compute, reduce: Reduce, range_: _Range, where: Expr) -> Growing:
    """The recurrence along `range_.end`, whose step t adds iteration `begin + t` of the loop."""
    begin, behind = range_.steps
    count, dim = behind - begin, next(d for d, a in enumerate(op.axes) if a is range_.end)
    steps = Axis(range_.loop.name, Const(count, INT32))
    axes = tuple(steps if d == dim else Axis(a.name, a.extent) for d, a in enumerate(op.axes))
    loop: Expr = steps + begin if begin else steps
    rest = [a for a in reduce.axes if a is not range_.loop]
    terms = None
    if rest:
        value = substitute(summed(reduce, reduce.values[0], rest, where), {range_.loop: loop})
        assert isinstance(value, Reduce)
        terms = over([steps if a is range_.end else a for a in op.axes], value, op, f"{op.name}_terms")
        term: Expr = Read(terms.output(), axes)
    else:
        chosen = reduce.values[0]
        if where is not TRUE:
            chosen = select_node(where, chosen, reduce.reducer.identity_of(chosen.dtype))
        places: dict[Expr, Expr] = {range_.loop: loop, **dict(zip(op.axes, axes, strict=True))}
        term = substitute(chosen, places)
    shape = tuple(a.extent for a in axes if a.extent is not None)
    state = ScanState(name=op.name, where=op.where, shape=shape, dtype=term.dtype).output()
    first, before = (0, steps - 1) if range_.rises else (count - 1, steps + 1)
    held = Read(state, tuple(before if d == dim else a for d, a in enumerate(axes)))
    body = select_node(fn.apply(Fn.EQ, steps, Const(first, INT32)), term, COMBINE[reduce.reducer.kind](held, term))
    scan = Scan(
        name=op.name, where=op.where, axes=axes, states=(state,), bodies=(body,), dims=(dim,),
        reverse=not range_.rises,
    )  # fmt: skip
    return Growing(scan, terms, _reader(op, reduce, range_, scan))


def _reader(op: Compute, reduce: Reduce, range_: _Range, scan: Scan) -> Expr | None:
    """What an element of the result is in the recurrence; None where it is the one at the same place."""
    begin, behind = range_.steps
    last, away = behind - begin - 1, range_.away - begin
    ends = (number(range_.end.extent) or 0) - 1
    if away == 0 and ends == last:
        return None
    place: Expr = simplify_extent(range_.end + away)
    is_there: Expr = TRUE
    zero, top = Const(0, INT32), Const(last, INT32)
    if away < 0:
        is_there = TRUE if not range_.rises else fn.apply(Fn.GE, place, zero)
        place = fn.maximum(place, zero)
    if ends + away > last:
        is_there = is_there if range_.rises else logical_and(is_there, fn.apply(Fn.LE, place, top))
        place = fn.minimum(place, top)
    read = Read(scan.output(), tuple(place if a is range_.end else a for a in op.axes))
    return select_node(is_there, read, reduce.reducer.identity_of(read.dtype)) if is_there is not TRUE else read
