"""Reductions of a few terms as the expressions that they are, so that loops do not hang on how a window is spelled.

    out[y, x] = sum over k < 3 of w[k] a[y, x + k]   ->   out[y, x] = w[0] a[y, x] + w[1] a[y, x + 1] + w[2] a[y, x + 2]

What knows pointwise stages knows windows then: they are computed where they are read, or row by row beside their
readers. Bits stay: terms are combined in their order, from what the reduction begins with, and products of a sum are
still added with one rounding (`Fn.TERM`), where written by hand they are rounded before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from schedules.conditions import tidied
from schedules.default.canonical.indices import is_apart, shortened
from schedules.default.canonical.normal import normal
from schedules.default.costs import INLINE, element_cost, is_pointwise, pays_to_keep, points, value_cost
from tedsl.analysis.iteration import is_independent
from tedsl.analysis.terms import product_of
from tedsl.lang import functions as fn
from tedsl.lang.dtypes import BOOL, FLOAT32, INT32
from tedsl.lang.expr import FALSE, TRUE, Apply, Axis, Const, Expr, Fn, Read, Reduce
from tedsl.lang.extents import number
from tedsl.lang.tensor import Compute, Operation, Scan
from tedsl.lang.traverse import free_axes, reads_of, rebuild_all, substitute_all, topological

__all__ = ["expanded", "step_written_out", "windows_between_stages"]

MOST_TERMS = 49
MOST_PRODUCTS = 32  # terms that are products: of longer ones loops are as good
MOST_OPERATIONS = 256
MOST_OF_ONE = 8  # terms of a stage of one element: a loop makes it in less text than a chain at constant places
TERMS_OF_STEP, MOST_OF_STEP = 8, 1500  # of a sum within the step of a scan; and nodes of its bodies
MOST_GUARDED = 9  # products that a condition guards: each has what comes before it twice, as one rounding is kept
COMBINE = {
    "sum": Fn.ADD, "prod": Fn.MUL, "max": Fn.MAXIMUM, "min": Fn.MINIMUM, "any": Fn.OR, "all": Fn.AND,
}  # fmt: skip
CHEAP = 4  # operations of a term, with what it reads
POSITIONS = {"argmax": Fn.LE, "argmin": Fn.GE}  # what a value is to the best so far where it is not better
OF_POSITION = 6  # operations by which a position is found, for each term
_BEGINS = ("sum", "prod")  # floats of which differ in the sign of a zero where they begin with their first term
_HALVES = ("float16", "bfloat16")


def expanded(op: Compute) -> Expr | None:
    """The body of a stage that is a reduction of a few terms through a window, written out; None for any other."""
    reduce = op.reduction
    if reduce is None or not _terms_of(op):
        return None
    value = _position(reduce) if reduce.reducer.kind in POSITIONS else _total(reduce)
    return rebuild_all(tidied((value,)), shortened)[0]


def step_written_out(op: Scan) -> Scan:
    """A scan whose vectors are recurrences side by side, without loops over a few terms of their sums: each of these
    would walk through accumulators in memory, a term after another.
    """
    if not op.axes or not is_independent(op, len(op.axes) - 1):
        return op
    found = [n for n in op.nodes if isinstance(n, Reduce)]
    if not found or not all(_is_written_out(n) for n in found):
        return op

    def rule(node: Expr) -> Expr:
        return _total(node) if isinstance(node, Reduce) else node

    bodies = rebuild_all(tidied(rebuild_all(op.bodies, rule)), shortened)
    return replace(op, bodies=bodies, _outputs={}) if len(topological(bodies)) <= MOST_OF_STEP else op


def _is_written_out(reduce: Reduce) -> bool:
    """Whether a sum within a step has a few terms."""
    terms = math.prod(number(a.extent) or 0 if number(a.begin) is not None else 0 for a in reduce.axes)
    return reduce.reducer.kind in COMBINE and 1 <= terms <= TERMS_OF_STEP


def windows_between_stages(operations: Sequence[Operation], least: int = 1) -> set[Operation]:
    """The reductions of a few terms that read other stages through windows, or are read so by others.

    One alone, of arrays, is a row of sums that stay in registers: there loops of its own are as good. `least`: so many
    elements.
    """
    forms = {op: normal(op) if _is_short(op) and isinstance(op, Compute) else op for op in operations}
    windows: dict[Operation, int] = {
        op: terms
        for op, form in forms.items()
        if isinstance(form, Compute) and points(form.axes) >= least and (terms := _terms_of(form))
    }
    # a sum by its name alone, and corners of one place, which all its terms share
    found = {op for op, terms in windows.items() if terms == 1 or _is_around_data(forms[op])}
    cost: dict[Operation, int] = {}
    within: dict[Operation, set[Operation]] = {}  # the windows that a stage is made of
    for op in operations if windows else ():
        if op not in windows and not is_pointwise(op):
            continue
        form = forms[op]
        if op not in windows and any(_moved(r) for r in form.reads if r.tensor.op in cost) and isinstance(op, Compute):
            form = normal(op)
        own = windows.get(op, 1) * (element_cost(form) + sum(cost.get(r.tensor.op, 0) for r in form.reads))
        cost[op] = min(own, INLINE + 1)
        if op in windows and _stays_in_memory(form, cost):
            found.add(op)
        sources = {read.tensor.op for read in form.reads}
        within[op] = {op} if op in windows else set().union(*(within.get(source, ()) for source in sources))
        for read in form.reads:
            source = read.tensor.op
            if _overlaps(form, read) and (source in windows or pays_to_keep(cost.get(source, 0), windows.get(op, 1))):
                found |= {op}.intersection(windows) | within.get(source, set())
    return found


def _stays_in_memory(op: Operation, cost: Mapping[Operation, int]) -> bool:
    """Whether rows of unknown length would be added to what is in memory, one cheap term after another."""
    if not isinstance(op, Compute) or op.reduction is None or all(number(a.extent) is not None for a in op.axes):
        return False
    terms = op.reduction.values
    return value_cost(terms) + sum(cost.get(read.tensor.op, 0) for read in reads_of(terms)) <= CHEAP


def _is_short(op: Operation) -> bool:
    """Whether a stage is a reduction of a few terms, in whatever way it is spelled."""
    reduce = op.reduction if isinstance(op, Compute) else None
    return reduce is not None and 1 <= math.prod(number(a.extent) or 0 for a in reduce.axes) <= MOST_TERMS


def _overlaps(op: Operation, read: Read) -> bool:
    """Whether a read is at other places along an axis than its reader's, and of a reduction at such as others read too.

    Windows side by side, as those of most pools, read each element once: it is computed there, and nowhere else.
    """
    is_sum = isinstance(op, Compute) and op.reduction is not None
    return not all(is_sum and is_apart(i) for i in _moved(read))


def _moved(read: Read) -> list[Expr]:
    """The indices that are more than an axis, as they are written."""
    return [i for i in read.indices if not isinstance(i, Axis) and free_axes(i)]


def _terms_of(op: Compute) -> int:
    """How many terms a reduction has, where they are few and each is read beside the element, or the same for all."""
    reduce = op.reduction
    if reduce is None or len(op.bodies) > 1 or reduce.reducer.kind not in {*COMBINE, *POSITIONS}:
        return 0
    is_position = reduce.reducer.kind in POSITIONS
    terms = math.prod(number(a.extent) or 0 if number(a.begin) is not None else 0 for a in reduce.axes)
    operations = value_cost((*reduce.values, reduce.where)) + OF_POSITION * is_position
    around = _is_around_data(op)
    if (
        not 1 <= terms <= MOST_TERMS
        or (terms * operations > MOST_OPERATIONS and not around)
        or (is_position and reduce.where is not TRUE)
    ):
        return 0
    product = product_of(reduce.values[0]) if reduce.reducer.kind == "sum" else None
    if product is not None and terms > MOST_PRODUCTS:
        return 0
    guard = TRUE if product is None else fn.logical_and(reduce.where, product.condition)
    if not set(reduce.axes).isdisjoint(free_axes(guard)) and terms > MOST_GUARDED:
        return 0
    long = {a for a in op.axes if number(a.extent) != 1}
    if not long and terms > MOST_OF_ONE:
        return 0
    for read in op.reads:
        moved = long.intersection(free_axes(read.indices))
        if not around and (reads_of(read.indices) or (moved and moved != long)):
            return 0
    return terms


def _is_around_data(op: Operation) -> bool:
    """Whether a reduction looks around places that are data, one for all its terms: corners of a cell."""
    reduce = op.reduction if isinstance(op, Compute) else None
    if reduce is None:
        return False
    sums = set(reduce.axes)
    looks = [(index, found) for read in op.reads for index in read.indices if (found := reads_of((index,)))]
    return any(not sums.isdisjoint(free_axes(index)) for index, _ in looks) and all(
        sums.isdisjoint(free_axes(r.indices)) for _, found in looks for r in found
    )


def _total(reduce: Reduce) -> Expr:
    """All terms, one after another."""
    kind, (value,) = reduce.reducer.kind, reduce.values
    dtype = FLOAT32 if value.dtype.name in _HALVES and kind in _BEGINS else value.dtype
    product = product_of(value) if kind == "sum" else None
    begins = reduce.where is not TRUE or product is not None or (kind in _BEGINS and dtype.is_float)
    total: Expr | None = reduce.reducer.identity_of(dtype) if begins else None
    where = [reduce.where]
    if product is not None:
        where = _nested((reduce.where, *product.conditions))
        term = Apply(Fn.TERM, (product.value,), dtype)
        value = Apply(Fn.NEG, (term,), dtype) if product.negative else term
    around: list[Expr] = []
    if product is not None and set(reduce.axes).isdisjoint(free_axes(where)):  # of all terms or of none
        around, where = where, []
    for places in _places(reduce.axes):
        one, *conditions = substitute_all((value, *where), places)
        conditions = [c for c in tidied(tuple(conditions)) if c is not TRUE]
        if any(c is FALSE for c in conditions):
            continue
        one = one if one.dtype is dtype else fn.convert(one, dtype)
        if product is None:
            one, conditions = _where(conditions, one, reduce.reducer.identity_of(dtype)), []
        made = one if total is None else Apply(COMBINE[kind], (total, one), dtype)
        total = made if total is None else _where(conditions, made, total)
    assert total is not None
    total = _where([c for c in around if c is not TRUE], total, reduce.reducer.identity_of(dtype))
    return total if dtype is value.dtype else fn.convert(total, reduce.values[0].dtype)


def _nested(conditions: Sequence[Expr]) -> list[Expr]:
    """Conditions joined as far as none reads what an earlier one guards."""
    found: list[Expr] = []
    for condition in conditions:
        if found and not reads_of((condition,)):
            found[-1] = fn.logical_and(found[-1], condition)
        else:
            found.append(condition)
    return found


def _where(conditions: Sequence[Expr], value: Expr, other: Expr) -> Expr:
    """The value where all conditions hold, each of which is asked where those before it hold."""
    for condition in reversed(conditions):
        value = fn.select(condition, value, other)
    return value


def _position(reduce: Reduce) -> Expr:
    """The position of the first of the best values, of which a NaN is the first."""
    (value,), worse = reduce.values, POSITIONS[reduce.reducer.kind]
    first, *others = (substitute_all((value,), places)[0] for places in _places(reduce.axes))
    best: Expr = first
    position: Expr = Const(0, INT32)
    for k, one in enumerate(others, 1):
        better = fn.logical_not(Apply(worse, (one, best), BOOL))
        if value.dtype.is_float:  # a NaN is no worse than anything, and nothing than a NaN
            better = fn.logical_and(Apply(Fn.EQ, (best, best), BOOL), better)
        position, best = fn.select(better, Const(k, INT32), position), fn.select(better, one, best)
    return position


def _places(axes: tuple[Axis, ...]) -> Iterator[dict[Expr, Expr]]:
    """The loops of a reduction at each of its terms, in their order."""
    ranges = [range(b := number(a.begin) or 0, b + (number(a.extent) or 0)) for a in axes]
    for point in itertools.product(*ranges):
        yield {a: Const(k, INT32) for a, k in zip(axes, point, strict=True)}
